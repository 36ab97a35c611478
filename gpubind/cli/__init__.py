"""The command line: read it, call one library function, render its answer. `main.main` is the entry."""
