"""The verbs: what the command line and the library do, a module for each.

A verb is one function from a request to a result: it prints nothing, exits nowhere, and reads neither settings nor
standard input. The functions of the library are in the same modules, and `gpubind/__init__.py` offers them: `@verb`
checks their arguments. Nothing is exported here, as a verb has the name of its module.
"""
