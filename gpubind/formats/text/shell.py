"""What the environment files of a Singularity image set, read and never run.

Plain statements alone are believed: assignments, `export`, `unset` and `:` whose words hold text, quotes and
parameters. Whatever else a script does may set any variable; after it, a variable is known again once a plain
statement sets it. What a construct has inside (`if`, a loop, a list of `&&`) is conditional, and never believed.
Apptainer reads these files with an interpreter of its own in bash's dialect, old images were read by their own shell:
where dash, bash and that interpreter differ, nothing is believed either.

Source: POSIX shell, 2.2 Quoting, 2.6.2 Parameter Expansion, 2.9 Shell Commands, 2.14 Special Built-In Utilities.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, Optional

from gpubind.formats.text.shell_statement import (
    GAP,
    NAME,
    NESTING_LIMIT,
    after,
    end_of_backquotes,
    end_of_braces,
    end_of_parentheses,
    end_of_statement,
)

VALUE_LIMIT = 1 << 16
TOTAL_LIMIT = 1 << 25
"""Bytes of all values that one script may make: each may hold the ones before it."""

_COMMAND = re.compile(r"(export|unset|true|:)(?=[ \t\n;]|$)")
_ASSIGNMENT = re.compile(rf"({NAME})=")
_NAMED = re.compile(rf"({NAME})(?=[ \t\n;]|$)")
_PAUSE = re.compile(r"[ \t\n;]|\\\n|$")
_BETWEEN = re.compile(r"(?:[ \t\n]|\\\n|#[^\n]*)*")
_END = re.compile(r"(?:#[^\n]*)?(?:\n|;|\Z)")
_EXPANSION = re.compile(rf"\$(?:({NAME})|\{{({NAME})(:?[-+]|\}}))")
_PURE = re.compile(rf"\$\{{(?:#{NAME}\}}|{NAME}[%#/^,])")
_SPECIAL = re.compile(r"\$[0-9@*#?!$-]")
_TEXT = re.compile(r"[^ \t\n;&|<>()\"'\\$`{}~]+")
_QUOTED_TEXT = re.compile(r"[^\"\\$`]+")
_INNER_TEXT = re.compile(r"[^\"'\\$`{}]+")
_OPERATORS = re.compile(r"[&|<>();~]")
_ASSIGNS = re.compile(rf"(?:(?<![A-Za-z0-9_])({NAME})\+?:?=|(?:unset|read|export)[ \t]+({NAME}))")

_AUTOMATIC = re.compile(
    r"_|UID|EUID|GID|PPID|GROUPS|RANDOM|SRANDOM|SECONDS|LINENO|EPOCH[A-Z]+|OPT(?:IND|ARG|ERR)|FUNCNAME|DIRSTACK"
    r"|PIPESTATUS|HISTCMD|SHELLOPTS|POSIXLY_CORRECT|BASH[A-Z_]*|COMP_[A-Z]+|COPROC|REPLY|MAPFILE"
    r"|(?:APPTAINER|SINGULARITY)_[A-Z]+"
)
"""Variables that a shell changes by itself, or lets nobody set; those of the runtime's are read-only."""
_GIVEN = re.compile(
    r"HOME|PWD|OLDPWD|PATH|SHELL|SHLVL|TERM|IFS|PS[0-4]|HOST(?:NAME|TYPE)|OSTYPE|MACHTYPE|MAIL(?:CHECK|PATH)?|COLUMNS"
    r"|LINES|PROMPT_COMMAND|USER|LOGNAME|HIST[A-Z]+|ENV|CDPATH|TIMEFORMAT|NLSPATH|FIGNORE|IGNOREEOF"
)
"""Variables that may be there before the first line."""


class Exports(NamedTuple):
    """What scripts have set so far."""

    env: Mapping[str, Optional[str]]
    """What is known of variables; None: unset."""
    exported: frozenset[str] = frozenset()
    """Those that a program would see."""
    unknown: frozenset[str] = frozenset()
    """Variables that they may have set in ways that only a shell can tell. Not all, where `clouded`."""
    clouded: bool = False
    """Whether any variable that `env` does not have may have any value."""
    lost: bool = False
    """Whether the rest of the scripts cannot be followed: then nothing is known any more."""

    def decided(self, name: str) -> bool:
        """Return whether it is known which value *name* has, or that it has none."""
        return _decided(name, self.env, self.unknown, self.clouded)

    def with_value(self, name: str, value: str) -> Exports:
        """Return the same, after `export NAME=value`."""
        return self._replace(
            env={**self.env, name: value}, exported=self.exported | {name}, unknown=self.unknown - {name}
        )

    def with_nothing_known(self) -> Exports:
        """Return the same, after a script that cannot be read."""
        return self._replace(env={}, unknown=self.unknown.union(self.env), clouded=True)


