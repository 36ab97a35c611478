"""Decide which files of the host load in the image, and whose copy of each library the container uses.

Version definitions decide, never file names. ld.so refuses a file that needs a version which the providing library does
not define. Source: glibc `elf/dl-version.c` (`_dl_check_map_versions`).

| a library of a user space (ROCm, Intel's) that both the host and the image have | the copy in use |
| --- | --- |
| the image's copy defines every version that the files in use need | the image's |
| else the host's copy defines all versions of the image's, so that programs of the image still run | the host's |
| else | the image's; files that need more than it defines are left out |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from posixpath import dirname
from typing import TYPE_CHECKING, Literal, Optional

from gpubind.files import Tree, glob
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, is_glibc_file
from gpubind.frozen import NamedTuple
from gpubind.loader.musl import has_gcompat
from gpubind.loader.search import Loader, newest_version, version_prefix
from gpubind.loader.verdict import Conflict, ImageFit, ImageSideReason, Unfit, lacking
from gpubind.model import USERSPACES, FileGroup, HostFile, ImageFacts, Missing, RootedPath, Userspace, architecture

if TYPE_CHECKING:
    from gpubind.loader.container import Container

_GLVND_CLIENTS = ("libGL.so.1", "libEGL.so.1")
GLVND_CORE = frozenset(("libGLdispatch.so.0", "libGLX.so.0"))
"""Libraries with which only libglvnd's libGL and libEGL are linked."""

_Defined = Callable[[str], Optional[frozenset[str]]]
"""The versions that the library of a name defines; None if there is no such library."""


def fit_files(
    host: Tree,
    files: Iterable[HostFile],
    image: Loader,
    facts: ImageFacts,
    userspaces: Iterable[Userspace] = (),
    forced: bool = False,
    libc: Iterable[HostFile] = (),
) -> ImageFit:
    """Return which of *files*, whose paths are in *host*, the loader of the image would refuse, and why.

    Whatever *files* need of a library that the plan provides is satisfied; everything else must come from the image.
    *userspaces* are those of the requested vendors. *forced*: the user requested the host's copies, whatever the image
    has. *libc* are the files of the host's glibc that replace the image's.
    """
    files, libc = tuple(files), tuple(libc)
    provided = {
        compat32: frozenset(
            name
            for file in (*files, *libc)
            if file.group in (None, "libc", *USERSPACES) and file.compat32 == compat32
            for name in file.names
        )
        for compat32 in (False, True)
    }
    brought = frozenset(file.target for file in files if file.kind == "directory")
    unfit: dict[RootedPath, Unfit] = {}
    for file in files:
        if file.kind not in ("library", "binary") or file.group in USERSPACES:
            continue
        loader = _interpreter(host, file)
        reason = _runs_nowhere(host, file, image, facts)
        if reason is None and dirname(loader) in brought:
            continue  # the plan provides its loader and C library
        if reason is None and loader.startswith("/") and not image.tree.has(loader):
            reason = Unfit("no-loader", needed=loader)
        if reason is None and isinstance(host.ident(file.path), ElfIdent):
            elf = host.elf(file.path)
            reason = None if isinstance(elf, Missing) else _image_lacks(elf, image, provided[file.compat32])
        if reason is not None:
            unfit[file.path] = reason
    groups = [(group, False) for group in _image_groups(image)]
    if facts.arch is not None and any(file.compat32 for file in files):
        groups += [(group, True) for group in _image_groups(image.for_arch(architecture(facts.arch).compat32))]
    fit = ImageFit(facts, unfit, tuple(groups))
    for userspace in userspaces:
        shared = [file for file in files if file.group == userspace.group]
        fit = _with_userspace(host, shared, image, userspace, fit, forced=forced, libc=libc)
    return fit


