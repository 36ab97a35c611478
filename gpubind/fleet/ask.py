"""Query nodes through one of two engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Optional

from gpubind.documents.fleet import NodeAnswer, read_document
from gpubind.errors import UsageError
from gpubind.fleet.answers import (
    AnswerCollector,
    Engine,
    FleetRequest,
    Reader,
    command_on_nodes,
)
from gpubind.launch.execute import callers_environ, find_program
from gpubind.machine import system
from gpubind.machine.answers import is_file


def default_engine() -> Engine:
    """Return the engine of this machine: Slurm if `srun` is in PATH."""
    return "slurm" if find_program("srun", callers_environ()) is not None else "clustershell"


def query_nodes(
    request: FleetRequest,
    on_answer: Callable[[NodeAnswer], None],
    reader: Reader = read_document,
) -> None:
    """Pass each node's answer to *on_answer*, once, as the answers arrive. *reader* parses the output of gpubind there.

    On an interrupt or SIGTERM the other nodes get an answer too, before `KeyboardInterrupt` is raised: the engine's
    programs are in other sessions, which a terminal's signals do not reach.
    Errors: `UsageError` (code `not-one-file`), `RuntimeLimitError` (code `no-engine`).
    """
    nonce = system.random_name()
    argv = command_on_nodes(request.args, nonce, request.timeout_s, is_sent=request.sends_gpubind)
    listener = AnswerCollector(nonce, request.nodes, on_answer, reader=reader)
    try:
        _interrupt_on_signals()
        with _bootstrap_file(request) as program:
            if request.engine == "slurm":
                from gpubind.fleet.slurm import ask_slurm

                ask_slurm(request, argv, program, listener)
            else:
                from gpubind.fleet.clustershell import ask_clustershell

                ask_clustershell(request, argv, program, listener)
    except KeyboardInterrupt:
        _end_waiting(listener, "interrupted")
        raise
    _end_waiting(listener, "the engine says nothing about it")


def _interrupt_on_signals() -> None:
    """Let SIGTERM and SIGHUP interrupt this process, unless the caller ignores them, as nohup does."""
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _end_waiting(listener: AnswerCollector, why: str) -> None:
    for node in listener.waiting:
        listener.finish_node(node, None, why, "not-asked")


@contextmanager
def _bootstrap_file(request: FleetRequest) -> Iterator[Optional[str]]:
    """Yield the file that is sent to nodes, if any: the sources in gpubind.pyz, which have an eighth of its size.

    A node compiles them faster than this machine could send the byte code to all nodes.
    """
    if not request.sends_gpubind:
        yield None
        return
    from zipfile import ZIP_DEFLATED, ZipFile

    with system.named_temporary_file(".pyz") as sources, ZipFile(_running_zipapp()) as zipapp:
        with ZipFile(sources, "w", ZIP_DEFLATED) as archive:
            for member in zipapp.infolist():
                if not member.filename.startswith("bytecode/"):
                    archive.writestr(member, zipapp.read(member))
        sources.flush()
        yield sources.name


def _running_zipapp() -> str:
    """Return the path of the running gpubind.pyz. Errors: `UsageError` (code `not-one-file`)."""
    archive: Optional[str] = getattr(globals().get("__loader__"), "archive", None)
    if archive is None or not is_file(archive):
        hint = "start gpubind.pyz, which `make dist` makes, or install gpubind on the nodes"
        raise UsageError("not-one-file", "only gpubind.pyz can be sent to nodes", where=__file__, hint=hint)
    return system.absolute(archive)
