"""The options of other programs: `options_of` reads data/options.txt."""

from __future__ import annotations

import re
from functools import cache

from gpubind.model.data import read_data
from gpubind.runtimes.cmdline.reader import OptionTable, table

BWRAP_BINDS = ("bind", "bind-try", "dev-bind", "dev-bind-try", "ro-bind", "ro-bind-try")
"""The options of bubblewrap that bind a path of the host."""
_SECTION = re.compile(r"^\[(.*)\]\n((?:  .*\n)*)", re.MULTILINE)


def options_of(*names: str) -> OptionTable:
    """Return the options of programs and subcommands *names*; none for one that has no table."""
    return table(*(_texts().get(name, "") for name in names))


@cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for names, options in _SECTION.findall(read_data("model/data/options.txt").decode()):
        texts.update({name: texts.get(name, "") + options for name in names.split(", ")})
    return texts
