"""Write generated files, which are complete or absent: `stage`, `stage_in`. Each is named by the hash of its content.

Many starts write the same content at the same time, on nodes that share a home. So each start writes a file with a
random name, and then gives it the final name unless another start already has.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Callable, Optional

from gpubind.errors import OutputError
from gpubind.host.directories import xdg_directory
from gpubind.machine.answers import read_up_to
from gpubind.machine.trust import acts_as_root, is_obeyed, why_not_lasting
from gpubind.model import ContainerPath, HostPath
from gpubind.model.digest import hash_of, sha256

LAST_RESORT = "/tmp"
SKELETONS_LIMIT = 16
"""Changed skeletons of the same places after which it is an error."""
_NAME_LENGTH = 40
"""Characters of a file's own name that are kept: with the hash they fit into the 255 bytes of a name."""
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Errors of a file system without hard links."""


def stage(contents: Mapping[ContainerPath, str], environ: Mapping[str, str]) -> dict[ContainerPath, HostPath]:
    """Write *contents*, texts by their place in the container. Return the path of each file.

    The directory is `$XDG_CACHE_HOME/gpubind` (`~/.cache/gpubind`); if that cannot be written, or its quota is used up,
    a private directory in `$TMPDIR`, or in /tmp. Errors: `OutputError` (code `unwritable-file`).
    """

    def put(name: str, data: bytes) -> HostPath:
        return _in_first_place(lambda place: _put(place, name, data, 0o700), environ)

    return {target: put(*_named(target, content)) for target, content in contents.items()}


def stage_in(contents: Mapping[ContainerPath, str], directory: str) -> dict[ContainerPath, HostPath]:
    """Write *contents* into *directory*, which is made if it is missing. Return the path of each file.

    Errors: `OutputError` (code `unwritable-file`), also for a directory that other users could write to; for root also
    if they could write above it, or may not enter it.
    """
    if not contents:
        return {}
    try:
        place = os.path.abspath(directory)
        _need_lasting(place)
        places = {target: _put(place, *_named(target, text), 0o755) for target, text in contents.items()}
        _need_lasting(place)
        return places
    except OSError as error:
        why = error.strerror or str(error)
        hint = "name a directory that is yours, that stays, that only you may write to, and that everybody may enter"
        what = "there is no place for generated files"
        raise OutputError("unwritable-file", what, where=directory, why=why, hint=hint) from error


def _need_lasting(directory: str) -> None:
    """Errors: `PermissionError` for a directory of root that other users could change, now or later."""
    why = why_not_lasting(directory) if acts_as_root() else None
    if why is not None:
        raise PermissionError(errno.EACCES, why)


def stage_alone(name: str, content: str, environ: Mapping[str, str]) -> HostPath:
    """Write *content* as the only file, *name*, of a directory. Return the directory. Errors: as `stage`."""
    data = content.encode("utf-8", "surrogateescape")
    own = sha256(data).hexdigest()
    file = _in_first_place(lambda place: _put(f"{place}/{own}", name, data, 0o700), environ)
    return HostPath(os.path.dirname(file))


def stage_skeleton(places: Iterable[ContainerPath], environ: Mapping[str, str]) -> HostPath:
    """Return a directory with an empty file at each of *places*. Errors: as `stage`.

    Its name is a hash of the places. One that was changed is not used, and another one is made.
    """
    ordered = sorted(set(places))
    name = hash_of("\0".join(ordered)) + "-skeleton"
    return _in_first_place(lambda place: _put_skeleton(place, name, ordered), environ)


def replace(
    place: int, name: str, data: bytes, mode: Optional[int] = None, owner: Optional[tuple[int, int]] = None
) -> None:
    """Write *data* to the file *name* in the open directory *place*. It is replaced as a whole, or not at all.

    *mode*: its permissions; None for those of a new file. *owner*: user and group; None for the caller's.
    Errors: `OSError`.
    """
    with _part(place, data, mode, owner) as part:
        os.rename(part, name, src_dir_fd=place, dst_dir_fd=place)


def _put_skeleton(directory: str, name: str, places: list[ContainerPath]) -> HostPath:
    for number in range(SKELETONS_LIMIT):
        path = f"{directory}/{name}{f'-{number}' if number else ''}"
        if not os.path.lexists(path):
            _make_skeleton(path, places)
        if _skeleton_of(path) == places:
            return HostPath(path)
    raise FileExistsError(errno.EEXIST, f"{SKELETONS_LIMIT} directories {name} are there, and all were changed")


def _make_skeleton(path: str, places: list[ContainerPath]) -> None:
    """Make the skeleton *path*, unless another process just did. Errors: `OSError`."""
    part = f"{path}.{os.urandom(16).hex()}"
    try:
        os.mkdir(part, 0o755)
        for place in places:
            os.makedirs(os.path.dirname(part + place), mode=0o755, exist_ok=True)
            os.close(os.open(part + place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444))
        os.rename(part, path)
    except OSError:
        import shutil  # loads compressors

        shutil.rmtree(part, ignore_errors=True)
        if not os.path.lexists(path):
            raise


def _skeleton_of(path: str) -> list[str]:
    """Return the places in the skeleton *path*; none if it has anything but empty files."""
    found, directories = [], [path]
    for directory in directories:  # grows
        for name in os.listdir(directory):
            file = f"{directory}/{name}"
            facts = os.lstat(file)
            if stat.S_ISDIR(facts.st_mode):
                directories.append(file)
            elif not stat.S_ISREG(facts.st_mode) or facts.st_size:
                return []
            else:
                found.append(file[len(path) :])
    return sorted(found)


def _in_first_place(put: Callable[[str], HostPath], environ: Mapping[str, str]) -> HostPath:
    """Return what *put* returns for the first usable place; for root, other users must not be able to change it."""
    cache = xdg_directory(environ, "XDG_CACHE_HOME", ".cache")
    home = "/" if environ.get("XDG_CACHE_HOME", "").startswith("/") else environ.get("HOME", "")
    bases = (base for base in (environ.get("TMPDIR", ""), LAST_RESORT) if base.startswith("/"))
    places = {cache: home} if cache else {}
    places.update((f"{base}/gpubind-{os.geteuid()}", base) for base in bases)
    why = ""
    for place, base in places.items():
        try:
            if not os.path.isdir(base):  # a home or TMPDIR is not made
                raise NotADirectoryError(errno.ENOTDIR, f"{base} is not a directory")
            if not is_obeyed(place):
                raise PermissionError(errno.EACCES, "users other than root could change what is there")
            os.close(_make_ours(place, 0o700))
            return put(place)
        except OSError as error:
            why = error.strerror or str(error)
    where = ", ".join(places)
    raise OutputError("unwritable-file", "there is no place for generated files", where=where, why=why)


def _make_ours(directory: str, mode: int) -> int:
    """Return *directory*, opened. Missing ones are made with *mode*, whatever the umask is. Errors: `OSError`."""
    is_new = False
    if not os.path.isdir(directory):
        parent = os.path.dirname(directory)
        if not os.path.isdir(parent):
            os.close(_make_ours(parent, mode))
        # If it exists now, it was just made, or is not a directory: opening it fails then.
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, mode)
            is_new = True
    opened = _open_directory(directory)
    if is_new:
        os.fchmod(opened, mode)
    return opened


def _named(target: ContainerPath, content: str) -> tuple[str, bytes]:
    """Return the final name and the bytes of a generated file."""
    data = content.encode("utf-8", "surrogateescape")
    return f"{sha256(data).hexdigest()}-{target.rpartition('/')[2][-_NAME_LENGTH:]}", data


def _put(directory: str, name: str, data: bytes, mode: int) -> HostPath:
    """Return the file *name* in *directory* with *data*, written if it is missing. *mode* is for a new directory."""
    place = _make_ours(directory, mode)
    try:
        if not _holds(place, name, data):
            with _part(place, data, 0o444) as part:  # whatever the umask says: a container's user may be another one
                _name(place, part, name, data)
    finally:
        os.close(place)
    return HostPath(f"{directory}/{name}")


def _open_directory(path: str) -> int:
    """Return *path*, opened, so that it cannot be exchanged any more. Errors: `OSError`."""
    place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(place)
    # A directory in /tmp may have been made by another user, as a trap.
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(place)
        raise PermissionError(errno.EACCES, "it belongs to another user, or others may write to it")
    return place


@contextlib.contextmanager
def _part(place: int, data: bytes, mode: Optional[int], owner: Optional[tuple[int, int]] = None) -> Iterator[str]:
    """Yield the random name of a new file with *data* in the directory *place*, which is removed in the end.

    *mode*, *owner*: as for `replace`.
    """
    part = f".{os.urandom(16).hex()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(part, flags, 0o666 if mode is None else mode, dir_fd=place)
    try:
        try:
            write_all(file, data)
            found = os.fstat(file)
            if owner is not None and owner != (found.st_uid, found.st_gid):
                os.fchown(file, *owner)
            if mode is not None:
                os.fchmod(file, mode)
            os.fsync(file)  # a full disk may be reported only now
        finally:
            os.close(file)
        yield part
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=place)


def write_all(file: int, data: bytes) -> None:
    """Write *data* to the open *file*, however often that takes. Errors: `OSError`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _name(place: int, part: str, name: str, data: bytes) -> None:
    """Give the file *part* its final *name*, unless an intact file has it. A damaged one is replaced."""
    try:
        os.link(part, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EEXIST and error.errno not in _NO_LINKS:
            raise
        if not _holds(place, name, data):
            os.rename(part, name, src_dir_fd=place, dst_dir_fd=place)


def _holds(place: int, name: str, data: bytes) -> bool:
    """Return whether *name* is a regular file with *data* that only the caller can change."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return False
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return False
        return found.st_size == len(data) and read_up_to(len(data), file) == data
    except OSError:
        return False
    finally:
        os.close(file)