def parse_exports(text: str, before: Exports) -> Exports:
    """Return what is known of variables once a shell has read *text*, and what was known *before*. Never raises.

    A variable that nothing has set is unset: Singularity hides the caller's from these files.
    """
    if before.lost:
        return before
    state = _State(before)
    if "\r" in text or "\0" in text:  # shells differ
        state.cloud(text)
        return state.exports()
    at = after(_BETWEEN, text, 0)
    while at < len(text):
        end = _plain(text, at, state)
        if end is None:
            end = end_of_statement(text, at)
            state.cloud(text[at:end])
        if end is None:
            state.lost = True
            break
        at = after(_BETWEEN, text, end)
    return state.exports()


def _decided(name: str, env: Mapping[str, object], unknown: Collection[str], clouded: bool) -> bool:
    if name in env:
        return not _AUTOMATIC.fullmatch(name)
    return not (clouded or name in unknown or _GIVEN.fullmatch(name) or _AUTOMATIC.fullmatch(name))


class _State:
    """`Exports` in the making."""

    def __init__(self, before: Exports) -> None:
        self.env = dict(before.env)
        self.exported = set(before.exported)
        self.unknown = set(before.unknown)
        self.clouded = before.clouded
        self.lost = before.lost
        self.budget = TOTAL_LIMIT

    def exports(self) -> Exports:
        return Exports(self.env, frozenset(self.exported), frozenset(self.unknown), self.clouded, self.lost)

    def cloud(self, statement: str) -> None:
        """Nothing is known after *statement*."""
        self.unknown.update(self.env)
        for names in _ASSIGNS.findall(statement):
            self.unknown.update(name for name in names if name)
        self.env.clear()
        self.clouded = True

    def assign(self, name: str, value: Optional[str]) -> None:
        """*value* None: it is not known."""
        if value is None:
            self.env.pop(name, None)
            self.unknown.add(name)
        else:
            self.env[name] = value
            self.unknown.discard(name)

    def unset(self, name: str) -> None:
        self.env[name] = None
        self.unknown.discard(name)
        self.exported.discard(name)


class _Look(NamedTuple):
    """How the parameters of one statement are looked up."""

    state: _State
    new: dict[str, Optional[str]]
    """What the statement has assigned so far; None: not known."""
    hidden: bool
    """Whether shells differ on what a parameter that is in `new` gives."""

    def known(self, name: str) -> bool:
        if name in self.new:
            return not self.hidden and self.new[name] is not None
        return _decided(name, self.state.env, self.state.unknown, self.state.clouded)

    def value(self, name: str) -> Optional[str]:
        """The value of a name that is known; None: it has none."""
        return self.new[name] if name in self.new else self.state.env.get(name)


class _Word(NamedTuple):
    value: Optional[str]
    """None: only a shell could tell."""
    end: int


def _plain(text: str, at: int, state: _State) -> Optional[int]:
    """Do the statement at *at*; where it ends. None if it is no plain one: then nothing is done."""
    match = _COMMAND.match(text, at)
    command = match.group(1) if match else ""
    at = match.end() if match else at
    look = _Look(state, {}, command == "export")
    named: list[str] = []
    while True:
        at = after(GAP, text, at)
        end = _END.match(text, at)
        if end:
            break
        assignment = _ASSIGNMENT.match(text, at) if command in ("", "export") else None
        name = _NAMED.match(text, at) if command in ("unset", "export") else None
        if assignment:
            word = _word(text, assignment.end(), look)
            if word is None or _AUTOMATIC.fullmatch(assignment.group(1)):
                return None
            look.new[assignment.group(1)] = word.value
            at = word.end
        elif name and not _AUTOMATIC.fullmatch(name.group(1)):
            named.append(name.group(1))
            at = name.end()
        elif command in (":", "true"):
            word = _word(text, at, look)
            if word is None or word.value is None:
                return None
            at = word.end
        else:
            return None
        if not _PAUSE.match(text, at):
            return None
    if not (command or look.new):
        return None
    for variable, value in look.new.items():
        state.assign(variable, value)
    if command == "export":
        state.exported.update(look.new, named)
    else:
        for variable in named:
            state.unset(variable)
    return end.end()


def _word(text: str, at: int, look: _Look) -> Optional[_Word]:
    """Return the word at *at*: up to an unquoted blank or operator. None if it may do more than stand for a value."""
    parts: list[Optional[str]] = []
    while at < len(text):
        char = text[at]
        plain = _TEXT.match(text, at)
        if plain:
            part: Optional[_Word] = _Word(plain.group(), plain.end())
        elif char == '"':
            part = _double(text, at + 1, look, 0)
        elif char in "{}~":  # bash and Apptainer's shell may expand these
            part = _Word(None, at + 1)
        elif char in "'\\$`":
            part = _common(text, at, look, 0)
        else:
            break
        if part is None:
            return None
        parts.append(part.value)
        at = part.end
    return _joined(parts, at, look)


