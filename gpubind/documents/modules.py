"""A plan as variables for Apptainer or SingularityCE: environment modules (Lmod, Tcl), and Slurm's TaskProlog.

A module changes the same variables as the `-env` formats, and restores them when it is unloaded. It unsets none,
because it could not restore an unset variable. Empty elements of an image's LD_LIBRARY_PATH are kept: a shell would
remove them by an expression with `//`, but Lmod treats appended values as directories, and writes `//` as `/`.

A TaskProlog prints lines for one task: `export NAME=value`, `unset NAME` or `print text`, exactly, without quotes.
Slurm reads each line into a buffer of 4096 bytes, and treats the rest of a longer line as another line. Sources: Lmod
8, "Lua Modulefile Functions" and `tools/fileOps.lua` (path_regularize); Environment Modules 5, modulefile(4); Slurm's
`src/slurmd/slurmstepd/task.c`, `_proc_stdout` and `_run_script_and_set_env`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

from gpubind.documents.mounts.fragment import heading, require_supported_path, require_supported_value
from gpubind.documents.text import printable
from gpubind.errors import RuntimeLimitError
from gpubind.runtimes.apptainer.binds import needs_mount
from gpubind.runtimes.apptainer.exports import VariableChange, changes_for, older_name
from gpubind.runtimes.edits import unsupported_path
from gpubind.runtimes.runtime import PreparedStart

WHAT = "a list of binds in a variable"
LINE_LENGTH = 4094
"""Maximum bytes of a line with its end. `fgets` gets the size of the buffer less one, and needs one byte for the
final zero.
"""


def render_lmod(prepared: PreparedStart, environ: Mapping[str, str]) -> str:
    """Return the plan as a module in Lua. *environ* is ignored: a module is for every caller.

    Errors: `RuntimeLimitError` (codes `unsupported-path`, `unsupported-value`).
    """
    lines = [f"whatis({_lua(_title(prepared))})"]
    for change in _module_changes(prepared):
        args = [change.name, change.value]
        if change.op == "append":
            args.append(change.separator)
        function = "setenv" if change.op == "set" else "append_path"
        lines.append(f"{function}({', '.join(map(_lua, args))})")
    return heading(prepared.plan, "--") + _text(lines)


def render_tcl(prepared: PreparedStart, environ: Mapping[str, str]) -> str:
    """Return the plan as a module in Tcl, which Lmod reads, too. Errors: as `render_lmod`."""
    lines = [f"module-whatis {_tcl(_title(prepared))}"]
    for change in _module_changes(prepared):
        command = "setenv" if change.op == "set" else f"append-path -d {_tcl(change.separator)}"
        lines.append(f"{command} {change.name} {_tcl(change.value)}")
    return "#%Module1.0\n" + heading(prepared.plan, "#") + _text(lines)


def _module_changes(prepared: PreparedStart) -> Iterator[VariableChange]:
    """Errors: `RuntimeLimitError` for a value that a module cannot express."""
    _require_plain_binds(prepared)
    for change in changes_for(prepared):
        if change.op != "unset":
            require_supported_value(change.name, change.value, "a module")
            yield change


def _require_plain_binds(prepared: PreparedStart) -> None:
    """Errors: `RuntimeLimitError` (code `unsupported-path`) for a bind that needs a variable of several lines."""
    for bind in prepared.arguments.binds:
        for path in (bind.source, bind.target):
            require_supported_path(path, WHAT)
        if needs_mount(bind):
            path = next(p for p in (bind.source, bind.target) if needs_mount(bind._replace(source=p, target=p)))
            raise unsupported_path(
                path, "it has a space, a comma, a colon, a quote, a backslash or a `^` in it", document=WHAT
            )


def _title(prepared: PreparedStart) -> str:
    return printable(f"GPU driver for {prepared.start.runtime.title}: {prepared.plan.summary}")


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _lua(text: str) -> str:
    return '"' + re.sub(r'[\\"]', r"\\\g<0>", text) + '"'


def _tcl(text: str) -> str:
    """Quote *text* as a word of Tcl. Braces are escaped, because the file may be read as a whole within braces."""
    return '"' + re.sub(r'[\\"$\[\]{}]', r"\\\g<0>", text) + '"'


def render_taskprolog(prepared: PreparedStart, environ: Mapping[str, str]) -> str:
    """Return the lines for a task with the environment *environ*. Values in it precede those of the plan.

    A TaskProlog has no standard error, so error findings are printed at the beginning of the task's output. Errors:
    `RuntimeLimitError` (codes `unsupported-path`, `unsupported-value`, `long-line`).
    """
    _require_plain_binds(prepared)
    lines = []
    for change in changes_for(prepared):
        if change.op == "unset":
            if change.name in environ:
                lines.append(f"unset {change.name}")
            continue
        value = _new_value(change, environ)
        if value is not None:
            require_supported_value(change.name, value, "a line of a TaskProlog")
            lines.append(_require_line_length(f"export {change.name}={value}", change.name))
    errors = [finding for finding in prepared.plan.findings if finding.severity == "error"]
    lines += [f"print gpubind: error: {finding.code}: {printable(finding.what)}" for finding in errors]
    return "".join(f"{line}\n" for line in lines)


def _new_value(change: VariableChange, environ: Mapping[str, str]) -> Optional[str]:
    """Return the new value of the variable; None if its value already contains the change."""
    if change.op == "set":
        return None if environ.get(change.name) == change.value else change.value
    older = older_name(change.name)
    first = environ.get(change.name, environ.get(older, "") if older else "")
    if change.value in first or (change.value_after_user and change.value_after_user in first):
        return None
    for reference in change.references:
        if reference in first:
            return first.replace(reference, change.value, 1)
    return f"{first}{change.separator}{change.value_after_user or change.value}" if first else change.value


def _require_line_length(line: str, name: str) -> str:
    """Errors: `RuntimeLimitError` (code `long-line`) for a *line* that Slurm would cut."""
    size = len(line.encode()) + 1
    if size > LINE_LENGTH:
        raise RuntimeLimitError(
            "long-line",
            "a value is too long for a line of a TaskProlog",
            where=name,
            why=f"the line has {size} bytes, and Slurm cuts a line behind {LINE_LENGTH}",
            hint="plan for fewer capabilities (--caps), or load a module: --format lmod, --format tcl",
        )
    return line
