"""What is asked of every runtime, answered by the module of the one that a start is by."""

from __future__ import annotations

from typing import Optional

from gpubind.model import Brought, ContainerPath, Plan
from gpubind.planner.placement import Layout
from gpubind.runtimes import bwrap, singularity, singularity_brought
from gpubind.runtimes.start import Start, Words
from gpubind.tree import Tree


def layout_of(start: Start) -> Layout:
    """Where a plan for *start* lands, and whether the container's /dev will hold the planned nodes alone."""
    return bwrap.LAYOUT if start.program == "bwrap" else singularity.layout_of(start)


def generated(plan: Plan, start: Start, image: Optional[Tree]) -> dict[ContainerPath, str]:
    """The texts of all generated files, of *plan* and of *start* itself, by their place in the container."""
    own = {} if start.program == "bwrap" else singularity.generated(plan, start, image)
    return {**plan.generated, **own}


def words(plan: Plan, start: Start, image: Optional[Tree]) -> Optional[Words]:
    """*plan* in the runtime's words; None for bubblewrap without an image. Errors: `RuntimeLimitError`."""
    if start.program == "bwrap":
        return None if image is None else bwrap.words(plan, start, image)
    return singularity.words(plan, start, image)


def brought(plan: Plan, start: Start, image: Optional[Tree]) -> Optional[Brought]:
    """What *start* brings beside *plan*; None for bubblewrap without an image."""
    if start.program == "bwrap":
        return None if image is None else bwrap.brought(plan, start, image)
    return singularity_brought.brought(start)
