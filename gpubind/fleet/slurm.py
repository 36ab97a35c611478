"""Query nodes through `srun`: one task a node, in the caller's allocation or in a new one.

If one node of a step cannot be reached, Slurm aborts the step on all others. So the step is started again without that
node. It stays in the same allocation, because a new one would wait for Slurm to clean up. Seen with Slurm 22.05.

The allocation is made for a shell whose input is a pipe of this process. So it always ends with this process.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.fleet.answers import AnswerCollector, FleetRequest
from gpubind.fleet.nodes import fold_nodes, parse_nodes
from gpubind.launch.execute import callers_environ, find_program
from gpubind.machine import system
from gpubind.machine.programs import run_captured, run_streaming

_ASK_S = 30.0
_END_S = 10.0
"""The time for Slurm's programs to end their processes."""
_LAUNCH_FAILED = re.compile(r"Task launch for \S+ failed on node (\S+): (.*)")
_LABELLED = re.compile(rb" *([0-9]+): ?(.*)", re.DOTALL)
_LINE_LIMIT = 1 << 20
_LIST_LIMIT = 120_000
"""The limit of the list of nodes of one step, in bytes. Source: Linux, MAX_ARG_STRLEN."""
_UNUSABLE = ("down", "drain", "fail", "error", "unknown", "powered_down", "powering_down", "reboot", "inval", "future")
"""The prefixes of states in which a node starts nothing. Source: sinfo(1), NODE STATE CODES."""
_ALLOCATED = "allocated"
_COMPLETING = "completing"
"""The state of a node on which processes or an epilog of an ended job still run. Slurm allocates no part of such a
node.
"""
_COMPLETE_S = 5
"""How many seconds to wait for nodes in the state `completing`. Most epilogs take less time."""
_READY = (("idle", "mixed"), ("idle",))
"""The tries after a refused allocation. Each requests only nodes whose states have one of these prefixes."""
_OTHERWISE = "ask by --engine clustershell"
_UNEXPORTED_PREFIXES = ("SLURM_HOSTFILE", "GPUBIND_")
"""Variables that are not passed to srun: it would read the first itself, and export the others to gpubind on the
nodes.
"""


def ask_slurm(request: FleetRequest, argv: Sequence[str], program: Optional[str], listener: AnswerCollector) -> None:
    """Run *argv* on the nodes of *request*, with the file *program* as input, and pass their output to *listener*.

    Errors: `RuntimeLimitError` (code `no-engine`).
    """
    query = _Query(request, argv, program, listener)
    job = query.environ.get("SLURM_JOB_ID")
    if job is not None:
        inside = frozenset(parse_nodes(query.environ.get("SLURM_JOB_NODELIST", "")))
        for node in request.nodes:
            if node not in inside:
                listener.finish_node(node, None, f"it is not in the allocation of job {job}", "not-asked")
    states = query.states()
    for node, why in _unusable_nodes(listener.waiting, states, may_be_full=job is not None):
        listener.finish_node(node, None, why, "unreachable")
    if job is not None:
        query.ask_within(job)
    elif listener.waiting:
        is_completing = any(state.startswith(_COMPLETING) for state, _ in (states or {}).values())
        timeout_s = request.timeout_s
        refusal = query.allocate(min(_COMPLETE_S, timeout_s) if is_completing else timeout_s)
        for ready in _READY:
            if refusal is None:
                return
            if query.end_others(ready, refusal) and listener.waiting:
                refusal = query.allocate(timeout_s)
        for node in listener.waiting if refusal is not None else ():
            listener.finish_node(node, None, f"Slurm gave no allocation: {refusal}; {_OTHERWISE}", "unreachable")


def _require_program(name: str, environ: Mapping[str, str]) -> str:
    program = find_program(name, environ)
    if program is None:
        hint = "load Slurm's module, or ask the nodes by ssh: --engine clustershell"
        why = "it is not there, or users other than root could change it" if system.effective_user() == 0 else ""
        where = environ.get("PATH", "")
        raise RuntimeLimitError("no-engine", f"`{name}` of Slurm is not in PATH", where=where, why=why, hint=hint)
    return program


