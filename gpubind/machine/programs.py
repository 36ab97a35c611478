"""Run programs of this machine in bounded time, with bounded output."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from subprocess import Popen
    from typing import IO

OUTPUT_LIMIT = 1 << 20
WAIT_S = 0.5
KILL_S = 1.0
"""How long to wait for a killed program: one that a driver holds in the kernel may not die at all."""


def ask(
    program: str,
    argv: tuple[str, ...],
    name: str,
    timeout_s: float,
    environ: Mapping[str, str],
    *,
    limit: int = OUTPUT_LIMIT,
    into: Optional[IO[bytes]] = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[int, bytes, bytes]:
    """Run *program*, which reads nothing; return its status, its standard output and its standard error.

    As `listen`; it is killed, too, if it prints more than *limit* bytes. Its standard output goes to the file *into*,
    if given.
    """
    printed = {False: b"", True: b""}

    def keep(is_error: bool, chunk: bytes) -> None:
        printed[is_error] += chunk
        if len(printed[is_error]) > limit:
            raise OSError(f"{name} prints more than {limit} bytes")

    status = listen(program, argv, name, timeout_s, environ, keep, into=into, meanwhile=meanwhile)
    return status, printed[False], printed[True]


def listen(
    program: str,
    argv: tuple[str, ...],
    name: str,
    timeout_s: float,
    environ: Mapping[str, str],
    receive: Callable[[bool, bytes], None],
    *,
    reads: Union[IO[bytes], int, None] = None,
    into: Optional[IO[bytes]] = None,
    meanwhile: Callable[[], None] = lambda: None,
    patience_s: float = 0.0,
) -> int:
    """Run *program*, and return its status. *receive* gets whether it is an error, and the chunk that it prints.

    Its standard input is the file *reads*, or empty. If it does not end in time, or *receive* raises an error, it is
    killed with all that it has started, after it was asked to end and had *patience_s* for that. Its standard output
    goes to the file *into*, if given. *meanwhile* is called at times.

    Errors: `OSError`, whose text calls the program *name*: also for a program that a signal has killed.
    """
    import subprocess
    import time

    deadline = time.monotonic() + timeout_s
    process: Optional[Popen[bytes]] = None
    try:
        with _signals_held():
            process = subprocess.Popen(
                argv,
                executable=program,
                stdin=subprocess.DEVNULL if reads is None else reads,
                stdout=into or subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                start_new_session=True,
            )
        for stream, chunk in _chunks(_streams(process), deadline, meanwhile):
            receive(stream is process.stderr, chunk)
        # A program may have closed both of its outputs, and go on.
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{name} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        if process is not None:
            raise
        raise OSError(error.errno, f"{name} cannot be started: {error.strerror}") from error
    finally:
        if process is not None:
            if process.returncode is None:  # late, without end, or interrupted
                _kill(process, patience_s)
            for stream in _streams(process):
                stream.close()
    if status < 0:
        raise ChildProcessError(f"{name} was killed by signal {-status}")
    return status


def _streams(process: Popen[bytes]) -> list[IO[bytes]]:
    return [stream for stream in (process.stderr, process.stdout) if stream is not None]


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Hold back the signals that interrupt, until the end: in `Popen` they would leave its process running."""
    import signal
    import threading

    came: list[int] = []
    held = {}
    if threading.current_thread() is threading.main_thread():  # others are not interrupted
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(handler := signal.getsignal(number)):
                held[number] = handler
                signal.signal(number, lambda one, _: came.append(one))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


def _chunks(
    streams: Collection[IO[bytes]], deadline: float, meanwhile: Callable[[], None]
) -> Iterator[tuple[IO[bytes], bytes]]:
    """Yield what comes from *streams* until all are at their end, or the *deadline*."""
    import selectors
    import time

    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(min(left, WAIT_S)):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fd)
                yield key.data, chunk
            meanwhile()


def _kill(process: Popen[bytes], patience_s: float) -> None:
    """Kill *process* with all that it has started, and wait for it as long as killed programs take."""
    import signal
    import subprocess

    try:
        if patience_s:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
    finally:  # also when the patience of a user ends first
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_S)
