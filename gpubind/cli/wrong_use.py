"""What typer finds wrong with a command line, as an error of ours: with a code, and the line that would work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpubind.cli.meant import meant
from gpubind.errors import UsageError, like


def wrong_use(error: Any, words: Sequence[str]) -> UsageError:
    """Return *error*, which typer raised for the command line *words*, as an error of ours."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else " ".join(("gpubind", *words[:1]))
    line = meant(words) if words else ""
    see = line + f"`{path} --help` lists the options"
    if hasattr(error, "possibilities") and context is not None:
        known = [name for param in context.command.get_params(context) for name in (*param.opts, *param.secondary_opts)]
        near = "" if line else like([name for name in known if name.startswith("--")], error.option_name)
        return UsageError("unknown-option", f"{path} has no option `{error.option_name}`", hint=near + see)
    param = getattr(error, "param", None)
    if param is not None and type(error).__name__ == "MissingParameter":
        is_option = param.param_type_name == "option"
        name = max(param.opts, key=len) if is_option else param.metavar
        return UsageError("missing-argument", f"{path} needs {name}", hint=see)
    return UsageError("wrong-use", f"{path}: {_sentence(error.format_message())}", hint=see)


def _sentence(text: str) -> str:
    """Return *text* as our messages are: without a capital and a full stop."""
    return (text[:1].lower() + text[1:]).rstrip(".")
