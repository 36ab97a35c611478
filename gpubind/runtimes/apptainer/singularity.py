"""Apptainer and SingularityCE: two runtimes of one kind, whose words are the same but for LD_LIBRARY_PATH and the names
of variables.

A program called singularity may be Apptainer: what it says of itself counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Optional

from gpubind.files import Tree
from gpubind.loader.brought import Brought
from gpubind.model import Plan
from gpubind.model.layouts import STARTER_PREFIXES
from gpubind.runtimes.apptainer.brought import brought
from gpubind.runtimes.apptainer.environment import generated
from gpubind.runtimes.apptainer.exports import render_exports, without_gpu_switches, without_variables
from gpubind.runtimes.apptainer.options import parse_site, read_env_file, read_options
from gpubind.runtimes.apptainer.values import overrides
from gpubind.runtimes.apptainer.words import layout_of, words
from gpubind.runtimes.edits import Words
from gpubind.runtimes.lines import form_of
from gpubind.runtimes.record import Call, Command, Form, Limits, ProgramIdentity, Runtime, UserNamespaces
from gpubind.runtimes.start import Start


def identify(text: str) -> ProgramIdentity:
    """`apptainer version 1.4.5` -> apptainer, (1, 4, 5); `singularity-ce version 4.1.0` -> singularity, (4, 1, 0)."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    version = tuple(int(part) for part in match.groups(default="0")) if match else None
    return ProgramIdentity("apptainer" if "apptainer" in text else "singularity", version)


def command(call: Call, start: Start, made: Words) -> Command:
    """Return the whole command line: the user's own options first, so that ours are not taken back by accident."""
    argv = (call.program, call.action, *start.arguments, *made.options, call.image, *call.argv)
    return Command(argv, without_variables(without_gpu_switches(start.environ), made.unset))


def _without_library_paths(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return *environ* without the values that the lines for a shell look at themselves, when they are evaluated."""
    return without_variables(environ, ("LD_LIBRARY_PATH", "PREPEND_LD_LIBRARY_PATH"))


def _brought(plan: Plan, start: Start, image: Optional[Tree]) -> Brought:
    return brought(start)


def _record(name: str, title: str) -> Runtime:
    helpers = tuple(f"{prefix}/{name}/bin/starter-suid" for prefix in STARTER_PREFIXES)
    message = "it will say `Failed to create user namespace`"
    forms = {
        name: form_of(name),
        f"{name}-env": Form(render_exports, environ_of=_without_library_paths),
    }
    return Runtime(
        name=name,
        title=title,
        images=("directory", "file", "layout", "archive", "registry", "source"),
        limits=Limits(user_namespaces=UserNamespaces(helpers, moves=True, message=message)),
        identify=identify,
        site=f"/etc/{name}/{name}.conf",
        parse_site=parse_site,
        options_of=read_options,
        read_env_file=read_env_file,
        overrides=overrides,
        layout=layout_of,
        generated=generated,
        words=words,
        brought=_brought,
        command=command,
        forms=MappingProxyType(forms),
        gpu_flags=MappingProxyType({"nvidia": "--nv", "amd": "--rocm"}),
    )


APPTAINER = _record("apptainer", "Apptainer")
SINGULARITY = _record("singularity", "SingularityCE")
