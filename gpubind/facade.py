"""The pipeline, end to end: a host, a request, a plan."""

from __future__ import annotations

from typing import Optional

from gpubind import __version__
from gpubind.host import Host, ListFile
from gpubind.host.open import open_host
from gpubind.model import Plan, Request
from gpubind.planner import make_plan
from gpubind.sources.nvidia import read_inventory

__all__ = ["open_host", "plan", "record"]


def plan(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Plan:
    """What a container needs of *host*.

    *listfile* takes the place of the list file in force. Errors: `NothingToBindError` when the host has no driver
    library and no device; `FormatError` (with the file named) for a malformed list file; `HostReadError`.
    """
    if request.like is not None:
        from gpubind.like import like_plan

        return like_plan(host, request)
    return make_plan([read_inventory(host, request, listfile)], request)


def record(host: Host, description: str = "", hostname: Optional[str] = None) -> str:
    """*host* as the text of a record: what `--host FILE` reads."""
    from gpubind.formats.record import dump_record
    from gpubind.host.survey import survey

    return dump_record(survey(host, description, hostname), __version__)
