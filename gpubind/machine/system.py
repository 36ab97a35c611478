"""The operating system: the only module that queries it, and the only one that changes files. It loads next to nothing.

The memo's recorder (`listener.recorder`) gets each query with its answer, and each change. An open file or directory
knows its path: queries below an open directory are reported with the whole path by which it was opened.
"""

from __future__ import annotations

import io
import os
import stat as _stat

from gpubind.machine import listener

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Callable, Mapping
    from typing import IO, Any, BinaryIO, Optional, TypeVar, Union

    from _typeshed import WriteableBuffer
    from typing_extensions import Self

    T = TypeVar("T")
    Path = Union[str, os.PathLike[str]]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OWN = "/proc/self/"
"""A directory whose links no other process can change."""
_LINKS_LIMIT = 200
"""The maximum number of links in a real path. The kernel follows 40 (path_resolution(7)), so it opens no path with
more.
"""


def _heard(kind: str, question: Any, query: Callable[[], T]) -> T:
    """Return the result of *query*, and report it or its error to the recorder."""
    recorder = listener.recorder
    if recorder is None:
        return query()
    try:
        answer = query()
    except (OSError, KeyError) as error:
        recorder.note(kind, question, (error.errno or 0) if isinstance(error, OSError) else None)
        raise
    recorder.answered(kind, question, answer)
    return answer


def _read(path: str, query: Callable[[], T]) -> T:
    """Return the result of *query*. If it fails, report to the recorder that the content of *path* is unknown."""
    try:
        return query()
    except OSError as error:
        if listener.recorder is not None:
            listener.recorder.failed(error.errno, path)
        raise


def _absolute(path: Path) -> str:
    path = os.fsdecode(path)
    return path if path.startswith("/") or listener.recorder is None else f"{os.getcwd()}/{path}"


# Files by their paths.


def stat(path: Path) -> os.stat_result:
    """Return `os.stat`: links are followed."""
    return _heard("stat", _absolute(path), lambda: os.stat(path))


def lstat(path: Path) -> os.stat_result:
    return _heard("lstat", _absolute(path), lambda: os.lstat(path))


def readlink(path: str) -> str:
    return _heard("link", _absolute(path), lambda: os.readlink(path))


def get_xattr(path: str, name: str) -> bytes:
    """Return the extended attribute *name* of *path*. If *path* is a link, it is that of the link."""
    return _heard("attribute", (_absolute(path), name), lambda: os.getxattr(path, name, follow_symlinks=False))


def access(path: str, mode: int, *, effective: bool = False) -> bool:
    """Return `os.access`, for the *effective* user and groups where the platform supports that."""
    effective = effective and os.access in os.supports_effective_ids
    question = _absolute(path), mode, effective
    return _heard("access", question, lambda: os.access(path, mode, effective_ids=effective))


def _mode(path: str, *, follow: bool = True) -> int:
    """Return the mode of *path*; 0 if it cannot be inspected."""
    try:
        return (stat if follow else lstat)(path).st_mode
    except (OSError, ValueError):
        return 0


def exists(path: str, *, follow: bool = True) -> bool:
    """Return whether *path* exists; False if that cannot be inspected."""
    return _mode(path, follow=follow) != 0


def is_file(path: str) -> bool:
    """Return whether *path* is a regular file; False if that cannot be inspected."""
    return _stat.S_ISREG(_mode(path))


def is_directory(path: str) -> bool:
    """Return whether *path* is a directory; False if that cannot be inspected."""
    return _stat.S_ISDIR(_mode(path))


def listdir(path: str) -> list[str]:
    if listener.recorder is not None:
        listener.recorder.listed(real_path(path))
    return _read(path, lambda: os.listdir(path))


def real_path(path: Path) -> str:
    """Return `os.path.realpath`; each name on the way is a query."""
    path = os.fsdecode(path)
    return _followed("/", path if path.startswith("/") else f"{os.getcwd()}/{path}", {})[0]


