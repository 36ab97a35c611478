"""completion: typer's script for a shell, and its answers. No `from __future__ import annotations`: see options.py."""

import os
from typing import Annotated

from gpubind.cli.declare import Argument, command
from gpubind.cli.quick import COMPLETION
from gpubind.cli.values import SHELLS, shells


def completion(
    shell: Annotated[str, Argument(metavar="bash|zsh|fish", autocompletion=shells, help="The shell.")],
) -> None:
    """Print the completion script for a shell.

    In bash: eval "$(gpubind completion bash)". In zsh: source <(gpubind completion zsh). In fish: gpubind completion
    fish | source.
    """
    from typer._completion_shared import get_completion_script  # typer offers it for the caller's own shell alone

    from gpubind.cli.output import write_document
    from gpubind.errors import UsageError, one_of

    if shell not in SHELLS:
        raise UsageError("unknown-shell", f"unknown shell `{shell}`", hint=one_of(SHELLS, shell))
    write_document(get_completion_script(prog_name="gpubind", complete_var=COMPLETION, shell=shell) + "\n", None)


def get_ready() -> None:
    """Have typer answer the shell that asks."""
    from typer._completion_classes import completion_init

    completion_init()
    os.environ["TERMINAL_WIDTH"] = "1000"  # rich, by which typer writes descriptions, would break their lines


COMMANDS = {"completion": command(completion)}
