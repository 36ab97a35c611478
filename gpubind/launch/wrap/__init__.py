"""`gpubind wrap -- RUNTIME ARGS...`: an existing command line, read by its program's own rules.

`command.parse_command` returns the start in it, `command.rewritten` the same words without the GPU flags and with
others in their place. Nothing is inspected or started, but by `passing.pass_through` for a line without GPUs.
"""
