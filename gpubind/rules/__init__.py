"""Findings beyond what planning itself knows: one small function a rule.

`table` loads all of them, and is loaded where rules are asked: a start without --check loads none.
"""
