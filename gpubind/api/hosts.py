"""A host that a request names, and that its verb opens."""

from __future__ import annotations

from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.open import open_host


class HostRef(NamedTuple):
    """A host, as a user names it; this machine if nothing is named."""

    name: Optional[str] = None
    """A record: a file, or the name of a bundled one."""
    root: Optional[str] = None
    dev_root: Optional[str] = None
    label: str = ""
    """What people call it."""

    def open(self) -> Host:
        """Return the host. Errors: as `open_host`."""
        return open_host(self.name, self.root, self.dev_root)
