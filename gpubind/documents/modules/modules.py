"""A plan as an environment module, for Lmod and for Environment Modules: while it is loaded, Apptainer or SingularityCE
brings the driver into every container.

It changes the variables that the `-env` formats change, and takes all of it back when it is unloaded. So it unsets
nothing: a module cannot bring back what was there. Sources: Lmod 8, "Lua Modulefile Functions"; Environment Modules 5,
modulefile(4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from gpubind.documents.mounts.fragment import heading, need_sayable_path, need_sayable_value
from gpubind.documents.text import printable, summary
from gpubind.runtimes.apptainer.binds import needs_mount
from gpubind.runtimes.apptainer.exports import Change, changes_for
from gpubind.runtimes.edits import unsayable_path
from gpubind.runtimes.runtime import Printed

WHAT = "a list of binds in a variable"


def render_lmod(printed: Printed, environ: Mapping[str, str]) -> str:
    """Return the plan as a module in Lua. *environ* is ignored: a module is for every caller.

    Errors: `RuntimeLimitError` (codes `unsayable-path`, `unsayable-value`).
    """
    lines = [f"whatis({_lua(_title(printed))})"]
    for change in lasting_changes(printed):
        words = [change.name, change.value]
        if change.op == "append":
            words.append(change.separator)
        function = "setenv" if change.op == "set" else "append_path"
        lines.append(f"{function}({', '.join(map(_lua, words))})")
    return heading(printed.plan, "--") + _text(lines)


def render_tcl(printed: Printed, environ: Mapping[str, str]) -> str:
    """Return the plan as a module in Tcl, which Lmod reads, too. Errors: as `render_lmod`."""
    lines = [f"module-whatis {_tcl(_title(printed))}"]
    for change in lasting_changes(printed):
        command = "setenv" if change.op == "set" else f"append-path -d {_tcl(change.separator)}"
        lines.append(f"{command} {change.name} {_tcl(change.value)}")
    return "#%Module1.0\n" + heading(printed.plan, "#") + _text(lines)


def lasting_changes(printed: Printed) -> Iterator[Change]:
    """Yield the changes of a module. Errors: `RuntimeLimitError` for a value that a module cannot express."""
    need_plain_binds(printed)
    for change in changes_for(printed):
        if change.op != "unset":
            need_sayable_value(change.name, change.value, "a module")
            yield change


def need_plain_binds(printed: Printed) -> None:
    """Errors: `RuntimeLimitError` (code `unsayable-path`) for a bind that needs a variable of several lines."""
    for bind in printed.words.binds:
        for path in (bind.source, bind.target):
            need_sayable_path(path, WHAT)
        if needs_mount(bind):
            path = next(p for p in (bind.source, bind.target) if needs_mount(bind._replace(source=p, target=p)))
            raise unsayable_path(
                path, "it has a space, a comma, a colon, a quote, a backslash or a `^` in it", document=WHAT
            )


def _title(printed: Printed) -> str:
    return printable(f"GPU driver for {printed.start.runtime.title}: {summary(printed.plan)}")


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _lua(text: str) -> str:
    return '"' + re.sub(r'[\\"]', r"\\\g<0>", text) + '"'


def _tcl(text: str) -> str:
    """Return a word of Tcl. Braces are escaped even in quotes, in case the whole file is read in braces."""
    return '"' + re.sub(r'[\\"$\[\]{}]', r"\\\g<0>", text) + '"'