def _unusable_nodes(
    nodes: Sequence[str], states: Optional[Mapping[str, tuple[str, str]]], *, may_be_full: bool
) -> Iterator[tuple[str, str]]:
    """Yield each of *nodes* on which Slurm starts nothing, with the reason. Without *states* all nodes are tried."""
    if states is None:
        return
    for node in nodes:
        state, reason = states.get(node, ("", ""))
        if not state:
            yield node, "Slurm does not know it"
        elif state.startswith(_UNUSABLE) or state.endswith("*") or (state.startswith(_ALLOCATED) and not may_be_full):
            full = "jobs have all of it; ask within an allocation, or by --engine clustershell"
            why = full if state.startswith(_ALLOCATED) else reason if reason.lower() != "none" else ""
            yield node, f"Slurm says {state}" + (f": {why}" if why else "")


class _Query:
    """Slurm's programs, and the nodes that they still have to query: those whose answers the listener lacks."""

    def __init__(
        self, request: FleetRequest, argv: Sequence[str], program: Optional[str], listener: AnswerCollector
    ) -> None:
        variables = callers_environ().items()
        self.environ = {name: value for name, value in variables if not name.startswith(_UNEXPORTED_PREFIXES)}
        self.srun, self.sinfo, self.salloc = (
            _require_program(name, self.environ) for name in ("srun", "sinfo", "salloc")
        )
        self.request, self.argv, self.program, self.listener = request, argv, program, listener

    def states(self) -> Optional[dict[str, tuple[str, str]]]:
        """Return the state of each node with its reason; None if Slurm does not answer."""
        if not self.listener.waiting:
            return None
        nodes = fold_nodes(self.listener.waiting)
        argv = (self.sinfo, "--noheader", "--Node", "--nodes", nodes, "--format", "%N|%T|%E")
        try:
            status, printed, _ = run_captured(self.sinfo, argv, "`sinfo`", _ASK_S, self.environ, limit=64 << 20)
        except OSError:
            return None
        lines = [line.split("|", 2) for line in printed.decode("utf-8", "replace").splitlines()]
        return {line[0]: (line[1], line[2].strip()) for line in lines if len(line) == 3} if status == 0 else None

    def end_others(self, ready: tuple[str, ...], why: str) -> bool:
        """Stop waiting for each node whose state begins with none of *ready*. Return whether there was such a node."""
        states = self.states() or {}
        others = {node: state for node, (state, _) in states.items() if not state.startswith(ready)}
        ended = [node for node in self.listener.waiting if node in others]
        for node in ended:
            text = f"Slurm says {others[node]}, and gave no allocation: {why}; {_OTHERWISE}"
            self.listener.finish_node(node, None, text, "unreachable")
        return bool(ended)

    def allocate(self, wait_s: int) -> Optional[str]:
        """Query the nodes within a new allocation of them. Return why Slurm gives none within *wait_s*; None if it
        does.

        Errors: those of `ask_within`.
        """
        nodes, request = self.listener.waiting, self.request
        batches = 2 + len(nodes) // (request.fanout or 1000)
        whole_s = wait_s + batches * (request.timeout_s + _END_S)
        argv = (
            *(self.salloc, f"--nodes={len(nodes)}", f"--nodelist={fold_nodes(nodes)}", "--ntasks-per-node=1"),
            *("--no-bell", f"--immediate={wait_s}", f"--time={1 + int(whole_s / 60)}", "--job-name=gpubind"),
            *("sh", "-c", 'echo "job $SLURM_JOB_ID"; cat'),
        )
        errors, printed, failures = bytearray(), bytearray(), list[BaseException]()
        reads, release = system.pipe()
        job: Optional[str] = None

        def receive(is_error: bool, chunk: bytes) -> None:
            nonlocal job
            (errors if is_error else printed).extend(chunk[:_LINE_LIMIT])
            match = re.search(rb"job ([0-9]+)\n", printed)
            if match is None or job is not None:
                return
            job = match.group(1).decode()
            try:
                self.ask_within(job)
            except BaseException as error:  # noqa: BLE001 - it is raised below, when Slurm has the nodes back
                failures.append(error)
            release.close()

        try:
            with reads.stream() as waits:
                run_streaming(
                    self.salloc, argv, "`salloc`", whole_s, self.environ, receive, reads=waits, patience_s=_END_S
                )
        except OSError as error:
            errors.extend(str(error).encode())
        finally:
            if job is None:
                release.close()
        if failures:
            raise failures[0]
        return _last_error(errors.decode("utf-8", "replace").splitlines()) if job is None else None

    def ask_within(self, job: str) -> None:
        """Ask the nodes by the steps of *job*."""
        waiting = self.listener.waiting
        most = _LIST_LIMIT // (1 + max(map(len, waiting), default=0))
        size = min(self.request.fanout or most, most)
        for at in range(0, len(waiting), size):
            self._ask_batch({*waiting[at : at + size]}, job)

    def _ask_batch(self, nodes: Collection[str], job: str) -> None:
        """Query *nodes*. Repeat that without the unreached ones, until each node has an answer or a reason."""
        listener, timeout_s = self.listener, self.request.timeout_s
        deadline = time.monotonic() + timeout_s
        while waiting := [node for node in listener.waiting if node in nodes]:
            left_s = max(0.0, deadline - time.monotonic())
            step = _SrunStep(waiting, listener)
            is_late = False
            try:
                step.run(self, job, left_s)
            except TimeoutError:
                is_late = True
            except OSError as error:
                step.errors.append(str(error))
            for node, why in step.unreached.items():
                listener.finish_node(node, None, why, "unreachable")
            waiting = [node for node in waiting if node in listener.waiting]
            if step.unreached and not is_late:
                listener.reset(waiting)
                continue
            for node in waiting:
                if is_late:
                    listener.finish_node(node, None, f"no answer within {timeout_s:g} s", "timed-out")
                else:
                    errors = [message for message in step.errors if node in message] or step.errors
                    listener.finish_node(node, None, _last_error(errors))


