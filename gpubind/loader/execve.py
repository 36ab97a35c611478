"""Follow execve(2) in a container, from a program or script to the program that runs.

Source: execve(2) and execvp(3) for scripts and interpreters; Linux `fs/exec.c`, `fs/binfmt_script.c`.
"""

from __future__ import annotations

import re
from posixpath import basename, dirname
from typing import Literal, Optional

from gpubind.errors import did_you_mean
from gpubind.formats.elf.elf import ElfIdent
from gpubind.frozen import NamedTuple
from gpubind.loader.container import Container
from gpubind.loader.search import ContainerFile
from gpubind.model import Missing, architecture

_SCRIPTS_LIMIT = 5
"""How many interpreters the kernel follows from script to script. Source: fs/exec.c, exec_binprm."""
LINE_LIMIT = 256
"""Bytes of a script's first line that the kernel reads (BINPRM_BUF_SIZE)."""
_PLACES_LIMIT = 128
"""Directories below /opt and /usr/local that `nearest_program` searches."""

_ENV_SPLITS = r"(?s)-S[ \t]*([^-\s'\"\\$=#][^\s'\"\\$=]*)(?:\s.*)?"
_LIBRARY_NAME = re.compile(r"\.so(\.\d\w*)*$")


class ExecStop(NamedTuple):
    """Why execve fails, or runs nothing."""

    kind: Literal["missing", "mode", "directory", "special", "format", "architecture", "unreadable", "empty", "library"]
    """`special`: a FIFO, a socket or a device. `library`: a library that the loader refuses."""
    why: str


class Chain(NamedTuple):
    """The files that execve follows."""

    names: tuple[str, ...]
    """The program and its chain of interpreters, in order."""
    file: Optional[ContainerFile]
    """The file of the last name, if it exists."""
    stop: Optional[ExecStop]
    """Why that file does not run; None if the kernel loads it."""


class Caller(NamedTuple):
    """The kernel and the user that execute a program."""

    machine: Optional[str] = None
    """The machine as in uname(2); if None, the image's architecture is used."""
    euid: Optional[int] = None
    """The effective user ID; None if unknown."""
    groups: tuple[int, ...] = ()
    modes_count: bool = True
    """Whether the kernel uses the image's owners and modes. In a SIF file, all files belong to its user."""

    def may_execute(self, file: ContainerFile) -> bool:
        """Return whether the caller may execute *file*, by its mode."""
        file_stat = file.tree.stat(file.tree_path)
        if isinstance(file_stat, Missing):
            return False
        is_images = file.mount is None and file.bind is None
        if self.euid in (None, 0) or (is_images and not self.modes_count):
            return bool(file_stat.mode & 0o111)
        return bool(file_stat.permission_bits(self.euid, self.groups) & 1)

    def runs(self, arch: str, image: Optional[str]) -> bool:
        """Return whether the kernel runs programs for *arch*. If its machine is unknown, *image*, the image's
        architecture, is used.
        """
        name = self.machine or image
        machine = architecture(name) if name else None
        return machine is None or arch in (machine.name, machine.compat32)


def is_library(file: ContainerFile) -> bool:
    """Return whether *file* is only for dlopen: it has no interpreter and is named as a library.

    For a damaged file only the name decides.
    """
    elf, has_library_name = file.elf, _LIBRARY_NAME.search(file.path) is not None
    return has_library_name if elf is None else elf.interpreter is None and (has_library_name or elf.soname is not None)


def library_chain(container: Container, name: str, file: ContainerFile) -> Chain:
    """Return the chain of the library *file*, called *name*; it stops if the file is damaged."""
    elf = file.tree.elf(file.tree_path)
    is_damaged = isinstance(elf, Missing) and elf.why == "unreadable"
    stop = ExecStop("library", container.failures(file.path)[0].message) if is_damaged else None
    return Chain((name,), file, stop)


def resolve_named(container: Container, name: str, path: str, caller: Caller) -> Chain:
    """Return the chain of *name*; a path may be that of a library that is only for dlopen."""
    file = container.locate(name) if "/" in name else None
    if file is not None and is_library(file):
        return library_chain(container, name, file)
    return resolve_program(container, name, path, caller)


def resolve_program(container: Container, program: str, path: str, caller: Caller) -> Chain:
    """Follow *program*, a path or a name in the directories of *path*, through scripts to the program that runs."""
    names = [program]
    while True:
        file = _find(container, names[-1], path, caller)
        stop = _stop(container, names, file, caller)
        if stop is not None or file is None:
            return Chain(tuple(names), file, stop)
        if isinstance(file.tree.ident(file.tree_path), ElfIdent):
            return _with_loader(container, names, file, caller)
        line = _first_line(file)
        if line is None:
            return Chain(tuple(names), file, ExecStop("format", f"{names[-1]}: Exec format error (126)"))
        if len(names) > _SCRIPTS_LIMIT:
            return Chain(tuple(names), file, ExecStop("format", f"{program}: Too many levels of symbolic links (126)"))
        interpreter, argument = line
        env = _find(container, interpreter, path, caller) if basename(interpreter) == "env" else None
        runs = env is not None and _stop(container, [*names, interpreter], env, caller) is None
        started = started_by_env(argument)
        if env is not None and basename(env.tree_path) == "busybox" and started != argument:
            started = None  # busybox does not support -S
        names.append(started if runs and started else interpreter)


