"""Decide whether the host's newer glibc replaces the image's, and list the files that only work together.

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
from gpubind.loader.hwcaps import HWCAPS_DIRECTORY
from gpubind.loader.search import Loader
from gpubind.loader.verdict import ImageFit, LibcReplacement
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
"""Directories that a container may share with the host. A mount point that is created there would remain on the
host.
"""
_MODULES: dict[str, FileRole] = {GCONV_DIRECTORY: "directory", SOTRUSS_MODULE: "library"}
_PROGRAM_DIRECTORIES = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")

GlibcFiles = dict[str, tuple[RootedPath, ...]]
"""The resolved files of a glibc's loader and libraries, by name."""
_Replaced = tuple[str, FileRole, RootedPath, RootedPath]
"""A file or directory of the host's glibc: its name, its kind, its resolved path, and that of the image's."""


def glibc_files(loader: Loader) -> GlibcFiles:
    """Return the resolved files of the loader and the libraries of one architecture's glibc, by name."""
    paths_by_name: dict[str, dict[RootedPath, None]] = {}
    for name, path, ident in _members(loader):
        if isinstance(path, str) and isinstance(ident, ElfIdent) and ident.arch == loader.arch:
            paths_by_name.setdefault(name, {})[path] = None
    return {name: tuple(paths_by_name[name]) for name in sorted(paths_by_name)}


def unrecorded(loader: Loader) -> tuple[str, ...]:
    """Return the names of glibc's files that the record of a host does not contain."""
    members = ((name, ident) for name, _, ident in _members(loader))
    return tuple(sorted({name for name, ident in members if isinstance(ident, Missing) and ident.why == "unrecorded"}))


def replacement_files(
    host: Loader,
    image: Loader,
    host_files: GlibcFiles,
    image_files: GlibcFiles,
    version: str,
    *,
    is_companion: bool = False,
) -> tuple[HostFile, ...]:
    """Return the files of the host's glibc *version*, sorted by target in the image.

    *is_companion*: both loaders are for 32-bit programs. glibc's programs are then left out: the 64-bit ones replace
    them.
    """
    files_by_target = {
        target: _file(host, version, name, "library", host_files[name][0], target)
        for name in host_files
        for target in image_files.get(name, ())
    }
    others = (*_modules(host, image, host_files), *(() if is_companion else _programs(host, image)))
    files_by_target.update(
        (target, _file(host, version, name, kind, path, target)) for name, kind, path, target in others
    )
    more = (
        _file(host, version, name, "library", host_files[name][0])
        for name in host_files
        if name not in image_files and name.startswith("lib") and not name.startswith("libnss_")
    )
    return (*(files_by_target[target] for target in sorted(files_by_target)), *more)


def missing_files(host_files: GlibcFiles, image_files: GlibcFiles) -> tuple[str, ...]:
    """Return the files of the image's glibc that its programs need and the host lacks. Any of them prevents a
    replacement.
    """
    return tuple(name for name in image_files if name not in host_files and (name in CORE_LIBRARIES or is_loader(name)))


def _members(loader: Loader) -> Iterator[tuple[str, Union[RootedPath, Missing], Union[ElfIdent, NotElf, Missing]]]:
    """Yield each name of a glibc file in the loader's directories, its resolved file and that file's identification."""
    tree = loader.tree.lenient
    for directory in dict.fromkeys((*loader.default_directories, *loader.directories)):
        hwcaps = f"{directory}/{HWCAPS_DIRECTORY}"
        for place in (directory, *(f"{hwcaps}/{level}" for level in tree.names(hwcaps))):
            for name in filter(is_glibc_file, tree.names(place)):
                path = tree.resolve(f"{place}/{name}")
                yield name, path, path if isinstance(path, Missing) else tree.ident(path)


def _modules(host: Loader, image: Loader, host_files: GlibcFiles) -> Iterator[_Replaced]:
    directories = (path.rpartition("/")[0] for path in host_files.get(LIBC, ()))
    for place in dict.fromkeys(place for directory in directories for place in (directory, f"/usr{directory}")):
        for module, kind in _MODULES.items():
            ours, theirs = (tree.find(f"{place}/{module}") for tree in (host.tree.lenient, image.tree))
            if not isinstance(ours, ResolvedFile) or not isinstance(theirs, ResolvedFile):
                continue
            if kind == "library" or ours.stat.kind == theirs.stat.kind == "dir":
                yield module.rpartition("/")[2], kind, ours.path, theirs.path


