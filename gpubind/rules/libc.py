"""Rules about an image whose programs run on the host's glibc."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.findings import finding
from gpubind.formats.elf_private import private_symbols
from gpubind.model import Finding, Found, Missing
from gpubind.rules.preflight import ImagePreflight

SIZE_LIMIT = 4 << 20
"""Bytes: what shares glibc's private symbols is small; libraries of CUDA and of compilers are not looked through."""
FILES_LIMIT = 4096
PROGRAMS = ("/usr/bin", "/usr/sbin")


def libc_private(preflight: ImagePreflight) -> Iterator[Finding]:
    """A file of the image that stays, and wants what only the glibc that it was built with gives to its own parts."""
    bound = [mount for mount in preflight.plan.mounts if mount.rule == "libc"]
    host, image = preflight.host.driver, preflight.image.tree
    provided: set[str] = set()
    for source in (host.rooted(mount.source or "") for mount in bound):
        data = Missing("absent") if source is None else host.read(source, SIZE_LIMIT)
        provided |= private_symbols(data).defined if isinstance(data, bytes) else set()
    if not provided:
        return  # its programs run on their own, or a record has no bytes of the host's
    targets = {str(mount.target) for mount in bound}
    for path in _candidates(preflight):
        data = image.read(path, SIZE_LIMIT) if path not in targets else b""
        wanted = private_symbols(data).wanted - provided if isinstance(data, bytes) else ()
        if wanted:
            yield finding("libc-private", subject=path, symbol=min(wanted))


def _candidates(preflight: ImagePreflight) -> list[str]:
    """The image's libraries and programs in the directories of its packages, each once."""
    image = preflight.image
    directories = (*image.loader.default_directories(), *PROGRAMS)
    found: dict[str, None] = {}
    for directory in directories:
        for name in image.tree.names(directory):
            if len(found) >= FILES_LIMIT:
                return list(found)
            at = image.tree.find(f"{directory}/{name}") if ".so" in name or directory in PROGRAMS else None
            if isinstance(at, Found) and at.stat.kind == "file" and at.stat.size <= SIZE_LIMIT:
                found[at.path] = None
    return list(found)
