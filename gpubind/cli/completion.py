"""completion: a script for a shell. No `from __future__ import annotations`: see options.py."""

from typing import Annotated

import typer

from gpubind.cli.command import OwnCommand


def add_to(app: typer.Typer) -> None:
    """Give *app* the command completion."""
    app.command(cls=OwnCommand)(completion)


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print the completion script for a shell.

    In bash: eval "$(gpubind completion bash)". In zsh: source <(gpubind completion zsh). In fish: gpubind completion
    fish | source.
    """
    from gpubind.cli.app import application
    from gpubind.cli.output import write_document
    from gpubind.cli.shells import script_of

    group = typer.main.get_command(application(()))
    write_document(script_of(shell, group, group.make_context("gpubind", [], resilient_parsing=True)), None)
