"""The answers of many nodes: a table in which equal nodes share a row, and a line of JSON for each node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, Optional, Union, get_args

from gpubind.documents.check.report import fold_findings
from gpubind.documents.diff.comparison import Comparison, Fold, compare_hosts
from gpubind.documents.diff.snapshot import Snapshot
from gpubind.documents.tables import Column, Row, Table, always_shown, make_table
from gpubind.documents.text import make_document, printable, render_error, render_finding
from gpubind.errors import Format, FormatError, GpubindError
from gpubind.formats.text.json import parse_json
from gpubind.frozen import NamedTuple
from gpubind.inventory.nodes import natural_sort_key
from gpubind.model import Finding, shorten_list
from gpubind.model.plain import Decoder
from gpubind.rules.outcome import verdict

Status = Literal["answered", "failed", "crashed", "garbled", "timed-out", "unreachable", "not-asked"]
Verdict = Literal["ok", "warning", "error"]
_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""The worst is the last."""
_EXITS: dict[Verdict, tuple[int, ...]] = {"ok": (0,), "warning": (0, 1), "error": (1,)}
"""The exit codes of `check` for each verdict. With --strict, it is 1 also for a warning."""
_NAMED = 4
"""Maximum findings that a row names; the others are counted."""
_VERSION = 60
"""Maximum characters of a shown version."""
_QUOTED = 200
"""Maximum length of the reason for a failed answer, in characters."""


class NodeDriver(NamedTuple):
    """A driver of a node."""

    vendor: str
    version: Optional[str] = None


class CheckedNode(NamedTuple):
    """The state of a node, by which nodes are grouped."""

    digest: Optional[str] = None
    """The digest of its plan."""
    drivers: tuple[NodeDriver, ...] = ()
    findings: tuple[Finding, ...] = ()
    verdict: Optional[Verdict] = None
    """The verdict that the node reported; None in the document of a plan."""

    @property
    def worst(self) -> Verdict:
        """Return the verdict of the node or of its findings, whichever is worse."""
        return max(self.verdict or "ok", verdict(self.findings), key=_VERDICTS.index)


class NodeError(NamedTuple):
    """The error with which gpubind ended on a node."""

    code: str
    what: str
    where: Optional[str] = None
    why: Optional[str] = None
    hint: Optional[str] = None


class NodeRecord(NamedTuple):
    """The record of a node."""

    text: str


_FindingKey = tuple[str, str, str]
"""Severity, code and subject of a finding."""
Result = Union[CheckedNode, NodeError, NodeRecord, Snapshot]


