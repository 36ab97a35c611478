"""Findings beyond what planning itself knows: one small function a rule, one table."""

from gpubind.rules.table import RULES, Rule, check_nothing, check_plan

__all__ = ["RULES", "Rule", "check_nothing", "check_plan"]
