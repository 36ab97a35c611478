"""The verbs of the command line and the library, a module for each.

A verb is one function from a request to a result: it prints nothing, exits nowhere, and reads neither settings nor
standard input. `gpubind/__init__.py` exports the functions of the library from the same modules; `@verb` checks their
arguments. This package exports nothing, because a verb has the name of its module.
"""
