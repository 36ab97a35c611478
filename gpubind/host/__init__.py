"""Host: a driver tree and a device tree, and what is known of the process that asks.

Records and the survey that makes them are modules of their own, loaded by those who need them.
"""

from gpubind.host.base import Host, Identity, ListFile, RunResult, Uname
from gpubind.host.live import LiveHost

__all__ = ["Host", "Identity", "ListFile", "LiveHost", "RunResult", "Uname"]
