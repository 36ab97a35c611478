"""Generated content, as a file: named by its hash, so that equal content is written once and never changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from typing import Callable

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


def stage_skeleton(places: Iterable[ContainerPath], environ: Mapping[str, str]) -> HostPath:
    """A directory with an empty file at each of *places*; errors and its own place are as for `stage`.

    It is called by the places, and never changed. One that is not as it was made is left alone, for another one.
    """
    wanted = sorted(set(places))
    name = hashlib.sha256("\0".join(wanted).encode("utf-8", "surrogateescape")).hexdigest() + "-skeleton"
    return _in_a_place(environ, lambda place: _write_skeleton(place, name, wanted))


def _write_skeleton(directory: str, name: str, places: list[ContainerPath]) -> HostPath:
    from tempfile import mkdtemp  # only where there is none yet

    path = f"{directory}/{name}"
    if _skeleton_of(path) == places:
        return HostPath(path)
    part = mkdtemp(prefix=f"{name}.", dir=directory)
    for place in places:
        os.makedirs(os.path.dirname(part + place), exist_ok=True)
        os.close(os.open(part + place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444))
    os.chmod(part, 0o755)
    try:
        os.rename(part, path)
    except OSError:  # somebody else was faster, or the one that is there is not as it was made
        if _skeleton_of(path) != places:
            return HostPath(part)
        shutil.rmtree(part)
    return HostPath(path)


def _skeleton_of(path: str) -> list[str]:
    """The places that the skeleton *path* has; of one that holds anything but empty files, none."""
    found = []
    for directory, _, files in os.walk(path):
        for name in files:
            file = f"{directory}/{name}"
            facts = os.lstat(file)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size:
                return []
            found.append(file[len(path) :])
    return sorted(found)


def _stage_one(target: ContainerPath, content: str, environ: Mapping[str, str]) -> HostPath:
    data = content.encode("utf-8", "surrogateescape")
    name = f"{hashlib.sha256(data).hexdigest()}-{target.rpartition('/')[2]}"
    return _in_a_place(environ, lambda place: _write(place, name, data))


def _in_a_place(environ: Mapping[str, str], write: Callable[[str], HostPath]) -> HostPath:
    """What *write* makes in the first directory that serves. Errors: `OutputError` (code `unwritable-file`)."""
    places = _places(environ)
    why = ""
    for place in places:
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            found = os.lstat(place)
            # A directory in /tmp may be a trap that somebody else has laid.
            if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
                return write(place)
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
