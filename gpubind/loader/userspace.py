"""Whose copy of each library of a host's closure would a container use? From version definitions, never file names.

A soname that the image has, too, is the image's if it defines every version that its consumers need; else the host's
if the host's definitions are a superset of the image's, so that the image's own programs go on; else nobody's who needs
more than the image has. What cannot be loaded then is left out, and with it what needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Optional, Union

from gpubind.files import Tree, glob
from gpubind.formats.elf.elf import ElfFacts, ElfIdent
from gpubind.formats.elf.glibc import is_member
from gpubind.loader.container import Container
from gpubind.loader.loader import Loader
from gpubind.loader.needs import lacking, runs_here
from gpubind.loader.verdict import Conflict, Theirs, Unfit
from gpubind.model import HostFile, ImageFacts, Missing, RootedPath

RUNTIME = "libhsa-runtime64.so.1"
"""What all of ROCm stands on: an image that has it has a ROCm of its own."""
RUNTIME_PLACES = (f"/opt/rocm*/lib/{RUNTIME}", f"/opt/rocm*/lib64/{RUNTIME}", f"/opt/rocm*/hsa/lib/{RUNTIME}")


class UserspaceFit(NamedTuple):
    """What of a host's user space a container of the image would use."""

    theirs: dict[RootedPath, Theirs]
    unfit: dict[RootedPath, Unfit]
    conflicts: tuple[Conflict, ...]


class _NeededFile(NamedTuple):
    file: HostFile
    elf: ElfFacts
    forced: bool
    """Whether the host's copy was asked for, whatever the image has."""


_Defined = Callable[[str], Optional[frozenset[str]]]
"""The versions that the image's library of a name defines; None if it has none of that name."""


def own_runtime(image: Loader, facts: ImageFacts) -> Optional[RootedPath]:
    """Return where the image has a ROCm of its own; None if it has none."""
    found = _image_container(image, facts).find(RUNTIME)
    if found is not None:
        return found.at
    places = (path for pattern in RUNTIME_PLACES for path in glob(image.tree, pattern))
    return next((path for path in places if isinstance(image.tree.ident(path), ElfIdent)), None)


def fit_userspace(
    host: Tree,
    files: Iterable[HostFile],
    image: Loader,
    facts: ImageFacts,
    *,
    forced: bool,
    libc: Iterable[HostFile] = (),
) -> UserspaceFit:
    """Return which of *files* are the image's, which cannot be loaded there, and why.

    *forced*: what was named, and not only needed by others, is the host's in any case. *libc* are the files of the
    host's glibc that take the place of the image's.
    """
    files = tuple(files)
    files_of = {name: file for file in files for name in file.names}
    kept, unfit = _loadable(host, files, image, facts, forced)
    newer = {name: host.lenient.elf(file.path) for file in libc if not file.compat32 for name in file.names}
    defined = _definitions(_image_container(image, facts), newer)
    conflicts: list[Conflict] = []
    unneeded: dict[RootedPath, Theirs] = {}
    while True:  # fewer files at each turn: it ends
        theirs, found = _sides(kept, defined)
        hosts = {
            name: here
            for path, here in kept.items()
            if path not in theirs and here.file.kind == "library"
            for name in here.file.names
        }
        reached = _reached([here for path, here in kept.items() if path not in theirs], hosts)
        orphans = [path for path in kept if path not in theirs and path not in reached]
        refused = {
            path: reason
            for path, here in kept.items()
            if path not in theirs and (reason := _refused(here, hosts, defined, unfit, files_of)) is not None
        }
        # What fails for another reason must not make a soname look contested.
        gone = {
            path: reason for path, reason in refused.items() if reason.wanted is None or reason.library not in found
        }
        if not gone and not orphans:
            contested = [reason.library for reason in refused.values()]
            conflicts += [conflict for soname, conflict in found.items() if soname in contested]
            gone = refused
        if not gone and not orphans:
            return UserspaceFit({**unneeded, **theirs}, unfit, tuple(conflicts))
        unfit.update(gone)
        unneeded.update((path, "unneeded") for path in orphans if path not in gone)
        kept = {path: here for path, here in kept.items() if path not in unfit and path not in unneeded}