def _followed(directory: str, path: str, targets: dict[str, Optional[str]]) -> tuple[str, bool]:
    """Return where *path* leads from *directory*, and False if a link leads back to itself.

    *targets*: the resolved target of each link; None for links that are being followed.
    """
    directory = "/" if path.startswith("/") else directory
    names = path.split("/")[::-1]
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            directory = os.path.dirname(directory)
            continue
        entry = os.path.join(directory, name)
        try:
            is_link = _stat.S_ISLNK(lstat(entry).st_mode)
        except OSError:
            is_link = False
        if not is_link:
            directory = entry
            continue
        target = targets.get(entry)
        if target is None:
            is_whole = entry not in targets and len(targets) < _LINKS_LIMIT
            if is_whole:
                targets[entry] = None
                target, is_whole = _followed(directory, readlink(entry), targets)
            if not is_whole:
                return os.path.normpath(os.path.join(target or entry, *names[::-1])), False
            targets[entry] = target
        directory = target or directory
    return directory, True


def open_file(path: str, flags: int = os.O_RDONLY, mode: int = 0o777) -> OpenFile:
    """Open *path*."""
    if flags & _WRITES or listener.recorder is None:
        return OpenFile(path, _opened(path, flags, lambda: os.open(path, flags, mode)))
    place = _absolute(path)
    if not place.startswith(_OWN):
        directory, name = os.path.split(place.rstrip("/"))
        is_followed = not flags & os.O_NOFOLLOW or not name
        place = real_path(place) if is_followed else os.path.join(real_path(directory), name)
    return OpenFile(place, _opened(place, flags, lambda: os.open(path, flags)))


def open_directory(path: str, flags: int = os.O_RDONLY) -> OpenDirectory:
    """Open the directory *path*."""
    opened = open_file(path, flags | os.O_DIRECTORY | os.O_CLOEXEC)
    return OpenDirectory(opened.path, opened.descriptor)


def _opened(path: str, flags: int, open_it: Callable[[], int]) -> int:
    """Return a descriptor of *path*, which has no links in it, and report the read or write to the recorder."""
    recorder = listener.recorder
    if recorder is None:
        return open_it()
    if flags & _WRITES:
        if path != os.devnull:
            recorder.refuse(f"written: {path}")
        return open_it()
    looks = recorder.opens(path, flags)
    try:
        descriptor = open_it()
    except OSError as error:
        recorder.not_opened(path, looks, error)
        raise
    if looks is None:
        recorder.refuse(f"changed meanwhile: {path}")
    return descriptor


# Open files and directories.


class Opened:
    """An open file or directory, with the path by which it was opened. A context manager that closes it."""

    __slots__ = ("descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.descriptor)

    def facts(self) -> os.stat_result:
        """Return `os.fstat`."""
        return _read(self.path, lambda: os.fstat(self.descriptor))

    def set_mode(self, mode: int) -> None:
        _changes(self.path)
        os.fchmod(self.descriptor, mode)

    def attributes(self) -> tuple[str, ...]:
        """Return the names of its extended attributes. No trace signs them."""
        listener.mark_uncacheable(f"extended attributes of {self.path}")
        return tuple(os.listxattr(self.descriptor))

    def attribute(self, name: str) -> bytes:
        listener.mark_uncacheable(f"an extended attribute of {self.path}")
        return os.getxattr(self.descriptor, name)


class OpenFile(Opened):
    """An open file."""

    __slots__ = ()

    def read(self, size: int) -> bytes:
        return _read(self.path, lambda: os.read(self.descriptor, size))

    def read_at(self, offset: int, size: int) -> bytes:
        return _read(self.path, lambda: os.pread(self.descriptor, size, offset))

    def write(self, data: bytes) -> None:
        """Write all of *data*."""
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(self.descriptor, remaining) :]

    def set_owner(self, uid: int, gid: int) -> None:
        _changes(self.path)
        os.fchown(self.descriptor, uid, gid)

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def stream(self) -> BinaryIO:
        """Return the file as a stream, which closes it."""
        return io.BufferedReader(_Stream(self))


