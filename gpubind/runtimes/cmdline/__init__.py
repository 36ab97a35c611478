"""The command lines of other programs: `programs.RuntimeProgram` of a runtime, `reader.parse_options` of any."""
