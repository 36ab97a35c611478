"""Programs of this machine that gpubind asks: found in the standard directories, trusted, and run in bounded time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Optional, Union

from gpubind.files.trust import acts_as_root, writable_by_others
from gpubind.host.base import RunResult
from gpubind.model import Missing
from gpubind.model.answers import may, real_path
from gpubind.model.budget import current
from gpubind.observe import cannot_sign

if TYPE_CHECKING:
    from subprocess import Popen
    from typing import IO

PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
OUTPUT_LIMIT = 1 << 20
WAIT_S = 0.5
KILL_S = 1.0
"""How long a killed program is waited for: one that a driver holds in the kernel may not die at all."""


def find_program(name: str) -> Union[str, Missing]:
    """Return the program *name* in the standard directories, by its real path.

    Missing (`absent`) if it is nowhere; for root also (`forbidden`) if someone else could change it.
    """
    places = (f"{directory}/{name}" for directory in PROGRAM_DIRECTORIES)
    place = next((place for place in places if may(place, os.X_OK)), None)
    if place is None:
        return Missing("absent", f"no `{name}` in {':'.join(PROGRAM_DIRECTORIES)}")
    if acts_as_root() and (writable := writable_by_others(place)):
        return Missing("forbidden", f"`{writable}` can be written by users other than root; not run as root")
    return real_path(place)


def run_program(argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
    """Return what the program `argv[0]` of the standard directories prints, and its status, in bounded time and memory.

    It reads nothing, and has no environment but a PATH and the C locale. One that does not end within *timeout_s*
    seconds, or that prints without end, is killed with all that it has started.
    """
    program = find_program(argv[0])
    if isinstance(program, Missing):
        return program
    import time
    from subprocess import PIPE

    budget = current()
    left = timeout_s if budget is None else min(timeout_s, budget.left("milliseconds") / 1000)
    if left <= 0:
        return Missing("unreadable", f"`{argv[0]}` is not asked: helper programs took all the time that they may")
    started = time.monotonic()
    process = start_program(program, argv, stdout=PIPE, stderr=PIPE)
    if isinstance(process, Missing):
        return process
    try:
        return _answer(process, argv[0], left)
    finally:
        if process.returncode is None:  # late, without end, or interrupted
            _kill(process)
        if budget is not None:
            took = int(1000 * (time.monotonic() - started))
            budget.take("milliseconds", min(took, budget.left("milliseconds")))


def start_program(
    program: str,
    argv: tuple[str, ...],
    *,
    stdout: Union[int, IO[bytes]],
    stderr: Union[int, IO[bytes]],
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Union[Popen[bytes], Missing]:
    """*program*, started as *argv*: it reads nothing, and has no environment but a PATH, the C locale and *environ*."""
    import subprocess

    cannot_sign(f"`{argv[0]}` was asked")
    try:
        return subprocess.Popen(
            argv,
            executable=program,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**environ, "PATH": ":".join(PROGRAM_DIRECTORIES), "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        return Missing("unreadable", f"`{argv[0]}`: {error.strerror}")


def wait_for(process: Popen[bytes], timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> Optional[int]:
    """The status of *process*; None if it does not end in time: then it is killed. *meanwhile* is called at times."""
    import subprocess
    import time

    deadline = time.monotonic() + timeout_s
    try:
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(left, WAIT_S))
            meanwhile()
        return process.poll()
    finally:
        if process.returncode is None:  # late, or interrupted
            _kill(process)


def _answer(process: Popen[bytes], name: str, timeout_s: float) -> Union[RunResult, Missing]:
    """Return what *process* has printed when it has ended; Missing if it does not end in time, or prints too much."""
    import selectors
    import time

    deadline = time.monotonic() + timeout_s
    late = Missing("unreadable", f"`{name}` did not answer within {timeout_s:g} s")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as out, process.stderr as err, selectors.DefaultSelector() as selector:
        printed = {out.fileno(): b"", err.fileno(): b""}
        for descriptor in printed:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return late
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                printed[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                if len(printed[key.fd]) > OUTPUT_LIMIT:
                    return Missing("unreadable", f"`{name}` prints more than {OUTPUT_LIMIT} bytes")
    # A program may have closed both of its outputs, and go on.
    status = wait_for(process, max(0.0, deadline - time.monotonic()))
    if status is None:
        return late
    if status < 0:
        return Missing("unreadable", f"`{name}` was killed by signal {-status}")
    return RunResult(status, *(text.decode("utf-8", "surrogateescape") for text in printed.values()))


def _kill(process: Popen[bytes]) -> None:
    """Kill *process* with all that it has started, and wait for it as long as killed programs take."""
    import signal
    import subprocess

    os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILL_S)
