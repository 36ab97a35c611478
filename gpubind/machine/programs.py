"""Run programs of this machine in bounded time, with bounded output."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` is slow
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from typing import IO

OUTPUT_LIMIT = 1 << 20
_WAIT_S = 0.5
_PAUSE_S = 0.0002
"""The first pause of the wait for a program that has closed its outputs but has not ended."""
_KILL_S = 1.0
"""How long to wait for a killed program. One that a driver blocks in the kernel may not end at all."""
_IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)


def run_captured(
    program: str,
    argv: tuple[str, ...],
    name: str,
    timeout_s: float,
    environ: Mapping[str, str],
    *,
    limit: int = OUTPUT_LIMIT,
    into: Optional[IO[bytes]] = None,
    meanwhile: Callable[[], None] = lambda: None,
    started: Optional[Process] = None,
) -> tuple[int, bytes, bytes]:
    """Run *program* without input; return its status, its standard output and its standard error.

    It is run as by `run_streaming`, and is also killed if it prints more than *limit* bytes. Its standard output goes
    to the file *into*, if given.
    """
    printed = {False: b"", True: b""}

    def keep(is_error: bool, chunk: bytes) -> None:
        printed[is_error] += chunk
        if len(printed[is_error]) > limit:
            raise OSError(f"{name} prints more than {limit} bytes")

    status = run_streaming(
        program, argv, name, timeout_s, environ, keep, into=into, meanwhile=meanwhile, started=started
    )
    return status, printed[False], printed[True]


def run_streaming(
    program: str,
    argv: tuple[str, ...],
    name: str,
    timeout_s: float,
    environ: Mapping[str, str],
    receive: Callable[[bool, bytes], None],
    *,
    reads: Optional[IO[bytes]] = None,
    into: Optional[IO[bytes]] = None,
    meanwhile: Callable[[], None] = lambda: None,
    patience_s: float = 0.0,
    started: Optional[Process] = None,
) -> int:
    """Run *program*, and return its status. *receive* gets whether a chunk is from standard error, and its bytes.

    Its standard input is the file *reads*, or empty; its standard output goes to the file *into*, if given. If it does
    not end in time, or *receive* raises an error, it gets SIGTERM and *patience_s* to end. Then it is killed with all
    that it has started. *meanwhile* is called regularly. *started*: the program, if it runs already.

    Errors: `OSError`, whose text calls the program *name*; also if a signal killed the program.
    """
    deadline = time.monotonic() + timeout_s
    process = started
    try:
        if process is None:
            with signals_held():
                process = Process(program, argv, environ, reads, into)
        for is_error, chunk in process.read_output(deadline, meanwhile):
            receive(is_error, chunk)
        # A program may go on after it has closed both of its outputs.
        status = process.wait(deadline - time.monotonic())
    except OSError as error:
        if process is not None:
            raise
        raise OSError(error.errno, f"{name} cannot be started: {error.strerror}") from error
    finally:
        if process is not None:
            process.close(patience_s)
    if status is None:
        raise TimeoutError(f"{name} did not answer within {timeout_s:g} s")
    if status < 0:
        raise ChildProcessError(f"{name} was killed by signal {-status}")
    return status


class Process:
    """A program that runs in its own session. The module `subprocess` would take 5 ms to load.

    Create it within `signals_held`, and close it on every path: nothing that it has started is left running.
    """

    def __init__(
        self,
        program: str,
        argv: tuple[str, ...],
        environ: Mapping[str, str],
        reads: Optional[IO[bytes]] = None,
        into: Optional[IO[bytes]] = None,
    ) -> None:
        """Start *program*; *reads* and *into* as for `run_streaming`. Errors: `OSError`."""
        self.status: Optional[int] = None
        """Its exit status, or the negative number of the signal that killed it; None while it runs."""
        self._outputs: dict[int, bool] = {}
        """The open ends of its outputs, and whether each is its standard error."""
        child_ends: list[int] = []
        try:
            for is_error, file in ((False, into), (True, None)):
                child_ends.append(self._pipe(is_error) if file is None else _copy(file.fileno()))
            if reads is not None:
                child_ends.append(_copy(reads.fileno()))
            self.pid = _spawn(program, argv, environ, *child_ends)
        except BaseException:
            self._close_outputs()
            raise
        finally:
            for end in child_ends:
                os.close(end)

    def _pipe(self, is_error: bool) -> int:
        output, end = os.pipe()
        self._outputs[output] = is_error
        try:
            return _copy(end)
        finally:
            os.close(end)

    def read_output(self, deadline: float, meanwhile: Callable[[], None]) -> Iterator[tuple[bool, bytes]]:
        """Yield each chunk of output, after whether it is from standard error, until both outputs end, or until
        *deadline*.
        """
        import select

        poll, open_outputs = select.poll(), dict(self._outputs)
        for output in open_outputs:
            poll.register(output, select.POLLIN)
        while open_outputs and (left_s := deadline - time.monotonic()) > 0:
            for output, _ in poll.poll(1000 * min(left_s, _WAIT_S)):
                chunk = os.read(output, 65536)
                if not chunk:
                    poll.unregister(output)
                    del open_outputs[output]
                yield self._outputs[output], chunk
            meanwhile()

    def wait(self, seconds: float) -> Optional[int]:
        """Return its status; None if it has not ended after *seconds*."""
        deadline, pause_s = time.monotonic() + seconds, _PAUSE_S
        while self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the caller ignores SIGCHLD: the kernel keeps no status
                pid, status = self.pid, 0
            left_s = deadline - time.monotonic()
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif left_s <= 0:
                break
            else:
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _WAIT_S / 10)
        return self.status

    def close(self, patience_s: float = 0.0) -> None:
        """Kill the program and all that it has started, unless it has ended; *patience_s* as for `run_streaming`."""
        try:
            if self.status is None and patience_s:
                os.kill(self.pid, _signal.SIGTERM)
                self.wait(patience_s)
        finally:  # also if the user interrupts the wait
            with signals_held():
                if self.status is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self.pid, _signal.SIGKILL)
                    self.wait(_KILL_S)
                self._close_outputs()

    def _close_outputs(self) -> None:
        while self._outputs:
            os.close(self._outputs.popitem()[0])


def _copy(file: int) -> int:
    """Duplicate *file* to a descriptor above 2, because the caller may have closed a standard stream."""
    import fcntl

    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)


def _spawn(
    program: str, argv: tuple[str, ...], environ: Mapping[str, str], out: int, err: int, reads: Optional[int] = None
) -> int:
    try:
        others = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # then the program inherits the open files of gpubind's caller
        others = []
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    actions = (
        nothing if reads is None else (os.POSIX_SPAWN_DUP2, reads, 0),
        *((os.POSIX_SPAWN_DUP2, file, number) for number, file in ((1, out), (2, err))),
        *((os.POSIX_SPAWN_CLOSE, file) for file in others if file > 2),
    )
    try:
        return os.posix_spawn(program, argv, environ, file_actions=actions, setsid=True, setsigdef=_IGNORED_BY_PYTHON)
    except NotImplementedError:  # this Python was built with a C library without POSIX_SPAWN_SETSID
        from subprocess import DEVNULL, Popen

        stdin = DEVNULL if reads is None else reads
        process = Popen(
            argv, executable=program, stdin=stdin, stdout=out, stderr=err, env=environ, start_new_session=True
        )
        process.returncode = 0  # `Process` waits for it
        return process.pid


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Delay interrupting signals until the end of the context. A process without a recorded PID would be left
    running.
    """
    pending: list[int] = []
    handlers = {}
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        handler = _signal.getsignal(number)
        if callable(handler):
            try:
                _signal.signal(number, lambda signum, _: pending.append(signum))
            except ValueError:  # not the main thread; no other thread is interrupted
                break
            handlers[number] = handler
    try:
        yield
    finally:
        for number, handler in handlers.items():
            _signal.signal(number, handler)
        for signum in pending:
            _signal.raise_signal(signum)
