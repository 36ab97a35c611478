"""Find a program in PATH, query its version, replace this process by it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Optional

from gpubind.errors import CommandError, RuntimeLimitError, StartError, UnseenError
from gpubind.machine import listener, system
from gpubind.machine.listener import mark_uncacheable, report_exec
from gpubind.memo.answer import replace_process
from gpubind.memo.questions import run_query
from gpubind.model.environ import Environ, changed

if TYPE_CHECKING:
    from gpubind.machine.programs import Process
    from gpubind.memo.versions import ProgramVersion

_PROBE_TIMEOUT_S = 10.0
VERSION_ERROR = "a program cannot be asked for its version"


def find_program(name: str, environ: Mapping[str, str]) -> Optional[str]:
    """Return the absolute path of the program *name* in PATH, or None.

    Relative PATH entries are ignored; for root, so are programs that other users could change.
    """
    from gpubind.machine.trust import is_trusted_path

    return next((path for path in programs_in_path(name, environ) if is_trusted_path(path)), None)


def this_program() -> tuple[str, ...]:
    """Return the arguments that start this gpubind by its path, because `sudo` and other hosts have another PATH."""
    program = sys.argv[0]
    is_module = os.path.basename(program) in ("__main__.py", "-c", "-m")
    return this_package() if is_module else (system.absolute(program),)


def this_package() -> tuple[str, ...]:
    """Return the arguments that start this package by its path; `-m` would search the working directory first."""
    archive: Optional[str] = getattr(sys.modules[__name__].__loader__, "archive", None)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return sys.executable, archive or os.path.join(package, "__main__.py")


def need_program(name: str, environ: Mapping[str, str]) -> str:
    """Return the path of the program *name*. Errors: `RuntimeLimitError` (code `no-runtime`) if PATH has none."""
    path = find_program(name, environ)
    if path is None:
        ignored = next(programs_in_path(name, environ), None)
        problem, where, why = f"`{name}` is not in PATH", environ.get("PATH", ""), ""
        hint = f"install {name}, load its module, or start the image with another runtime: gpubind exec --backend"
        if ignored is not None:
            problem, where = f"`{name}` is not started as root", ignored
            why = "users other than root could change the program, or a directory above it"
            hint = f"if you trust them: `gpubind wrap -- {ignored} ...`; otherwise let only root write there"
        raise RuntimeLimitError("no-runtime", problem, where=where, why=why, hint=hint)
    return path


def programs_in_path(name: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the programs *name* in the absolute directories of PATH, in order.

    A file that cannot be inspected is skipped, as shells do. Errors: `UnseenError` if no other file has that name.
    """
    from gpubind.machine.answers import has_access, is_file

    unseen, has_file = None, False
    for directory in environ.get("PATH", os.defpath).split(":"):
        path = f"{directory}/{name}"
        try:
            is_there = directory.startswith("/") and is_file(path)
        except UnseenError as error:
            unseen = unseen or error
            continue
        has_file = has_file or is_there
        if is_there and has_access(path, os.X_OK):
            yield path
    if unseen is not None and not has_file:
        raise unseen


class VersionProbe:
    """`PROGRAM --version`, which may run while other work goes on. Close it on every path: no process may be left."""

    def __init__(self) -> None:
        self._known: Optional[ProgramVersion] = None
        self._started: Optional[Process] = None

    def start(self, program: str) -> None:
        """Start *program*, unless its version is cached. If it cannot be started, `version` reports the error."""
        from gpubind.memo.versions import ProgramVersion

        self._known = ProgramVersion(program)
        if self._known.questions and not self._known.text:
            from gpubind.machine.programs import Process, signals_held

            with suppress(OSError), signals_held():
                self._started = Process(program, (program, "--version"), _plain_environ())

    def version(self, program: str) -> str:
        """Return what *program* prints, up to 4096 bytes; empty if it fails.

        The output of an ELF file is cached until the file changes.
        """
        from gpubind.memo.versions import version_of

        return version_of(program, self._run, self._known)

    def _run(self, program: str) -> str:
        from gpubind.machine.answers import inspection_error, missing_from
        from gpubind.machine.programs import run_captured

        argv, environ = (program, "--version"), _plain_environ()
        printed, failure = b"", None
        try:
            _, printed, _ = run_captured(program, argv, "it", _PROBE_TIMEOUT_S, environ, started=self._started)
        except OSError as error:
            failure = error
        self._started = None  # the program has ended; after an interrupt it may still run, and `close` ends it
        if failure is not None and missing_from(failure) is None:
            raise inspection_error(program, failure, VERSION_ERROR) from failure
        return printed[:4096].decode("utf-8", "replace")

    def close(self) -> None:
        """End the program, if it still runs."""
        if self._started is not None:
            self._started.close()


def _plain_environ() -> Mapping[str, str]:
    """Return the variables of this process, without a note in the memo: a version does not depend on them."""
    environ = system.environ()
    return environ.plain() if isinstance(environ, Environ) else environ


def run_in_foreground(
    argv: Sequence[str], environ: Mapping[str, str], *, keeps_output: bool, is_silent: bool = False
) -> tuple[int, bytes]:
    """Run *argv* in the caller's terminal; return its exit status and its standard output.

    Without *keeps_output*, standard output goes to standard error. *is_silent*: standard error is discarded. Errors:
    `StartError` (code `not-started`).
    """
    import subprocess

    mark_uncacheable(f"`{argv[0]}` was run")
    try:
        output, messages = subprocess.PIPE if keeps_output else 2, subprocess.DEVNULL if is_silent else None
        completed = subprocess.run(tuple(argv), stdout=output, stderr=messages, env=environ, check=False)
    except OSError as error:
        why = error.strerror or str(error)
        raise StartError("not-started", f"`{argv[0]}` cannot be started", where=argv[0], why=why) from error
    return completed.returncode, completed.stdout or b""


def callers_environ() -> Mapping[str, str]:
    """Return the caller's environment, without the LC_CTYPE that Python sets for itself (PEP 538)."""
    recorder = listener.recorder
    is_pythons = run_query("locale", "") if recorder is None else recorder.own_locale()
    return changed(system.environ(), unset=("LC_CTYPE",) if is_pythons else ())


def execute(argv: Sequence[str], environ: Mapping[str, str], program: Optional[str] = None) -> NoReturn:
    """Replace this process by the program at *program*, or else at the first argument, with the arguments *argv*.

    Errors: `StartError` (code `not-started`).
    """
    path = program or argv[0]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    report_exec(path, tuple(argv), environ)
    try:
        try:
            replace_process(path, tuple(argv), environ)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            replace_process("/bin/sh", ("sh", path, *argv[1:]), environ)  # a script without `#!`: as shells do
    except OSError as error:
        why = error.strerror or str(error)
        raise StartError("not-started", f"`{argv[0]}` cannot be started", where=path, why=why) from error


def execute_line(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the user's command line *argv*, whose program is found as by a shell.

    Errors: `CommandError` (`no-such-command`, `not-executable`), `StartError`.
    """
    from gpubind.launch.named import resolve_program

    name = argv[0]
    program, files = resolve_program(name, environ, system.is_file, lambda path: system.access(path, os.X_OK))
    if program is None:
        code, problem = ("not-executable", "may not be executed") if files else ("no-such-command", "is not there")
        where = files[0] if files else name if "/" in name else environ.get("PATH", "")
        raise CommandError(code, f"`{name}` {problem}", found=bool(files), where=where)
    execute(argv, environ, program)
