"""Names that a file may have, and that a careless reader takes for something else."""

from __future__ import annotations

HOSTILE = [
    "a b",
    "a:b",
    "a,b",
    'a"b',
    "a'b",
    "a\\b",
    "${HOME}",
    "$x",
    "a#b",
    "- a",
    "ä",
    "\U0001f600",
    "\u2028",
    "{{a}}",
]
"""What every document can say."""

IN_A_LIST = [name for name in HOSTILE if not set(name) & set(' ,:^"\\\u2028')]
"""Those of them that a list of binds in a variable can say, too; with what shells, Lua, Tcl and Slurm like to read."""
IN_A_LIST += ["[exit]", "]]", "{", "}", "a;b", "%d", "`id`", "a*", "--", "a=b", "export"]

UNSAYABLE = ["a\nb", "a\x01", "a\x1b[2J", "a\x7f", "a\x85", "a\udcff"]
"""Control characters, and what is not UTF-8."""
