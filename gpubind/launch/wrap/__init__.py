"""`gpubind wrap -- RUNTIME ARGS...`: an existing command line, parsed by the rules of its program.

`command.parse_command` returns the start in it; `command.rewrite` replaces the GPU flags with other arguments. Only
`passing.pass_through` inspects or starts anything, for a line without GPUs.
"""
