"""4. Plans: the files and devices that a container gets, their places, and its environment.

Entry: `planning.plan_host`. Only `planning` and `like` read a host; the rest is pure.
"""

from gpubind.planner.plan import empty_plan, finding_order, make_plan

__all__ = ["empty_plan", "finding_order", "make_plan"]
