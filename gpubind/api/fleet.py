"""fleet: query many nodes, and group their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from gpubind import __version__
from gpubind.documents.diff.comparison import Comparison
from gpubind.documents.fleet import (
    AnswerGroups,
    NodeAnswer,
    NodeGroup,
    NodeRecord,
    Result,
    comparison_of,
    read_document,
)
from gpubind.fleet.answers import FleetRequest
from gpubind.fleet.ask import query_nodes
from gpubind.frozen import NamedTuple
from gpubind.host.record import dump_record, parse_record


class Outcome(NamedTuple):
    """The answers of the nodes."""

    groups: tuple[NodeGroup, ...]
    """Nodes with equal answers."""
    comparison: Optional[Comparison]
    """How the nodes with a snapshot differ; None if no node sent one."""
    is_good: bool
    """Whether every node answered, none has an error, and none differs."""
    is_interrupted: bool


def ask_fleet(request: FleetRequest, on_answer: Callable[[NodeAnswer], None], *, records: bool = False) -> Outcome:
    """Query the nodes, and pass each answer to *on_answer* when it comes. *records*: request a record of each node.

    An interrupt ends the query with the answers so far. Errors: as `query_nodes`.
    """
    groups, bad, is_interrupted = AnswerGroups(), list[str](), False

    def add(answer: NodeAnswer) -> None:
        on_answer(answer)
        groups.add(answer)
        if not answer.is_good:
            bad.append(answer.node)

    try:
        query_nodes(request, add, _read_record if records else read_document)
    except KeyboardInterrupt:
        is_interrupted = True
    node_groups = groups.groups()
    comparison = comparison_of(node_groups)
    is_good = not bad and (comparison is None or comparison.is_equal)
    return Outcome(tuple(node_groups), comparison, is_good, is_interrupted)


def _read_record(data: bytes) -> tuple[None, Result]:
    return None, NodeRecord(dump_record(parse_record(data), __version__))