class _Stream(io.FileIO):
    def __init__(self, file: OpenFile) -> None:
        super().__init__(file.descriptor)
        self._path = file.path

    def readinto(self, buffer: WriteableBuffer) -> int:
        return _read(self._path, lambda: io.FileIO.readinto(self, buffer))

    def read(self, size: Optional[int] = -1) -> bytes:
        return _read(self._path, lambda: io.FileIO.read(self, -1 if size is None else size))

    def readall(self) -> bytes:
        return _read(self._path, lambda: io.FileIO.readall(self))


class OpenDirectory(Opened):
    """An open directory. A name never leads outside of it, whatever is renamed meanwhile."""

    __slots__ = ()

    def at(self, name: str) -> str:
        """Return the path of *name*."""
        return f"{self.path.rstrip('/')}/{name}"

    def lstat(self, name: str) -> os.stat_result:
        return _heard("lstat", self.at(name), lambda: os.stat(name, dir_fd=self.descriptor, follow_symlinks=False))

    def readlink(self, name: str) -> str:
        return _heard("link", self.at(name), lambda: os.readlink(name, dir_fd=self.descriptor))

    def open(self, name: str, flags: int, mode: int = 0o777, *, follow: bool = False) -> OpenFile:
        """Open *name*; a link is followed only for writing, and only with *follow*."""
        path, flags = self.at(name), flags if follow else flags | os.O_NOFOLLOW
        return OpenFile(path, _opened(path, flags, lambda: os.open(name, flags, mode, dir_fd=self.descriptor)))

    def directory(self, name: str, flags: int = os.O_RDONLY) -> OpenDirectory:
        opened = self.open(name, flags | os.O_DIRECTORY | os.O_CLOEXEC)
        return OpenDirectory(opened.path, opened.descriptor)

    def names(self) -> list[str]:
        if listener.recorder is not None:
            listener.recorder.listed(self.path)
        return _read(self.path, lambda: os.listdir(self.descriptor))

    def rename(self, old: str, new: str) -> None:
        """Rename the file *old* to *new*, replacing any file of that name."""
        _changes(self.at(new))
        os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def link(self, old: str, new: str) -> None:
        """Give the file *old* the additional name *new*. Errors: `FileExistsError` if *new* exists."""
        _changes(self.at(new))
        os.link(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)

    def unlink(self, name: str) -> None:
        _changes(self.at(name))
        os.unlink(name, dir_fd=self.descriptor)

    def lock(self) -> None:
        """Wait until no other process has locked it; `close` unlocks it."""
        import fcntl

        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def entries(self) -> list[os.DirEntry[str]]:
        """Return its entries. No trace signs them."""
        listener.mark_uncacheable(f"the entries of {self.path}")
        with os.scandir(self.descriptor) as entries:
            return list(entries)


# Changes, after which no answer is stored.


def _changes(path: str) -> None:
    listener.mark_uncacheable(f"changed: {path}")


def mkdir(path: str, mode: int = 0o777) -> None:
    _changes(path)
    os.mkdir(path, mode)


def make_directories(path: str, mode: int = 0o777) -> None:
    """Make the directory *path* with its missing parents, if it is missing."""
    _changes(path)
    os.makedirs(path, mode, exist_ok=True)


def rename(old: str, new: str) -> None:
    _changes(new)
    os.rename(old, new)


def symlink(target: str, path: str) -> None:
    _changes(path)
    os.symlink(target, path)


def chmod(path: str, mode: int) -> None:
    _changes(path)
    os.chmod(path, mode)


def unlink(path: str) -> None:
    _changes(path)
    os.unlink(path)


def rmdir(path: str) -> None:
    _changes(path)
    os.rmdir(path)


def remove_tree(path: str) -> None:
    """Remove the directory *path*, as far as possible."""
    import shutil  # loads compressors

    _changes(path)
    shutil.rmtree(path, ignore_errors=True)


def random_name() -> str:
    """Return 32 random hexadecimal digits."""
    return os.urandom(16).hex()


