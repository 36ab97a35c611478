"""plan: the files, nodes and variables that a container gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from gpubind.api.verb import verb
from gpubind.host import Host, ListFile
from gpubind.model import Plan, Request
from gpubind.planner.placement import Layout
from gpubind.planner.planning import PlanQuery, plan_host

if TYPE_CHECKING:
    from gpubind.image.facts import Image
    from gpubind.runtimes.edits import RuntimeArguments
    from gpubind.runtimes.runtime import Start


@verb
def plan(
    host: Host,
    request: Request,
    listfile: Optional[ListFile] = None,
    image: Optional[Image] = None,
    layout: Optional[Layout] = None,
    *,
    start: Optional[Start] = None,
) -> Plan:
    """Return the plan for containers on *host*, of *image* if one is given.

    *layout* places the files in the container; without it, the runtime of *start* does, else they are below /.gpubind.
    *listfile* replaces the list file in force. Errors: as `gpubind.planner.planning.plan_host`.
    """
    if start is not None:
        from gpubind.launch.prepare import host_for, layout_of

        host, layout = host_for(host, start, image), layout or layout_of(start, image)
    return plan_host(host, PlanQuery(request, listfile), image, layout)


@verb
def words(plan: Plan, start: Start, image: Optional[Image] = None) -> Optional[RuntimeArguments]:
    """Return *plan* in the arguments of the runtime of *start*: options, binds, variables, and Decisions.

    Generated files are written to the caller's cache first, as the arguments name them. None if the runtime needs an
    image for its arguments. Errors: `UsageError` (code `other-layout`) for a plan with another layout than that of the
    start, or whose variables would choose other GPUs there; `RuntimeLimitError` for a plan that the runtime cannot
    express; `OutputError`.
    """
    from gpubind.api.layout import need_layout
    from gpubind.launch.prepare import FilePolicy, in_image, layout_of, write_start_files

    need_layout(layout_of(start, plan.image), plan, start.runtime.name)
    start = in_image(start, image)
    return start.runtime.arguments(plan, start, write_start_files(plan, start, FilePolicy()))
