"""The changes of `gpubind setup`: each file before and after, and how it is written."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional, Union

from gpubind.cli.save import write_file
from gpubind.errors import OutputError, RuntimeLimitError, UsageError, in_file
from gpubind.formats.driver import registration
from gpubind.formats.driver.registration import HEADER, SIZE_LIMIT, Registration
from gpubind.frozen import NamedTuple
from gpubind.host.programs import PROGRAM_DIRECTORIES
from gpubind.launch.execute import this_package
from gpubind.machine import system
from gpubind.machine.answers import facts, has_access, inspection_error, is_file, missing_from, real_path
from gpubind.machine.regular import read_beginning, read_regular
from gpubind.machine.trust import is_trusted_path
from gpubind.model.files import ABSENT, FORBIDDEN, Link, Missing, walk_path

PROGRAMS = "/usr/local/sbin"
HEAD_LIMIT = 512
"""Bytes at the beginning of a program that show whether `setup` wrote it."""
COPY = ".before-gpubind"
"""The ending of the copy of a configuration."""
_HOOK = """#!/bin/sh
{header}
# dockerd has no --gpus without a program of this name in its PATH. gpubind as the runtime removes the call from
# the container, so it is called only for a container of another runtime.
[ ! -x /usr/bin/{name} ] || exec /usr/bin/{name} "$@"
echo 'gpubind: --gpus needs gpubind as the runtime: add --runtime NAME, or run: gpubind setup {engine} --default' >&2
exit 1
"""
_LAUNCHER = """#!/bin/sh
{header}
if {is_there}; then exec {own} oci-runtime --runtime {runtime} -- "$@"; fi
# Without gpubind, containers can be stopped and removed. None starts: it might be one that requests GPUs.
case " $* " in
*" create "* | *" run "*)
  echo {message} >&2
  exit 1
  ;;
