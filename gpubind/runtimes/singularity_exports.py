"""A plan for Apptainer or SingularityCE as lines for a shell: variables that count for every later start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from gpubind.errors import GpubindError
from gpubind.host import Host
from gpubind.model import VENDORS, Plan, Request
from gpubind.planner.placement import SINGULARITY as LAYOUT
from gpubind.runtimes.edits import Bind, Words
from gpubind.runtimes.record import Printed
from gpubind.runtimes.singularity_words import bind_word, mount_word, needs_mount

GPU_SWITCHES = ("NV", "NVCCLI", "ROCM")
"""The variables that say the same as its GPU flags, without their prefix."""
"""The variables that say the same as its GPU flags, without their prefix."""

_PLAIN = re.compile(r"[^,:^\\\"\s]*")


def render_exports(printed: Printed) -> str:
    """The lines for the plan that is to be printed, beside what the program's own flag would bind on that host."""
    is_typed = any(word.startswith("--containlibs") for word in printed.start.arguments)
    own = None if is_typed else _own_libraries(printed.host, printed.plan)
    return exports(printed.words, printed.start.program.upper(), own)


def _own_libraries(host: Host, plan: Plan) -> dict[str, str]:
    """The libraries that Apptainer's own flags would bind here: where to, and where from in its own words."""
    vendors = tuple(vendor for vendor in plan.request.vendors if vendor in VENDORS)
    if not vendors:
        return {}
    from gpubind.like import like_plan  # only where variables are printed

    try:
        own = like_plan(host, Request(vendors=vendors, like="apptainer-1.4"))
    except GpubindError:
        return {}
    return {mount.target: mount.source for mount in own.mounts if mount.kind == "library" and mount.source}


def exports(made: Words, prefix: str, own: Optional[Mapping[str, str]]) -> str:
    """Shell lines that say the same through variables; what the user already has in those stays, and comes first.

    Evaluated twice, the lines change nothing more. *prefix* is APPTAINER or SINGULARITY. *own* has, by their place in
    the container, the libraries that Apptainer's own flag would bind, as Apptainer writes their paths: a later `--nv`
    is fatal where two libraries of one name come in by different paths, but not where the paths are the same. With None
    libraries are bound: an option --containlibs would make the program forget the variable.
    """
    read = dict.fromkeys((prefix, "SINGULARITY"))  # Apptainer knows the older names, too
    lines = ["unset " + " ".join(f"{known}_{switch}" for known in read for switch in GPU_SWITCHES)]
    lines += [f"export {prefix}_NO_NV=1 {prefix}_NO_ROCM=1"]
    libraries = _contained(made.binds, own) if prefix == "APPTAINER" and own is not None else {}
    if libraries:
        lines += _appended(prefix, "CONTAINLIBS", ",".join(libraries.values()), ",")
    binds = [bind for bind in made.binds if bind.target not in libraries]
    plain = ",".join(bind_word(bind) for bind in binds if not needs_mount(bind))
    if plain:
        lines += _appended(prefix, "BIND", plain, ",")
    mounts = "\n".join(mount_word(bind) for bind in binds if needs_mount(bind))
    if mounts:
        lines += _appended(prefix, "MOUNT", mounts, "\n")
    if made.unset:
        lines.append("unset " + " ".join(f"{name} {prefix}ENV_{name}" for name in made.unset))
    for name, value in made.env:
        if name.endswith("LD_LIBRARY_PATH"):
            lines += _appended(f"{prefix}ENV", name, value, ":", ("$LD_LIBRARY_PATH", "${LD_LIBRARY_PATH}"))
        else:
            lines.append(f"export {prefix}ENV_{name}={shlex.quote(value)}")
    return "\n".join(lines) + "\n"


def _contained(binds: Iterable[Bind], own: Mapping[str, str]) -> dict[str, str]:
    """The libraries of *binds* in the words of CONTAINLIBS, `path` or `path:name`, by their place in the container."""
    words: dict[str, str] = {}
    for bind in binds:
        path = own.get(bind.target, bind.source)
        if bind.target.startswith(f"{LAYOUT.libdir}/") and _PLAIN.fullmatch(path + bind.target):
            name = bind.target.rpartition("/")[2]
            words[bind.target] = path if path.endswith(f"/{name}") else f"{path}:{bind.target}"
    return words


def _appended(prefix: str, variable: str, value: str, separator: str, references: Sequence[str] = ()) -> list[str]:
    """Lines that add *value* to a variable whose values add up, unless it is there already.

    Apptainer reads a variable's older name, SINGULARITY_..., only where the new one is not set. What that name says
    must not be lost, so it becomes the beginning. Where the user's value has one of *references*, *value* takes the
    place of the first: it refers to the same, behind ours.
    """
    name = f"{prefix}_{variable}"
    older = f"${{{name.replace('APPTAINER', 'SINGULARITY', 1)}-}}" if prefix.startswith("APPTAINER") else ""
    first = f"${{{name}-{older}}}"
    quoted = shlex.quote(value)
    replaced = [
        f"*{word}*) {name}={first}; {name}=${{{name}%%{word}*}}{quoted}${{{name}#*{word}}}; export {name} ;;"
        for word in map(shlex.quote, references)
    ]
    return [
        f'case "{first}" in *{quoted}*) ;;',
        f'"") export {name}={quoted} ;;',
        *replaced,
        f'*) export {name}="{first}{separator}"{quoted} ;; esac',
    ]


def without_gpu_switches(environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* without the program's own GPU switches: an older one reads them whatever its options say."""
    gone = {f"{prefix}_{name}" for prefix in ("APPTAINER", "SINGULARITY") for name in GPU_SWITCHES}
    return {name: value for name, value in environ.items() if name not in gone}


def without_variables(environ: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """*environ* without *names*, by which the caller's own values would come into the container."""
    gone = {f"{prefix}{name}" for prefix in ("", "APPTAINERENV_", "SINGULARITYENV_") for name in names}
    return {name: value for name, value in environ.items() if name not in gone}
