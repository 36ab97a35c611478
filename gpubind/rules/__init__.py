"""Findings that the planner does not know, one function for each rule. `table.check` calls those that apply to a job.

`table` imports all rules; a start without --check does not import it.
"""