class NodeAnswer(NamedTuple):
    """The answer of a node, or why there is none."""

    node: str
    status: Status
    exit: Optional[int] = None
    """The exit code of gpubind on the node."""
    why: str = ""
    """Why there is no answer."""
    document: Optional[dict[str, Any]] = None
    result: Optional[Result] = None
    """The parsed document."""

    @property
    def is_good(self) -> bool:
        """Return whether the node answered, found no error, and did not end with one."""
        return self.status == "answered" and self.exit == 0 and not isinstance(self.result, NodeError)

    @property
    def gpubind(self) -> str:
        """Return the version of gpubind on the node, with its build; empty if the node does not name it."""
        version = (self.document or {}).get("gpubind")
        return version[:_VERSION] if isinstance(version, str) else ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of the node; none if it did not send its state."""
        return self.result.findings if isinstance(self.result, CheckedNode) else ()


_KIND = Format("bad-answer", "this is not the answer of a node")
_CODE = re.compile("[a-z0-9-]{1,80}")
_CHECK = Decoder(_KIND, keys={"digest": "plan", "drivers": "checked.drivers"})
_PLAIN = Decoder(_KIND)
_READERS: dict[str, Callable[[object], Result]] = {
    "gpubind.check/1": lambda document: _CHECK.decode(CheckedNode, document),
    "gpubind.plan/1": lambda document: _PLAIN.decode(CheckedNode, document),
    "gpubind.error/1": lambda document: _PLAIN.decode(NodeError, document),
    "gpubind.snapshot/1": Snapshot.from_dict,
}


def read_document(data: bytes) -> tuple[dict[str, Any], Result]:
    """Return the document of a node, and its parsed content.

    Errors: `FormatError` (codes `bad-answer`, `bad-snapshot`), `ValueError`.
    """
    try:
        document = parse_json(data, len(data), _KIND, allow_surrogates=True)
    except FormatError as error:
        raise ValueError("it is not JSON") from error
    json.dumps(document, allow_nan=False)  # `ValueError` for NaN and infinity, which JSON does not have
    schema = str(document.get("schema")) if isinstance(document, dict) else "none"
    if schema not in _READERS:
        raise _KIND.damaged(f"its schema is `{schema[:60]}`", "schema")
    result = _READERS[schema](document)
    codes = [result.code] if isinstance(result, NodeError) else []
    codes += [finding.code for finding in result.findings] if isinstance(result, CheckedNode) else []
    if not all(map(_CODE.fullmatch, codes)):  # codes are shown without escapes
        raise _KIND.damaged("a code is not one", "code")
    return document, result


def with_exit(answer: NodeAnswer, error: str) -> NodeAnswer:
    """Return *answer*; mark it as failed if its exit code contradicts its verdict.

    *error*: the message of an error on standard error, if any.
    """
    result = answer.result
    if isinstance(result, CheckedNode):
        of_plan = (0, 1) if result.worst == "error" else (0,)
        is_meant = answer.exit in (of_plan if result.verdict is None else _EXITS[result.worst])
    else:
        is_meant = isinstance(result, NodeError) is bool(answer.exit)
    if is_meant:
        return answer
    ended = f"exit {answer.exit} "
    line = answer_line(answer).removeprefix(ended)[:_QUOTED]
    why = f"{ended}after its answer: {line}" + (f"; {error}" if error else "")
    return answer._replace(status="failed", why=why, result=None)


class NodeGroup(NamedTuple):
    """Nodes with equal answers."""

    nodes: tuple[str, ...]
    answer: NodeAnswer
    """The first of them."""

    @property
    def why_unanswered(self) -> str:
        """Why these nodes did not answer. If their messages may differ, the message of one node is given as an
        example.
        """
        first = self.answer
        is_example = len(self.nodes) > 1 and (first.status == "garbled" or first.node in first.why)
        return f"{first.node}, for example: {first.why}" if is_example else first.why


class AnswerGroups:
    """Groups of equal answers. Only the first answer of each is kept."""

    def __init__(self) -> None:
        self._groups: dict[object, tuple[list[str], NodeAnswer]] = {}

    def add(self, answer: NodeAnswer) -> None:
        """Add *answer* to its group."""
        self._groups.setdefault(_key(answer), ([], answer))[0].append(answer.node)

    def groups(self) -> list[NodeGroup]:
        """Return the groups, the largest first; groups without an answer are last."""
        groups = [
            NodeGroup(tuple(sorted(nodes, key=natural_sort_key)), answer) for nodes, answer in self._groups.values()
        ]
        return sorted(
            groups, key=lambda group: (group.answer.result is None, -len(group.nodes), natural_sort_key(group.nodes[0]))
        )


def _key(answer: NodeAnswer) -> object:
    result = answer.result
    if isinstance(result, CheckedNode):
        return answer.exit, answer.gpubind, result.digest, result.drivers, result.worst, _finding_keys(answer)
    if isinstance(result, Snapshot):
        return result.digest, result.driver
    if result is not None:
        return answer.exit, answer.gpubind, result if isinstance(result, NodeError) else "recorded"
    # What a node prints instead of an answer may be different each time.
    return answer.status, None if answer.status == "garbled" else answer.why.replace(answer.node, "NODE")


def answers_table(groups: Iterable[NodeGroup], fold: Fold) -> Table:
    """Return a row for each group. *fold* writes several nodes as one set.

    If rows would be equal otherwise, they also name the findings in which their nodes differ.
    """
    listed = []
    for group in groups:
        answer = group.answer
        cells: Row = (
            answer_line(answer._replace(why=group.why_unanswered)),
            *driver_and_digest(answer.result),
            answer.gpubind,
        )
        listed.append((group, cells))
    common: dict[Row, frozenset[_FindingKey]] = {}
    for group, cells in listed:
        findings = _finding_keys(group.answer)
        common[cells] = common.get(cells, findings) & findings
    rows = []
    for group, cells in listed:
        distinct = sorted(_finding_keys(group.answer) - common[cells])
        texts = [f"{severity} {code} ({subject})" for severity, code, subject in distinct]
        more = f"; {shorten_list(texts)}" if texts else ""
        rows.append((fold(group.nodes), str(len(group.nodes)), cells[0] + more, *cells[1:]))
    number, others = Column("number", align_right=True, always_shown=True), ("driver", "digest", "gpubind")
    return make_table((Column("nodes"), number, *always_shown("answer"), *map(Column, others)), rows)


def _finding_keys(answer: NodeAnswer) -> frozenset[_FindingKey]:
    return frozenset((finding.severity, finding.code, finding.subject) for finding in answer.findings)


def driver_and_digest(result: object) -> tuple[str, str]:
    """Return the drivers of a node and the beginning of its plan's digest, if *result* is the state of one."""
    if not isinstance(result, CheckedNode):
        return "", ""
    drivers = (f"{driver.vendor} {driver.version or 'of unknown version'}" for driver in result.drivers)
    return ", ".join(drivers), (result.digest or "")[:12]


