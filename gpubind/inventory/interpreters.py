"""Loaders at paths that only the host has: in a store (Nix, Guix), in a prefix (Talos).

The kernel starts a program's PT_INTERP (elf(5)), which must have the same path in the container. Such a loader finds
the C library in its own directory, so a container gets that directory.
Source: nixpkgs `nixos/modules/services/hardware/nvidia-container-toolkit`, which mounts the same directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import dirname
from typing import Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import LIBC
from gpubind.inventory.claims import is_clean
from gpubind.model import READ_ONLY_OPTIONS, ContainerPath, HostFile, Missing, ResolvedFile, RootedPath
from gpubind.model.layouts import UNBINDABLE_DIRECTORIES

_USUAL_LOADER = re.compile(r"/(usr/)?lib(32|64|x32)?/[^/]+(/[^/]+)?")


def foreign_interpreter(tree: Tree, program: RootedPath) -> Optional[str]:
    """Return the loader that *program* names, unless it has a usual path of distributions."""
    facts = tree.lenient.elf(program)
    interpreter = None if isinstance(facts, Missing) else facts.interpreter
    is_usual = interpreter is None or not interpreter.startswith("/") or _USUAL_LOADER.fullmatch(interpreter)
    return None if is_usual else interpreter


def interpreter_directories(tree: Tree, files: Iterable[HostFile]) -> Iterator[HostFile]:
    """Yield the directories of loader and C library that the programs among *files* need, once per capability."""
    seen = set()
    for file in files:
        interpreter = foreign_interpreter(tree, file.path) if file.kind == "binary" and file.group is None else None
        directory = dirname(interpreter or "")
        if interpreter is None or not is_clean(directory) or (directory, file.capability) in seen:
            continue
        seen.add((directory, file.capability))
        resolved = tree.lenient.find(directory)
        if not isinstance(resolved, ResolvedFile) or not UNBINDABLE_DIRECTORIES.isdisjoint((directory, resolved.path)):
            continue
        if resolved.stat.kind == "dir" and tree.lenient.has(f"{directory}/{LIBC}"):
            yield file._replace(
                kind="directory",
                path=resolved.path,
                target=ContainerPath(directory),
                size=0,
                source=tree.real(resolved.path),
                named_at=f"the loader of {file.name}",
                found_by=interpreter,
                names=(),
                arch=None,
                options=READ_ONLY_OPTIONS,
            )
