"""What nodes are told to run, and what they print: a line of JSON from each, whatever else is printed around it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, Optional, Union

from gpubind.documents.fleet import NodeAnswer, Said, Status, read_document
from gpubind.errors import FormatError
from gpubind.formats.driver.gpu_names import GPU_VARIABLES
from gpubind.frozen import NamedTuple

ANSWER_LIMIT = 8 << 20
"""Bytes of one answer; a record has up to 300 KB."""
HELD_LIMIT = 512 << 20
"""Bytes of all answers that are not complete."""
NOISE_LIMIT = 64 << 10
"""Bytes that a node may print before its answer."""
_SHOWN = 100
_KEPT = 4096
"""Bytes of standard error."""
_NOT_FOUND = 127
_LATER_S = 5
_STATUS = re.compile(rb"[0-9]+,")
_KILLED = (137, 143)
"""Of a shell, for SIGKILL and SIGTERM."""
_UNREACHABLE = 255
"""The exit status of ssh for its own errors. Source: ssh(1)."""

# A login shell may be any: nothing in here is special between single quotes, `%` is ClusterShell's. The GPUs of a node
# are asked for, and not those of a job.
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

Reader = Callable[[bytes], tuple[Optional[dict[str, Any]], Said]]
"""Reads what gpubind has printed on a node. Errors: `FormatError`, `ValueError`."""


class FleetCall(NamedTuple):
    """What is asked of which nodes."""

    nodes: tuple[str, ...]
    argv: tuple[str, ...]
    """The command that each node runs."""
    program: Optional[str]
    """The file that each reads from standard input: gpubind as one file."""
    timeout_s: int
    fanout: Optional[int]
    """How many nodes are asked at once; None is the engine's own number."""


def command_on_nodes(words: Iterable[str], nonce: str, timeout_s: int, *, is_sent: bool) -> tuple[str, ...]:
    """Return the command that runs gpubind with *words* on a node, and prints its answer as one line.

    The line begins and ends with *nonce*, which nothing else that runs there knows. Soon after *timeout_s*, when it is
    no longer waited for, it ends there, too. *is_sent*: gpubind comes by standard input, and lies in a private
    directory as long as it runs.
    """
    program = 'python3 "$d/gpubind.pyz"' if is_sent else "gpubind"
    script = (
        _ANSWER.replace("PROGRAM", program)
        .replace("LIMIT", str(ANSWER_LIMIT))
        .replace("TIME", str(timeout_s + _LATER_S))
    )
    return ("sh", "-c", (_BOOTSTRAP if is_sent else "") + script, nonce, *words)


def new_nonce() -> str:
    """Return a word that has not been used before."""
    return os.urandom(16).hex()


class _Printed:
    """What a node has printed so far."""

    __slots__ = ("error", "is_begun", "is_named", "text")

    def __init__(self) -> None:
        self.text = bytearray()
        self.error = b""
        self.is_begun = False
        self.is_named = False


