"""Rules about the C library in an image: musl with gcompat, or the host's glibc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.formats.elf.elf import ElfIdent
from gpubind.loader.musl import GCOMPAT
from gpubind.model import Finding, Missing, ResolvedFile, finding
from gpubind.model.cuda import version_key
from gpubind.rules.preflight import Preflight

SIZE_LIMIT = 4 << 20
"""Maximum bytes of a file that is read. Users of glibc's private symbols are small; larger libraries are of CUDA and of
compilers.
"""
FILES_LIMIT = 4096
PROGRAMS = ("/usr/bin", "/usr/sbin")
PACKED = "GLIBC_ABI_DT_RELR"
"""The symbol version that a library with packed relocations requires of its C library."""
_READS_PACKED = (2, 38)
"""The first binutils that reads packed relocations."""
_BINUTILS = re.compile(r"libbfd-([0-9]{1,9}\.[0-9]{1,9})\b.*\.so")


def image_gcompat(preflight: Preflight) -> Iterator[Finding]:
    """Report gcompat in an image with musl: parts of the driver work with it."""
    image = preflight.image
    bound = any(mount.kind == "library" for mount in preflight.plan.mounts)
    if bound and image.facts.libc_family == "musl" and image.tree.has(GCOMPAT):
        yield finding("image-gcompat", subject=GCOMPAT)


def libc_linker(preflight: Preflight) -> Iterator[Finding]:
    """Report a linker in the image that is too old to read the host's glibc. The name of its library, libbfd, has its
    version.
    """
    host, image = preflight.host.driver, preflight.image
    bound = [mount for mount in preflight.plan.mounts if mount.rule == "libc" and mount.soname == "libm.so.6"]
    facts = [host.elf(path) for mount in bound[:1] if (path := host.rooted(mount.source or "")) is not None]
    if not any(PACKED in need.versions for elf in facts if not isinstance(elf, Missing) for need in elf.version_needs):
        return
    names = (name for directory in image.loader.default_directories for name in image.tree.names(directory))
    versions = [match.group(1) for match in map(_BINUTILS.fullmatch, names) if match]
    version = max(versions, key=version_key, default=None)
    if version is not None and version_key(version) < _READS_PACKED:
        yield finding("libc-linker", subject="ld", version=version)


def libc_private(preflight: Preflight) -> Iterator[Finding]:
    """Report a file of the image that needs private symbols of glibc that only the image's old glibc defines."""
    bound = [mount for mount in preflight.plan.mounts if mount.rule == "libc"]
    if not bound:
        return
    from gpubind.formats.elf.private import private_symbols

    host, image = preflight.host.driver, preflight.image.tree
    provided: dict[Optional[str], set[str]] = {}
    for mount in bound:
        source = host.rooted(mount.source or "")
        data = None if source is None else host.read(source, SIZE_LIMIT)
        defined = private_symbols(data).defined if isinstance(data, bytes) else frozenset()
        if defined:
            provided.setdefault(mount.arch, set()).update(defined)
    if not provided:
        return  # the image's programs run without it, or a record has no bytes of the host's files
    targets = {str(mount.target) for mount in bound}
    for path in _candidates(preflight):
        ident = image.ident(path)
        if path in targets or not isinstance(ident, ElfIdent) or ident.arch not in provided:
            continue
        data = image.read(path, SIZE_LIMIT)
        missing_symbols = private_symbols(data).needed - provided[ident.arch] if isinstance(data, bytes) else ()
        if missing_symbols:
            yield finding("libc-private", subject=path, symbol=min(missing_symbols))


def _candidates(preflight: Preflight) -> list[str]:
    image = preflight.image
    directories = (*image.loader.default_directories, *PROGRAMS)
    paths: dict[str, None] = {}
    for directory in directories:
        for name in image.tree.names(directory):
            if len(paths) >= FILES_LIMIT:
                return list(paths)
            at = image.tree.find(f"{directory}/{name}") if ".so" in name or directory in PROGRAMS else None
            if isinstance(at, ResolvedFile) and at.stat.kind == "file" and at.stat.size <= SIZE_LIMIT:
                paths[at.path] = None
    return list(paths)
