"""Findings beyond what planning itself knows: one small function a rule."""

from gpubind.rules.image import order_findings
from gpubind.rules.preflight import Preflight, preflight
from gpubind.rules.table import RULES, Rule, applying, asked, check

__all__ = ["RULES", "Preflight", "Rule", "applying", "asked", "check", "order_findings", "preflight"]
