"""Host: a driver tree and a device tree, and what is known of the process that asks."""

from gpubind.host.base import Host, Identity, ListFile, RunResult, Uname
from gpubind.host.live import LiveHost
from gpubind.host.recorded import RecordedHost
from gpubind.host.survey import survey

__all__ = ["Host", "Identity", "ListFile", "LiveHost", "RecordedHost", "RunResult", "Uname", "survey"]