esac
exec {runtime} "$@"
"""
_GONE = "gpubind is not there any more: install it and run `{command}`, or remove its runtime from {configuration}"


class FileChange(NamedTuple):
    """A file before and after."""

    path: str
    before: Optional[bytes]
    after: Optional[bytes]
    """The new content; None if the file is removed."""
    is_program: bool = False
    is_copy: bool = False
    """Whether it is the copy of a configuration without gpubind."""

    @property
    def has_effect(self) -> bool:
        """Whether anything differs."""
        return self.before != self.after


class Setup(NamedTuple):
    """The request of `gpubind setup`."""

    engine: str
    """One of `registration.ENGINES`."""
    name: str
    is_default: bool
    runtime: Optional[str]
    """The name or path of the runtime that gpubind calls; None for the one that the engine usually uses."""
    root: str
    """The directory below which files are read and written; empty for this machine."""
    program: tuple[str, ...]
    """The arguments that start gpubind."""
    data_home: Optional[str] = None
    """The directory for programs of an ordinary user."""
    config_home: Optional[str] = None

    def resolve(self, path: str) -> str:
        """Return the path of *path* on this machine. Its links are followed as by a process with the root directory.

        Errors: `HostReadError` for a loop of links.
        """
        if not self.root:
            return path

        def step(directory: str, name: str) -> Union[str, Link, Missing]:
            entry = f"{directory}/{name}"
            host_path = self.root + entry
            status = facts(host_path, follow=False)
            return Link(system.readlink(host_path)) if status is not None and stat.S_ISLNK(status.st_mode) else entry

        resolved = walk_path(path, "", "", step, os.path.dirname)[0]
        if isinstance(resolved, Missing):
            raise inspection_error(self.root + path, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
        return self.root + resolved

    @property
    def engine_spec(self) -> registration.Engine:
        """How the engine registers runtimes."""
        return registration.ENGINES[self.engine]

    @property
    def command(self) -> str:
        """The command line that registers gpubind again."""
        return f"gpubind setup {self.engine}" + (f" --root {shlex.quote(self.root)}" if self.root else "")

    @property
    def hook(self) -> str:
        """The program that the engine needs for its own GPU option; empty if it needs none.

        For an ordinary user it is empty: the PATH of that user's daemon has no directory in which the user may write.
        """
        return f"{PROGRAMS}/{self.engine_spec.hook}" if self.engine_spec.hook and self.data_home is None else ""

    @property
    def launcher(self) -> str:
        """The program that the engine calls."""
        directory = PROGRAMS if self.data_home is None else f"{self.data_home}/gpubind"
        return f"{directory}/gpubind-{self.engine}-runtime"

    @property
    def configuration(self) -> str:
        path = self.engine_spec.configuration
        return path if self.config_home is None else self.config_home + path[len("/etc") :]


def changes_to_register(setup: Setup) -> tuple[FileChange, ...]:
    """Return the changes that register gpubind. Errors: those of reading; `RuntimeLimitError` (`no-runtime`).

    `UsageError`: `setup-conflict`, `setup-untrusted`.
    """
    _need_trusted(setup)
    text = _LAUNCHER.format(
        header=HEADER.format(engine=setup.engine),
        is_there=" && ".join(f"[ -e {shlex.quote(arg)} ]" for arg in setup.program),
        own=shlex.join(setup.program),
        runtime=shlex.quote(_runtime(setup)),
        message=shlex.quote(_GONE.format(command=f"gpubind setup {setup.engine}", configuration=setup.configuration)),
    )
    changes = [_program_change(setup, setup.launcher, text)]
    other_hooks = (f"{directory}/{setup.engine_spec.hook}" for directory in PROGRAM_DIRECTORIES)
    if setup.hook and not any(_is_program(setup, path) for path in other_hooks if path != setup.hook):
        text = _HOOK.format(header=HEADER.format(engine=setup.engine), engine=setup.engine, name=setup.engine_spec.hook)
        changes.append(_program_change(setup, setup.hook, text))
    entry = Registration(setup.name, setup.launcher, setup.is_default)
    path = setup.configuration
    before = _read(setup, path)
    with _about(setup, path):
        after = setup.engine_spec.register(before, entry)
        is_first = before is None or setup.engine_spec.remove(before, None, setup.launcher) == before
    copy = FileChange(path + COPY, _read(setup, path + COPY), before, is_copy=True)
    if is_first and copy.has_effect:  # an older copy would restore an outdated configuration
        changes.append(copy)
    return (*changes, FileChange(path, before, after))


def _need_trusted(setup: Setup) -> None:
    """Errors: `UsageError` (code `setup-untrusted`) if engines would run as root what others can change."""
    files = (*setup.program, *this_package())
    untrusted = next((file for file in files if not is_trusted_path(file)), None)
    if untrusted is not None:
        why = "users other than root could change it, or a directory above it"
        hint = "install it where only root may write: `pipx install --global .` in the checkout, or a package"
        raise UsageError(
            "setup-untrusted", "engines would run this gpubind as root", where=untrusted, why=why, hint=hint
        )


def changes_to_remove(setup: Setup) -> tuple[FileChange, ...]:
    """Return the changes that undo `changes_to_register`. Errors: those of reading; `UsageError` (`setup-conflict`)."""
    path = setup.configuration
    before, copy = _read(setup, path), _read(setup, path + COPY)
    with _about(setup, path):
        after = None if before is None else setup.engine_spec.remove(before, copy, setup.launcher)
    if copy is not None and after is not None and after != before:
        meaning = setup.engine_spec.meaning
        after = copy if meaning(after) == meaning(copy) else after  # restores the file byte for byte
    changes = [FileChange(path, before, after)]
    if copy is not None:
        copy_after = None if changes[0].after == copy else copy
        changes.append(FileChange(path + COPY, copy, copy_after, is_copy=True))
    for file in filter(None, (setup.launcher, setup.hook)):
        content = _read(setup, file)
        if content is not None and registration.is_ours(content, setup.engine):
            changes.append(FileChange(file, content, None, is_program=True))
    return tuple(changes)


def apply(setup: Setup, changes: tuple[FileChange, ...]) -> None:
    """Write *changes*, the copy of a configuration first. Errors: `OutputError` (code `unwritable-file`)."""
    hint = ""
    for change in changes:
        if not change.has_effect:
            continue
        path = setup.resolve(change.path)
        try:
            if change.after is None:
                system.unlink(path)
                continue
            system.make_directories(os.path.dirname(path))
            write_file(path, change.after, _mode(setup, change))
            hint = f"`{setup.command} --undo` removes what was written before"
        except OSError as error:
            why = error.strerror or str(error)
            raise OutputError("unwritable-file", "a file cannot be written", where=path, why=why, hint=hint) from error


def _mode(setup: Setup, change: FileChange) -> Optional[int]:
    """Return the permissions to set. None keeps those of the file, or those of a new file."""
    if not change.is_copy:
        return 0o755 if change.is_program else None
    status = facts(setup.resolve(change.path[: -len(COPY)]))
    return stat.S_IMODE(status.st_mode) & 0o777 if status is not None else 0o600


def _program_change(setup: Setup, path: str, text: str) -> FileChange:
    """Errors: `UsageError` if the file at *path* is not gpubind's."""
    before = _read(setup, path)
    if before is not None and not registration.is_ours(before, setup.engine):
        with _about(setup, path):
            raise registration.not_ours()
    return FileChange(path, before, text.encode("utf-8", "surrogateescape"), is_program=True)


