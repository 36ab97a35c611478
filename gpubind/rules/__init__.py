"""Findings beyond what planning itself knows: one small function a rule, one table."""

from gpubind.rules.preflight import Preflight, Rule
from gpubind.rules.table import RULES, check, nothing_to_bind

__all__ = ["RULES", "Preflight", "Rule", "check", "nothing_to_bind"]
