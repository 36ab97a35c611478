"""The host of a plan: this machine, or a record. Entry: `open.open_host`; `survey.look_around` makes a record."""

from gpubind.host.base import Host, Identity, ListFile, RunResult, Uname

__all__ = ["Host", "Identity", "ListFile", "RunResult", "Uname"]