class _SrunStep:
    def __init__(self, nodes: Sequence[str], listener: AnswerCollector) -> None:
        self.nodes = nodes
        self.unreached: dict[str, str] = {}
        """The nodes on which nothing was started, with the reason."""
        self.errors: list[str] = []
        """The errors of srun itself."""
        self._listener = listener
        self._rest = {False: b"", True: b""}

    def run(self, query: _Query, job: str, timeout_s: float) -> None:
        """Errors: `TimeoutError`, `OSError`."""
        number, receive = len(self.nodes), self._receive
        argv = (
            *(query.srun, f"--jobid={job}", "--overlap", f"--ntasks={number}", "--ntasks-per-node=1"),
            # In the order of the list, so that the number of a task identifies its node.
            *("--distribution=arbitrary", f"--nodelist={','.join(self.nodes)}", "--label", "--no-kill"),
            *("--kill-on-bad-exit=0", "--wait=0", "--mpi=none", "--cpu-bind=none", "--job-name=gpubind"),
            *(f"--input={'none' if query.program is None else 'all'}", *query.argv),
        )
        with system.open_file(query.program or os.devnull).stream() as reads:
            run_streaming(query.srun, argv, "`srun`", timeout_s, query.environ, receive, reads=reads, patience_s=_END_S)

    def _receive(self, is_error: bool, chunk: bytes) -> None:
        *lines, partial_line = (self._rest[is_error] + chunk).split(b"\n")
        self._rest[is_error] = partial_line[:_LINE_LIMIT]
        for line in lines:
            match = _LABELLED.fullmatch(line)
            number = int(match.group(1)[:9]) if match is not None else len(self.nodes)
            if match is not None and number < len(self.nodes):
                # srun breaks long lines; an answer contains no line end.
                text = match.group(2) + (b"\n" if is_error else b"")
                self._listener.receive(self.nodes[number], is_error, text, is_named=True)
            elif is_error:
                self._read_error(line.decode("utf-8", "replace"))

    def _read_error(self, line: str) -> None:
        failed = _LAUNCH_FAILED.search(line)
        if failed is not None and failed.group(1) in self.nodes:
            self.unreached[failed.group(1)] = failed.group(2)
        elif len(self.errors) < 2 * len(self.nodes) + 100:
            self.errors.append(line[:500])


def _last_error(lines: Sequence[str]) -> str:
    last: Optional[str] = next((line for line in reversed(lines) if "error: " in line), lines[-1] if lines else None)
    return (last or "").rpartition("error: ")[2].strip()
