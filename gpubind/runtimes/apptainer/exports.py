"""A plan for Apptainer or SingularityCE as lines for a shell: variables for every later start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Literal, Optional

from gpubind.errors import GpubindError
from gpubind.frozen import NamedTuple
from gpubind.model import Request
from gpubind.model.environ import changed
from gpubind.runtimes.apptainer.binds import bind_value, mount_value, needs_mount
from gpubind.runtimes.apptainer.environment import IMAGE_VALUE_APPENDED, LIBDIR
from gpubind.runtimes.edits import Bind, RuntimeArguments
from gpubind.runtimes.runtime import PreparedStart

_THEN_IMAGES = r"([^$]+):\$\{LD_LIBRARY_PATH(?:%|:-)[^}]+\}"
_GPU_SWITCHES = ("NV", "NVCCLI", "ROCM")
"""The variables that are equivalent to the program's GPU flags, without their prefix."""


class VariableChange(NamedTuple):
    """A change to one variable of the caller."""

    name: str
    op: Literal["set", "append", "unset"]
    """`append`: `value` follows the user's value, unless that already contains it. If the user set only the
    variable's older name, its value is put first in the new one, because Apptainer ignores the older name once the
    new one is set.
    """
    value: str = ""
    separator: str = ""
    references: tuple[str, ...] = ()
    """References to the image's value. `value` replaces the first one in the user's value."""
    value_after_user: str = ""
    """The text that follows the user's value, if it differs from `value`: without empty elements of the image's
    value.
    """


def changes_for(prepared: PreparedStart) -> tuple[VariableChange, ...]:
    """Return the changes for a plan. They agree with the binds of the program's own GPU flag on that host."""
    return variable_changes(prepared.arguments, prepared.start.runtime.name.upper(), _flag_libraries(prepared))


def _flag_libraries(prepared: PreparedStart) -> Optional[dict[str, str]]:
    """Return the libraries that Apptainer's own flags would bind here, as Apptainer writes the paths: target -> source.

    None if the user's options include --containlibs.
    """
    if any(arg.startswith("--containlibs") for arg in prepared.start.user.arguments):
        return None
    from gpubind.planner.like import VENDORS, plan_builtin_flags  # only where variables are printed

    vendors = tuple(vendor for vendor in prepared.plan.request.vendors if vendor in VENDORS)
    if not vendors:
        return {}
    try:
        builtin_plan = plan_builtin_flags(prepared.host, Request(vendors=vendors, like="apptainer-1.4"))
    except GpubindError:
        return {}
    return {mount.target: mount.source for mount in builtin_plan.mounts if mount.kind == "library" and mount.source}


def render_shell_lines(changes: Iterable[VariableChange]) -> str:
    """Return *changes* as lines for a shell. Evaluating them a second time changes nothing more."""
    lines = []
    for command, group in groupby(changes, key=_shared_command):
        if command:
            names = [change.name + (f"={change.value}" if change.op == "set" else "") for change in group]
            lines.append(" ".join((command, *names)))
        else:
            lines += [line for change in group for line in _shell_lines(change)]
    return "\n".join(lines) + "\n"


def _shared_command(change: VariableChange) -> str:
    """Return the shell command that several changes can share; empty for a change that needs separate lines."""
    if change.op == "unset":
        return "unset"
    return "export" if change.name.endswith(("_NO_NV", "_NO_ROCM")) else ""


