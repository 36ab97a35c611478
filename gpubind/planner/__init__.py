"""The plan: which of the inventory a container gets, where it lands, and what its environment needs. Pure."""

from gpubind.planner.plan import empty_plan, finding_order, make_plan

__all__ = ["empty_plan", "finding_order", "make_plan"]
