"""Files that ship with the package: the list files and the recorded hosts."""

from __future__ import annotations

import errno
import os

from gpubind.errors import UsageError
from gpubind.model.answers import answer_in, changed, could_not_look, facts, tried
from gpubind.observe import reads

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
"""As its loader has it: one of a zip that was started as `./gpubind.pyz` knows its files by no other name."""
_NO_FILE = (None, 0, errno.EISDIR)
"""What a zip has for a name that it lacks, and what a directory is."""
HOSTS = ("debian13-nvidia550", "mi300x-rocm62")
"""The recorded hosts that ship, by name."""


def read_data(name: str) -> bytes:
    """Return the bytes of *name*: `etc/nvliblist.conf`, `data/hosts/debian13-nvidia550.json`.

    Asks the package's own loader, so that a wheel, a zip on sys.path, an editable install and a checkout all answer.
    In a checkout etc/ is next to the package, in a wheel inside it.
    """
    loader = __spec__.loader
    assert loader is not None
    for base in (_PACKAGE, os.path.dirname(_PACKAGE)):
        path = os.path.join(base, *name.split("/"))
        reads(os.path.abspath(path))
        try:
            # None: no bytes for now, and not the end.
            data: bytes = tried(lambda: loader.get_data(path)) or b""  # type: ignore[attr-defined]  # noqa: B023
        except OSError as error:
            if error.errno not in _NO_FILE and answer_in(error) is None:
                raise could_not_look(path, error) from error
            continue
        found = facts(path)
        if found is not None and len(data) < found.st_size:
            raise could_not_look(path, changed())
        return data
    raise UsageError("no-data", f"gpubind ships no `{name}`", where=_PACKAGE, hint="reinstall gpubind")
