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

NESTING_LIMIT = 8
VALUE_LIMIT = 1 << 16
TOTAL_LIMIT = 1 << 25
"""Bytes of all values that one script may make: each may hold the ones before it."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_COMMAND = re.compile(r"(export|unset|true|:)(?=[ \t\n;]|$)")
_ASSIGNMENT = re.compile(rf"({_NAME})=")
_NAMED = re.compile(rf"({_NAME})(?=[ \t\n;]|$)")
_PAUSE = re.compile(r"[ \t\n;]|\\\n|$")
_GAP = re.compile(r"(?:[ \t]|\\\n)*")
_BETWEEN = re.compile(r"(?:[ \t\n]|\\\n|#[^\n]*)*")
_COMMENTED = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_END = re.compile(r"(?:#[^\n]*)?(?:\n|;|\Z)")
_EXPANSION = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})(:?[-+]|\}}))")
_PURE = re.compile(rf"\$\{{(?:#{_NAME}\}}|{_NAME}[%#/^,])")
_SPECIAL = re.compile(r"\$[0-9@*#?!$-]")
_TEXT = re.compile(r"[^ \t\n;&|<>()\"'\\$`{}~]+")
_QUOTED_TEXT = re.compile(r"[^\"\\$`]+")
_INNER_TEXT = re.compile(r"[^\"'\\$`{}]+")
_RAW_TEXT = re.compile(r"[^ \t\n;&|<>()\"'\\$`]+")
_OPERATORS = re.compile(r"[&|<>();~]")
_OPERATOR = re.compile(r"\n|;;|;|&&|&|\|\||\||\(|\)|<<|>>|[<>][&|>]?")
_BACKQUOTES = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_NOT_SCANNED = re.compile(r"<<|(?<![A-Za-z0-9_])case(?![A-Za-z0-9_])|(?<![^ \t\n;(&|])#")
_ASSIGNS = re.compile(rf"(?:(?<![A-Za-z0-9_])({_NAME})\+?:?=|(?:unset|read|export)[ \t]+({_NAME}))")

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
_OPENERS = {"if": "then", "while": "do", "until": "do", "for": "do", "case": "esac", "{": "}"}
"""Words that begin a compound command, and the word that each waits for."""
_MIDDLES = {"then": ("then", "fi"), "elif": ("fi", "then"), "else": ("fi", "fi"), "do": ("do", "done")}
"""Words inside one: what was waited for, and what is from then on."""
_NOT_FOLLOWED = frozenset((
    "exit", "return", "exec", "readonly", "declare", "typeset", "local", "alias", "unalias", "set", "shopt", "enable",
    "trap", "break", "continue", "command", "builtin", "function", "select", "coproc", "time",
    "fi", "done", "esac", "in",
))  # fmt: skip
"""After these, plain statements do not run, or are not what they seem."""
_ASSIGNING = re.compile(rf"{_NAME}(?:\[[A-Za-z0-9_]+\])?\+?=")
_COMMAND_WORD = re.compile(r"[A-Za-z0-9_.+:!\[\]-]+|[^\\`]*/[^\\`]*")


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
        """Whether it is known which value *name* has, or that it has none."""
        return _decided(name, self.env, self.unknown, self.clouded)

    def with_value(self, name: str, value: str) -> Exports:
        """The same, after `export NAME=value`."""
        return self._replace(
            env={**self.env, name: value}, exported=self.exported | {name}, unknown=self.unknown - {name}
        )

    def with_nothing_known(self) -> Exports:
        """The same, after a script that cannot be read."""
        return self._replace(env={}, unknown=self.unknown.union(self.env), clouded=True)


def parse_exports(text: str, before: Exports) -> Exports:
    """What is known of variables once a shell has read *text*, and what was known *before*. Never raises.

    A variable that nothing has set is unset: Singularity hides the caller's from these files.
    """
    if before.lost:
        return before
    state = _State(before)
    if "\r" in text or "\0" in text:  # shells differ
        state.cloud(text)
        return state.exports()
    at = _after(_BETWEEN, text, 0)
    while at < len(text):
        end = _plain(text, at, state)
        if end is None:
            end = _skipped(text, at)
            state.cloud(text[at:end])
        if end is None:
            state.lost = True
            break
        at = _after(_BETWEEN, text, end)
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
        at = _after(_GAP, text, at)
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
    """The word at *at*: up to an unquoted blank or operator. None if it may do more than stand for a value."""
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
    """What is not in double quotes, at a quote, a backslash, a `$` or a backquote."""
    if text[at] == "'":
        end = text.find("'", at + 1)
        return None if end < 0 else _Word(text[at + 1 : end], end + 1)
    if text[at] == "\\":
        escaped = text[at + 1 : at + 2]
        # Apptainer's shell keeps such a backslash in a value, others do not.
        return _Word("" if escaped == "\n" else None, at + 2) if escaped else None
    if text[at] == "`":
        return _unknown(_backquoted(text, at))
    if text[at + 1 : at + 2] in ("'", '"'):  # bash has quotes of that kind, other shells have not
        return None
    return _dollar(text, at, look, depth, quoted=False)


def _double(text: str, at: int, look: _Look, depth: int) -> Optional[_Word]:
    """What is in double quotes, from *at*, behind the first, to behind the last."""
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
    """What double quotes leave its meaning: a backslash, a `$` or a backquote at *at*."""
    if text[at] == "\\":
        escaped = text[at + 1 : at + 2]
        value = "" if escaped == "\n" else escaped if escaped in ('"', "\\", "$", "`") else "\\" + escaped
        return _Word(value, at + 2) if escaped else None
    if text[at] == "`":
        return _unknown(_backquoted(text, at))
    return _dollar(text, at, look, depth, quoted=True)


def _dollar(text: str, at: int, look: _Look, depth: int, *, quoted: bool) -> Optional[_Word]:
    """What the `$` at *at* and what belongs to it stand for."""
    match = _EXPANSION.match(text, at)
    if match:
        return _parameter(text, match, look, depth, quoted=quoted)
    if text.startswith("$(", at):
        return None if text.startswith("$((", at) else _unknown(_parenthesized(text, at + 1, depth))
    if _PURE.match(text, at):
        end = _braced(text, at + 1, depth)
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


def _skipped(text: str, at: int) -> Optional[int]:
    """Where the statement at *at* ends: a list of commands, with whatever compound commands are in it.

    None if that is not sure, or if what follows may not run, or not mean what it says.
    """
    walk = _Walk()
    while True:
        at = _after(_COMMENTED, text, at)
        if at >= len(text):
            return at if walk.complete() else None
        operator = _OPERATOR.match(text, at)
        if operator is None:
            end = _raw_word(text, at, 0)
            if end is None or not walk.word(text[at:end], redirects=text[end : end + 1] in ("<", ">")):
                return None
            at = end
        elif operator.group()[0] in "<>":
            at = _after(_GAP, text, operator.end())
            target = None if operator.group() == "<<" or _OPERATOR.match(text, at) else _raw_word(text, at, 0)
            if target is None or target == at:
                return None
            at = target
        else:
            at = operator.end()
            if operator.group() in ("\n", ";") and walk.complete(operator.group()):
                return at
            if not walk.operator(operator.group()) or text.startswith("((", at - 1):
                return None


class _Walk:
    """A way through a statement, word by word, that knows which compound commands are open."""

    def __init__(self) -> None:
        self.awaited: list[str] = []
        """What closes them, the innermost last."""
        self.header = ""
        """`for` and `case` in the words before their first command, `pattern` where a case has one."""
        self.commands = True
        """Whether the next word may be a command."""
        self.bare = True
        """Whether there is nothing yet that an operator could end."""
        self.joined = False
        """Whether the last operator wants another command."""

    def complete(self, sign: str = "\n") -> bool:
        """Whether the statement ends with *sign*."""
        return not self.awaited and not self.joined and not (self.bare and sign == ";")

    def word(self, word: str, *, redirects: bool) -> bool:
        """Go over *word*; False if that is not safe."""
        if self.header == "pattern":
            if word == "esac":
                self.awaited.pop()
                self.header, self.commands = "", False
                return self.bare
            self.bare = False
            return True
        if self.header == "case":
            self.header, self.bare = ("pattern", True) if word == "in" else ("case", False)
            return True
        if self.header and word != "do":
            return True
        self.header = ""
        if not self.commands or (redirects and word.isdigit()):
            self.bare = False
            return True
        self.joined = False
        if word in _OPENERS:
            self.awaited.append(_OPENERS[word])
            self.header = word if word in ("for", "case") else ""
            return True
        if word in _MIDDLES:
            before, after = _MIDDLES[word]
            expected = self.awaited[-1:] == [before]
            self.awaited[-1:] = [after]
            self.bare = True
            return expected
        self.bare = False
        if self.awaited and word == self.awaited[-1]:
            self.awaited.pop()
            self.commands = False
            return True
        if _ASSIGNING.match(word):
            return True
        self.commands = word == "!"
        return word not in _NOT_FOLLOWED and bool(_COMMAND_WORD.fullmatch(word))

    def operator(self, sign: str) -> bool:
        """Go over *sign*; False if that is not safe."""
        if self.header == "pattern":
            if sign == ")":
                empty = self.bare
                self.header, self.commands, self.bare = "", True, True
                return not empty
            return sign == "|" or (sign in ("(", "\n") and self.bare)
        inner = self.awaited[-1:]
        if sign == "(":
            self.awaited.append(")")
            return self.commands and not self.header
        if sign == ")":
            if inner == [")"]:
                self.awaited.pop()
            self.commands, self.bare = False, False
            return inner == [")"] and not self.joined
        if sign == ";;":
            self.header, self.bare = "pattern", True
            return inner == ["esac"] and not self.joined
        if sign != "\n" and self.bare and not self.header:
            return False
        if self.header == "case" or (self.header and sign not in ("\n", ";")):
            return self.header == "case" and sign == "\n"
        self.header, self.commands, self.bare = "", True, True
        self.joined = sign in ("&&", "||", "|") or (self.joined and sign == "\n")
        return True


def _raw_word(text: str, at: int, depth: int) -> Optional[int]:
    """Where the word at *at* ends, whatever is in it."""
    while at < len(text):
        char = text[at]
        end: Optional[int]
        if char == "\\":
            end = at + 2
        elif char in "'\"$`":
            end = _raw_quoted(text, at, depth)
        elif char in " \t\n;&|<>()":
            return at
        else:
            plain = _RAW_TEXT.match(text, at)
            end = plain.end() if plain else at + 1
        if end is None or end > len(text):
            return None
        at = end
    return at


def _raw_quoted(text: str, at: int, depth: int) -> Optional[int]:
    """Where what a quote, a backquote or a `$` at *at* begins ends."""
    char, following = text[at], text[at + 1 : at + 2]
    if char == "'":
        return text.find("'", at + 1) + 1 or None
    if char == "`":
        return _backquoted(text, at)
    if char == '"':
        return _enclosed(text, at + 1, '"', depth)
    if following == "(":
        return _parenthesized(text, at + 1, depth)
    if following == "{":
        return _braced(text, at + 1, depth)
    return None if following in ("'", '"', "[") and following else at + 1


def _backquoted(text: str, at: int) -> Optional[int]:
    match = _BACKQUOTES.match(text, at)
    return match.end() if match else None


def _braced(text: str, at: int, depth: int) -> Optional[int]:
    """Where the `{` of a parameter at *at* is closed; None also where shells may differ on it."""
    return _enclosed(text, at + 1, "}", depth)


def _parenthesized(text: str, at: int, depth: int) -> Optional[int]:
    """Where the parenthesis at *at* is closed; None also where what is in it may hide a parenthesis."""
    end = _enclosed(text, at + 1, ")", depth)
    return None if end is None or _NOT_SCANNED.search(text, at, end) else end


def _enclosed(text: str, at: int, closer: str, depth: int) -> Optional[int]:
    """Behind the *closer* of what begins before *at*."""
    if depth >= NESTING_LIMIT:
        return None
    inner = 0
    while at < len(text):
        char = text[at]
        if char == closer and not inner:
            return at + 1
        if char == "\\":
            end: Optional[int] = at + 2
        elif char in '$`"' or (char == "'" and closer == ")"):
            end = at + 1 if char == "$" and text[at + 1 : at + 2] == '"' else _raw_quoted(text, at, depth + 1)
        elif char in "'{" and closer == "}":
            return None
        else:
            inner += {"(": 1, ")": -1}.get(char, 0) if closer == ")" else 0
            end = at + 1
        if end is None:
            return None
        at = end
    return None


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
