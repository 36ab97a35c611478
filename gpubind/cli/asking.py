"""Ask the nodes of a fleet, and show or write their answers: `ask_fleet`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Optional

from gpubind import __version__
from gpubind.cli.commands import command_of
from gpubind.cli.declarations import Option, Origin
from gpubind.cli.output import counting, tables_as_text, write_document
from gpubind.documents.diff.comparison import Comparison
from gpubind.documents.diff.snapshot import Snapshot
from gpubind.documents.diff.text import render_diff_text
from gpubind.documents.fleet import (
    AnswerGroups,
    NodeAnswer,
    NodeRecord,
    Result,
    answers_table,
    comparison_of,
    read_document,
    render_answer,
    render_findings_of,
    summary_of,
)
from gpubind.errors import OutputError, UsageError
from gpubind.fleet.answers import ENGINES, FleetRequest, Reader
from gpubind.fleet.ask import ask, engine_here
from gpubind.fleet.nodes import fold_nodes, parse_nodes
from gpubind.host.record import dump_record, parse_record


def _read_record(data: bytes) -> tuple[None, Result]:
    return None, NodeRecord(dump_record(parse_record(data), __version__))


_ACTIONS: dict[str, tuple[tuple[str, ...], Reader]] = {
    "check": (("--json",), read_document),
    "plan": (("--json",), read_document),
    "record": (("--output=-",), _read_record),
    "diff": (("--snapshot", "live"), read_document),
}
"""What makes each command print a document of its machine, and what reads it."""


def fleet_request(
    action: str,
    nodes: str,
    engine: Optional[str],
    timeout: str,
    fanout: Optional[str],
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    *,
    is_sent: bool,
) -> FleetRequest:
    """Return what the options ask of the nodes. Errors: `UsageError`, `HostReadError` (code `missing-package`)."""
    chosen = engine_here() if engine is None else next(one for one in ENGINES if one == engine)
    return FleetRequest(
        parse_nodes(nodes),
        words_for(action, {name: value for name, value in values.items() if origins[name] == "line"}),
        chosen,
        _number(timeout, "--timeout"),
        None if fanout is None else _number(fanout, "--fanout"),
        is_sent,
    )


def _number(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text)):
        raise UsageError("wrong-use", f"{option} takes a number from 1 to 99999, not `{text[:100]}`")
    return int(text)


def words_for(action: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command line of gpubind on a node: *action* with the values *given* on the line of `fleet`.

    A value that is the default of its option is on that line, too: it precedes the variables and the files of the node.
    Errors: `UsageError`.
    """
    known = {option.parameter: option for option in command_of(action).options}
    words = [action, *_ACTIONS[action][0]]
    for parameter, value in given.items():
        if parameter not in known:
            others = {option.parameter: option for option in command_of("fleet").options}
            raise UsageError("wrong-use", f"`gpubind {action}` does not have {others[parameter].name}")
        words += _spelled(known[parameter], value)
    if "gpus" in known and "gpus" not in given:
        words.append("--gpus=all")  # of the node, and not of the job that asks it
    return tuple(words)


def _spelled(option: Option, value: Any) -> list[str]:
    if option.metavar:
        return [f"{option.name}={one}" for one in (value if isinstance(value, list) else [value])]
    return [name for name, on in option.spellings.items() if name.startswith("--") and on is bool(value)]


class Outcome:
    """The answers so far."""

    def __init__(self) -> None:
        self.answers = AnswerGroups()
        self.is_good = True
        self.is_interrupted = False

    def add(self, answer: NodeAnswer) -> None:
        """Take *answer* in."""
        self.answers.add(answer)
        self.is_good = self.is_good and answer.is_good

    @property
    def comparison(self) -> Optional[Comparison]:
        """Return in what the nodes differ that have sent a snapshot; None if none has."""
        return comparison_of(self.answers.groups())

    def text(self, output: Optional[str], *, verbose: bool) -> str:
        """Return the groups of equal nodes as a table, what was found, and how many nodes there are of each kind."""
        groups, comparison = self.answers.groups(), self.comparison
        text = render_findings_of(groups, fold_nodes, verbose=verbose)
        if comparison is not None:
            text += render_diff_text(comparison, fold_nodes)
            groups = [group for group in groups if not isinstance(group.answer.result, Snapshot)]
        table = tables_as_text([answers_table(groups, fold_nodes)], output)
        return f"{table}{text}\n{summary_of(self.answers.groups())}\n"


def ask_fleet(request: FleetRequest, action: str, output: Optional[str], *, json: bool) -> Outcome:
    """Ask the nodes. Write a record of each into the directory *output*, or a line of *json*, as they answer.

    Errors: `UsageError` (code `no-directory`), `OutputError`; as `ask`.
    """
    outcome, reader = Outcome(), _ACTIONS[action][1]
    directory = _directory(output) if action == "record" else None
    with counting("asking nodes", len(request.nodes)) as count:

        def on_answer(answer: NodeAnswer) -> None:
            if directory is not None and isinstance(answer.result, NodeRecord):
                write_document(answer.result.text, os.path.join(directory, f"{answer.node}.json"))
            if json:
                write_document(render_answer(answer), None)
            outcome.add(answer)
            count()

        try:
            ask(request, on_answer, reader)
        except KeyboardInterrupt:
            outcome.is_interrupted = True
    return outcome


def _directory(output: Optional[str]) -> str:
    """Return the directory *output*, which is made if it is not there. Errors: `UsageError`, `OutputError`."""
    if output is None:
        raise UsageError("wrong-use", "fleet record needs -o DIRECTORY: each node has a file there")
    try:
        os.makedirs(output, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError("unwritable-file", "the directory cannot be made", where=output, why=why) from error
    return output
