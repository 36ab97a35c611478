"""Whether a plan has the layout of a start or of a document."""

from __future__ import annotations

from gpubind.errors import UsageError
from gpubind.formats.driver.gpu_names import GPU_VARIABLES
from gpubind.model import Plan
from gpubind.planner.placement import Layout


def other_layout(plan: Plan, whose: str, hint: str) -> UsageError:
    """Return the error that *plan* has another layout than the one that *whose* describes."""
    what = f"the plan is for the layout `{plan.layout}`, and {whose} another"
    return UsageError("other-layout", what, hint=f"plan with {hint}")


def need_layout(layout: Layout, plan: Plan, name: str) -> None:
    """Raise `UsageError` (code `other-layout`) if *plan* has another layout than *layout*, of the runtime *name*."""
    if layout.name != plan.layout:
        raise other_layout(plan, f"containers of {name} have", f"start=open_runtime(host, {name!r})")
    if layout.isolated != plan.isolated and any(variable.name in GPU_VARIABLES for variable in plan.env):
        nodes = ("those of all GPUs", "the planned nodes alone")
        what = f"the plan is for a /dev with {nodes[plan.isolated]}, and this start's has {nodes[layout.isolated]}"
        why = "the variables that choose GPUs would name others"
        raise UsageError("other-layout", what, why=why, hint=f"plan with start=open_runtime(host, {name!r}, ...)")