def token() -> str:
    """Return a name that no other process uses."""
    return f"{os.getpid()}-{os.urandom(4).hex()}"


SYSTEM_LOG = "/dev/log"
_INFO_OF_USER = 14
"""Facility `user`, severity `info`."""


def write_system_log(text: str) -> None:
    """Send *text* to the system log, without waiting for it. Errors: `OSError`. Source: syslog(3), RFC 3164."""
    import socket  # only where a site asks for it

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.setblocking(False)
        connection.connect(SYSTEM_LOG)
        connection.send(f"<{_INFO_OF_USER}>gpubind[{os.getpid()}]: {text}".encode("utf-8", "surrogateescape"))


# The caller: facts in the name of a memo, or in the environment.


def environ() -> Mapping[str, str]:
    """Return the environment of this process. The recorder gets the names of the variables that are read."""
    return os.environ if listener.recorder is None else listener.recorder.environ


def set_variable(name: str, value: Optional[str]) -> None:
    """Set the variable *name* of this process to *value*, for modules that read it themselves; None unsets it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def user(uid: int) -> pwd.struct_passwd:
    """Return `pwd.getpwuid`. Errors: `KeyError`."""
    import pwd

    return _heard("user", uid, lambda: pwd.getpwuid(uid))


def user_called(name: str) -> tuple[int, tuple[int, ...]]:
    """Return the ID of the user *name*, and the groups, in order. Errors: `KeyError`, `ValueError`."""
    listener.mark_uncacheable("a user is asked about")
    import pwd

    account = pwd.getpwnam(name)
    return account.pw_uid, tuple(sorted({account.pw_gid, *os.getgrouplist(name, account.pw_gid)}))


def effective_user() -> int:
    return os.geteuid()


def real_user() -> int:
    return os.getuid()


def groups() -> tuple[int, ...]:
    """Return the groups of this process, in order."""
    return tuple(sorted({os.getegid(), *os.getgroups()}))


def uname() -> os.uname_result:
    return os.uname()


def current_directory() -> str:
    return os.getcwd()


def absolute(path: str) -> str:
    """Return `os.path.abspath`."""
    return os.path.abspath(path)


def is_terminal(descriptor: int) -> bool:
    return os.isatty(descriptor)


def descriptors_limit() -> int:
    """Return how many files this process may have open; -1 if there is no limit."""
    return os.sysconf("SC_OPEN_MAX")


def columns(descriptor: int) -> int:
    """Return the columns of the terminal *descriptor*; 80 if it does not report them."""
    try:
        return _heard("terminal", descriptor, lambda: os.get_terminal_size(descriptor)).columns or 80
    except OSError:
        return 80


def is_in_front(descriptor: int) -> bool:
    """Return whether this command is in the foreground of the terminal *descriptor*. Errors: `OSError`."""
    return os.tcgetpgrp(descriptor) == os.getpgrp()


def drop_output() -> None:
    """Redirect standard output to /dev/null, because flushing what is still buffered would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def write_error(text: bytes) -> None:
    """Write *text* to standard error, without a stream. Errors: `OSError`."""
    os.write(2, text)


def pipe() -> tuple[OpenFile, OpenFile]:
    """Return the read end and the write end of a new pipe."""
    read, write = os.pipe()
    return OpenFile("a pipe", read), OpenFile("a pipe", write)


def temporary_file() -> IO[bytes]:
    """Return a new unnamed file."""
    import tempfile

    listener.mark_uncacheable("a temporary file")
    return tempfile.TemporaryFile()


def named_temporary_file(suffix: str) -> IO[bytes]:
    """Return a new file that is removed when it is closed."""
    import tempfile

    listener.mark_uncacheable("a temporary file")
    return tempfile.NamedTemporaryFile(suffix=suffix)


def same_file(file: IO[bytes], label: str) -> OpenFile:
    """Return a duplicate of *file*, called *label*, that stays open when *file* is closed."""
    return OpenFile(label, os.dup(file.fileno()))


def size_of(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size
