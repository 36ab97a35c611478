"""A host that a request names and its verb opens."""

from __future__ import annotations

from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.open import open_host


class HostRef(NamedTuple):
    """A host as the user names it; this machine if there is no name."""

    name: Optional[str] = None
    """A record: a file, or the name of a bundled one."""
    root: Optional[str] = None
    dev_root: Optional[str] = None
    label: str = ""
    """Its name for people."""

    def open(self) -> Host:
        return open_host(self.name, self.root, self.dev_root)
