"""Would a file of the host load in the image? Decided from version definitions, never from file names.

Source: LSB "Symbol Versioning"; glibc `elf/dl-version.c` (`_dl_check_map_versions`): ld.so refuses a file that wants a
version which the providing library does not define.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Literal, Optional

from gpubind.formats.elf import ElfFacts, ElfIdent, VersionNeed
from gpubind.ldso.loader import Loader
from gpubind.ldso.versions import newest, prefix_of
from gpubind.model import Family, HostFile, ImageFacts, ImageFit, Missing, RootedPath, Side, Unfit
from gpubind.tree import Tree

GLVND_CLIENTS = ("libGL.so.1", "libEGL.so.1")


def fit_files(
    host: Tree, files: Iterable[HostFile], image: Loader, facts: ImageFacts, userspace: Optional[Side] = None
) -> ImageFit:
    """Which of *files* (their paths are in *host*) the loader of the image would refuse, and why.

    A library that the plan brings along satisfies what the others want of it; all else must come from the image.
    *userspace* is whose ROCm was asked for; None if nobody asks for one.
    """
    files = tuple(files)
    brought = frozenset(name for file in files if file.family is None for name in file.names)
    unfit: dict[RootedPath, Unfit] = {}
    for file in files:
        if file.kind not in ("library", "binary") or file.userspace:
            continue
        reason = _unfit(host, file, brought, image, facts)
        if reason is not None:
            unfit[file.path] = reason
    fit = ImageFit(facts, unfit, tuple(_own_families(image)))
    shared = [file for file in files if file.userspace]
    if userspace is None:
        return fit
    from gpubind.ldso.userspace import fit_userspace, own_runtime

    ours = fit_userspace(host, shared, image, facts, forced=userspace == "host")
    return fit._replace(
        unfit={**unfit, **ours.unfit},
        own_userspace=own_runtime(image, facts),
        theirs=ours.theirs,
        conflicts=ours.conflicts,
    )


def fit_compat(host: Tree, files: Iterable[HostFile], image: Loader, fit: ImageFit) -> ImageFit:
    """*fit*, and what it takes to decide between the compat libcuda of an image and the libcuda among *files*."""
    unfit: dict[RootedPath, str] = {}
    for library in fit.facts.compat:
        elf = image.tree.elf(library.path)
        reason = None if isinstance(elf, Missing) else _loads_nowhere(elf, fit.facts) or _version_unfit(elf, (), image)
        if reason is not None:
            unfit[library.path] = reason.detail
    libcuda = (file for file in files if file.soname == "libcuda.so.1" and file.capability != "compat32")
    notes = (elf.cuda_note for elf in map(host.elf, (file.path for file in libcuda)) if not isinstance(elf, Missing))
    note = next((note for note in notes if note is not None), None)
    return fit._replace(unfit_compat=unfit, serves=note.cuda if note is not None else None)


def _loads_nowhere(elf: ElfFacts, facts: ImageFacts) -> Optional[Unfit]:
    if facts.arch is not None and elf.ident.arch != facts.arch:
        return Unfit("architecture", f"it is {elf.ident.arch}, the image is {facts.arch}")
    return None if facts.libc_family == "glibc" else Unfit("no-libc", "it needs glibc, which the image has not")


def runs_here(host: Tree, file: HostFile, image: Loader, facts: ImageFacts) -> Optional[Unfit]:
    """Why no such file runs in the image at all: its machine, its C library, its loader."""
    ident = host.ident(file.path)
    if not isinstance(ident, ElfIdent):
        return None  # a script: what it needs is its interpreter's business
    if facts.arch is not None and ident.arch != facts.arch and file.capability != "compat32":
        return Unfit("architecture", f"it is {ident.arch}, the image is {facts.arch}")
    if facts.libc_family != "glibc":
        has = "musl" if facts.libc_family == "musl" else "no C library"
        return Unfit("no-libc", f"it needs glibc, the image has {has}")
    if file.kind == "binary" and file.capability != "compat32":
        elf = host.elf(file.path)
        interpreter = "" if isinstance(elf, Missing) else elf.interpreter or ""
        if interpreter.startswith("/") and isinstance(image.tree.stat(interpreter), Missing):
            return Unfit("no-loader", f"its loader {interpreter} is not in the image")
    return None


def _unfit(host: Tree, file: HostFile, brought: frozenset[str], image: Loader, facts: ImageFacts) -> Optional[Unfit]:
    reason = runs_here(host, file, image, facts)
    if reason is not None or file.capability == "compat32" or not isinstance(host.ident(file.path), ElfIdent):
        return reason
    elf = host.elf(file.path)
    return None if isinstance(elf, Missing) else _version_unfit(elf, brought, image)


def _version_unfit(elf: ElfFacts, brought: Container[str], image: Loader) -> Optional[Unfit]:
    for need in elf.version_needs:
        if need.library in brought:
            continue
        provider = image.facts(need.library)
        if provider is None or not provider.version_definitions:
            continue  # one that is missing is another matter; one without versions satisfies everybody
        lack = lacking(need, provider.version_definitions, "libc")
        if lack is not None:
            return lack
    return None


def lacking(need: VersionNeed, definitions: Iterable[str], rule: Literal["libc", "dependency"]) -> Optional[Unfit]:
    """What of *need* is not among an image's *definitions*, as a refusal by *rule*; None if all is there."""
    defined = frozenset(definitions)
    wanted = [version for version in need.versions if version not in defined]
    if not wanted:
        return None
    prefix = prefix_of(wanted[0])
    name = wanted[0] if prefix is None else f"{prefix}_{newest(wanted, prefix)}"
    has = newest(defined, prefix) if prefix is not None else None
    there = f"{prefix}_{has}" if has else "none of that kind"
    return Unfit(rule, f"it needs {name} of {need.library}, the image has {there}", need.library, name)


def _own_families(image: Loader) -> Iterable[Family]:
    """libglvnd counts as the image's if its libGL or libEGL is really glvnd's: it needs libGLdispatch."""
    if image.find("libGLdispatch.so.0"):
        for client in GLVND_CLIENTS:
            facts = image.facts(client)
            if facts is not None and {"libGLdispatch.so.0", "libGLX.so.0"} & set(facts.needed):
                yield "glvnd"
                break
    if image.find("libOpenCL.so.1"):
        yield "opencl"