def _common(text: str, at: int, look: _Look, depth: int) -> Optional[_Word]:
    """Return what is not in double quotes, at a quote, a backslash, a `$` or a backquote."""
    if text[at] == "'":
        end = text.find("'", at + 1)
        return None if end < 0 else _Word(text[at + 1 : end], end + 1)
    if text[at] == "\\":
        escaped = text[at + 1 : at + 2]
        # Apptainer's shell keeps such a backslash in a value, others do not.
        return _Word("" if escaped == "\n" else None, at + 2) if escaped else None
    if text[at] == "`":
        return _unknown(end_of_backquotes(text, at))
    if text[at + 1 : at + 2] in ("'", '"'):  # bash has quotes of that kind, other shells have not
        return None
    return _dollar(text, at, look, depth, quoted=False)


def _double(text: str, at: int, look: _Look, depth: int) -> Optional[_Word]:
    """Return what is in double quotes, from *at*, behind the first, to behind the last."""
    parts: list[Optional[str]] = []
    while at < len(text):
        char = text[at]
        plain = _QUOTED_TEXT.match(text, at)
        if plain:
            part: Optional[_Word] = _Word(plain.group(), plain.end())
        elif char == '"':
            return _joined(parts, at + 1, look)
        else:
            part = _in_quotes(text, at, look, depth)
        if part is None:
            return None
        parts.append(part.value)
        at = part.end
    return None


def _in_quotes(text: str, at: int, look: _Look, depth: int) -> Optional[_Word]:
    """Return what double quotes leave its meaning: a backslash, a `$` or a backquote at *at*."""
    if text[at] == "\\":
        escaped = text[at + 1 : at + 2]
        value = "" if escaped == "\n" else escaped if escaped in ('"', "\\", "$", "`") else "\\" + escaped
        return _Word(value, at + 2) if escaped else None
    if text[at] == "`":
        return _unknown(end_of_backquotes(text, at))
    return _dollar(text, at, look, depth, quoted=True)


def _dollar(text: str, at: int, look: _Look, depth: int, *, quoted: bool) -> Optional[_Word]:
    """Return what the `$` at *at* and what belongs to it stand for."""
    match = _EXPANSION.match(text, at)
    if match:
        return _parameter(text, match, look, depth, quoted=quoted)
    if text.startswith("$(", at):
        return None if text.startswith("$((", at) else _unknown(end_of_parentheses(text, at + 1, depth))
    if _PURE.match(text, at):
        end = end_of_braces(text, at + 1, depth)
        return None if end is None or "=" in text[at:end] else _Word(None, end)
    if _SPECIAL.match(text, at):
        return _Word(None, at + 2)
    return None if text[at + 1 : at + 2] in ("{", "[") else _Word("$", at + 1)


def _parameter(text: str, match: re.Match[str], look: _Look, depth: int, *, quoted: bool) -> Optional[_Word]:
    name, operator, at = match.group(1) or match.group(2), match.group(3), match.end()
    known = look.known(name)
    value = look.value(name) if known else None
    if operator in (None, "}"):
        return _Word((value or "") if known else None, at)
    word = None if depth >= NESTING_LIMIT else _inner(text, at, look, depth + 1, quoted=quoted)
    if word is None or not known:
        return word and _Word(None, word.end)
    there = bool(value) if operator.startswith(":") else value is not None
    if operator.endswith("+"):
        return word if there else _Word("", word.end)
    return _Word(value, word.end) if there else word


def _inner(text: str, at: int, look: _Look, depth: int, *, quoted: bool) -> Optional[_Word]:
    """The word of `${NAME:-word}` from *at* to behind the brace. Shells differ on quotes in it, if it is in quotes."""
    parts: list[Optional[str]] = []
    toggled = False
    while at < len(text):
        char = text[at]
        plain = _INNER_TEXT.match(text, at)
        part: Optional[_Word]
        if plain:
            part = _Word(None if not quoted and _OPERATORS.search(plain.group()) else plain.group(), plain.end())
        elif char == '"' and quoted:
            toggled = not toggled
            part = _Word("", at + 1)
        elif char == '"':
            part = _double(text, at + 1, look, depth)
        elif char == "}" and not toggled:
            return _joined(parts, at + 1, look)
        elif char in "{}":
            part = _Word(char if toggled else None, at + 1)
        elif not quoted:
            part = _common(text, at, look, depth)
        elif char == "'":
            part = _Word("'" if toggled else None, at + 1)
        elif char == "\\" and text[at + 1 : at + 2] not in ('"', "\\", "$", "`"):
            part = _Word(None, at + 2)
        else:
            part = _in_quotes(text, at, look, depth)
        if part is None:
            return None
        parts.append(part.value)
        at = part.end
    return None


def _joined(parts: list[Optional[str]], end: int, look: _Look) -> _Word:
    known = [part for part in parts if part is not None]
    size = sum(map(len, known))
    look.state.budget -= size
    if len(known) < len(parts) or size > VALUE_LIMIT or look.state.budget < 0:
        return _Word(None, end)
    return _Word("".join(known), end)


def _unknown(end: Optional[int]) -> Optional[_Word]:
    return None if end is None else _Word(None, end)
