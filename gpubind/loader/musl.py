"""The differences between musl's loader and glibc's: where it looks for libraries, and which ones it provides itself.

musl's loader reads no cache, compares no versions of symbols, and searches LD_LIBRARY_PATH before the DT_RPATH or
DT_RUNPATH of a file and of all that load it. Source: musl 1.2.5 `ldso/dynlink.c` (load_library, fixup_rpath).
"""

from __future__ import annotations

import re
from posixpath import basename
from typing import Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import LIBC, ElfFacts

GCOMPAT = "/lib/libgcompat.so.0"
"""The substitute for glibc on musl. It is loaded first, by the loader that programs for glibc name."""
_DIRECTORIES = ("/lib", "/usr/local/lib", "/usr/lib")
_LOADER = re.compile(r"ld-musl-.*\.so\.1", re.DOTALL)
_OWN = re.compile(r"lib(c|pthread|rt|m|dl|util|xnet)\.")


def is_provided_by_musl(soname: str) -> bool:
    """Return whether musl's loader provides the library *soname* itself."""
    return _OWN.match(soname) is not None


def musl_loader_for(elf: ElfFacts, tree: Tree, *, has_glibc: bool) -> Optional[str]:
    """Return the name of musl's loader that loads *elf*; None if another loader does.

    A program names its loader itself. Musl's loader in *tree* loads any other file, unless *has_glibc* is true; it
    loads a file that needs glibc only if *tree* has gcompat.
    """
    name = basename(elf.interpreter or "")
    if _LOADER.fullmatch(name):
        return name
    is_glibcs = elf.interpreter is not None or LIBC in elf.needed
    return None if has_glibc or (is_glibcs and not has_gcompat(tree)) else musl_loader_in(tree)


def has_gcompat(tree: Tree) -> bool:
    """Return whether musl's loader in *tree* loads files that need glibc."""
    return tree.has(GCOMPAT) and musl_loader_in(tree) is not None


def musl_loader_in(tree: Tree) -> Optional[str]:
    """Return the name of musl's loader in /lib of *tree*."""
    return next(filter(_LOADER.fullmatch, tree.names("/lib")), None)


def system_directories(loader: str, tree: Tree) -> tuple[str, ...]:
    """Return the directories that *loader* searches last: those in its file in /etc, else the default ones."""
    text = tree.text(f"/etc/{loader[: -len('.so.1')]}.path")
    return _DIRECTORIES if text is None else tuple(part for part in re.split("[:\n]", text) if part.startswith("/"))
