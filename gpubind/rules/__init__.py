"""Rules: findings that the planner does not know, one function for each rule. `table.check` calls those that apply to a
job.

A rule yields a finding for each fault that it finds; its docstring names what it reports. `table` imports all rules; a
start without --check does not import it.
"""
