"""Decide whether the host's glibc replaces the image's, if it is newer; and list the files that only work together.

The loader and the C library share data whose layout changes with each release (GLIBC_PRIVATE), so they are replaced
together, each at the real path of the image's file.

Source: glibc `elf/rtld.c`, `iconv/gconv_conf.c`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Optional, Union

from gpubind.files import Tree
from gpubind.formats.driver.names import name_facts
from gpubind.formats.elf.elf import (
    CORE_LIBRARIES,
    GCONV_DIRECTORY,
    LIBC,
    PROGRAMS,
    SOTRUSS_MODULE,
    ElfIdent,
    NotElf,
    is_glibc_file,
    is_loader,
)
from gpubind.loader.fit import fit_files
from gpubind.loader.hwcaps import LEVELS
from gpubind.loader.search import Loader
from gpubind.loader.verdict import Bridge, ImageFit
from gpubind.model import (
    READ_ONLY_OPTIONS,
    USERSPACES,
    ContainerPath,
    FileRole,
    HostFile,
    Missing,
    Request,
    ResolvedFile,
    RootedPath,
    userspaces_of,
)
from gpubind.model.arch import architecture, library_token
from gpubind.model.cuda import version_key

_SHARED = ("/dev/", "/home/", "/proc/", "/root/", "/run/", "/sys/", "/tmp/", "/var/tmp/")
"""Directories that a container may share with the host: a mount point that is made there stays."""
_PROGRAM_DIRECTORIES = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")

Family = dict[str, tuple[RootedPath, ...]]
"""The resolved files of a glibc's loader and libraries, by name."""
_Replaced = tuple[str, FileRole, RootedPath, RootedPath]
"""A file or directory of the host's glibc: its name, its kind, its resolved path, and that of the image's."""


def family(loader: Loader) -> Family:
    """Return the resolved files of the loader and the libraries of the glibc of one architecture, by name."""
    found: dict[str, dict[RootedPath, None]] = {}
    for name, path, ident in _members(loader):
        if isinstance(path, str) and isinstance(ident, ElfIdent) and ident.arch == loader.arch:
            found.setdefault(name, {})[path] = None
    return {name: tuple(found[name]) for name in sorted(found)}


def unrecorded(loader: Loader) -> tuple[str, ...]:
    """Return the names of members that a record of a host does not have."""
    members = ((name, ident) for name, _, ident in _members(loader))
    return tuple(sorted({name for name, ident in members if isinstance(ident, Missing) and ident.why == "unrecorded"}))


def parts(
    host: Loader, image: Loader, ours: Family, theirs: Family, version: str, *, is_companion: bool = False
) -> tuple[HostFile, ...]:
    """Return the files of the host's glibc of that *version*, each with its place in the image, by target.

    *is_companion*: both are for 32-bit programs, and programs and modules of the 64-bit glibc are replaced already.
    """
    made = {
        target: _file(host, version, name, "library", ours[name][0], target)
        for name in ours
        for target in theirs.get(name, ())
    }
    others = (*_modules(host, image, ours), *(() if is_companion else _programs(host, image)))
    made.update((target, _file(host, version, name, kind, path, target)) for name, kind, path, target in others)
    more = (
        _file(host, version, name, "library", ours[name][0])
        for name in ours
        if name not in theirs and name.startswith("lib") and not name.startswith("libnss_")
    )
    return (*(made[target] for target in sorted(made)), *more)


def lacks(ours: Family, theirs: Family) -> tuple[str, ...]:
    """Return the members that the image's programs need and the host lacks: without them nothing is replaced."""
    return tuple(name for name in theirs if name not in ours and (name in CORE_LIBRARIES or is_loader(name)))


def _members(
    loader: Loader,
) -> Iterator[tuple[str, Union[RootedPath, Missing], Union[ElfIdent, NotElf, Missing]]]:
    """Yield each name of a glibc's member where the loader looks, with the resolved file and its identification."""
    tree = loader.tree.lenient
    for directory in _directories(loader):
        for name in tree.names(directory):
            if is_glibc_file(name):
                path = tree.resolve(f"{directory}/{name}")
                yield name, path, path if isinstance(path, Missing) else tree.ident(path)


def _directories(loader: Loader) -> Iterator[str]:
    """Yield the directories that the loader searches, with those below for some processors."""
    for directory in dict.fromkeys((*loader.default_directories, *loader.directories)):
        yield directory
        for level in loader.tree.lenient.names(f"{directory}/{LEVELS}"):
            yield f"{directory}/{LEVELS}/{level}"


def _modules(host: Loader, image: Loader, ours: Family) -> Iterator[_Replaced]:
    """Yield the modules that glibc loads by path: the directory of converters between encodings, sotruss's module."""
    tree = host.tree.lenient
    for directory in dict.fromkeys(path.rpartition("/")[0] for path in ours.get(LIBC, ())):
        for place in dict.fromkeys((directory, f"/usr{directory}")):
            here, there = tree.find(f"{place}/{GCONV_DIRECTORY}"), image.tree.find(f"{place}/{GCONV_DIRECTORY}")
            if (
                isinstance(here, ResolvedFile)
                and isinstance(there, ResolvedFile)
                and here.stat.kind == there.stat.kind == "dir"
            ):
                yield GCONV_DIRECTORY, "directory", here.path, there.path
            module, own = tree.find(f"{place}/{SOTRUSS_MODULE}"), image.tree.find(f"{place}/{SOTRUSS_MODULE}")
            if isinstance(module, ResolvedFile) and isinstance(own, ResolvedFile):
                yield "sotruss-lib.so", "library", module.path, own.path


