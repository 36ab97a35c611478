"""Files in PATH that start a runtime through `gpubind wrap`: `install_shims`, `remove_shims`.

A shim names the real program by its path, so it does not start itself. Without gpubind it starts only that program.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Optional

from gpubind.errors import OutputError, RuntimeLimitError, UsageError, suggest_known
from gpubind.frozen import NamedTuple
from gpubind.launch.execute import programs_in_path
from gpubind.launch.wrap.passing import WITH_GPU_FLAGS
from gpubind.machine import system
from gpubind.machine.answers import inspection_error, is_file, missing_from, real_path, retry_transient
from gpubind.machine.listener import mark_uncacheable
from gpubind.machine.regular import read_beginning
from gpubind.machine.trust import is_trusted_path
from gpubind.machine.writing import replace
from gpubind.runtimes import PROGRAMS

_HEAD = b"#!/bin/sh\n# Made by `gpubind install-shims`, which also removes it: "


class Shim(NamedTuple):
    """A file that starts a runtime through `gpubind wrap`."""

    path: str
    program: str
    """The real program."""
    is_first: bool
    """Whether PATH finds it before the program."""


def install_shims(
    directory: str, names: Sequence[str], gpubind: Sequence[str], environ: Mapping[str, str]
) -> tuple[Shim, ...]:
    """Write a shim of each program in *names* into *directory*; by default, of each runtime in PATH with GPU flags.

    *gpubind*: the arguments that start this program. Nothing is written before all files can be written. Errors:
    `UsageError` (`wrong-use` for a directory that PATH cannot contain, `unknown-backend` for a program that `wrap` does
    not parse); `RuntimeLimitError` (`no-runtime`) for one that is not in PATH; `OutputError` (`other-file` for a file
    of another kind, `unwritable-file`).
    """
    for name in names:
        if name not in PROGRAMS:
            path_hint = f"give a name, not a path: {os.path.basename(name)}"
            hint = path_hint if "/" in name else suggest_known(PROGRAMS, name)
            raise UsageError("unknown-backend", f"wrap reads no command lines of `{name}`", hint=hint)
    directory = _in_path(directory)
    paths = {name: _find_program(name, environ) for name in names or WITH_GPU_FLAGS}
    programs = {name: path for name, path in paths.items() if path is not None}
    missing = ", ".join(name for name in paths if name not in programs)
    if missing and (names or not programs):
        hint = f"install it, or name other programs: gpubind install-shims {shlex.quote(directory)} PROGRAM..."
        raise RuntimeLimitError("no-runtime", f"{missing}: not in PATH", where=environ.get("PATH", ""), hint=hint)
    for name in programs:
        _require_shim(f"{directory}/{name}")
    mark_uncacheable("files are written")
    try:
        system.make_directories(directory)
        if not is_trusted_path(directory):
            raise PermissionError(errno.EACCES, "users other than root could change it")
        with system.open_directory(directory) as place:
            for name, program in programs.items():
                replace(place, name, _text(program, gpubind, directory), 0o755)
    except OSError as error:
        raise _unwritable(directory, error) from error
    return tuple(_shim(f"{directory}/{name}", program, environ) for name, program in programs.items())


def remove_shims(directory: str, names: Sequence[str]) -> tuple[str, ...]:
    """Remove the shims *names*, by default all, from *directory*; return their paths. Other files stay.

    Errors: `UsageError` (`wrong-use`) as `install_shims`; `OutputError` (`other-file` for a named file of another kind,
    `unwritable-file`).
    """
    directory = _in_path(directory)
    paths = [f"{directory}/{name}" for name in names or sorted(PROGRAMS)]
    for path in paths if names else ():
        _require_shim(path)
    mark_uncacheable("files are removed")
    shims = tuple(path for path in paths if _is_shim(path))
    try:
        for path in shims:
            system.unlink(path)
    except OSError as error:
        raise _unwritable(directory, error) from error
    return shims


def _in_path(directory: str) -> str:
    """Return the absolute path of *directory*. Errors: `UsageError` (`wrong-use`) if PATH cannot contain it."""
    path = system.absolute(directory)
    problem = "DIR is empty" if not directory else ""
    if ":" in path:
        problem = "the directory has a colon in its path, and PATH separates directories by colons"
    elif "\n" in path:
        problem = "the directory has a newline in its path"
    if problem:
        hint = "give a directory that can be put into PATH: gpubind install-shims ~/gpubind-bin"
        raise UsageError("wrong-use", problem, where=directory, hint=hint)
    return path


def _find_program(name: str, environ: Mapping[str, str]) -> Optional[str]:
    """Return the first program *name* in PATH that is not a shim."""
    paths = programs_in_path(name, environ)
    return next((path for path in paths if is_trusted_path(path) and not _is_shim(path)), None)


def _shim(path: str, program: str, environ: Mapping[str, str]) -> Shim:
    first = next(programs_in_path(os.path.basename(path), environ), None)
    return Shim(path, program, first is not None and real_path(first) == real_path(path))


def _text(program: str, gpubind: Sequence[str], directory: str) -> bytes:
    quoted_program, gpubind_command = shlex.quote(program), shlex.join(gpubind)
    wrapped = f'[ -x {shlex.quote(gpubind[0])} ] && exec {gpubind_command} wrap -- {quoted_program} "$@"'
    start_words = PROGRAMS[os.path.basename(program)].start_subcommands  # other lines need not load Python
    starts = " | ".join(f'*" {start_word} "*' for start_word in start_words)
    lines = (
        f"gpubind install-shims --remove {shlex.quote(directory)}",
        f'case " $* " in {starts}) {wrapped} ;; esac' if start_words else wrapped,
        f'exec {quoted_program} "$@"',
    )
    return _HEAD + "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def _require_shim(path: str) -> None:
    if system.exists(path, follow=False) and not _is_shim(path):
        hint = "name another directory: it is put into PATH before the programs' own"
        raise OutputError("other-file", "it is not a file that `install-shims` made", where=path, hint=hint)


def _is_shim(path: str) -> bool:
    if not is_file(path):
        return False
    try:
        return retry_transient(lambda: read_beginning(path, len(_HEAD))) == _HEAD
    except OSError as error:
        if missing_from(error) is None:
            raise inspection_error(path, error) from error
        return False  # a program that only root may read is not a shim


def _unwritable(path: str, error: OSError) -> OutputError:
    why = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror or str(error)
    return OutputError("unwritable-file", "the shims cannot be written or removed", where=path, why=why)
