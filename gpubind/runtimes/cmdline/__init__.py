"""The command lines of other programs: `programs.PROGRAMS` by name, `reader.read_options` for any options."""
