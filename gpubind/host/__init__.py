"""Host: a driver tree and a device tree, and what is known of the process that asks.

This machine, records, and the survey that makes those are separate modules, loaded on demand.
"""

from gpubind.host.base import Host, Identity, ListFile, RunResult, Uname

__all__ = ["Host", "Identity", "ListFile", "RunResult", "Uname"]
