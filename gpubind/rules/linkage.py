"""The files with which a plan's files are linked in the container of a check: `linkage_of`."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.loader.linkage import LinkedFile, linked_files, linked_in_plan, linked_outside
from gpubind.model import Decision, Plan, RootedPath
from gpubind.rules.preflight import Preflight


def linkage_of(preflight: Preflight) -> tuple[LinkedFile, ...]:
    """Return the linked files of the plan's libraries and programs, and of the program that will run.

    These include driver files that the plan leaves out because of the image.
    """
    mounts = [mount for mount in preflight.plan.mounts if mount.kind in ("library", "binary")]
    if not preflight.has_image:
        return linked_in_plan(preflight.host.driver, mounts)
    container, file = preflight.container, preflight.chain.file if preflight.has_program else None
    programs = () if file is None else (file.path,)
    outside = (RootedPath(decision.path or "") for decision in left_out(preflight.plan))
    return (
        *linked_files(container, (*programs, *(mount.target for mount in mounts))),
        *(linked_outside(container, preflight.host.driver, path) for path in dict.fromkeys(outside)),
    )


def left_out(plan: Plan) -> Iterator[Decision]:
    """Yield the Decisions on host files that the plan leaves out because of what the image has or lacks."""
    of_sides = (decision for decision in plan.decisions if decision.step == "side")
    return (decision for decision in of_sides if decision.verdict == "left-out" and decision.path)
