"""Host: a driver tree and a device tree, and what is known of the process that asks.

This machine, records, and the survey that makes those are modules of their own, loaded by those who need them.
"""

from gpubind.host.base import Host, Identity, ListFile, RunResult, Uname

__all__ = ["Host", "Identity", "ListFile", "RunResult", "Uname"]
