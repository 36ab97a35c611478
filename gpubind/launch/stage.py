"""Write generated files, which are complete or absent: `stage`, `stage_in`. Each is named by the hash of its content.

Many starts write the same content at the same time, on nodes that share a home. So each start writes a file with a
random name, then renames it unless another start already has.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Callable

from gpubind.errors import OutputError
from gpubind.host.directories import xdg_directory
from gpubind.machine import system
from gpubind.machine.trust import acts_as_root, is_trusted_path, why_not_shareable
from gpubind.machine.writing import make_ours
from gpubind.machine.writing import write_if_missing as put_file
from gpubind.model import ContainerPath, HostPath
from gpubind.model.digest import sha256, sha256_hex

LAST_RESORT = "/tmp"
SKELETONS_LIMIT = 16
"""The most changed skeletons for the same paths before an error."""
_NAME_LENGTH = 40
"""The most characters of a file's own name in the name of its copy, so that this fits into 255 bytes with the hash."""


def stage(contents: Mapping[ContainerPath, str], environ: Mapping[str, str]) -> dict[ContainerPath, HostPath]:
    """Write *contents*, texts by container path. Return the path of each file.

    The directory is `$XDG_CACHE_HOME/gpubind` (`~/.cache/gpubind`). If it cannot be written, or its quota is used up, a
    private directory in `$TMPDIR`, or in /tmp, replaces it. Errors: `OutputError` (code `unwritable-file`).
    """

    def put(name: str, data: bytes) -> HostPath:
        return _in_first_usable_directory(lambda place: put_file(place, name, data, 0o700), environ)

    return {target: put(*_named(target, content)) for target, content in contents.items()}


def stage_in(contents: Mapping[ContainerPath, str], directory: str) -> dict[ContainerPath, HostPath]:
    """Write *contents* into *directory*, which is created if missing. Return the path of each file.

    Errors: `OutputError` (code `unwritable-file`) if the directory cannot be written, or if other users could write to
    it. For root, the same error if they could write to a directory above it, or may not enter it.
    """
    if not contents:
        return {}
    try:
        place = system.absolute(directory)
        _require_lasting_directory(place)
        places = {target: HostPath(put_file(place, *_named(target, text), 0o755)) for target, text in contents.items()}
        _require_lasting_directory(place)
        return places
    except OSError as error:
        why = error.strerror or str(error)
        hint = "name a directory that is yours, that stays, that only you may write to, and that everybody may enter"
        problem = "there is no place for generated files"
        raise OutputError("unwritable-file", problem, where=directory, why=why, hint=hint) from error


def _require_lasting_directory(directory: str) -> None:
    """Errors: `PermissionError` if the process is root's and other users could change *directory*, now or later."""
    why = why_not_shareable(directory) if acts_as_root() else None
    if why is not None:
        raise PermissionError(errno.EACCES, why)


def stage_single_file(name: str, content: str, environ: Mapping[str, str]) -> HostPath:
    """Write *content* as the only file, *name*, of a directory. Return the directory. Errors: as `stage`."""
    data = content.encode("utf-8", "surrogateescape")
    digest = sha256(data).hexdigest()
    file = _in_first_usable_directory(lambda place: put_file(f"{place}/{digest}", name, data, 0o700), environ)
    return HostPath(os.path.dirname(file))


def stage_skeleton(places: Iterable[ContainerPath], environ: Mapping[str, str]) -> HostPath:
    """Return a directory with an empty file at each of *places*, container paths. Errors: as `stage`.

    Its name is a hash of the paths. A changed directory is not used; another one is created.
    """
    ordered = sorted(set(places))
    name = sha256_hex("\0".join(ordered)) + "-skeleton"
    return _in_first_usable_directory(lambda place: _put_skeleton(place, name, ordered), environ)


def _put_skeleton(directory: str, name: str, places: list[ContainerPath]) -> HostPath:
    for number in range(SKELETONS_LIMIT):
        path = f"{directory}/{name}{f'-{number}' if number else ''}"
        if not system.exists(path, follow=False):
            _make_skeleton(path, places)
        if _skeleton_of(path) == places:
            return HostPath(path)
    raise FileExistsError(errno.EEXIST, f"{SKELETONS_LIMIT} directories {name} are there, and all were changed")


def _make_skeleton(path: str, places: list[ContainerPath]) -> None:
    """Create the skeleton *path*, unless another process creates it meanwhile. Errors: `OSError`."""
    part = f"{path}.{system.random_name()}"
    try:
        system.mkdir(part, 0o755)
        for place in places:
            system.make_directories(os.path.dirname(part + place), 0o755)
            system.open_file(part + place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444).close()
        system.rename(part, path)
    except OSError:
        system.remove_tree(part)
        if not system.exists(path, follow=False):
            raise


def _skeleton_of(path: str) -> list[str]:
    """Return the paths in the skeleton *path*; empty if anything in it is neither a directory nor an empty file."""
    paths, directories = [], [path]
    for directory in directories:  # grows
        for name in system.listdir(directory):
            file = f"{directory}/{name}"
            facts = system.lstat(file)
            if stat.S_ISDIR(facts.st_mode):
                directories.append(file)
            elif not stat.S_ISREG(facts.st_mode) or facts.st_size:
                return []
            else:
                paths.append(file[len(path) :])
    return sorted(paths)


def _in_first_usable_directory(put: Callable[[str], str], environ: Mapping[str, str]) -> HostPath:
    """Return the result of *put* for the first usable directory. Root cannot use one that another user could change."""
    cache = xdg_directory(environ, "XDG_CACHE_HOME", ".cache")
    home = "/" if environ.get("XDG_CACHE_HOME", "").startswith("/") else environ.get("HOME", "")
    bases = (base for base in (environ.get("TMPDIR", ""), LAST_RESORT) if base.startswith("/"))
    places = {cache: home} if cache else {}
    places.update((f"{base}/gpubind-{system.effective_user()}", base) for base in bases)
    why = ""
    for place, base in places.items():
        try:
            if not system.is_directory(base):  # a home or TMPDIR is never created
                raise NotADirectoryError(errno.ENOTDIR, f"{base} is not a directory")
            if not is_trusted_path(place):
                raise PermissionError(errno.EACCES, "users other than root could change what is there")
            make_ours(place, 0o700).close()
            return HostPath(put(place))
        except OSError as error:
            why = error.strerror or str(error)
    where = ", ".join(places)
    raise OutputError("unwritable-file", "there is no place for generated files", where=where, why=why)


def _named(target: ContainerPath, content: str) -> tuple[str, bytes]:
    data = content.encode("utf-8", "surrogateescape")
    return f"{sha256(data).hexdigest()}-{target.rpartition('/')[2][-_NAME_LENGTH:]}", data
