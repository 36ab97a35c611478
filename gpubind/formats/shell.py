"""What the environment files of a Singularity image set, read and never run.

Source: POSIX shell, 2.2 Quoting and 2.6.2 Parameter Expansion. Only lines that assign and do nothing else; what would
need a shell (commands, arithmetic, patterns) leaves the variable undecided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Optional

NESTING_LIMIT = 8
VALUE_LIMIT = 1 << 16

_EXPORT = re.compile(r"\s*(export\s+)?")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_EXPANSION = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(:?[-+]|\}))")
_END = re.compile(r"\s*(?:;|#|$)")


class Exports(NamedTuple):
    """What scripts have set so far."""

    env: dict[str, str]
    undecided: tuple[str, ...] = ()
    """Variables that they set in ways that only a shell can tell; `env` has what they were before."""


def parse_exports(text: str, before: Exports) -> Exports:
    """The variables of *before* as the assignments in *text* leave them, and new ones. Never raises.

    A variable that nothing has set is kept as it is written, `$HOME`; an unset LD_LIBRARY_PATH is empty: Singularity
    does not take the host's.
    """
    env = dict(before.env)
    undecided = dict.fromkeys(before.undecided)
    for line in text.split("\n"):
        match = _EXPORT.match(line)
        at = match.end() if match else 0
        exported = match is not None and match.group(1) is not None
        found: dict[str, str] = {}
        while assignment := _ASSIGNMENT.match(line, at):
            word = _word(line, assignment.end(), {**env, **found} if found else env, "", 0)
            if word is None or len(word[0]) > VALUE_LIMIT:
                undecided[assignment.group(1)] = None
                break
            value, at = word
            found[assignment.group(1)] = value
            if _END.match(line, at):
                env.update(found)
                for name in found:
                    undecided.pop(name, None)
                break
            if not exported or not line[at].isspace():  # `A=b command`: for that command alone
                break
            at += len(line[at:]) - len(line[at:].lstrip())
    return Exports(env, tuple(sorted(undecided)))


def _word(line: str, at: int, env: Mapping[str, str], ends: str, depth: int) -> Optional[tuple[str, int]]:
    """The word at *at*, and where it ends: before an unquoted character of *ends*, or what ends a word.

    None if it cannot be known without a shell.
    """
    if depth > NESTING_LIMIT:
        return None
    parts: list[str] = []
    size = 0
    quoted = False
    while at < len(line):
        char = line[at]
        if char == '"':
            quoted = not quoted
            at += 1
            continue
        if not quoted and (char in ends if ends else char.isspace() or char == ";"):
            break
        if char == "'" and not quoted:
            end = line.find("'", at + 1)
            if end < 0:
                return None
            part, at = line[at + 1 : end], end + 1
        elif char == "\\":
            if at + 1 == len(line):
                return None
            escaped = line[at + 1]
            part, at = (escaped if not quoted or escaped in '\\"$`' else char + escaped), at + 2
        elif char == "$":
            expanded = _expanded(line, at, env, depth)
            if expanded is None:
                return None
            part, at = expanded
        elif char == "`" or (not quoted and char in "&|<>()"):
            return None
        else:
            part, at = char, at + 1
        parts.append(part)
        size += len(part)
        if size > VALUE_LIMIT:
            return None
    if quoted:
        return None
    return "".join(parts), at


def _expanded(line: str, at: int, env: Mapping[str, str], depth: int) -> Optional[tuple[str, int]]:
    """What the `$` at *at* stands for, and where it ends; None if it cannot be known."""
    match = _EXPANSION.match(line, at)
    if match is None:
        after = line[at + 1 : at + 2]
        return None if after and after in "({$#?!@*-0123456789" else ("$", at + 1)
    name = match.group(1) or match.group(2)
    value = env.get(name)
    if value is None and name == "LD_LIBRARY_PATH":
        value = ""
    operator = match.group(3)
    if operator in (None, "}"):
        return (value if value is not None else f"${name}"), match.end()
    inner = _word(line, match.end(), env, "}", depth + 1)
    if inner is None or line[inner[1] : inner[1] + 1] != "}":
        return None
    word, end = inner
    there = bool(value) if operator.startswith(":") else name in env
    if operator.endswith("+"):
        return (word if there else ""), end + 1
    return (value or "" if there else word), end + 1
