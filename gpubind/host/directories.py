"""Where this machine keeps what a user or a site has written for gpubind, and the list file that is in force."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Literal, Optional

from gpubind.errors import HostReadError
from gpubind.host.base import LIST_FILES, Ignored, ListFile
from gpubind.host.files import read_if_there
from gpubind.host.trust import acts_as_root, writable_by_others

SITE_DIRECTORY = "/etc/gpubind"
LIST_LIMIT = 1 << 20


def xdg_directory(environ: Mapping[str, str], variable: str, below_home: str) -> str:
    """gpubind's own directory below `$XDG_...`, else below the home; empty if the environment names neither.

    Source: XDG Base Directory Specification; relative values are to be ignored.
    """
    base = environ.get(variable, "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        base = f"{home}/{below_home}" if home.startswith("/") else ""
    return f"{base}/gpubind" if base else ""


def list_file_places(name: str, environ: Optional[Mapping[str, str]] = None) -> tuple[tuple[str, str], ...]:
    """Where a user's or a site's list file may be: (path, label), the user's first."""
    places = [(f"{SITE_DIRECTORY}/{name}", f"{SITE_DIRECTORY}/{name}")]
    users = xdg_directory(os.environ if environ is None else environ, "XDG_CONFIG_HOME", ".config")
    if users:
        places.insert(0, (f"{users}/{name}", f"$XDG_CONFIG_HOME/gpubind/{name}"))
    return tuple(places)


def ignored(environ: Mapping[str, str]) -> Iterator[Ignored]:
    """What is there by *environ* and does not count, for this is root's process and others could change it."""
    if not acts_as_root():
        return
    files = [path for name in ("config.toml", *LIST_FILES) for path, _ in list_file_places(name, environ)]
    caches = (xdg_directory(environ, "XDG_CACHE_HOME", ".cache"), environ.get("TMPDIR", ""))
    programs = environ.get("PATH", "").split(":")
    named: list[tuple[Literal["file", "cache", "programs"], str]] = [("file", path) for path in files]
    named += [("cache", path) for path in caches] + [("programs", path) for path in programs]
    for kind, path in dict.fromkeys(named):
        part = writable_by_others(path) if path.startswith("/") and (os.path.exists(path) or kind == "cache") else None
        if part is not None:
            yield Ignored(kind, path, part)


def list_file_in_force(name: str, environ: Optional[Mapping[str, str]] = None) -> Optional[ListFile]:
    """The user's list file *name*, else the site's; None if there is neither, or none that root may believe.

    Errors: `HostReadError` (code `unreadable-file`) for one that is there and cannot be read, or is too large.
    """
    for path, label in list_file_places(name, environ):
        try:
            data = read_if_there(path, LIST_LIMIT)
        except OSError as error:
            why = error.strerror or str(error)
            raise HostReadError("unreadable-file", "a list file cannot be read", where=path, why=why) from error
        if data is not None:
            return ListFile(label, data, shipped=False)
    return None