def started_by_env(argument: str) -> Optional[str]:
    """Return the program that env starts for a script: `env NAME` or `env -S NAME ...`; None if it is unknown."""
    splits = re.fullmatch(_ENV_SPLITS, argument)
    if splits:
        return splits.group(1)
    return None if not argument or argument.startswith("-") or "=" in argument else argument


def nearest_program(container: Container, name: str, path: str) -> str:
    """Return "did you mean ...?" for the missing program *name*; empty without a similar one."""
    library_file = container.find(name) if "/" not in name and _LIBRARY_NAME.search(name) else None
    if library_file is not None:
        return f"did you mean `{library_file.path}`? "
    base_name, directories = basename(name), [place for place in path.split(":") if place.startswith("/")]
    below = [f"{above}/{entry}" for above in ("/opt", "/usr/local") for entry in container.tree.names(above)]
    usual = (f"{place}{end}" for place in ("/app", "/opt", *below[:_PLACES_LIMIT]) for end in ("", "/bin"))
    for place in dict.fromkeys((*directories, *usual)):
        if container.locate(f"{place}/{base_name}"):
            return f"did you mean `{place}/{base_name}`? "
    at = container.absolute(name)
    searched = directories if "/" not in name else [] if at is None else [dirname(at)]
    return did_you_mean(dict.fromkeys(entry for place in searched for entry in container.tree.names(place)), base_name)


def first_program(container: Container, name: str, path: str) -> Optional[str]:
    """Return the first of several words in *name* if it is a program: *name* is then a command line."""
    first, *others = name.split(maxsplit=1) or [name]
    places = [first] if "/" in first else [f"{place}/{first}" for place in path.split(":")]
    return first if others and any(map(container.locate, places)) else None


def is_undecided(container: Container, name: str, path: str) -> bool:
    """Return whether *name* is relative to an unknown working directory, and not a command line."""
    is_relative = "/" in name and container.absolute(name) is None
    return is_relative and first_program(container, name, path) is None


def _with_loader(container: Container, names: list[str], file: ContainerFile, caller: Caller) -> Chain:
    elf = file.elf
    loader = None if elf is None or not elf.interpreter else container.locate(elf.interpreter)
    if loader is not None and not caller.may_execute(loader):
        return Chain((*names, loader.path), loader, ExecStop("mode", f"{names[-1]}: Permission denied (126)"))
    return Chain(tuple(names), file, None)


def _stop(container: Container, names: list[str], file: Optional[ContainerFile], caller: Caller) -> Optional[ExecStop]:
    name, arch = names[-1], container.image.arch
    if file is None:
        return _absent(container, names)
    if not caller.may_execute(file):
        return ExecStop("mode", f"{name}: Permission denied (126)")
    ident = file.tree.ident(file.tree_path)
    if isinstance(ident, Missing):
        return ExecStop("unreadable", str(ident))
    if isinstance(ident, ElfIdent) and not caller.runs(ident.arch, arch):
        why = f"{name}: Exec format error (126); it is for {ident.arch}, this machine is {caller.machine or arch}"
        return ExecStop("architecture", why)
    if not isinstance(ident, ElfIdent) and ident.rule == "zero-byte" and len(names) == 1:
        return ExecStop("empty", f"{name} is empty: it ends at once, with 0")
    return None


def _absent(container: Container, names: list[str]) -> ExecStop:
    name = names[-1]
    bad = "bad interpreter: " if len(names) > 1 else ""
    kind = container.kind(name) if "/" in name else None  # a search in PATH skips directories
    if kind is None or kind == "file":
        return ExecStop("missing", f"{name}: {bad}No such file or directory (127)")
    return ExecStop("directory" if kind == "dir" else "special", f"{name}: {bad}Permission denied (126)")


def _find(container: Container, name: str, path: str, caller: Caller) -> Optional[ContainerFile]:
    """Return the file that a shell runs for *name*: that path, or the first executable of that name in the directories
    of *path*.
    """
    if "/" in name:
        return container.locate(name)
    first = None
    for directory in path.split(":"):
        file = container.locate(f"{directory or '.'}/{name}")
        if file is not None and caller.may_execute(file):
            return file
        first = first or file
    return first


def _first_line(file: ContainerFile) -> Optional[tuple[str, str]]:
    """Return the interpreter of a script and its one argument; None if *file* is not a script."""
    data = file.tree.head(file.tree_path, LINE_LIMIT)
    if isinstance(data, Missing) or data.startswith(b"\x7fELF"):
        return None
    line, newline, _ = data[2:].partition(b"\n")
    line = line.split(b"\0")[0].strip(b" \t")
    program = re.split(rb"[ \t]", line)[0]
    if not data.startswith(b"#!") or not program or (program == line and not newline and len(data) >= LINE_LIMIT):
        # The kernel returns ENOEXEC; execvp(3) and every shell then run a text with a shell.
        return None if b"\0" in data else ("/bin/sh", "")
    texts = (program, line[len(program) :].strip(b" \t"))
    name, argument = (text.decode("utf-8", "surrogateescape") for text in texts)
    return name, argument
