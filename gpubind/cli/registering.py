"""What `gpubind setup` changes: each file before and after, and how it is written."""

from __future__ import annotations

import os
import shlex
from typing import Literal, Optional

from gpubind.cli.save import write_file
from gpubind.errors import OutputError, RuntimeLimitError, UsageError, in_file
from gpubind.files.regular import read_regular
from gpubind.files.trust import acts_as_root, is_obeyed
from gpubind.formats.driver import registration
from gpubind.formats.driver.registration import HEADER, SIZE_LIMIT, Registration
from gpubind.frozen import NamedTuple
from gpubind.host.programs import PROGRAM_DIRECTORIES
from gpubind.model.answers import ABSENT, answer_in, could_not_look, may

Engine = Literal["docker", "podman", "containerd"]
ENGINES: tuple[Engine, ...] = ("docker", "podman", "containerd")
RUNTIMES: dict[Engine, tuple[str, ...]] = {
    "docker": ("runc", "crun"),
    "podman": ("crun", "runc"),
    "containerd": ("runc", "crun"),
}
"""The runtimes that take over, in the order in which each engine prefers them."""
CONFIGURATIONS: dict[Engine, str] = {
    "docker": "/etc/docker/daemon.json",
    "podman": "/etc/containers/containers.conf.d/50-gpubind.conf",
    "containerd": "/etc/containerd/config.toml",
}
PROGRAMS = "/usr/local/sbin"
HOOK = "nvidia-container-runtime-hook"
COPY = ".before-gpubind"
"""The ending of the copy of a configuration."""
_HOOK = """#!/bin/sh
{header}
# dockerd has no --gpus without a program of this name in its PATH. gpubind as the runtime removes the call from
# the container, so it is called only for a container of another runtime.
[ ! -x /usr/bin/{name} ] || exec /usr/bin/{name} "$@"
echo 'gpubind: --gpus needs gpubind as the runtime: add --runtime NAME, or run: gpubind setup docker --default' >&2
exit 1
"""


class FileChange(NamedTuple):
    """A file before and after."""

    path: str
    before: Optional[bytes]
    after: Optional[bytes]
    """None: the file is removed."""
    is_program: bool = False

    @property
    def is_one(self) -> bool:
        """Whether anything differs."""
        return self.before != self.after


class Setup(NamedTuple):
    """What is requested."""

    engine: Engine
    name: str
    is_default: bool
    runtime: Optional[str]
    """The runtime that takes over, if named."""
    root: str
    """The directory below which files are read and written; empty for this machine."""
    program: tuple[str, ...]
    """The words that start gpubind."""
    data_home: Optional[str] = None
    """The directory for programs of an ordinary user."""
    config_home: Optional[str] = None

    @property
    def launcher(self) -> str:
        """The program that the engine calls."""
        directory = PROGRAMS if self.data_home is None else f"{self.data_home}/gpubind"
        return f"{directory}/gpubind-{self.engine}-runtime"

    @property
    def configuration(self) -> str:
        path = CONFIGURATIONS[self.engine]
        return path if self.config_home is None else self.config_home + path[len("/etc") :]


def registered(setup: Setup) -> tuple[FileChange, ...]:
    """Return the changes that register gpubind. Errors: those of reading; `RuntimeLimitError` (`no-runtime`).

    `UsageError`: `setup-conflict`, `setup-untrusted`.
    """
    own = setup.program[-1] if setup.program[-1].startswith("/") else setup.program[0]
    if acts_as_root() and not is_obeyed(own):
        why = "users other than root could change it, or a directory above it"
        hint = "install it where only root may write: `pipx install --global gpubind`, or a package"
        raise UsageError("setup-untrusted", "engines would run this gpubind as root", where=own, why=why, hint=hint)
    words = (*setup.program, "oci-runtime", "--runtime", _runtime(setup), "--")
    text = f'#!/bin/sh\n{HEADER.format(engine=setup.engine)}\nexec {shlex.join(words)} "$@"\n'
    changes = [_written(setup, setup.launcher, text)]
    if _wants_hook(setup) and not _has_hook(setup):
        changes.append(_written(setup, _hook(setup), _HOOK.format(header=HEADER.format(engine="docker"), name=HOOK)))
    entry = Registration(setup.name, setup.launcher, setup.is_default)
    path = setup.configuration
    before = _read(setup, path)
    with in_file(path):
        if setup.engine == "docker":
            after = registration.in_docker(before, entry)
        elif setup.engine == "containerd":
            after = registration.in_containerd(before, entry)
        else:
            _need_ours(setup, path, before)
            after = registration.for_podman(entry)
    return (*changes, FileChange(path, before, after))


