"""fleet: check, plan, record or compare the nodes of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Any, Optional

from gpubind.cli import declarations as declared
from gpubind.cli.commands import command_of
from gpubind.cli.declarations import Argument, Option, Origin, Subcommand
from gpubind.documents import FLEET_DOCUMENTS
from gpubind.errors import EXIT_FINDING, EXIT_INTERRUPTED, OutputError, UsageError
from gpubind.machine import system

if TYPE_CHECKING:
    from gpubind.api.fleet import Outcome
    from gpubind.documents.fleet import NodeAnswer
    from gpubind.fleet.answers import Engine

ANSWERS = {
    "check": ("--json",),
    "plan": ("--json",),
    "record": ("--output=-",),
    "diff": ("--snapshot", "live"),
}
"""The actions, each with the arguments with which the command prints a document of its machine."""
_LOCAL_OPTIONS = ("--allow-none", "--cdi-hook", "--require", "--stage-dir")
"""Options that are not forwarded: three concern output formats, and `--require` reads no host."""
_FORMATS = ("table", "json", *FLEET_DOCUMENTS)
ENGINES = ("slurm", "clustershell")


def fleet(
    *,
    action: str,
    nodes: str,
    engine: Optional[Engine],
    timeout: str,
    fanout: Optional[str],
    bootstrap: bool,
    format_: Optional[str],
    output: Optional[str],
    verbose: int,
    origins: Mapping[str, Origin],
    **node_options: Any,
) -> None:
    """Check, plan, record or compare many nodes at once.

    Each node runs its gpubind with these options, where --gpus is all by default, and answers in one line. Nodes with
    equal answers are one row. A node that does not answer has a row that says why.

    An engine starts the command on each node: srun of Slurm, in the allocation that you have or in a new one; or
    ClusterShell, by ssh or by the worker that its configuration names. Their files and variables configure them.
    """
    from gpubind.api.fleet import ask_fleet
    from gpubind.cli.output import count_progress, write_document
    from gpubind.documents.diff.text import diff_document
    from gpubind.fleet.answers import FleetRequest
    from gpubind.fleet.ask import default_engine
    from gpubind.fleet.nodes import fold_nodes, parse_nodes

    page, json = _page(action, format_ or "table", output), format_ == "json"
    request = FleetRequest(
        engine=engine or default_engine(),
        nodes=parse_nodes(nodes),
        args=node_args(action, {name: value for name, value in node_options.items() if origins[name] == "line"}),
        timeout_s=_number(timeout, "--timeout"),
        fanout=None if fanout is None else _number(fanout, "--fanout"),
        sends_gpubind=bootstrap,
    )
    directory = _directory(output) if action == "record" else None
    with count_progress("asking nodes", len(request.nodes)) as count:
        outcome = ask_fleet(request, partial(_show, directory, count, json), records=action == "record")
    if page is not None:
        write_document(page(outcome.groups, action, fold_nodes), output)
    elif not json:
        path = None if action == "record" else output
        write_document(_text(outcome, path, verbose=verbose > 0), path)
    elif outcome.comparison is not None:
        write_document(dumps(diff_document(outcome.comparison)) + "\n", None)
    if outcome.is_interrupted or not outcome.is_good:
        raise SystemExit(EXIT_INTERRUPTED if outcome.is_interrupted else EXIT_FINDING)


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
        option = options[parameter]
        if option.metavar:
            args += [f"{option.name}={item}" for item in (value if isinstance(value, list) else [value])]
        else:
            args += [name for name, on in option.spellings.items() if name.startswith("--") and on is bool(value)]
    if "gpus" in options and "gpus" not in values:
        args.append("--gpus=all")  # of the node, not of the job that runs `fleet`
    return tuple(args)


def _show(directory: Optional[str], count: Callable[[], None], json: bool, answer: NodeAnswer) -> None:
    from gpubind.cli.output import write_document
    from gpubind.documents.fleet import NodeRecord, render_answer

    if directory is not None and isinstance(answer.result, NodeRecord):
        write_document(answer.result.text, os.path.join(directory, f"{answer.node}.json"))
    if json:
        write_document(render_answer(answer), None)
    count()


def _text(outcome: Outcome, output: Optional[str], *, verbose: bool) -> str:
    from gpubind.cli.output import tables_as_text
    from gpubind.documents.diff.snapshot import Snapshot
    from gpubind.documents.diff.text import render_diff_text
    from gpubind.documents.fleet import answers_table, render_group_findings, summary_of
    from gpubind.fleet.nodes import fold_nodes

    groups = list(outcome.groups)
    text = render_group_findings(groups, fold_nodes, verbose=verbose)
    if outcome.comparison is not None:
        text += render_diff_text(outcome.comparison, fold_nodes)
        groups = [group for group in groups if not isinstance(group.answer.result, Snapshot)]
    table = tables_as_text([answers_table(groups, fold_nodes)], output)
    return f"{table}{text}\n{summary_of(outcome.groups)}\n"


def _directory(output: Optional[str]) -> str:
    """Create the directory *output*. Errors: `UsageError`, `OutputError`."""
    if output is None:
        raise UsageError("wrong-use", "fleet record needs -o DIRECTORY: each node has a file there")
    try:
        system.make_directories(output)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError("unwritable-file", "the directory cannot be made", where=output, why=why) from error
    return output


def _page(action: str, chosen: str, output: Optional[str]) -> Optional[Callable[..., str]]:
    """Return the renderer of the page *chosen*; None for other formats. Errors: `UsageError`."""
    from gpubind.cli.output import load_renderer

    if chosen == "json" and action != "record" and output not in (None, "-"):
        hint = f"`> {output}` writes them to the file"
        raise UsageError("wrong-use", "--json prints the answers as they come, and has no --output", hint=hint)
    if chosen in FLEET_DOCUMENTS and action == "record":
        raise UsageError("wrong-use", f"fleet record writes records, and has no --format {chosen}")
    return load_renderer(FLEET_DOCUMENTS[chosen]) if chosen in FLEET_DOCUMENTS else None


def _forwarded() -> tuple[Option, ...]:
    """Return the options that are forwarded to nodes. No variable of this machine sets them."""
    options = [*declared.PLAN_OPTIONS, declared.IMAGE]
    options += [option for action in ANSWERS for option in command_of(action).own_options if option.group != "Output"]
    by_name = {option.name: option for option in reversed(options) if option.name not in _LOCAL_OPTIONS}
    return tuple(option._replace(preset="", required=False) for option in [*by_name.values()][::-1])


_FLEET_OPTIONS = (
    Option(
        "-w, --nodes NODES",
        "Which nodes: `node[001-256]`, `@group` of ClusterShell's configuration.",
        "Launch",
        required=True,
    ),
    Option(
        "--engine ENGINE",
        f"What starts the command on nodes: {' or '.join(ENGINES)}. [slurm if srun is in PATH]",
        "Launch",
        choices=ENGINES,
        unknown="wrong-use",
    ),
    Option("--timeout SECONDS", "How long a node may take to answer.", "Launch", default="60"),
    Option(
        "--fanout NUMBER",
        "How many nodes are asked at once. [slurm: all; clustershell: 64, or what its configuration says]",
        "Launch",
    ),
    Option(
        "--bootstrap",
        "Send this gpubind.pyz to nodes that have no gpubind: it lies in a private directory as long as it runs.",
        "Launch",
    ),
    declared.format_option(_FORMATS),
    declared.JSON._replace(
        help="Print a line of JSON for each node, gpubind.fleet/1, as soon as it answers; of diff, "
        "then one of all, gpubind.diff/1."
    ),
    declared.OUTPUT._replace(
        help="Write to a file; of record, the directory in which each node has a file. [standard output]"
    ),
    declared.VERBOSE._replace(help="Show notes, too.", is_repeatable=True),
)
FLEET = Subcommand(
    fleet,
    (*_forwarded(), *_FLEET_OPTIONS),
    (
        Argument(
            "action",
            "|".join(ANSWERS),
            "What each node does: the command of that name.",
            choices=tuple(ANSWERS),
            unknown="wrong-use",
        ),
    ),
    shared=(),
    remote=True,
    common=("--nodes", "--engine", "--nv", "--image", "--json"),
    examples=(
        ("which nodes are not as they should be", "gpubind fleet check --nv -w 'node[001-256]'"),
        ("on which of them an image runs", "gpubind fleet check --nv --image /images/app.sif -w @gpu"),
        ("in what they differ", "gpubind fleet diff --nv -w 'node[001-256]'"),
        ("a record of each", "gpubind fleet record -o records -w 'node[001-256]'"),
    ),
    exit_codes=(
        ("0", "every node answered, and none has an error, or differs"),
        ("1", "an error on a node, a difference, or a node without an answer"),
        ("2", "usage error"),
        ("4", "a file cannot be written, or ClusterShell is not installed"),
        ("6", "the engine is missing"),
        ("130", "interrupted, also by SIGTERM or SIGHUP: what has arrived is printed"),
    ),
)
