"""Generated content, as a file: named by its hash, so that equal content is written once and never changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from gpubind.errors import OutputError
from gpubind.host.live import xdg_directory
from gpubind.model import ContainerPath, HostPath


def stage(contents: Mapping[ContainerPath, str], environ: Mapping[str, str]) -> dict[ContainerPath, HostPath]:
    """Write *contents*, the texts of generated files by their place in the container; where each of them is then.

    They lie below `$XDG_CACHE_HOME/gpubind` (`~/.cache/gpubind`), or in a private directory of `$TMPDIR` where that
    cannot be written. Errors: `OutputError` (code `unwritable-file`).
    """
    if not contents:
        return {}
    directory = _directory(environ)
    staged: dict[ContainerPath, HostPath] = {}
    for target, content in contents.items():
        data = content.encode("utf-8", "surrogateescape")
        name = f"{hashlib.sha256(data).hexdigest()}-{target.rpartition('/')[2]}"
        staged[target] = _write(directory, name, data)
    return staged


def _directory(environ: Mapping[str, str]) -> str:
    places = []
    cache = xdg_directory(environ, "XDG_CACHE_HOME", ".cache")
    if cache:
        places.append(cache)
    places.append(f"{environ.get('TMPDIR') or '/tmp'}/gpubind-{os.geteuid()}")
    why = ""
    for place in places:
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            found = os.lstat(place)
            # A directory in /tmp may be a trap that somebody else has laid.
            if found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(place, os.W_OK):
                return place
            why = "it belongs to somebody else, or others may write to it"
        except OSError as error:
            why = error.strerror or str(error)
    raise OutputError("unwritable-file", "there is no place for generated files", where=", ".join(places), why=why)


def _write(directory: str, name: str, data: bytes) -> HostPath:
    path = f"{directory}/{name}"
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            file.write(data)
        os.chmod(part, 0o444)
        os.replace(part, path)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError("unwritable-file", "a generated file cannot be written", where=path, why=why) from error
    return HostPath(path)