def variable_changes(
    arguments: RuntimeArguments, prefix: str, flag_libraries: Optional[Mapping[str, str]]
) -> tuple[VariableChange, ...]:
    """Return the changes equivalent to *arguments*, in this order. The user's values are kept, and come first.

    *prefix* is APPTAINER or SINGULARITY. *flag_libraries* maps container paths to the libraries that Apptainer's own
    flag would bind, as Apptainer writes their paths: a later `--nv` fails if one library has two different paths. If it
    is None, libraries become binds, because an option --containlibs would make the program ignore the variable.
    """
    prefixes = dict.fromkeys((prefix, "SINGULARITY"))  # Apptainer knows the older names, too
    changes = [VariableChange(f"{program}_{switch}", "unset") for program in prefixes for switch in _GPU_SWITCHES]
    changes += [VariableChange(f"{prefix}_{name}", "set", "1") for name in ("NO_NV", "NO_ROCM")]
    libraries: dict[str, str] = {}
    if prefix == "APPTAINER" and flag_libraries is not None:
        libraries = _containlibs(arguments.binds, flag_libraries)
    if libraries:
        changes.append(VariableChange(f"{prefix}_CONTAINLIBS", "append", ",".join(libraries.values()), ","))
    binds = [bind for bind in arguments.binds if bind.target not in libraries]
    plain = ",".join(bind_value(bind) for bind in binds if not needs_mount(bind))
    if plain:
        changes.append(VariableChange(f"{prefix}_BIND", "append", plain, ","))
    mounts = "\n".join(mount_value(bind) for bind in binds if needs_mount(bind))
    if mounts:
        changes.append(VariableChange(f"{prefix}_MOUNT", "append", mounts, "\n"))
    for name in arguments.unset:
        changes += [VariableChange(variable, "unset") for variable in (name, f"{prefix}ENV_{name}")]
    for name, value in arguments.env:
        if name.endswith("LD_LIBRARY_PATH"):
            # If nothing in the value is evaluated, nothing in the user's value is.
            references = ("$LD_LIBRARY_PATH", "${LD_LIBRARY_PATH}") if "$" in value else ()
            ours = re.fullmatch(_THEN_IMAGES, value)
            after_user = ours[1] + IMAGE_VALUE_APPENDED if ours else ""
            changes.append(VariableChange(f"{prefix}ENV_{name}", "append", value, ":", references, after_user))
        else:
            changes.append(VariableChange(f"{prefix}ENV_{name}", "set", value))
    return tuple(changes)


def _containlibs(binds: Iterable[Bind], flag_libraries: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of CONTAINLIBS for *binds*, `path` or `path:target`, by target."""
    entries: dict[str, str] = {}
    for bind in binds:
        path = flag_libraries.get(bind.target, bind.source)
        if bind.target.startswith(f"{LIBDIR}/") and not needs_mount(bind._replace(source=path)):
            name = bind.target.rpartition("/")[2]
            entries[bind.target] = path if path.endswith(f"/{name}") else f"{path}:{bind.target}"
    return entries


def older_name(name: str) -> Optional[str]:
    """Return the name that Apptainer reads where *name* is not set; None for a name of SingularityCE."""
    return name.replace("APPTAINER", "SINGULARITY", 1) if name.startswith("APPTAINER") else None


def _shell_lines(change: VariableChange) -> list[str]:
    from shlex import quote

    name, quoted, after = change.name, quote(change.value), quote(change.value_after_user or change.value)
    if change.op == "set":
        return [f"export {name}={quoted}"]
    older = older_name(name)
    first = f"${{{name}-{f'${{{older}-}}' if older else ''}}}"
    replaced = [
        f"*{ref}*) {name}={first}; {name}=${{{name}%%{ref}*}}{quoted}${{{name}#*{ref}}}; export {name} ;;"
        for ref in map(quote, change.references)
    ]
    return [
        f'case "{first}" in *{quoted}*{f"|*{after}*" if change.value_after_user else ""}) ;;',
        f'"") export {name}={quoted} ;;',
        *replaced,
        f'*) export {name}="{first}{change.separator}"{after} ;; esac',
    ]


def without_gpu_switches(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return *environ* without the program's own GPU switches: older versions read them despite cancelling options."""
    variables = {f"{prefix}_{name}" for prefix in ("APPTAINER", "SINGULARITY") for name in _GPU_SWITCHES}
    return changed(environ, unset=variables)


def without_variables(environ: Mapping[str, str], names: Sequence[str]) -> Mapping[str, str]:
    """Return *environ* without *names* and their prefixed forms, which the container would get."""
    variables = {f"{prefix}{name}" for prefix in ("", "APPTAINERENV_", "SINGULARITYENV_") for name in names}
    return changed(environ, unset=variables)
