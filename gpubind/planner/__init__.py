"""4. Which of the inventories a container gets, where it lands, and what its environment needs.

Entry: `planning.plan_host`. Only `planning` and `like` read a host; the rest is pure.
"""

from gpubind.planner.plan import empty_plan, finding_order, make_plan

__all__ = ["empty_plan", "finding_order", "make_plan"]
