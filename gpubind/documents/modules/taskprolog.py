"""A plan as what a TaskProlog of Slurm's prints: the variables by which Apptainer or SingularityCE brings the driver
into each container of a task.

Source: Slurm's `src/slurmd/slurmstepd/task.c`, `_proc_stdout` and `_run_script_and_set_env`: a line is `export
NAME=value`, `unset NAME` or `print text`, to the letter, without quotes; it is read into 4096 bytes, and the rest of a
longer one is taken for another line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpubind.documents.modules.modules import need_plain_binds
from gpubind.documents.mounts.fragment import need_sayable_value
from gpubind.documents.text import printable
from gpubind.errors import RuntimeLimitError
from gpubind.runtimes.apptainer.exports import Change, changes_for, older_name
from gpubind.runtimes.runtime import Printed

LINE_LENGTH = 4094
"""Bytes of a line with its end: `fgets` gets one less than the buffer, and keeps one for the end of the string."""


def render_taskprolog(printed: Printed, environ: Mapping[str, str]) -> str:
    """Return the lines for a task whose environment is *environ*: values of its variables stay, and come first.

    Error findings are printed at the beginning of the task's output: a TaskProlog has no standard error.
    Errors: `RuntimeLimitError` (codes `unsayable-path`, `unsayable-value`, `long-line`).
    """
    need_plain_binds(printed)
    lines = []
    for change in changes_for(printed):
        if change.op == "unset":
            if change.name in environ:
                lines.append(f"unset {change.name}")
            continue
        value = _new_value(change, environ)
        if value is not None:
            need_sayable_value(change.name, value, "a line of a TaskProlog")
            lines.append(_fitting(f"export {change.name}={value}", change.name))
    errors = [finding for finding in printed.plan.findings if finding.severity == "error"]
    lines += [f"print gpubind: error: {finding.code}: {printable(finding.what)}" for finding in errors]
    return "".join(f"{line}\n" for line in lines)


def _new_value(change: Change, environ: Mapping[str, str]) -> Optional[str]:
    """Return the new value of the variable; None if it contains the change already."""
    if change.op == "set":
        return None if environ.get(change.name) == change.value else change.value
    older = older_name(change.name)
    first = environ.get(change.name, environ.get(older, "") if older else "")
    if change.value in first:
        return None
    for reference in change.references:
        if reference in first:
            return first.replace(reference, change.value, 1)
    return f"{first}{change.separator}{change.value}" if first else change.value


def _fitting(line: str, name: str) -> str:
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
