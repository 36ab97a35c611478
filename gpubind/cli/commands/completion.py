"""completion: typer's script for a shell."""

from __future__ import annotations

from gpubind.cli import declarations as declared
from gpubind.cli.declarations import Argument, Subcommand

SHELLS = ("bash", "zsh", "fish")


def completion(shell: str) -> None:
    """Print the completion script for a shell.

    In bash: eval "$(gpubind completion bash)". In zsh: source <(gpubind completion zsh). In fish: gpubind completion
    fish | source.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    from gpubind.cli.output import write_document

    script = get_completion_script(prog_name="gpubind", complete_var=declared.COMPLETION, shell=shell)
    write_document(f"{script}\n", None)


COMPLETION = Subcommand(
    completion,
    (),
    (Argument("shell", "bash|zsh|fish", "The shell.", choices=SHELLS, unknown="unknown-shell"),),
    shared=(),
    examples=(("in ~/.bashrc", 'eval "$(gpubind completion bash)"'),),
    exit_codes=(("0", "done"), declared.EXIT_CODES[0]),
)
