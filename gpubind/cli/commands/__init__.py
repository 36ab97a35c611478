"""The commands. The module of a command is loaded when the command is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubind.cli.declarations import Subcommand

STARTS = ("exec", "run", "shell")
MODULES = {
    **{name: name for name in ("plan", "record", "gpus", "cdi", "explain", "check", "needs", "diff")},
    **dict.fromkeys(STARTS, "start"),
    "wrap": "wrap",
    "oci-runtime": "oci_runtime",
    "setup": "setup",
    "install-shims": "shims",
    "fleet": "fleet",
    "completion": "completion",
}
"""The module of each command, in the order of help. The module has the command under its name in capitals."""


def command_of(name: str) -> Subcommand:
    """Return the command *name*, one of `MODULES`."""
    module = import_module(f"{__name__}.{MODULES[name]}")
    command: Subcommand = getattr(module, name.upper().replace("-", "_"))
    return command
