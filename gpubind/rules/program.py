"""Rules about the program that will run: is it in the container, and does its loader find everything it needs?

Source: execve(2) for scripts and interpreters, ld.so(8) for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename
from typing import NamedTuple, Optional

from gpubind.formats.elf import ElfIdent
from gpubind.ldso.container import Located
from gpubind.model import Finding, Missing
from gpubind.rules.libraries import package_of
from gpubind.rules.preflight import Preflight

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCRIPTS_LIMIT = 5
"""Interpreters of interpreters that the kernel follows: fs/exec.c, exec_binprm."""
LINE_LIMIT = 256
"""Bytes of a script's first line that the kernel looks at (BINPRM_BUF_SIZE)."""


class Chain(NamedTuple):
    """What execve would start."""

    names: tuple[str, ...]
    """The program and the interpreters that it leads to, in order."""
    file: Optional[Located]
    """The program that the kernel loads at last; None if the last name leads nowhere."""


def program_missing(preflight: Preflight) -> Iterator[Finding]:
    """The program, or the interpreter of a script, is not in the container."""
    chain = _chain(preflight)
    if chain.file is None:
        name = chain.names[-1]
        script = len(chain.names) > 1
        what = f"{name} is not in the container" + (f"; the script {chain.names[-2]} asks for it" if script else "")
        why = "bad interpreter: No such file or directory (127)" if script else "No such file or directory (127)"
        hint = "look with `gpubind shell IMAGE`; install it in the image, or give its full path"
        yield Finding("program-missing", "error", None, name, what, _path(preflight), why, hint)


def program_not_executable(preflight: Preflight) -> Iterator[Finding]:
    """It is there, but nobody may execute it, or it is for another machine, or no program at all."""
    chain = _chain(preflight)
    if chain.file is None:
        return
    assert preflight.image is not None
    name = chain.names[-1]
    found = chain.file.tree.stat(chain.file.at)
    ident = chain.file.tree.ident(chain.file.at)
    arch = preflight.image.facts.arch
    hint = "look with `file` and `ls -l` in the image"
    if not isinstance(found, Missing) and not found.mode & 0o111:
        what, why = f"{name} is in the container, but is not executable", f"{name}: Permission denied (126)"
    elif not isinstance(ident, ElfIdent):
        what, why = f"{name} is neither a program nor a script", f"{name}: Exec format error (126)"
    elif arch is not None and ident.arch != arch:
        what = f"{name} is for {ident.arch}, the image is {arch}"
        why, hint = f"{name}: Exec format error (126)", f"use an image for {arch} throughout"
    else:
        return
    yield Finding("program-not-executable", "error", None, name, what, chain.file.path, why, hint)


def program_interpreter(preflight: Preflight) -> Iterator[Finding]:
    """The loader that a program names (PT_INTERP) is not in the container: the kernel says that the program is not."""
    chain = _chain(preflight)
    if chain.file is None or preflight.container is None:
        return
    elf = chain.file.tree.elf(chain.file.at)
    if not isinstance(elf, Missing) and elf.interpreter and preflight.container.locate(elf.interpreter) is None:
        what = f"the loader of {chain.names[-1]}, {elf.interpreter}, is not in the container"
        why = f"{chain.names[-1]}: No such file or directory, though it is there"
        hint = "the program was built for another C library (musl, glibc) or distribution than the image has"
        yield Finding("program-interpreter", "error", None, chain.names[-1], what, chain.file.path, why, hint)


def program_library_missing(preflight: Preflight) -> Iterator[Finding]:
    """A library that the program is linked with is not found, with the plan in place."""
    for name, message, path, needed_by in _failures(preflight, "missing"):
        what = f"{name} is neither in the image nor in the plan; {path} does not start without it"
        hint = f"install {name} in the image{package_of(name)}, or name its directory in the image's LD_LIBRARY_PATH"
        where = f"needed by {needed_by}"
        why = f"error while loading shared libraries: {message}"
        yield Finding("program-library-missing", "error", None, name, what, where, why, hint)


def program_library_version(preflight: Preflight) -> Iterator[Finding]:
    """A library in the container is too old for the program, or for what it is linked with."""
    for name, message, path, needed_by in _failures(preflight, "version"):
        what = f"no library in the container defines {name}; {path} does not start without it"
        hint = "use a newer base image, or build the program for this one"
        yield Finding("program-library-version", "error", None, name, what, f"needed by {needed_by}", message, hint)


def _failures(preflight: Preflight, kind: str) -> Iterator[tuple[str, str, str, str]]:
    chain = _chain(preflight)
    if chain.file is None or preflight.container is None:
        return
    if not isinstance(chain.file.tree.ident(chain.file.at), ElfIdent):
        return
    for failure in preflight.container.failures(chain.file.path):
        if failure.kind == kind:
            yield failure.name, failure.message, chain.file.path, failure.needed_by


def _path(preflight: Preflight) -> str:
    assert preflight.image is not None
    own = preflight.image.facts.env.get("PATH") or DEFAULT_PATH
    added = [variable.value for variable in preflight.plan.env if variable.name == "PATH" and variable.value]
    return ":".join([own, *added])


def _chain(preflight: Preflight) -> Chain:
    """The program, through scripts to what runs them."""
    assert preflight.program is not None
    names = [preflight.program]
    while True:
        file = _find(preflight, names[-1])
        following = None if file is None or len(names) > SCRIPTS_LIMIT else _interpreter(file)
        if following is None:
            return Chain(tuple(names), file)
        names.append(following)


def _find(preflight: Preflight, name: str) -> Optional[Located]:
    """*name* as a shell finds it: a path, or a name in one of PATH's directories."""
    assert preflight.container is not None
    if "/" in name:
        return preflight.container.locate(name if name.startswith("/") else f"/{name}")
    for directory in _path(preflight).split(":"):
        if directory.startswith("/"):
            found = preflight.container.locate(f"{directory.rstrip('/')}/{name}")
            if found is not None:
                return found
    return None


def _interpreter(file: Located) -> Optional[str]:
    """What a script's first line names: the interpreter, or what `env` is asked to find; None for what is no script."""
    data = file.tree.read(file.at, 64 << 20) if not isinstance(file.tree.ident(file.at), ElfIdent) else b""
    if isinstance(data, Missing) or not data.startswith(b"#!"):
        return None
    line = data[2:LINE_LIMIT].split(b"\n")[0].decode("utf-8", "surrogateescape")
    words = line.split()
    if not words:
        return None
    if basename(words[0]) == "env":
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return rest[0] if rest else words[0]
    return words[0]