def fit_compat(host: Tree, files: Iterable[HostFile], image: Loader, fit: ImageFit) -> ImageFit:
    """Return *fit* with the facts that decide between the image's compat libcuda and the libcuda among *files*."""
    unfit: dict[RootedPath, Unfit] = {}
    for library in fit.facts.compat:
        elf = image.tree.elf(library.path)
        if isinstance(elf, Missing):
            continue
        if fit.facts.arch is not None and elf.ident.arch != fit.facts.arch:
            unfit[library.path] = Unfit("architecture", needed=elf.ident.arch, image_has=fit.facts.arch)
        elif fit.facts.libc_family != "glibc":
            unfit[library.path] = Unfit("no-libc")
        elif reason := _image_lacks(elf, image):
            unfit[library.path] = reason
    libcuda = (file for file in files if file.soname == "libcuda.so.1" and not file.compat32)
    notes = (elf.cuda_note for elf in map(host.elf, (file.path for file in libcuda)) if not isinstance(elf, Missing))
    note = next((note for note in notes if note is not None), None)
    return fit._replace(unfit_compat=unfit, serves=note.cuda if note is not None else None)


def _runs_nowhere(host: Tree, file: HostFile, image: Loader, facts: ImageFacts) -> Optional[Unfit]:
    """Return why the image runs no file like this one: its architecture or its C library."""
    ident = host.ident(file.path)
    if not isinstance(ident, ElfIdent):
        return None  # a script: its interpreter decides
    is_companions = facts.arch is not None and ident.arch == architecture(facts.arch).compat32
    if facts.arch not in (None, ident.arch) and not is_companions:
        return Unfit("architecture", needed=ident.arch, image_has=facts.arch)
    if facts.libc_family != "glibc" and not (facts.libc_family == "musl" and has_gcompat(image.tree)):
        fault = facts.libc_fault
        family = facts.libc_family if fault is None else "damaged"
        return Unfit("no-libc", library=fault, image_has=family if facts.has_root else "no-root")
    if is_companions and image.for_arch(ident.arch).glibc is None:
        return Unfit("no-libc", needed=ident.arch)
    return None


def _interpreter(host: Tree, file: HostFile) -> str:
    elf = host.elf(file.path) if file.kind == "binary" and isinstance(host.ident(file.path), ElfIdent) else None
    return "" if elf is None or isinstance(elf, Missing) else elf.interpreter or ""


def _image_lacks(elf: ElfFacts, image: Loader, provided: frozenset[str] = frozenset()) -> Optional[Unfit]:
    """Return why *elf* does not load: a library of the image does not define the versions that it needs.

    Libraries in *provided* come from the plan, and define all versions.
    """
    loader = image.for_arch(elf.ident.arch)

    def defined(name: str) -> Optional[frozenset[str]]:
        facts = None if name in provided else loader.elf_facts(name)
        return None if facts is None else frozenset(facts.version_definitions)

    return _first_undefined(elf, defined)


def _first_undefined(elf: ElfFacts, defined: _Defined, *, of_userspace: bool = False) -> Optional[Unfit]:
    """Return the first library that does not define all the versions that *elf* needs of it.

    A library that is missing, or that defines no versions, satisfies every need.
    """
    for need in elf.version_needs:
        has = defined(need.library) or frozenset()
        undefined = lacking(need.versions, has)
        if not undefined:
            continue
        rule: Literal["libc", "dependency"] = "libc"
        if of_userspace and not is_glibc_file(need.library):
            rule = "dependency"
        prefix = version_prefix(undefined[0])
        if prefix is None:
            return Unfit(rule, need.library, undefined[0])
        available = newest_version(has, prefix)
        newest = f"{prefix}_{newest_version(undefined, prefix)}"
        return Unfit(rule, need.library, newest, available and f"{prefix}_{available}")
    return None


def _image_groups(image: Loader) -> Iterable[FileGroup]:
    if image.find("libGLdispatch.so.0"):
        clients = (facts for facts in map(image.elf_facts, _GLVND_CLIENTS) if facts is not None)
        if any(GLVND_CORE & set(facts.needed) for facts in clients):
            yield "glvnd"
    if image.find("libOpenCL.so.1"):
        yield "opencl"


def _image_runtime(
    userspace: Userspace, image: Loader, container: Container, facts: ImageFacts
) -> Optional[RootedPath]:
    """Return a library that shows that the image has its own *userspace*."""
    file = next(filter(None, map(container.find, userspace.runtime_libraries)), None)
    if file is not None:
        return file.tree_path
    if not userspace.runtime_patterns:
        return facts.rocm_runtime
    patterns = ((at, name) for name in userspace.runtime_libraries for at in userspace.runtime_patterns)
    places = (path for at, name in patterns for path in glob(image.tree, f"{at}/{name}"))
    return next((path for path in places if isinstance(image.tree.ident(path), ElfIdent)), None)


