"""`gpubind wrap -- RUNTIME ARGS...`: a command line that somebody already has, read by its program's own rules.

Pure: nothing is looked at or started here. `command.parse_command` says what the words mean, `command.rewritten` gives
them back with the GPU flags taken out and other words in their place.
"""