def _loadable(
    host: Tree, files: Iterable[HostFile], image: Loader, facts: ImageFacts, forced: bool
) -> tuple[dict[RootedPath, _NeededFile], dict[RootedPath, Unfit]]:
    """Return those of *files* that are linked and may run in the image, and why others may not."""
    kept: dict[RootedPath, _NeededFile] = {}
    unfit: dict[RootedPath, Unfit] = {}
    for file in files:
        if file.kind not in ("library", "binary"):
            continue
        reason = runs_here(host, file, image, facts)
        elf = host.elf(file.path)
        if reason is not None:
            unfit[file.path] = reason
        elif not isinstance(elf, Missing):
            kept[file.path] = _NeededFile(file, elf, forced and file.named_by != "closure")
    return kept, unfit


def _definitions(container: Container, newer: Mapping[str, Union[ElfFacts, Missing]]) -> _Defined:
    known: dict[str, Optional[frozenset[str]]] = {
        name: frozenset(own.version_definitions) for name, own in newer.items() if not isinstance(own, Missing)
    }

    def defined(name: str) -> Optional[frozenset[str]]:
        if name not in known:
            found = container.find(name)
            own = Missing("absent") if found is None else found.tree.elf(found.at)
            known[name] = None if isinstance(own, Missing) else frozenset(own.version_definitions)
        return known[name]

    return defined


def _sides(
    kept: Mapping[RootedPath, _NeededFile], defined: _Defined
) -> tuple[dict[RootedPath, Theirs], dict[str, Conflict]]:
    """Return which of *kept* are the image's, and why; and the sonames of which neither copy serves everybody.

    What the image's own libraries need is the image's business: with each that is the image's, others may become so.
    """
    theirs: dict[RootedPath, Theirs] = {}
    while True:
        consumers = [here for path, here in kept.items() if path not in theirs]
        libraries = [here for here in consumers if here.file.kind == "library"]
        sides = {here.file.path: _side(here, consumers, defined) for here in libraries}
        complete: dict[RootedPath, Theirs] = {path: side for path, side in sides.items() if side == "complete"}
        if not complete:
            found = {side.soname: side for side in sides.values() if isinstance(side, Conflict)}
            contested = {here.file.path: found[here.file.name] for here in libraries if here.file.name in found}
            return {**theirs, **contested}, found
        theirs.update(complete)


def _reached(ours: Iterable[_NeededFile], hosts: Mapping[str, _NeededFile]) -> frozenset[RootedPath]:
    """Return what of the host's is named by itself, or needed by what is."""
    todo = [here for here in ours if here.file.named_by != "closure"]
    reached = {here.file.path for here in todo}
    for here in todo:  # grows on the way
        for name in here.elf.needed:
            needed = hosts.get(name)
            if needed is not None and needed.file.path not in reached:
                reached.add(needed.file.path)
                todo.append(needed)
    return frozenset(reached)


def _side(here: _NeededFile, consumers: Iterable[_NeededFile], defined: _Defined) -> Optional[Theirs]:
    """Return why a library is the image's; None if it is the host's."""
    soname = here.file.name
    has = defined(soname)
    if has is None or here.forced:
        return None
    needs = [
        (version, other.file)
        for other in consumers
        for need in other.elf.version_needs
        if need.library == soname
        for version in need.versions
    ]
    # A library without definitions satisfies everybody.
    lacking = [(version, file) for version, file in needs if has and version not in has]
    if not lacking:
        return "complete"
    lost = sorted(has - frozenset(here.elf.version_definitions))
    if not lost:
        return None
    version, file = lacking[0]
    return Conflict(soname, version, file.name, lost[-1])


def _refused(
    here: _NeededFile,
    hosts: Mapping[str, _NeededFile],
    defined: _Defined,
    unfit: Mapping[RootedPath, Unfit],
    files_of: Mapping[str, HostFile],
) -> Optional[Unfit]:
    """Why *here* could not be loaded beside the host's own *hosts*, and the image's for all else; None if it could."""
    for need in here.elf.version_needs:
        provider = hosts.get(need.library)
        has = frozenset(provider.elf.version_definitions) if provider is not None else defined(need.library)
        lack = lacking(need, has, "libc" if is_member(need.library) else "dependency") if has else None
        if lack is not None:
            return lack
    for name in here.elf.needed:
        # The loader of the program is there already, whatever it is called.
        if name in hosts or name.startswith("ld") or defined(name) is not None:
            continue
        file = files_of.get(name)
        return Unfit("dependency", name, is_left_out=file is not None and file.path in unfit)
    return None


def _image_container(image: Loader, facts: ImageFacts) -> Container:
    """Return the image as its own programs see it: with its own LD_LIBRARY_PATH."""
    return Container(image, image.tree, (), (), facts.env.get("LD_LIBRARY_PATH", ""))
