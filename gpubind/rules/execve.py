"""What execve(2) would start in a container: a program, or a script and what its interpreters lead to.

Source: execve(2) and execvp(3) for scripts and interpreters, env(1) for its -S.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename
from typing import Literal, NamedTuple, Optional

from gpubind.formats.elf import ElfIdent
from gpubind.ldso.container import Container, Located
from gpubind.model import Missing

SCRIPTS_LIMIT = 5
"""Interpreters of interpreters that the kernel follows: fs/exec.c, exec_binprm."""
LINE_LIMIT = 256
"""Bytes of a script's first line that the kernel looks at (BINPRM_BUF_SIZE)."""
SCRIPT_SIZE_LIMIT = 64 << 20


class Stop(NamedTuple):
    """Why execve would go no further."""

    kind: Literal["missing", "mode", "format", "architecture", "unreadable"]
    why: str


class Chain(NamedTuple):
    """What execve would start."""

    names: tuple[str, ...]
    """The program and the interpreters that it leads to, in order."""
    file: Optional[Located]
    """The last of them, if it is there."""
    stop: Optional[Stop]
    """What is wrong with the last; None if it is a program that the kernel would load."""


def follow(container: Container, program: str, path: str) -> Chain:
    """*program*, a name to be looked for in the directories of *path* or a path, through scripts to what runs them."""
    names = [program]
    while True:
        file = _find(container, names[-1], path)
        stop = _stop(container.image.arch, names, file)
        if stop is not None or file is None or isinstance(file.tree.ident(file.at), ElfIdent):
            return Chain(tuple(names), file, stop)
        following = _interpreter(file)
        if following is None or len(names) > SCRIPTS_LIMIT:
            return Chain(tuple(names), file, Stop("format", f"{names[-1]}: Exec format error (126)"))
        names.append(following)


def _stop(arch: Optional[str], names: list[str], file: Optional[Located]) -> Optional[Stop]:
    """Why the last of *names* cannot be executed."""
    name = names[-1]
    if file is None:
        said = "bad interpreter: No such file or directory" if len(names) > 1 else "No such file or directory"
        return Stop("missing", f"{name}: {said} (127)")
    found = file.tree.stat(file.at)
    if not isinstance(found, Missing) and not found.mode & 0o111:
        return Stop("mode", f"{name}: Permission denied (126)")
    ident = file.tree.ident(file.at)
    if isinstance(ident, Missing):
        return Stop("unreadable", str(ident))
    if isinstance(ident, ElfIdent) and arch is not None and ident.arch != arch:
        return Stop("architecture", f"{name}: Exec format error (126); it is for {ident.arch}, the image for {arch}")
    return None


def _find(container: Container, name: str, path: str) -> Optional[Located]:
    """*name* as a shell finds it: a path, or the first that may be executed of that name in PATH's directories."""
    if "/" in name:
        return container.locate(name)
    first = None
    for directory in path.split(":"):
        found = container.locate(f"{directory or '.'}/{name}")
        facts = Missing("absent") if found is None else found.tree.stat(found.at)
        if not isinstance(facts, Missing) and facts.mode & 0o111:
            return found
        first = first or found
    return first


def _interpreter(file: Located) -> Optional[str]:
    """What runs a file that is no ELF program: by its first line, else /bin/sh; None for what is no script."""
    data = file.tree.read(file.at, SCRIPT_SIZE_LIMIT)
    if isinstance(data, Missing) or data.startswith(b"\x7fELF") or b"\0" in data[:LINE_LIMIT]:
        return None
    if not data.startswith(b"#!"):
        return "/bin/sh"  # execvp(3), and every shell, hand it to one
    line = data[2:LINE_LIMIT].split(b"\n")[0].decode("utf-8", "surrogateescape").strip(" \t")
    program, _, argument = line.partition(" ") if " " in line else line.partition("\t")
    if not program:
        return None
    if basename(program) == "env" and argument.strip():
        return _env_program(argument.strip(" \t")) or program
    return program


def _env_program(argument: str) -> Optional[str]:
    """What env(1) starts, given the one argument that the kernel makes of the rest of the line."""
    split = re.match(r"(-S|-vS|--split-string=?)\s*", argument)
    if split is None:
        return None if argument.startswith("-") else argument  # without -S, blanks are part of the name
    words: Iterator[str] = iter(re.findall(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+", argument[split.end() :]))
    for word in words:
        if word in ("-u", "-C", "--unset", "--chdir"):
            next(words, None)
        elif word.startswith("-"):
            continue
        elif "=" in word:
            return next((later for later in words if "=" not in later), None)  # no options behind assignments
        else:
            return word
    return None