def _programs(host: Loader, image: Loader) -> Iterator[_Replaced]:
    for name in PROGRAMS:
        paths = []
        for tree in (host.tree.lenient, image.tree.lenient):
            places = (tree.find(f"{directory}/{name}") for directory in _PROGRAM_DIRECTORIES)
            file = next((at for at in places if isinstance(at, ResolvedFile)), None)
            # A link to busybox or coreutils is not a program of glibc.
            if file is not None and file.stat.kind == "file" and file.path.rpartition("/")[2] == name:
                paths.append(file.path)
        if len(paths) == 2:
            yield name, "binary", paths[0], paths[1]


def with_libc(host: Tree, files: Sequence[HostFile], image: Loader, fit: ImageFit, request: Request) -> ImageFit:
    """Return *fit* with the host's glibc, and with its effects if it replaces the image's.

    If the image's glibc is not older, *fit* is returned unchanged.
    """
    bridge = _bridge(host, files if "compat32" in request.capabilities else (), image, fit)
    if bridge is None or bridge.refusal:
        return fit._replace(libc=bridge if request.libc == "host" else None)
    userspaces, is_forced = userspaces_of(request.vendors), request.userspace == "host"
    bridged = fit_files(host, files, image, fit.facts, userspaces, is_forced, bridge.files)
    helped = [file for file in files if file.path in fit.unfit and file.path not in bridged.unfit]
    bridge = bridge._replace(enables=tuple(dict.fromkeys(file.path for file in helped)))
    if request.libc == "host" or (request.libc == "auto" and any(_is_needed(file, request) for file in helped)):
        return bridged._replace(libc=bridge._replace(is_used=True))
    return fit._replace(libc=bridge)


def _is_needed(file: HostFile, request: Request) -> bool:
    """Return whether *file* is of a user space, of CUDA or of a requested capability, and not vendor-neutral."""
    if name_facts(file.name).minor or file.kind != "library" or file.group not in (None, *USERSPACES):
        return False
    by_name = request.caps_named and file.capability in request.capabilities
    return by_name or (file.capability == "compute" and "compute" in request.capabilities)


def _bridge(host: Tree, files: Iterable[HostFile], image: Loader, fit: ImageFit) -> Optional[LibcReplacement]:
    """Return the host's glibc as a replacement of the image's; None if it is not newer. It may be refused."""
    arch, image_glibc = fit.facts.arch, image.glibc
    host_loader = Loader(host.lenient, arch)
    if image_glibc is None or arch is None:
        return None
    unknown = unrecorded(host_loader)
    if host_loader.glibc is None and not unknown:
        return LibcReplacement("", (), ("absent", "")) if host_loader.for_arch(None).glibc is None else None
    if host_loader.glibc is not None and version_key(host_loader.glibc.version) <= version_key(image_glibc.version):
        return None
    bridge = LibcReplacement("" if host_loader.glibc is None else host_loader.glibc.version, ())
    if host_loader.glibc is None or unknown:
        return bridge._replace(refusal=("unrecorded", ", ".join(unknown)))
    families = glibc_files(host_loader), glibc_files(image)
    missing = missing_files(*families)
    if missing:
        return bridge._replace(refusal=("lacks", ", ".join(missing)))
    tokens = library_token(host_loader.glibc.path), library_token(image_glibc.path)
    if tokens[0] != tokens[1] and not image.tree.has("/etc/ld.so.cache"):
        return bridge._replace(refusal=("directories", f"{tokens[0]} and {tokens[1]}"))
    replacements = [*replacement_files(host_loader, image, *families, bridge.version)]
    arch32 = architecture(arch).compat32
    if arch32 is not None and any(file.compat32 for file in files):
        loaders32 = host_loader.for_arch(arch32), image.for_arch(arch32)
        families = glibc_files(loaders32[0]), glibc_files(loaders32[1])
        if all(loader.glibc is not None for loader in loaders32) and not missing_files(*families):
            more = replacement_files(*loaders32, *families, bridge.version, is_companion=True)
            replacements += [file._replace(compat32=True) for file in more]
    shared = next((file.target for file in replacements if (file.target or "").startswith(_SHARED)), None)
    if shared is not None:
        return bridge._replace(refusal=("shared", shared))
    return bridge._replace(files=tuple(replacements))


def _file(
    host: Loader, version: str, name: str, kind: FileRole, path: RootedPath, target: Optional[RootedPath] = None
) -> HostFile:
    """Return a file of the host's glibc that replaces the image's at *target*; without *target*, a library that is
    added.
    """
    file_stat = host.tree.lenient.stat(path)
    is_library = kind == "library"
    return HostFile(
        vendor="other",
        kind="directory" if kind == "directory" else "file" if target else "library",
        path=path,
        size=file_stat.size if not isinstance(file_stat, Missing) and file_stat.kind == "file" else 0,
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
