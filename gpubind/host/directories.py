"""Where this machine keeps what a user or a site has written for gpubind, and the list file that is in force."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Optional

from gpubind.errors import HostReadError
from gpubind.host.base import ListFile

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


def list_file_places(name: str) -> tuple[tuple[str, str], ...]:
    """Where a user's or a site's list file may be: (path, label), the user's first."""
    places = [(f"{SITE_DIRECTORY}/{name}", f"{SITE_DIRECTORY}/{name}")]
    users = xdg_directory(os.environ, "XDG_CONFIG_HOME", ".config")
    if users:
        places.insert(0, (f"{users}/{name}", f"$XDG_CONFIG_HOME/gpubind/{name}"))
    return tuple(places)


def list_file_in_force(name: str) -> Optional[ListFile]:
    """The user's list file *name*, else the site's; None if there is neither.

    Errors: `HostReadError` (code `unreadable-file`) for one that is there and cannot be read, or is too large.
    """
    for path, label in list_file_places(name):
        try:
            with open(path, "rb") as file:
                data = file.read(LIST_LIMIT + 1)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            if not os.access(os.path.dirname(path), os.X_OK):  # somebody else's home: sudo, cron, a job's prologue
                continue
            raise _unreadable(path, error.strerror or "") from error
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from error
        if len(data) > LIST_LIMIT:
            raise _unreadable(path, f"larger than {LIST_LIMIT} bytes")
        return ListFile(label, data, shipped=False)
    return None


def _unreadable(path: str, why: str) -> HostReadError:
    return HostReadError("unreadable-file", "a list file cannot be read", where=path, why=why)
