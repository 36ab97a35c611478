"""Would a file of the host load in the image? Decided from version definitions, never from file names."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts, ElfIdent
from gpubind.loader.loader import Loader
from gpubind.loader.needs import lacking, runs_here
from gpubind.loader.verdict import ImageFit, Unfit
from gpubind.model import Group, HostFile, ImageFacts, Missing, RootedPath, Side
from gpubind.model.arch import architecture

GLVND_CLIENTS = ("libGL.so.1", "libEGL.so.1")


def fit_files(
    host: Tree,
    files: Iterable[HostFile],
    image: Loader,
    facts: ImageFacts,
    userspace: Optional[Side] = None,
    libc: Iterable[HostFile] = (),
) -> ImageFit:
    """Return which of *files* (their paths are in *host*) the loader of the image would refuse, and why.

    A library that the plan brings along satisfies what the others want of it; all else must come from the image.
    *userspace* is whose ROCm was asked for; None if nobody asks for one. *libc* are the files of the host's glibc that
    take the place of the image's.
    """
    files, libc = tuple(files), tuple(libc)
    brought = {
        compat32: frozenset(
            name
            for file in (*files, *libc)
            if file.group in (None, "rocm", "libc") and file.compat32 == compat32
            for name in file.names
        )
        for compat32 in (False, True)
    }
    unfit: dict[RootedPath, Unfit] = {}
    for file in files:
        if file.kind not in ("library", "binary") or file.group == "rocm":
            continue
        reason = runs_here(host, file, image, facts)
        if reason is None and isinstance(host.ident(file.path), ElfIdent):
            elf = host.elf(file.path)
            reason = None if isinstance(elf, Missing) else _version_unfit(elf, brought[file.compat32], image)
        if reason is not None:
            unfit[file.path] = reason
    groups = [(group, False) for group in _own_groups(image)]
    if facts.arch is not None and any(file.compat32 for file in files):
        groups += [(group, True) for group in _own_groups(image.of(architecture(facts.arch).compat32))]
    fit = ImageFit(facts, unfit, tuple(groups))
    if userspace is None:
        return fit
    from gpubind.loader.userspace import fit_userspace, own_runtime

    shared = [file for file in files if file.group == "rocm"]
    ours = fit_userspace(host, shared, image, facts, forced=userspace == "host", libc=libc)
    return fit._replace(
        unfit={**unfit, **ours.unfit},
        own_userspace=own_runtime(image, facts),
        theirs=ours.theirs,
        conflicts=ours.conflicts,
    )


def fit_compat(host: Tree, files: Iterable[HostFile], image: Loader, fit: ImageFit) -> ImageFit:
    """*fit*, and what it takes to decide between the compat libcuda of an image and the libcuda among *files*."""
    unfit: dict[RootedPath, Unfit] = {}
    for library in fit.facts.compat:
        elf = image.tree.elf(library.path)
        reason = None if isinstance(elf, Missing) else _loads_nowhere(elf, fit.facts) or _version_unfit(elf, (), image)
        if reason is not None:
            unfit[library.path] = reason
    libcuda = (file for file in files if file.soname == "libcuda.so.1" and not file.compat32)
    notes = (elf.cuda_note for elf in map(host.elf, (file.path for file in libcuda)) if not isinstance(elf, Missing))
    note = next((note for note in notes if note is not None), None)
    return fit._replace(unfit_compat=unfit, serves=note.cuda if note is not None else None)


def _loads_nowhere(elf: ElfFacts, facts: ImageFacts) -> Optional[Unfit]:
    if facts.arch is not None and elf.ident.arch != facts.arch:
        return Unfit("architecture", wanted=elf.ident.arch, has=facts.arch)
    return None if facts.libc_family == "glibc" else Unfit("no-libc")


def _version_unfit(elf: ElfFacts, brought: Container[str], image: Loader) -> Optional[Unfit]:
    for need in elf.version_needs:
        if need.library in brought:
            continue
        provider = image.of(elf.ident.arch).facts(need.library)
        if provider is None or not provider.version_definitions:
            continue  # one that is missing is another matter; one without versions satisfies everybody
        lack = lacking(need, provider.version_definitions, "libc")
        if lack is not None:
            return lack
    return None


def _own_groups(image: Loader) -> Iterable[Group]:
    """Yield the vendor-neutral groups that *image* has: glvnd only if libGL or libEGL needs libGLdispatch."""
    if image.find("libGLdispatch.so.0"):
        clients = (facts for facts in map(image.facts, GLVND_CLIENTS) if facts is not None)
        if any({"libGLdispatch.so.0", "libGLX.so.0"} & set(facts.needed) for facts in clients):
            yield "glvnd"
    if image.find("libOpenCL.so.1"):
        yield "opencl"
