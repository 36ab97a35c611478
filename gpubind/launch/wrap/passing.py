"""`gpubind wrap` of a command line that requests no GPU: it starts unchanged, with almost no imports.

With an alias, every command of a runtime goes through `wrap`, and commands without GPUs must not wait. So a textual
test decides before the memo is queried. It uses only the names of programs, options and files in this module; a test
compares them with those of the runtimes.
"""

from __future__ import annotations

import os
import stat

from gpubind.launch.named import resolve_program
from gpubind.memo.answer import callers_environ, replace_process
from gpubind.memo.questions import run_query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Optional

_SWITCHES = ("--check", "--no-check", "--quiet", "--require-gpu", "--verbose", "-q", "-qv", "-v", "-vq", "-vv")
"""Options of `wrap` without a value, which do not affect a line that is passed through."""
WITH_SITE = ("apptainer", "singularity")
SITES = ("/etc/apptainer/apptainer.conf", "/etc/singularity/singularity.conf")
"""The configuration of Apptainer and of SingularityCE. A program called singularity may be either of them."""
SITE_LIMIT = 1 << 20
WITH_GPU_FLAGS = (*WITH_SITE, "docker", "nerdctl", "podman")
_BEGINNINGS = ("--nv", "--rocm", "--gpus", "--runtime", "--device")
"""The beginnings of all arguments that request GPUs from those programs. None can be abbreviated or combined."""
_COMPOSED, _CDI = {"create", "run", "up", "watch"}, ".com/gpu"
"""What only `without_plan` can judge: commands of Compose that create containers, and a CDI device in a build."""
VARIABLES = tuple(f"{prefix}_{name}" for prefix in ("APPTAINER", "SINGULARITY") for name in ("NV", "NVCCLI", "ROCM"))
"""The variables that request GPUs from Apptainer and SingularityCE, as the flags do."""
ACTIONS = ("exec", "run", "shell", "test", "instance")
"""The subcommands of Apptainer and SingularityCE that can start a container."""


def pass_through(argv: Sequence[str]) -> None:
    """Become the command line after `wrap` in *argv*, if a textual test finds no request for GPUs.

    Return if it may request one, or if it cannot be started: the full parser then reports why.
    """
    line = _line(argv)
    environ = callers_environ()
    if line is None or not asks_for_no_gpu(line, environ) or site_switches(line, _text):
        return
    program, _ = resolve_program(
        line[0], environ, _is_file, lambda path: run_query("access", (path, os.X_OK, False)) is True
    )
    if program is not None:
        try:
            replace_process(program, line, environ)
        except OSError:
            return


def asks_for_no_gpu(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether *argv* certainly requests no GPU. If False, `parse_command` has to decide.

    The site's configuration may still request GPUs: see `site_switches`.
    """
    if not argv or argv[0].rpartition("/")[2] not in WITH_GPU_FLAGS:
        return False
    if ("compose" in argv and not _COMPOSED.isdisjoint(argv)) or any(_CDI in arg for arg in argv):
        return False
    if any(arg.startswith(_BEGINNINGS) for arg in argv):
        return False
    return not any(name in environ for name in VARIABLES) or not _may_start(argv)


def site_switches(argv: Sequence[str], read: Callable[[str], bytes]) -> tuple[str, ...]:
    """Return the GPU flags that the site's configuration adds to each start (`always use nv = yes`).

    Only lines that start Apptainer or SingularityCE have some. An unreadable configuration adds none: the program
    itself will report it. *read* reads a file so that a memo can record it.
    """
    if not _may_start(argv):
        return ()
    names: dict[str, None] = {}
    for path in SITES:
        try:
            lines = read(path).split(b"\n")
        except OSError:  # any: the program itself reads the file, too
            continue
        for line in lines:
            directive, _, value = (part.strip() for part in line.partition(b"="))
            if value == b"yes" and directive in (b"always use nv", b"always use rocm"):
                names[directive.rpartition(b" ")[2].decode()] = None
    return tuple(names)


def _is_file(path: str) -> bool:
    facts = run_query("stat", path)
    return isinstance(facts, tuple) and stat.S_ISREG(facts[0])


def _text(path: str) -> bytes:
    from gpubind.machine.mounts import read_unrecorded

    return read_unrecorded(path, SITE_LIMIT)


def _may_start(argv: Sequence[str]) -> bool:
    names = {arg.rpartition("/")[2] for arg in argv}
    return not (names.isdisjoint(WITH_SITE) or names.isdisjoint(ACTIONS))


def _line(argv: Sequence[str]) -> Optional[tuple[str, ...]]:
    """Return the command line to wrap; None if an option must be parsed first."""
    at = 1
    while at < len(argv) and argv[at] in _SWITCHES:
        at += 1
    if at < len(argv) and argv[at] == "--":
        at += 1
    elif at < len(argv) and argv[at].startswith("-"):
        return None
    return tuple(argv[at:]) or None