def answer_line(answer: NodeAnswer) -> str:
    """Return *answer* in a line: `error uvm-missing (/dev/nvidia-uvm)`, `timed-out: no answer within 60 s`."""
    result = answer.result
    if isinstance(result, NodeError):
        return f"exit {answer.exit} {result.code}: {result.what}"
    if isinstance(result, NodeRecord):
        return "recorded"
    if result is None or isinstance(result, Snapshot):
        return answer.status.replace("-", " ") + (f": {answer.why}" if answer.why else "")
    worst = result.worst
    texts = list(
        dict.fromkeys(f"{finding.code} ({finding.subject})" for finding in result.findings if finding.severity == worst)
    )
    more = [f"{len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    if not texts and worst != "ok":
        return f"{worst}, by its verdict: no finding says so"
    return " ".join(filter(None, (worst, ", ".join([*texts[:_NAMED], *more]))))


def comparison_of(groups: Iterable[NodeGroup]) -> Optional[Comparison]:
    """Compare the nodes that sent a snapshot; None if none did."""
    snapshots = [(group.answer.result, group.nodes) for group in groups if isinstance(group.answer.result, Snapshot)]
    return compare_hosts(snapshots) if snapshots else None


def render_group_findings(groups: Iterable[NodeGroup], fold: Fold, *, verbose: bool) -> str:
    """Return the errors and warnings of each group in full; with *verbose*, also the notes."""
    lines = []
    for group in groups:
        result = group.answer.result
        shown = [finding for finding in group.answer.findings if verbose or finding.severity != "note"]
        text = "".join(map(render_finding, shown if verbose else fold_findings(shown, brief=True)))
        if isinstance(result, NodeError):
            about = {name: getattr(result, name) or "" for name in ("where", "why", "hint")}
            text = render_error(GpubindError(result.code, result.what, **about))
        if text:
            lines.append(f"\n{printable(fold(group.nodes))}:\n{text}")
    return "".join(lines)


def summary_of(groups: Iterable[NodeGroup]) -> str:
    """Return how many nodes there are of each kind: `64 nodes: 60 ok, 3 error, 1 without an answer`."""
    numbers: dict[str, int] = {}
    for nodes, answer in groups:
        result = answer.result
        kind: str = result.worst if isinstance(result, CheckedNode) else "ok" if answer.is_good else "failed"
        kind = kind if result is not None or answer.status == "failed" else "without an answer"
        numbers[kind] = numbers.get(kind, 0) + len(nodes)
    return f"{sum(numbers.values())} nodes: " + ", ".join(f"{number} {kind}" for kind, number in numbers.items())


def render_answer(answer: NodeAnswer) -> str:
    """Return *answer* as a line of JSON (data/fleet.schema.json)."""
    members = {name: getattr(answer, name) for name in ("node", "status", "exit", "document")}
    return json.dumps(make_document("gpubind.fleet/1", {**members, "why": answer.why or None})) + "\n"
