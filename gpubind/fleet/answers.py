"""The command that nodes run, and its output: a line of JSON from each, among any other output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, Optional, Union

from gpubind.documents.fleet import NodeAnswer, Result, Status, read_document, with_exit
from gpubind.errors import FormatError
from gpubind.formats.driver.gpu_names import GPU_VARIABLES
from gpubind.frozen import NamedTuple

ANSWER_LIMIT = 8 << 20
"""The limit of one answer, in bytes; a record has up to 300 KB."""
HELD_LIMIT = 512 << 20
"""The limit of all incomplete answers, in bytes."""
NOISE_LIMIT = 64 << 10
"""The limit of a node's output before its answer, in bytes."""
_EXCERPT = 100
"""The limit of a quoted text, in characters."""
_ERROR_LIMIT = 4096
"""The number of last bytes of standard error that are kept."""
_NOT_FOUND = 127
_KILL_AFTER_S = 5
_STATUS = re.compile(rb"[0-9]{1,3}")
_KILLED_STATUSES = (137, 143)
"""The exit status of a shell for SIGKILL and SIGTERM."""
_MOST = 255
"""The greatest exit status of a program."""
_UNREACHABLE = 255
"""The exit status of ssh for its own errors. Source: ssh(1)."""

# For any login shell: no character is special between single quotes; `%` is special to ClusterShell. The variables of a
# job are unset, so that all GPUs of the node are planned.
_ANSWER = (
    f"unset {' '.join(GPU_VARIABLES)}; "
    '{ echo "{\\"fleet\\":\\"$0\\",\\"node\\":\\"${SLURMD_NODENAME:-$(uname -n)}\\",\\"document\\":"; '
    'timeout -k 5 TIME PROGRAM "$@"; '
    'echo ",\\"exit\\":$?,\\"end\\":\\"$0\\"}"; } | tr -d "\\012\\015" | head -c LIMIT; echo'
)
_BOOTSTRAP = (
    'umask 077; d=$(mktemp -d) || exit; trap "rm -rf \\"\\$d\\"" EXIT; trap "exit 1" HUP INT TERM; '
    'cat > "$d/gpubind.pyz"; GPUBIND_MEMO=off; export GPUBIND_MEMO; '
)

Engine = Literal["slurm", "clustershell"]
Reader = Callable[[bytes], tuple[Optional[dict[str, Any]], Result]]
"""Parses the output of gpubind on a node. Errors: `FormatError`, `ValueError`."""


class FleetRequest(NamedTuple):
    """The nodes, their command, and how it is run."""

    nodes: tuple[str, ...]
    args: tuple[str, ...]
    """The command line of gpubind on each node."""
    engine: Engine
    timeout_s: int
    fanout: Optional[int]
    """The number of nodes queried at once; None: the engine's own number."""
    sends_gpubind: bool
    """Whether this gpubind is sent to the nodes."""


def command_on_nodes(args: Iterable[str], nonce: str, timeout_s: int, *, is_sent: bool) -> tuple[str, ...]:
    """Return the command that runs gpubind with *args* on a node, and prints its answer as one line.

    The line begins and ends with *nonce*, which no other output there contains. The command ends soon after
    *timeout_s*, when its answer is no longer awaited. *is_sent*: gpubind comes by standard input, into a private
    directory that is removed at the end.
    """
    program = 'python3 "$d/gpubind.pyz"' if is_sent else "gpubind"
    script = (
        _ANSWER.replace("PROGRAM", program)
        .replace("LIMIT", str(ANSWER_LIMIT))
        .replace("TIME", str(timeout_s + _KILL_AFTER_S))
    )
    return ("sh", "-c", (_BOOTSTRAP if is_sent else "") + script, nonce, *args)


class _Output:
    __slots__ = ("error", "has_begun", "is_named", "is_whole", "rest", "text")

    def __init__(self) -> None:
        self.text = bytearray()
        self.error = b""
        self.has_begun = False
        self.is_named = False
        self.is_whole = False
        """Whether the answer is complete; later output is not kept."""
        self.rest = 0
        """The number of bytes after the answer."""


