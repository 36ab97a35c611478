"""install-shims: files in PATH that start every runtime through `gpubind wrap`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Optional

from gpubind.cli.declarations import EXIT_CODES, QUIET, Argument, Option, Subcommand
from gpubind.cli.output import write_document, write_stderr
from gpubind.machine import system

_AROUND = """These go around the files:
- `sudo PROGRAM`: sudo has a PATH of its own. Use `gpubind wrap -- sudo PROGRAM ...`.
- A client of an engine's API (docker compose, docker-py) starts no program.
- A client that looks for a GPU first (nvidia-smi, /etc/cdi, `docker info`) may never ask for one.
"""


def install_shims(*, directory: str, programs: Optional[Sequence[str]], remove: bool, quiet: bool) -> None:
    """Write files for PATH that start runtimes through wrap.

    Without a PROGRAM: each of apptainer, singularity, docker, nerdctl and podman that is installed.
    """
    from gpubind.documents.text import printable
    from gpubind.launch.execute import callers_environ, this_program
    from gpubind.launch.shims import install_shims as install
    from gpubind.launch.shims import remove_shims

    names = programs or ()
    if remove:
        removed = remove_shims(directory, names)
        write_document("".join(f"removed {printable(path)}\n" for path in removed), None)
        if not (removed or quiet):
            write_stderr(f"nothing to remove: `install-shims` made no file in {printable(directory)}\n")
        return
    shims = install(directory, names, this_program(), callers_environ())
    lines = [f"{shim.path} starts {shim.program}" for shim in shims]
    if not all(shim.is_first for shim in shims):
        lines.append(f"put it first in PATH: export PATH={shlex.quote(system.absolute(directory))}:$PATH")
    write_document("".join(f"{printable(line)}\n" for line in lines), None)
    if not quiet:
        write_stderr(_AROUND)


INSTALL_SHIMS = Subcommand(
    install_shims,
    (
        Option("--remove", "Remove the files again.", "Launch"),
        QUIET._replace(help="Do not print what goes around the files."),
    ),
    (
        Argument("directory", "DIR", "The directory for the files: the first one of PATH."),
        Argument("programs", "[PROGRAM...]", "The runtimes.", takes_rest=True, required=False),
    ),
    shared=(),
    examples=(("where this directory is first in PATH", "gpubind install-shims /opt/gpubind-bin"),),
    exit_codes=(("0", "done"), EXIT_CODES[0], EXIT_CODES[2], EXIT_CODES[4]),
)
