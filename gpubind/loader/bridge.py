"""Whose glibc do the image's programs run on? Their own, unless the host's is newer, and is asked for or needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from gpubind.files import Tree
from gpubind.formats.driver.names import is_minor
from gpubind.loader.fit import fit_files
from gpubind.loader.glibc import GlibcFile, lacks, parts, unrecorded
from gpubind.loader.loader import Loader
from gpubind.loader.verdict import Bridge, ImageFit
from gpubind.model import ContainerPath, HostFile, Missing, Request
from gpubind.model.arch import architecture, library_token
from gpubind.model.cuda import version_key

_READ_ONLY = ("ro", "nosuid", "nodev")
"""Of the directory of converters, too: they are loaded from there."""
_SHARED = ("/dev/", "/home/", "/proc/", "/root/", "/run/", "/sys/", "/tmp/", "/var/tmp/")
"""What a container may have of the host: a mount point that is made there stays."""


def with_libc(host: Tree, files: Sequence[HostFile], image: Loader, fit: ImageFit, request: Request) -> ImageFit:
    """Return *fit* with the host's glibc in it: as a possibility, or, where it acts, with what it changes.

    Without a newer glibc for the image's architecture *fit* stays as it is.
    """
    bridge = _bridge(host, files if "compat32" in request.capabilities else (), image, fit)
    if bridge is None or bridge.refused:
        return fit._replace(libc=bridge if request.libc == "host" else None)
    userspace = request.userspace if "amd" in request.vendors else None
    bridged = fit_files(host, files, image, fit.facts, userspace, bridge.files)
    helped = [file for file in files if file.path in fit.unfit and file.path not in bridged.unfit]
    bridge = bridge._replace(helps=tuple(dict.fromkeys(file.path for file in helped)))
    if request.libc == "host" or (request.libc == "auto" and any(_is_needed(file, request) for file in helped)):
        return bridged._replace(libc=bridge._replace(acts=True))
    return fit._replace(libc=bridge)


def _is_needed(file: HostFile, request: Request) -> bool:
    """Return whether the start is for *file*: of ROCm, of CUDA, or of a capability that was asked for by name.

    The vendor-neutral libraries are the image's to bring.
    """
    if is_minor(file.name) or file.kind != "library" or file.group not in (None, "rocm"):
        return False
    by_name = request.caps_explicit and file.capability in request.capabilities
    return by_name or (file.capability == "compute" and "compute" in request.capabilities)


def _bridge(host: Tree, files: Iterable[HostFile], image: Loader, fit: ImageFit) -> Optional[Bridge]:
    """Return the host's glibc; None where the image has none, or one as new, or is for another machine."""
    arch, own = fit.facts.arch, image.glibc
    ours = Loader(host.lenient, arch)
    if own is None or arch is None or ours.glibc is None or version_key(ours.glibc.version) <= version_key(own.version):
        return None
    bridge = Bridge(ours.glibc.version, ())
    unknown = unrecorded(ours)
    if unknown:
        return bridge._replace(refused=("unrecorded", ", ".join(unknown)))
    missing = lacks(ours, image)
    if missing:
        return bridge._replace(refused=("lacks", ", ".join(missing)))
    tokens = library_token(ours.glibc.path), library_token(own.path)
    if tokens[0] != tokens[1] and not image.tree.has("/etc/ld.so.cache"):
        return bridge._replace(refused=("directories", f"{tokens[0]} and {tokens[1]}"))
    found = [_file(host, part, arch, bridge.version) for part in parts(ours, image)]
    arch32 = architecture(arch).compat32
    if arch32 is not None and any(file.compat32 for file in files):
        both = ours.of(arch32), image.of(arch32)
        if all(loader.glibc is not None for loader in both) and not lacks(*both):
            more = (_file(host, part, arch32, bridge.version) for part in parts(*both, is_companion=True))
            found += [file._replace(compat32=True) for file in more]
    shared = next((file.target for file in found if (file.target or "").startswith(_SHARED)), None)
    if shared is not None:
        return bridge._replace(refused=("shared", shared))
    return bridge._replace(files=tuple(found))


def _file(host: Tree, part: GlibcFile, arch: str, version: str) -> HostFile:
    """Return *part* as a file that a container gets: over the image's own, or among the libraries of the plan."""
    found = host.lenient.stat(part.path)
    is_library = part.kind == "library"
    return HostFile(
        vendor="other",
        kind="directory" if part.kind == "directory" else "file" if part.target else "library",
        path=part.path,
        names=(part.name,) if is_library else (),
        target=ContainerPath(part.target) if part.target else None,
        arch=arch if is_library else None,
        soname=part.name if is_library else None,
        version=None,
        capability=None,
        size=found.size if not isinstance(found, Missing) and found.kind == "file" else 0,
        source=host.real(part.path),
        named_by="libc",
        named_at=f"glibc {version}",
        found_by=part.path.rpartition("/")[0],
        group="libc",
        options=_READ_ONLY,
    )
