"""Generated content, as a file: named by its hash, so that equal content is written once and never changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping

from gpubind.errors import OutputError
from gpubind.host.directories import xdg_directory
from gpubind.model import ContainerPath, HostPath

LAST_RESORT = "/tmp"


def stage(contents: Mapping[ContainerPath, str], environ: Mapping[str, str]) -> dict[ContainerPath, HostPath]:
    """Write *contents*, the texts of generated files by their place in the container; where each of them is then.

    They lie below `$XDG_CACHE_HOME/gpubind` (`~/.cache/gpubind`); where that cannot be written, or its quota is used
    up, in a private directory of `$TMPDIR`, or of /tmp. Errors: `OutputError` (code `unwritable-file`).
    """
    return {target: _stage_one(target, content, environ) for target, content in contents.items()}


def _stage_one(target: ContainerPath, content: str, environ: Mapping[str, str]) -> HostPath:
    data = content.encode("utf-8", "surrogateescape")
    name = f"{hashlib.sha256(data).hexdigest()}-{target.rpartition('/')[2]}"
    places = _places(environ)
    why = ""
    for place in places:
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            found = os.lstat(place)
            # A directory in /tmp may be a trap that somebody else has laid.
            if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
                return _write(place, name, data)
            why = "it belongs to somebody else, or others may write to it"
        except OSError as error:
            why = error.strerror or str(error)
    raise OutputError("unwritable-file", "there is no place for generated files", where=", ".join(places), why=why)


def _places(environ: Mapping[str, str]) -> tuple[str, ...]:
    cache = xdg_directory(environ, "XDG_CACHE_HOME", ".cache")
    bases = (base for base in (environ.get("TMPDIR", ""), LAST_RESORT) if base.startswith("/"))
    private = (f"{base}/gpubind-{os.geteuid()}" for base in bases)
    return tuple(dict.fromkeys((*([cache] if cache else []), *private)))


def _write(directory: str, name: str, data: bytes) -> HostPath:
    path = f"{directory}/{name}"
    if _holds(path, data):
        return HostPath(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(data)
        os.chmod(part, 0o444)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(part)
        raise
    return HostPath(path)


def _holds(path: str, data: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(data) + 1) == data
    except OSError:
        return False
