"""Environment files of a Singularity image, parsed and never executed.

Only plain statements are parsed: assignments, `export` and `unset`, with text, quotes and parameters. Any other
statement, such as `if`, `.` or a function, may set any variable, or change the meaning of later lines; after it
everything is unknown, in this file and in later ones. Apptainer executes these files with its own interpreter of bash's
dialect, and old images use their own shell. Where dash, bash and that interpreter differ, the value is unknown.

Source: POSIX shell, 2.2 Quoting, 2.6.2 Parameter Expansion, 2.9 Shell Commands, 2.14 Special Built-In Utilities.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Optional

from gpubind.frozen import NamedTuple

VALUE_LIMIT = 1 << 16
TOTAL_LIMIT = 1 << 25
"""Maximum characters of all values in one script. Each value may contain the earlier ones."""
_NESTING_LIMIT = 8

# They are compiled where they are used: many images set nothing.
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_GAP = r"(?:[ \t]|\\\n)*"
_COMMAND = r"(export|unset)(?=[ \t\n;]|$)"
_ASSIGNMENT = rf"{_GAP}({_NAME})="
_NAMED = rf"{_GAP}({_NAME})(?=[ \t\n;]|$)"
_BETWEEN = r"(?:[ \t\n]|\\\n|#[^\n]*)*"
_END = rf"{_GAP}(?:#[^\n]*)?(?:\n|;|\Z)"

_UNQUOTED = r"[^ \t\n;&|<>()\"'\\$`{}~]+"
_QUOTED = r"[^\"\\$`]+"
_DEFAULT = r"[^\"'\\$`{}&|<>();~]+"
_QUOTED_DEFAULT = r"[^\"'\\$`{}]+"
"""Plain text: of a word, in double quotes, in the word of `${NAME:-word}`, and in such a word within double quotes."""
_PARAMETER = rf"\$(?:({_NAME})(?![A-Za-z0-9_\\])|\{{({_NAME})(:?[-+]|\}}))"
_UNKNOWN = (
    r"\$\((?![^)\n]*\bcase\b)(?:[^()'\"`\\#<\n]|\"[^\"(`\\\n]*\"|'[^'\n]*')*\)|`[^`'\"\\\n]*`"
    rf"|\$[0-9@*#?!$-]|\$\{{(?:#{_NAME}|{_NAME}[%#][^{{}}'\"`\\$\n]*)\}}"
)
"""Substitutions that set no variable; only a shell can evaluate them."""
_ASSIGNS = rf"(?:(?<![A-Za-z0-9_])({_NAME})\+?:?=|(?:unset|read|export)[ \t]+({_NAME}))"

_AUTOMATIC = (
    r"_|UID|EUID|GID|PPID|GROUPS|RANDOM|SRANDOM|SECONDS|LINENO|EPOCH[A-Z]+|OPT(?:IND|ARG|ERR)|FUNCNAME|DIRSTACK"
    r"|PIPESTATUS|HISTCMD|SHELLOPTS|POSIXLY_CORRECT|BASH[A-Z_]*|COMP_[A-Z]+|COPROC|REPLY|MAPFILE"
    r"|(?:APPTAINER|SINGULARITY)_[A-Z]+"
)
"""Variables that a shell changes by itself or that are read-only, and those of the runtime."""
_INHERITED_VARIABLES = (
    r"HOME|PWD|OLDPWD|PATH|SHELL|SHLVL|TERM|IFS|PS[0-4]|HOST(?:NAME|TYPE)|OSTYPE|MACHTYPE|MAIL(?:CHECK|PATH)?|COLUMNS"
    r"|LINES|PROMPT_COMMAND|USER|LOGNAME|HIST[A-Z]+|ENV|CDPATH|TIMEFORMAT|NLSPATH|FIGNORE|IGNOREEOF"
)
"""Variables that may be set before the first line."""


class Exports(NamedTuple):
    """The variables after some scripts."""

    env: Mapping[str, Optional[str]]
    """The known values; None if unset."""
    exported: frozenset[str] = frozenset()
    """The variables that are exported to programs."""
    unknown: frozenset[str] = frozenset()
    """Variables whose values only a shell can evaluate. If `is_unknown`, there may be more."""
    is_unknown: bool = False
    """Whether a script could not be parsed, so that no value is known."""

    def is_known(self, name: str) -> bool:
        """Return whether the value of *name* is known. It is also known if *name* is certainly unset."""
        return not self.is_unknown and _is_decided(name, self.env, self.unknown)

    def with_value(self, name: str, value: str) -> Exports:
        """Return the variables as they are once `export NAME=value` has run."""
        return self._replace(
            env={**self.env, name: value}, exported=self.exported | {name}, unknown=self.unknown - {name}
        )

    def with_all_unknown(self, text: str = "") -> Exports:
        """Return the variables after the script *text*, which cannot be parsed."""
        assigned = {name for names in re.findall(_ASSIGNS, text) for name in names if name}
        return self._replace(env={}, unknown=self.unknown.union(self.env, assigned), is_unknown=True)


def parse_exports(text: str, before: Exports) -> Exports:
    """Return the variables after a shell has run *text*, given the variables *before* it. Never raises.

    A variable that no statement has set is unset, because Singularity hides the caller's variables from these files.
    """
    if before.is_unknown or "\r" in text or "\0" in text:  # shells differ on these
        return before.with_all_unknown(text)
    script = _Script(text, before)
    try:
        while script.take(_BETWEEN) and script.at < len(text):  # blank lines and comments are between statements
            script.statement()
    except _NotPlainError:
        return script.exports().with_all_unknown(text)
    return script.exports()


def _is_decided(name: str, env: Mapping[str, object], unknown: Collection[str]) -> bool:
    if re.fullmatch(_AUTOMATIC, name):
        return False
    return name in env or not (name in unknown or re.fullmatch(_INHERITED_VARIABLES, name))


class _NotPlainError(Exception):
    """A statement that may have other effects than setting variables, or on which shells differ."""


class _Script:
    def __init__(self, text: str, before: Exports) -> None:
        self.text = text
        self.at = 0
        self.env = dict(before.env)
        self.exported = set(before.exported)
        self.unknown = set(before.unknown)
        self.budget = TOTAL_LIMIT
        self.assigned_in_export: set[str] = set()
        """Variables of the current `export`. Shells differ on their values in the rest of the statement."""

    def exports(self) -> Exports:
        return Exports(self.env, frozenset(self.exported), frozenset(self.unknown))

    def take(self, pattern: str) -> Optional[re.Match[str]]:
        match = re.compile(pattern).match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def statement(self) -> None:
        match = self.take(_COMMAND)
        command = match.group(1) if match else ""
        self.assigned_in_export.clear()
        is_empty = not command
        while not self.take(_END):
            assignment = self.take(_ASSIGNMENT) if command != "unset" else None
            name_match = assignment or (self.take(_NAMED) if command else None)
            if name_match is None or re.fullmatch(_AUTOMATIC, name_match.group(1)):
                raise _NotPlainError
            name, is_empty = name_match.group(1), False
            if assignment:
                self.assign(name, self.value(_UNQUOTED, 0))
            if command == "export":
                self.exported.add(name)
                self.assigned_in_export.update({name} if assignment else ())
            elif command == "unset":
                self.env[name] = None
                self.unknown.discard(name)
                self.exported.discard(name)
        if is_empty:
            raise _NotPlainError

    def assign(self, name: str, value: Optional[str]) -> None:
        if value is None:
            self.env.pop(name, None)
            self.unknown.add(name)
        else:
            self.env[name] = value
            self.unknown.discard(name)

    def value(self, plain: str, depth: int) -> Optional[str]:
        """Return the value of a word, or of the text in quotes or braces; None if unknown. *plain* matches its text."""
        closer = {_UNQUOTED: "", _QUOTED: '"'}.get(plain, "}")
        in_quotes = plain in (_QUOTED, _QUOTED_DEFAULT)
        parts: list[Optional[str]] = []
        while True:
            char = self.text[self.at : self.at + 1]
            match = self.take(plain)
            if match:
                parts.append(match.group())
            elif char == closer or (not closer and char in " \t\n;"):
                self.at += len(closer)
                return self.joined(parts)
            elif char == '"':
                self.at += 1
                parts.append(self.value(_QUOTED, depth))
            elif char == "'" and not in_quotes:
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise _NotPlainError
                parts.append(self.text[self.at + 1 : end])
                self.at = end + 1
            elif char == "\\":
                parts.append(self.escaped(in_quotes, depth))
            elif self.take(_UNKNOWN):
                parts.append(None)
            elif char == "$":
                parts.append(self.parameter(in_quotes, depth))
            elif char and char in "{}~" and not closer:  # bash and Apptainer's shell may expand these characters
                self.at += 1
                parts.append(None)
            else:
                raise _NotPlainError

    def escaped(self, in_quotes: bool, depth: int) -> Optional[str]:
        char = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if not char:
            raise _NotPlainError
        if char == "\n":
            return ""
        if not in_quotes:
            return None  # Apptainer's shell keeps the backslash, other shells remove it
        return char if char in '"\\$`' else "\\" + char if not depth else None

    def parameter(self, in_quotes: bool, depth: int) -> Optional[str]:
        match = self.take(_PARAMETER)
        if match is None:
            self.at += 1
            char = self.text[self.at : self.at + 1]
            if char.isalnum() or (char and char in "_'\\`{([") or (char == '"' and (depth or not in_quotes)):
                raise _NotPlainError
            return "$"
        name, operator = match.group(1) or match.group(2), match.group(3)
        is_known = name not in self.assigned_in_export and _is_decided(name, self.env, self.unknown)
        value = self.env.get(name) if is_known else None
        if operator in (None, "}"):
            return (value or "") if is_known else None
        if depth >= _NESTING_LIMIT:
            raise _NotPlainError
        operand = self.value(_QUOTED_DEFAULT if in_quotes else _DEFAULT, depth + 1)
        if not is_known:
            return None
        is_there = bool(value) if operator.startswith(":") else value is not None
        if operator.endswith("+"):
            return operand if is_there else ""
        return value if is_there else operand

    def joined(self, parts: list[Optional[str]]) -> Optional[str]:
        known_parts = [part for part in parts if part is not None]
        size = sum(map(len, known_parts))
        self.budget -= size
        if len(known_parts) < len(parts) or size > VALUE_LIMIT or self.budget < 0:
            return None
        return "".join(known_parts)
