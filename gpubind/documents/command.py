"""The command line of a dry run, as `gpubind.command/1` (data/command.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping

from gpubind.documents.text import render_document
from gpubind.runtimes.runtime import Command


def render_command_json(command: Command, environ: Mapping[str, str]) -> str:
    """Return the document: the environment of *command* as its difference to *environ*, the caller's."""
    variables = command.environ
    members = {
        "argv": command.argv,
        "set": {name: variables[name] for name in sorted(variables) if environ.get(name) != variables[name]},
        "unset": sorted(name for name in environ if name not in variables),
        "file": command.file,
        "changed": command.changed,
        "findings": [finding.to_dict() for finding in command.findings],
    }
    return render_document("gpubind.command/1", members)