class Listener:
    """Makes an answer of what each node prints. Each node has one: the first that is complete."""

    def __init__(
        self,
        nonce: str,
        nodes: Iterable[str],
        answered: Callable[[NodeAnswer], None],
        *,
        reader: Reader = read_document,
    ) -> None:
        self._begin = f'{{"fleet":"{nonce}","node":"'.encode()
        self._document = b'","document":'
        self._end = f'"end":"{nonce}"}}'.encode()
        self._answered = answered
        self._read = reader
        self._printed = {node: _Printed() for node in nodes}
        self._held = 0

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the nodes that have not answered yet."""
        return tuple(self._printed)

    def again(self, nodes: Iterable[str]) -> None:
        """Forget what *nodes* have printed: they are asked again."""
        for node in nodes:
            if node in self._printed:
                self._held -= len(self._printed[node].text)
                self._printed[node] = _Printed()

    def heard(self, node: str, is_error: bool, chunk: bytes, *, is_named: bool = False) -> bool:
        """Take in what *node* has printed; return whether to go on listening to it.

        *is_named*: the node knows the name by which it is called here, and its answer has to have it.
        """
        printed = self._printed.get(node)
        if printed is None:
            return False
        if is_error:
            printed.error = (printed.error + chunk)[:_KEPT]
            return True
        start = max(0, len(printed.text) - len(self._end))
        printed.text += chunk
        printed.is_named = is_named
        self._held += len(chunk)
        printed.is_begun = printed.is_begun or self._begin in printed.text
        if printed.is_begun and printed.text.find(self._end, start) >= 0:
            answer = self._complete(node, printed)
            # A step that ends early kills gpubind before the shell that says so: its end decides.
            if not is_named or answer.exit not in _KILLED:
                self._finish(answer)
        elif len(printed.text) > (ANSWER_LIMIT if printed.is_begun else NOISE_LIMIT) or self._held > HELD_LIMIT:
            self._finish(NodeAnswer(node, "garbled", None, self._noise(printed.text)))
        return node in self._printed

    def ended(self, node: str, status: Optional[int], why: str = "", kind: Optional[Status] = None) -> None:
        """Note that nothing more will come from *node*, whose command ended with *status*; *why*, if that is known."""
        printed = self._printed.get(node)
        if printed is None:
            return
        why = why or _first_error(printed.error)
        if printed.text.find(self._end) >= 0:
            self._finish(self._complete(node, printed))
            return
        if kind is None and printed.text.strip():
            kind, why = "garbled", self._noise(printed.text)
        elif kind is None:
            kind = "unreachable" if status == _UNREACHABLE else "crashed"
            why = why or f"it ended with status {status}"
        self._finish(NodeAnswer(node, kind, None, why))

    def _finish(self, answer: NodeAnswer) -> None:
        self._held -= len(self._printed.pop(answer.node).text)
        self._answered(answer)

    def _noise(self, text: bytearray) -> str:
        """Return what a node prints, without the beginning of its answer."""
        return _noise(text[text.find(self._document) + len(self._document) :] if self._begin in text else text)

    def _complete(self, node: str, printed: _Printed) -> NodeAnswer:
        # Each part is looked for once: a node may print a beginning a hundred thousand times.
        begun = bytes(printed.text).partition(self._begin)[2].partition(self._end)[0]
        name, _, rest = begun.partition(self._document)
        body, _, last = rest.rpartition(b',"exit":')
        if _STATUS.fullmatch(last) is None or b'"' in name:
            return NodeAnswer(node, "garbled", None, self._noise(printed.text))
        status = int(last[:9].rstrip(b","))
        if printed.is_named and name != node.encode():
            return NodeAnswer(node, "garbled", status, f"it answers as `{name[:_SHOWN].decode('utf-8', 'replace')}`")
        if not body:
            return NodeAnswer(node, "crashed", status, _crash(status, printed.error))
        try:
            document, said = self._read(body)
        except (FormatError, ValueError, RecursionError) as error:
            if status > 1:
                return NodeAnswer(node, "crashed", status, _crash(status, printed.error))
            why = f"{error.what}: {error.why} ({error.where})" if isinstance(error, FormatError) else _noise(body)
            return NodeAnswer(node, "garbled", status, why)
        return NodeAnswer(node, "answered", status, "", document, said)


def _noise(text: Union[bytes, bytearray]) -> str:
    shown = bytes(text[: _SHOWN * 4]).decode("utf-8", "replace").strip()
    more = "" if len(text) <= len(shown.encode()) and len(shown) <= _SHOWN else f", {len(text)} bytes in all"
    return f"it prints `{shown[:_SHOWN]}`{more}"


def _crash(status: int, error: bytes) -> str:
    if status > 128:
        return f"gpubind was killed by signal {status - 128}"
    what = "gpubind is not in the node's PATH" if status == _NOT_FOUND else f"gpubind ended with status {status}"
    told = _first_error(error)
    return f"{what}: {told}" if told else what


def _first_error(error: bytes) -> str:
    """Return the first line of *error* that says that it is one; else the last line."""
    lines = [line.strip() for line in error.decode("utf-8", "replace").splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "")[: 2 * _SHOWN]
