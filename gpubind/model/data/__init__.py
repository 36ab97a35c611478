"""Files that ship with the package: the list files, the tables and the recorded hosts.

The memo signs them as it signs gpubind's own modules: `READ` names those on which the command depends.
"""

from __future__ import annotations

import errno
from functools import cache
from posixpath import dirname, join
from typing import Any, Optional

from gpubind.errors import UnseenError, UsageError
from gpubind.model.files import ANSWERS

_PACKAGE = dirname(dirname(dirname(__file__)))
"""The path that the loader uses. The loader of a zip that is started as `./gpubind.pyz` finds its files by no other
path.
"""
_ABSENT_ERRNOS = (None, 0, errno.EISDIR, *ANSWERS)
"""The error numbers of a missing name in a zip, of a directory, and of a path without a file."""
BUNDLED_HOSTS = ("debian13-nvidia550", "mi300x-rocm62")
"""The names of the recorded hosts that ship."""
READ: dict[str, bool] = {}
"""The paths of the files that this process looked for, each with whether the answer is certain."""


def read_data(name: str) -> bytes:
    """Return the bytes of *name*: `etc/nvliblist.conf`, `model/data/hosts/debian13-nvidia550.json`.

    The package's own loader reads it, in a wheel, a zip on sys.path, an editable install or a checkout. In a checkout,
    etc/ is next to the package, in a wheel inside it. Errors: `UnseenError` (code `unreadable-file`).
    """
    for base in (_PACKAGE, dirname(_PACKAGE)):
        path = join(base, *name.split("/"))
        READ[path] = False
        data = _read(path)
        READ[path] = True
        if data is not None:
            return data
    raise UsageError("no-data", f"gpubind ships no `{name}`", where=_PACKAGE, hint="reinstall gpubind")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the content of data/NAME.json. All callers share it and must not change it."""
    import json  # a start that a memo serves reads no table

    loaded: dict[str, Any] = json.loads(read_data(f"model/data/{name}.json"))
    return loaded


def _read(path: str) -> Optional[bytes]:
    """Return the bytes of *path*, at the second try if the first fails; None if there is no such file."""
    why = "it was changed while it was read"
    for _ in range(2):
        try:
            data: bytes = __spec__.loader.get_data(path) or b""  # type: ignore[union-attr]
            facts = getattr(__spec__.loader, "path_stats", None)  # a zip has none, and its bytes have a checksum
            if facts is None or len(data) >= facts(path)["size"]:
                return data
        except OSError as error:
            if error.errno in _ABSENT_ERRNOS:
                return None
            why = error.strerror or str(error)
    raise UnseenError("unreadable-file", "a file cannot be read", where=path, why=why)