def _programs(host: Loader, image: Loader) -> Iterator[_Replaced]:
    """Yield the programs of glibc that both have; a link to busybox or coreutils is not one."""
    for name in PROGRAMS:
        own = []
        for tree in (host.tree.lenient, image.tree.lenient):
            places = (tree.find(f"{directory}/{name}") for directory in _PROGRAM_DIRECTORIES)
            found = next((at for at in places if isinstance(at, ResolvedFile)), None)
            if found is not None and found.stat.kind == "file" and found.path.rpartition("/")[2] == name:
                own.append(found.path)
        if len(own) == 2:
            yield name, "binary", own[0], own[1]


def with_libc(host: Tree, files: Sequence[HostFile], image: Loader, fit: ImageFit, request: Request) -> ImageFit:
    """Return *fit* with the host's glibc, and with what that changes if it replaces the image's.

    Without a newer glibc for the image's architecture, *fit* is returned as it is.
    """
    bridge = _bridge(host, files if "compat32" in request.capabilities else (), image, fit)
    if bridge is None or bridge.refused:
        return fit._replace(libc=bridge if request.libc == "host" else None)
    bridged = fit_files(
        host, files, image, fit.facts, userspaces_of(request.vendors), request.userspace == "host", bridge.files
    )
    helped = [file for file in files if file.path in fit.unfit and file.path not in bridged.unfit]
    bridge = bridge._replace(helps=tuple(dict.fromkeys(file.path for file in helped)))
    if request.libc == "host" or (request.libc == "auto" and any(_is_needed(file, request) for file in helped)):
        return bridged._replace(libc=bridge._replace(acts=True))
    return fit._replace(libc=bridge)


def _is_needed(file: HostFile, request: Request) -> bool:
    """Return whether *file* is of a user space, of CUDA, or of a requested capability, and not vendor-neutral."""
    if name_facts(file.name).minor or file.kind != "library" or file.group not in (None, *USERSPACES):
        return False
    by_name = request.caps_named and file.capability in request.capabilities
    return by_name or (file.capability == "compute" and "compute" in request.capabilities)


def _bridge(host: Tree, files: Iterable[HostFile], image: Loader, fit: ImageFit) -> Optional[Bridge]:
    """Return the host's glibc if it is newer than the image's, for the same machine."""
    arch, own = fit.facts.arch, image.glibc
    ours = Loader(host.lenient, arch)
    if own is None or arch is None:
        return None
    unknown = unrecorded(ours)
    if ours.glibc is None and not unknown:
        return Bridge("", (), ("absent", "")) if ours.of(None).glibc is None else None
    if ours.glibc is not None and version_key(ours.glibc.version) <= version_key(own.version):
        return None
    bridge = Bridge("" if ours.glibc is None else ours.glibc.version, ())
    if ours.glibc is None or unknown:
        return bridge._replace(refused=("unrecorded", ", ".join(unknown)))
    families = family(ours), family(image)
    missing = lacks(*families)
    if missing:
        return bridge._replace(refused=("lacks", ", ".join(missing)))
    tokens = library_token(ours.glibc.path), library_token(own.path)
    if tokens[0] != tokens[1] and not image.tree.has("/etc/ld.so.cache"):
        return bridge._replace(refused=("directories", f"{tokens[0]} and {tokens[1]}"))
    found = [*parts(ours, image, *families, bridge.version)]
    arch32 = architecture(arch).compat32
    if arch32 is not None and any(file.compat32 for file in files):
        both = ours.of(arch32), image.of(arch32)
        families = family(both[0]), family(both[1])
        if all(loader.glibc is not None for loader in both) and not lacks(*families):
            more = parts(*both, *families, bridge.version, is_companion=True)
            found += [file._replace(compat32=True) for file in more]
    shared = next((file.target for file in found if (file.target or "").startswith(_SHARED)), None)
    if shared is not None:
        return bridge._replace(refused=("shared", shared))
    return bridge._replace(files=tuple(found))


def _file(
    host: Loader, version: str, name: str, kind: FileRole, path: RootedPath, target: Optional[RootedPath] = None
) -> HostFile:
    """Return a file that a container gets: over the image's at *target*, or with the libraries of the plan."""
    found = host.tree.lenient.stat(path)
    is_library = kind == "library"
    return HostFile(
        vendor="other",
        kind="directory" if kind == "directory" else "file" if target else "library",
        path=path,
        size=found.size if not isinstance(found, Missing) and found.kind == "file" else 0,
        source=host.tree.real(path),
        named_by="libc",
        named_at=f"glibc {version}",
        found_by=path.rpartition("/")[0],
        names=(name,) if is_library else (),
        target=ContainerPath(target) if target else None,
        arch=host.arch if is_library else None,
        soname=name if is_library else None,
        group="libc",
        options=READ_ONLY_OPTIONS,
    )
