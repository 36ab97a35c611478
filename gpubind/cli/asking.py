"""Make the command line that `fleet` sends to the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from gpubind.cli.commands import command_of
from gpubind.cli.declarations import Option, Origin
from gpubind.errors import UsageError
from gpubind.fleet.answers import Engine, FleetRequest
from gpubind.fleet.ask import default_engine
from gpubind.fleet.nodes import parse_nodes

ANSWERS = {
    "check": ("--json",),
    "plan": ("--json",),
    "record": ("--output=-",),
    "diff": ("--snapshot", "live"),
}
"""The arguments with which each command prints a document of its machine."""


def fleet_request(
    action: str,
    nodes: str,
    engine: Optional[Engine],
    timeout: str,
    fanout: Optional[str],
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    *,
    is_sent: bool,
) -> FleetRequest:
    """Return the request to the nodes. Errors: `UsageError`, `HostReadError` (code `missing-package`)."""
    chosen = engine or default_engine()
    return FleetRequest(
        parse_nodes(nodes),
        node_args(action, {name: value for name, value in values.items() if origins[name] == "line"}),
        chosen,
        _number(timeout, "--timeout"),
        None if fanout is None else _number(fanout, "--fanout"),
        is_sent,
    )


def _number(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text)):
        raise UsageError("wrong-use", f"{option} takes a number from 1 to 99999, not `{text[:100]}`")
    return int(text)


def node_args(action: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments of gpubind on a node: *action* with *values*, the values on the line of `fleet`.

    A value that equals its default is included: it takes precedence over the node's variables and files.
    Errors: `UsageError`.
    """
    options = {option.parameter: option for option in command_of(action).options}
    args = [action, *ANSWERS[action]]
    for parameter, value in values.items():
        if parameter not in options:
            others = {option.parameter: option for option in command_of("fleet").options}
            raise UsageError("wrong-use", f"`gpubind {action}` does not have {others[parameter].name}")
        args += _option_args(options[parameter], value)
    if "gpus" in options and "gpus" not in values:
        args.append("--gpus=all")  # of the node, not of the job that runs `fleet`
    return tuple(args)


def _option_args(option: Option, value: Any) -> list[str]:
    if option.metavar:
        return [f"{option.name}={item}" for item in (value if isinstance(value, list) else [value])]
    return [name for name, on in option.spellings.items() if name.startswith("--") and on is bool(value)]
