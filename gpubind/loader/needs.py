"""What a file of the host needs of an image: its machine, its C library, its loader, versions of libraries.

Source: glibc `elf/dl-version.c` (`_dl_check_map_versions`): ld.so refuses a file that wants a version which the
providing library does not define.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfIdent, VersionNeed
from gpubind.loader.loader import Loader
from gpubind.loader.verdict import Unfit
from gpubind.loader.versions import newest, prefix_of
from gpubind.model import HostFile, ImageFacts, Missing
from gpubind.model.arch import architecture


def runs_here(host: Tree, file: HostFile, image: Loader, facts: ImageFacts) -> Optional[Unfit]:
    """Return why no such file runs in the image at all: its machine, its C library, its loader."""
    ident = host.ident(file.path)
    if not isinstance(ident, ElfIdent):
        return None  # a script: what it needs is its interpreter's business
    is_companions = facts.arch is not None and ident.arch == architecture(facts.arch).compat32
    if facts.arch not in (None, ident.arch) and not is_companions:
        return Unfit("architecture", wanted=ident.arch, has=facts.arch)
    if facts.libc_family != "glibc":
        fault = facts.libc_fault
        family = facts.libc_family if fault is None else "damaged"
        return Unfit("no-libc", library=fault, has=family if facts.has_root else "no-root")
    if is_companions and image.of(ident.arch).glibc is None:
        return Unfit("no-libc", wanted=ident.arch, has="glibc")
    if file.kind == "binary":
        elf = host.elf(file.path)
        interpreter = "" if isinstance(elf, Missing) else elf.interpreter or ""
        if interpreter.startswith("/") and not image.tree.has(interpreter):
            return Unfit("no-loader", wanted=interpreter)
    return None


def lacking(need: VersionNeed, definitions: Iterable[str], rule: Literal["libc", "dependency"]) -> Optional[Unfit]:
    """Return what of *need* is not among an image's *definitions*, as a refusal by *rule*; None if all is there."""
    defined = frozenset(definitions)
    wanted = [version for version in need.versions if version not in defined]
    if not wanted:
        return None
    prefix = prefix_of(wanted[0])
    if prefix is None:
        return Unfit(rule, need.library, wanted[0])
    has = newest(defined, prefix)
    return Unfit(rule, need.library, f"{prefix}_{newest(wanted, prefix)}", None if has is None else f"{prefix}_{has}")