def removed(setup: Setup) -> tuple[FileChange, ...]:
    """Return the changes that undo `registered`. Errors: those of reading; `UsageError` (`setup-conflict`)."""
    path = setup.configuration
    before, copy = _read(setup, path), _read(setup, path + COPY)
    after = before
    if before is not None:
        with in_file(path):
            if setup.engine == "podman":
                _need_ours(setup, path, before)
                after = None
            elif setup.engine == "docker":
                after = registration.out_of_docker(before, copy, setup.launcher)
            else:
                after = registration.out_of_containerd(before)
    changes = [FileChange(path, before, _restored(setup, before, after, copy))]
    if copy is not None and changes[0].after == copy:
        changes.append(FileChange(path + COPY, copy, None))
    files = (setup.launcher, *([_hook(setup)] if _wants_hook(setup) else []))
    for file in files:
        there = _read(setup, file)
        if there is not None and _is_ours(setup, there):
            changes.append(FileChange(file, there, None, is_program=True))
    return tuple(changes)


def _restored(setup: Setup, before: Optional[bytes], after: Optional[bytes], copy: Optional[bytes]) -> Optional[bytes]:
    """Return *copy*, byte for byte, if it means what *after* means; else *after*."""
    if copy is None or after is None or before == after:
        return after
    meaning = registration.members if setup.engine == "docker" else bytes.strip
    return copy if meaning(after) == meaning(copy) else after


def apply(setup: Setup, changes: tuple[FileChange, ...]) -> None:
    """Write *changes*, a copy of each configuration first. Errors: `OutputError` (code `unwritable-file`)."""
    for change in changes:
        if not change.is_one:
            continue
        path = setup.root + change.path
        try:
            if change.after is None:
                os.unlink(path)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            is_first = not change.is_program and change.before is not None and not os.path.lexists(path + COPY)
            if is_first and setup.engine != "podman" and change.path == setup.configuration:
                write_file(path + COPY, change.before or b"")
            write_file(path, change.after)
            if change.is_program:
                os.chmod(path, 0o755)
        except OSError as error:
            why = error.strerror or str(error)
            raise OutputError("unwritable-file", "a file cannot be written", where=path, why=why) from error


def _written(setup: Setup, path: str, text: str) -> FileChange:
    """Return the change that writes the program *text*. Errors: `UsageError` for a file of another."""
    before = _read(setup, path)
    _need_ours(setup, path, before)
    return FileChange(path, before, text.encode("utf-8", "surrogateescape"), is_program=True)


def _need_ours(setup: Setup, path: str, data: Optional[bytes]) -> None:
    """Errors: `UsageError` (code `setup-conflict`) for a file that `gpubind setup` did not write."""
    if data is not None and not _is_ours(setup, data):
        hint = "move it away, if nothing needs it"
        raise UsageError("setup-conflict", "there is a file that gpubind did not write", where=path, hint=hint)


def _is_ours(setup: Setup, data: bytes) -> bool:
    return HEADER.format(engine=setup.engine).encode() in data.split(b"\n")[:2]


def _wants_hook(setup: Setup) -> bool:
    """Return whether docker needs the hook: a user's daemon has no directory in its PATH where the user may write."""
    return setup.engine == "docker" and setup.data_home is None


def _hook(setup: Setup) -> str:
    return f"{PROGRAMS}/{HOOK}"


def _has_hook(setup: Setup) -> bool:
    """Return whether a program of that name is there that is not gpubind's."""
    places = (f"{directory}/{HOOK}" for directory in PROGRAM_DIRECTORIES)
    return any(may(setup.root + path, os.X_OK) for path in places if path != _hook(setup))


def _runtime(setup: Setup) -> str:
    """Return the path of the runtime that takes over. Errors: `RuntimeLimitError` (code `no-runtime`)."""
    if setup.runtime is not None and setup.runtime.startswith("/"):
        return setup.runtime
    names = RUNTIMES[setup.engine] if setup.runtime is None else (setup.runtime,)
    places = (f"{directory}/{name}" for name in names for directory in PROGRAM_DIRECTORIES)
    found = next((path for path in places if may(setup.root + path, os.X_OK)), None)
    if found is None:
        what, where = f"there is no {' or '.join(names)}", ":".join(PROGRAM_DIRECTORIES)
        raise RuntimeLimitError("no-runtime", what, where=where, hint="install it, or name its path with --runtime")
    return found


def _read(setup: Setup, path: str) -> Optional[bytes]:
    """Return the bytes of *path*; None without such a file."""
    try:
        return read_regular(setup.root + path, SIZE_LIMIT)
    except OSError as error:
        if answer_in(error) == ABSENT:
            return None
        raise could_not_look(setup.root + path, error) from error