def is_for_video(image: Loader, userspace: Userspace) -> bool:
    """Return whether the image has the video driver of the vendor of *userspace*, and no software that computes."""
    return has_one(image, userspace.video_users) and not has_one(image, (*userspace.users, *userspace.frameworks))


def has_one(image: Loader, patterns: Iterable[str]) -> bool:
    """Return whether the image has a file that matches one of *patterns*: absolute, or below the directories of its
    loader.
    """
    below = [f"{directory}/" for directory in image.directories]
    return any(glob(image.tree, head + path) for path in patterns for head in ([""] if path[0] == "/" else below))


class _NeededFile(NamedTuple):
    file: HostFile
    elf: ElfFacts
    forced: bool
    """Whether the user requested the host's copy, whatever the image has."""


def _with_userspace(
    host: Tree,
    files: Sequence[HostFile],
    image: Loader,
    userspace: Userspace,
    fit: ImageFit,
    *,
    forced: bool,
    libc: Iterable[HostFile],
) -> ImageFit:
    """Return *fit* with those of *files* whose copy in the image is used, and those that cannot be loaded.

    *forced*: the host's copies are used, except for files that only other libraries need.
    """
    from gpubind.loader.container import Container  # only where a user space is requested

    container = Container(image, image.tree, (), (), fit.facts.env.get("LD_LIBRARY_PATH", ""))
    image_runtime = _image_runtime(userspace, image, container, fit.facts)
    if image_runtime is not None:
        fit = fit._replace(image_userspaces={**fit.image_userspaces, userspace.group: image_runtime})
    elif is_for_video(image, userspace):
        fit = fit._replace(for_video=(*fit.for_video, userspace.group))
    if image_runtime is None and has_one(image, userspace.others) and not has_one(image, userspace.users):
        fit = fit._replace(for_others=(*fit.for_others, userspace.group))
    unfit = dict(fit.unfit)
    candidates: dict[RootedPath, _NeededFile] = {}
    for file in files:
        if file.kind not in ("library", "binary"):
            continue
        reason = _runs_nowhere(host, file, image, fit.facts)
        elf = host.elf(file.path)
        if reason is not None:
            unfit[file.path] = reason
        elif not isinstance(elf, Missing):
            candidates[file.path] = _NeededFile(file, elf, forced and file.named_by != "closure")
    newer = {name: host.lenient.elf(file.path) for file in libc if not file.compat32 for name in file.names}
    defined = _definitions(container, {name: elf for name, elf in newer.items() if not isinstance(elf, Missing)})
    return _settled(candidates, unfit, defined, fit, {name: file for file in files for name in file.names})


def _settled(
    candidates: dict[RootedPath, _NeededFile],
    unfit: dict[RootedPath, Unfit],
    defined: _Defined,
    fit: ImageFit,
    files_of: Mapping[str, HostFile],
) -> ImageFit:
    """Return *fit* with the decision for each of *candidates*: the host's copy, the image's, or neither.

    *unfit* are the files that do not load, *files_of* all files by their names.
    """
    conflicts: list[Conflict] = []
    unneeded: dict[RootedPath, ImageSideReason] = {}
    while True:  # each turn removes files, so the loop ends
        image_side, soname_conflicts = _sides(candidates, defined)
        ours = {path: candidate for path, candidate in candidates.items() if path not in image_side}
        hosts = {name: each for each in ours.values() if each.file.kind == "library" for name in each.file.names}
        reached = _reached(ours.values(), hosts)
        orphans = [path for path in ours if path not in reached]
        reasons = {path: _refused(candidate, hosts, defined, unfit, files_of) for path, candidate in ours.items()}
        refused = {path: reason for path, reason in reasons.items() if reason is not None}
        # Only a file that fails for no other reason makes a conflict about a soname.
        removed = {
            path: reason
            for path, reason in refused.items()
            if reason.needed is None or reason.library not in soname_conflicts
        }
        if not removed and not orphans:
            contested = [reason.library for reason in refused.values()]
            conflicts += [conflict for soname, conflict in soname_conflicts.items() if soname in contested]
            removed = refused
        if not removed and not orphans:
            image_side = {**fit.image_side, **unneeded, **image_side}
            return fit._replace(unfit=unfit, image_side=image_side, conflicts=(*fit.conflicts, *conflicts))
        unfit.update(removed)
        unneeded.update((path, "unneeded") for path in orphans if path not in removed)
        candidates = {
            path: candidate for path, candidate in candidates.items() if path not in unfit and path not in unneeded
        }


