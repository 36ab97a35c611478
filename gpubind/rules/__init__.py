"""Findings that the planner does not know: one function a rule. `table.check` asks them about a `preflight.preflight`.

`table` loads all rules; a start without --check does not load it.
"""