@contextmanager
def _about(setup: Setup, path: str) -> Iterator[None]:
    """Name the file *path* in errors about its format, or about a foreign file in its place."""
    try:
        with in_file(setup.root + path):
            yield
    except UsageError as error:
        error.where = error.where or setup.root + path
        raise


def _is_program(setup: Setup, path: str) -> bool:
    host_path = setup.resolve(path)
    return is_file(host_path) and has_access(host_path, os.X_OK)


def _runtime(setup: Setup) -> str:
    """Return the path of the runtime that takes over. Errors: `RuntimeLimitError` (code `no-runtime`)."""
    names = setup.engine_spec.runtimes if setup.runtime is None else (setup.runtime,)
    is_path = names[0].startswith("/")
    places = names if is_path else tuple(f"{directory}/{name}" for name in names for directory in PROGRAM_DIRECTORIES)
    runtime = next((path for path in places if _is_program(setup, path)), None)
    if runtime is None:
        message, where = f"there is no {' or '.join(names)}", ":".join(PROGRAM_DIRECTORIES)
        if is_path:
            message, where = "the runtime is not a program", setup.resolve(names[0])
        raise RuntimeLimitError("no-runtime", message, where=where, hint="install it, or name its path with --runtime")
    if _is_gpubind(setup, runtime):
        message, why = "the runtime that takes over is gpubind itself", "each call would start the next one without end"
        hint = f"name the program that starts containers: --runtime {setup.engine_spec.runtimes[0]}"
        raise RuntimeLimitError("no-runtime", message, where=setup.resolve(runtime), why=why, hint=hint)
    return runtime


def _is_gpubind(setup: Setup, path: str) -> bool:
    """Return whether the program *path* is gpubind, or a launcher that `setup` wrote. Errors: `HostReadError`."""
    host_path = setup.resolve(path)
    try:
        head = read_beginning(host_path, HEAD_LIMIT)
    except OSError as error:
        if missing_from(error) == FORBIDDEN:
            return False  # a program that only its owner may read
        raise inspection_error(host_path, error) from error
    is_launcher = any(registration.is_ours(head, engine) for engine in registration.ENGINES)
    return is_launcher or real_path(host_path) == real_path(setup.program[0])


def _read(setup: Setup, path: str) -> Optional[bytes]:
    host_path = setup.resolve(path)
    try:
        return read_regular(host_path, SIZE_LIMIT)
    except OSError as error:
        if missing_from(error) == ABSENT:
            return None
        raise inspection_error(host_path, error) from error