def _definitions(container: Container, newer: Mapping[str, ElfFacts]) -> _Defined:
    @cache
    def defined(name: str) -> Optional[frozenset[str]]:
        file = None if name in newer else container.find(name)
        facts = newer.get(name) if file is None else file.elf
        return None if facts is None else frozenset(facts.version_definitions)

    return defined


def _sides(
    candidates: Mapping[RootedPath, _NeededFile], defined: _Defined
) -> tuple[dict[RootedPath, ImageSideReason], dict[str, Conflict]]:
    """Return which candidates come from the image, and why; and the conflicts, by soname.

    Once the image's copy of a library is used, the host's copy needs nothing any more. The image's copies of other
    libraries may then define all that is still needed, so the search is repeated.
    """
    image_side: dict[RootedPath, ImageSideReason] = {}
    while True:
        consumers = [candidate for path, candidate in candidates.items() if path not in image_side]
        libraries = [candidate for candidate in consumers if candidate.file.kind == "library"]
        sides = {candidate.file.path: _side(candidate, consumers, defined) for candidate in libraries}
        complete: dict[RootedPath, ImageSideReason] = {path: side for path, side in sides.items() if side == "complete"}
        if not complete:
            conflicts = {side.soname: side for side in sides.values() if isinstance(side, Conflict)}
            contested = {file.path: conflicts[file.name] for file, *_ in libraries if file.name in conflicts}
            return {**image_side, **contested}, conflicts
        image_side.update(complete)


def _reached(ours: Iterable[_NeededFile], hosts: Mapping[str, _NeededFile]) -> frozenset[RootedPath]:
    """Return the paths of the files that a list or the user names, and of those that they need."""
    todo = [candidate for candidate in ours if candidate.file.named_by != "closure"]
    reached = {candidate.file.path for candidate in todo}
    for candidate in todo:  # the loop appends to the list
        for name in candidate.elf.needed:
            needed = hosts.get(name)
            if needed is not None and needed.file.path not in reached:
                reached.add(needed.file.path)
                todo.append(needed)
    return frozenset(reached)


def _side(candidate: _NeededFile, consumers: Iterable[_NeededFile], defined: _Defined) -> Optional[ImageSideReason]:
    """Return why the image's copy of *candidate* is used; None if the host's is."""
    soname = candidate.file.name
    has = defined(soname)
    if has is None or candidate.forced:
        return None
    lacks = [
        (version, consumer.file)
        for consumer in consumers
        for need in consumer.elf.version_needs
        if need.library == soname
        for version in lacking(need.versions, has)
    ]
    if not lacks:
        return "complete"
    undefined_in_host = sorted(has - frozenset(candidate.elf.version_definitions))
    if not undefined_in_host:
        return None
    version, file = lacks[0]
    return Conflict(soname, version, file.name, undefined_in_host[-1])


def _refused(
    candidate: _NeededFile,
    hosts: Mapping[str, _NeededFile],
    defined: _Defined,
    unfit: Mapping[RootedPath, Unfit],
    files_of: Mapping[str, HostFile],
) -> Optional[Unfit]:
    """Return why *candidate* cannot be loaded with the host's libraries *hosts* and the other files of the image."""

    def provided(name: str) -> Optional[frozenset[str]]:
        provider = hosts.get(name)
        return defined(name) if provider is None else frozenset(provider.elf.version_definitions)

    lack = _first_undefined(candidate.elf, provided, of_userspace=True)
    if lack is not None:
        return lack
    for name in candidate.elf.needed:
        # The program's loader is already mapped, under any name.
        if name not in hosts and not name.startswith("ld") and defined(name) is None:
            file = files_of.get(name)
            return Unfit("dependency", name, is_left_out=file is not None and file.path in unfit)
    return None