class AnswerCollector:
    """Parses the output of each node to one answer: the first that is complete."""

    def __init__(
        self,
        nonce: str,
        nodes: Iterable[str],
        on_answer: Callable[[NodeAnswer], None],
        *,
        reader: Reader = read_document,
    ) -> None:
        self._begin = f'{{"fleet":"{nonce}","node":"'.encode()
        self._document = b'","document":'
        self._end = f'"end":"{nonce}"}}'.encode()
        self._on_answer = on_answer
        self._read = reader
        self._outputs = {node: _Output() for node in nodes}
        self._held = 0

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the nodes that have not answered yet."""
        return tuple(self._outputs)

    def reset(self, nodes: Iterable[str]) -> None:
        """Discard the output of *nodes*, because their command is about to be run again."""
        for node in nodes:
            if node in self._outputs:
                self._held -= len(self._outputs[node].text)
                self._outputs[node] = _Output()

    def receive(self, node: str, is_error: bool, chunk: bytes, *, is_named: bool = False) -> bool:
        """Process a *chunk* of output of *node*; return whether to go on reading from it.

        *is_named*: the node knows its name in this request, and its answer must contain it.
        """
        output = self._outputs.get(node)
        if output is None:
            return False
        if is_error:
            output.error = (output.error + chunk)[-_ERROR_LIMIT:]
            return True
        if output.is_whole:
            output.rest += len(chunk)
            if output.rest > NOISE_LIMIT:
                self._finish(self._complete(node, output))
            return node in self._outputs
        start = max(0, len(output.text) - max(len(self._begin), len(self._end)))
        output.text += chunk
        output.is_named = is_named
        self._held += len(chunk)
        output.has_begun = output.has_begun or output.text.find(self._begin, start) >= 0
        if len(output.text) > (ANSWER_LIMIT if output.has_begun else NOISE_LIMIT) or self._held > HELD_LIMIT:
            self._finish(NodeAnswer(node, "garbled", None, self._excerpt(output.text)))
        elif output.has_begun and output.text.find(self._end, start) >= 0:
            output.is_whole = True
            answer = self._complete(node, output)
            # The standard error of a failed program may come later than its answer. A step that ends early kills
            # gpubind before the shell that reports it: the node may be queried again.
            if not (answer.status in ("crashed", "failed") or (is_named and answer.exit in _KILLED_STATUSES)):
                self._finish(answer)
        return node in self._outputs

    def finish_node(self, node: str, status: Optional[int], why: str = "", kind: Optional[Status] = None) -> None:
        """Record that the command of *node* ended with *status*; *why* is the known reason for a missing answer."""
        output = self._outputs.get(node)
        if output is None:
            return
        if output.is_whole:
            self._finish(self._complete(node, output))
            return
        why = why or _error_line(output.error)
        if kind is None and output.text.strip():
            kind, why = "garbled", self._excerpt(output.text)
        elif kind is None:
            kind = "unreachable" if status == _UNREACHABLE else "crashed"
            why = why or f"it ended with status {status}"
        self._finish(NodeAnswer(node, kind, None, why))

    def _finish(self, answer: NodeAnswer) -> None:
        self._held -= len(self._outputs.pop(answer.node).text)
        self._on_answer(answer)

    def _excerpt(self, text: bytearray) -> str:
        """Return the beginning of *text*. If *text* contains the head of the node's answer, start after that head."""
        return _excerpt(text[text.find(self._document) + len(self._document) :] if self._begin in text else text)

    def _complete(self, node: str, output: _Output) -> NodeAnswer:
        # Each part is searched for once: a node may print the beginning a hundred thousand times.
        begun = bytes(output.text).partition(self._begin)[2].partition(self._end)[0]
        name, _, payload = begun.partition(self._document)
        body, _, last = payload.rpartition(b',"exit":')
        if not last.endswith(b",") or b'"' in name:
            return NodeAnswer(node, "garbled", None, self._excerpt(output.text))
        if _STATUS.fullmatch(last[:-1]) is None or int(last[:-1]) > _MOST:
            shown = last[:-1][:_EXCERPT].decode("utf-8", "replace")
            return NodeAnswer(node, "garbled", None, f"`{shown}` is not the exit status of a program")
        status = int(last[:-1])
        if output.is_named and name != node.encode():
            return NodeAnswer(node, "garbled", status, f"it answers as `{name[:_EXCERPT].decode('utf-8', 'replace')}`")
        if not body:
            return NodeAnswer(node, "crashed", status, _crash_reason(status, output.error))
        try:
            document, result = self._read(body)
        except (FormatError, ValueError, RecursionError) as error:
            if status > 1:
                return NodeAnswer(node, "crashed", status, _crash_reason(status, output.error))
            why = f"{error.what}: {error.why} ({error.where})" if isinstance(error, FormatError) else _excerpt(body)
            return NodeAnswer(node, "garbled", status, why)
        return with_exit(NodeAnswer(node, "answered", status, "", document, result), _error_of(output.error))


def _excerpt(text: Union[bytes, bytearray]) -> str:
    shown = bytes(text[: _EXCERPT * 4]).decode("utf-8", "replace").strip()
    more = "" if len(text) <= len(shown.encode()) and len(shown) <= _EXCERPT else f", {len(text)} bytes in all"
    return f"it prints `{shown[:_EXCERPT]}`{more}"


def _crash_reason(status: int, error: bytes) -> str:
    if status > 128:
        return f"gpubind was killed by signal {status - 128}"
    if status == _NOT_FOUND:
        return "gpubind is not in the node's PATH (with --bootstrap: python3)"
    reason = f"gpubind ended with status {status}"
    message = _error_line(error)
    return f"{reason}: {message}" if message else reason


def _error_line(error: bytes) -> str:
    return _error_of(error) or next(reversed(_lines(error)), "")[: 2 * _EXCERPT]


def _error_of(error: bytes) -> str:
    return next((line for line in _lines(error) if line.startswith("error:")), "")[: 2 * _EXCERPT]


def _lines(error: bytes) -> list[str]:
    return [line.strip() for line in error.decode("utf-8", "replace").splitlines() if line.strip()]
