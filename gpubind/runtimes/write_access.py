"""What a runtime without a read-only bind would let a container write: allowed only where the caller could not anyway.

A container of an ordinary user's cannot write a driver file that root owns, whatever the bind says. Root's can.
"""

from __future__ import annotations

from gpubind.errors import RuntimeLimitError
from gpubind.model import Finding, Plan
from gpubind.model.findings import counted, finding
from gpubind.runtimes.edits import Edits, vendor_of
from gpubind.runtimes.start import Start


def writable_findings(edits: Edits, plan: Plan, start: Start, title: str) -> tuple[Finding, ...]:
    """That *title*, a runtime without a read-only bind, binds the files of *edits* as they are.

    Errors: `RuntimeLimitError` (code `writable-bind`) for a file that the caller can write, unless that is allowed.
    """
    sources = [bind.source for bind in edits.binds if bind.read_only]
    if not sources:
        return ()
    open_to_all = [source for source in sources if source in start.writable]
    if open_to_all and not start.allow_writable:
        raise RuntimeLimitError(
            "writable-bind",
            f"a program in the container could write {counted(len(open_to_all), 'file')} of the driver",
            where=open_to_all[0],
            why=f"{title} has no read-only bind, and the caller may write the file",
            hint="start it as an ordinary user, use another runtime, or accept that with --allow-writable",
        )
    case = "writable" if open_to_all else "protected"
    return (
        finding(
            "no-read-only-bind",
            subject="mounts",
            case=case,
            severity="warning" if open_to_all else "note",
            vendor=vendor_of(plan),
            runtime=title,
            files=counted(len(open_to_all or sources), "file"),
        ),
    )
