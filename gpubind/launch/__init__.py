"""Prepare a start and execute it: `prepare.prepare`, `start.make_command`, `start.become`; `render.print_plan`."""
