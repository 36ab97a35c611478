"""Write a directory of links: `put_links`. It is complete or unchanged at any time.

The directory is itself a link to a hidden sibling, whose name contains a hash of all links. So renaming one link
replaces the directory atomically, and a change by another program is recognised.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Mapping
from typing import Optional

from gpubind.errors import OutputError
from gpubind.machine import system
from gpubind.machine.listener import mark_uncacheable
from gpubind.machine.trust import is_trusted_path
from gpubind.model import HostPath
from gpubind.model.digest import sha256_hex

_LENGTH = 16
"""Hexadecimal digits of the hash in a name."""


def put_links(links: Mapping[str, HostPath], directory: str) -> bool:
    """Make *directory* contain exactly *links*, by their relative paths. Return whether anything changed.

    Errors: `OutputError`: code `other-directory` if *directory* exists and gpubind did not make it; code
    `unwritable-file` if it cannot be written, and for root also if other users could change it.
    """
    mark_uncacheable("a directory is written")
    parent, name = os.path.split(system.absolute(directory))
    hidden_name = f".{name}.{_digest(links)}"
    try:
        if not directory:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not is_trusted_path(parent):
            raise PermissionError(errno.EACCES, "users other than root could change what is there")
        with system.open_directory(parent) as opened:
            with contextlib.suppress(OSError):  # some network file systems have no locks for directories
                opened.lock()  # another run must not remove the directory that this one is about to use
            before = _resolve_directory(parent, name)
            if before == hidden_name:
                return False
            if not system.exists(f"{parent}/{hidden_name}", follow=False):
                _make_links(links, f"{parent}/{hidden_name}")
            elif _read_links(f"{parent}/{hidden_name}") != links:
                raise _other_directory_error(f"{parent}/{hidden_name}")
            _replace_link(parent, name, hidden_name, is_empty=before == "")
            if before:
                _remove(f"{parent}/{before}")
    except OSError as error:
        why = error.strerror or str(error)
        problem = "the directory of links cannot be written"
        raise OutputError("unwritable-file", problem, where=directory, why=why) from error
    return True


def _resolve_directory(parent: str, name: str) -> Optional[str]:
    """Return the target of the link *name*; None if there is no such file, and empty for an empty directory.

    Errors: `OutputError` (code `other-directory`) for anything that `put_links` did not make.
    """
    path = os.path.join(parent, name)
    try:
        kind = stat.S_IFMT(system.lstat(path).st_mode)
    except FileNotFoundError:
        return None
    if kind == stat.S_IFDIR and not system.listdir(path):
        return ""
    target = system.readlink(path) if kind == stat.S_IFLNK else ""
    if not re.fullmatch(rf"{re.escape(f'.{name}.')}[0-9a-f]{{{_LENGTH}}}", target):
        raise _other_directory_error(path)
    links = _read_links(f"{parent}/{target}")
    if links is None or not target.endswith(_digest(links)):
        raise _other_directory_error(path)
    return target


def _other_directory_error(path: str) -> OutputError:
    hint = "name a directory that does not exist, or remove this one yourself"
    return OutputError("other-directory", "it holds something else than links that gpubind made", where=path, hint=hint)


def _digest(links: Mapping[str, HostPath]) -> str:
    return sha256_hex("".join(f"{name}\0{links[name]}\0" for name in sorted(links)))[:_LENGTH]


def _read_links(directory: str) -> Optional[dict[str, HostPath]]:
    """Return the links in *directory* and below; None if it has other files, or if other users may change it.

    Errors: `OSError`.
    """
    links: dict[str, HostPath] = {}
    facts = system.lstat(directory)
    if facts.st_uid != system.effective_user() or facts.st_mode & 0o022 or not stat.S_ISDIR(facts.st_mode):
        return None
    subdirectories = [""]
    for below in subdirectories:  # grows
        for name in system.listdir(f"{directory}/{below}"):
            path = f"{below}{name}"
            kind = stat.S_IFMT(system.lstat(f"{directory}/{path}").st_mode)
            if kind == stat.S_IFDIR and not below:
                subdirectories.append(f"{path}/")
            elif kind != stat.S_IFLNK:
                return None
            else:
                links[path] = HostPath(system.readlink(f"{directory}/{path}"))
    return links


def _make_links(links: Mapping[str, HostPath], directory: str) -> None:
    """Create *directory* with *links* under a temporary name, then rename it."""
    part = f"{directory}.{system.random_name()}.part"
    try:
        system.mkdir(part, 0o755)
        system.chmod(part, 0o755)  # whatever the umask is
        for name, target in links.items():
            place = os.path.dirname(f"{part}/{name}")
            if not system.is_directory(place):
                system.mkdir(place)
                system.chmod(place, 0o755)
            system.symlink(target, f"{part}/{name}")
        system.rename(part, directory)
    except BaseException:
        _remove(part)
        raise


def _replace_link(parent: str, name: str, target: str, *, is_empty: bool) -> None:
    """Make *name* a link to *target*; *is_empty*: remove the empty directory *name* first."""
    part = f"{parent}/{target}.{system.random_name()}.part"
    system.symlink(target, part)
    try:
        if is_empty:
            system.rmdir(f"{parent}/{name}")
        system.rename(part, f"{parent}/{name}")
    except BaseException:
        with contextlib.suppress(OSError):
            system.unlink(part)
        raise


def _remove(directory: str) -> None:
    """Remove *directory* and its links. Other files that were added meanwhile stay."""
    with contextlib.suppress(OSError):
        for name in system.listdir(directory):
            path = f"{directory}/{name}"
            kind = stat.S_IFMT(system.lstat(path).st_mode)
            if kind == stat.S_IFLNK:
                system.unlink(path)
            elif kind == stat.S_IFDIR:
                _remove(path)
        system.rmdir(directory)
