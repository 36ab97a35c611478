"""Where the statements and words of a shell script end, whatever is in them. Nothing is run and nothing evaluated.

Where that is not sure, or shells differ, the answer is None.

Source: POSIX shell, 2.2 Quoting, 2.9 Shell Commands, 2.10 Shell Grammar.
"""

from __future__ import annotations

import re
from typing import Optional

NESTING_LIMIT = 8
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
GAP = re.compile(r"(?:[ \t]|\\\n)*")
_COMMENTED = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_RAW_TEXT = re.compile(r"[^ \t\n;&|<>()\"'\\$`]+")
_OPERATOR = re.compile(r"\n|;;|;|&&|&|\|\||\||\(|\)|<<|>>|[<>][&|>]?")
_BACKQUOTES = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_NOT_SCANNED = re.compile(r"<<|(?<![A-Za-z0-9_])case(?![A-Za-z0-9_])|(?<![^ \t\n;(&|])#")
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
_ASSIGNING = re.compile(rf"{NAME}(?:\[[A-Za-z0-9_]+\])?\+?=")
_COMMAND_WORD = re.compile(r"[A-Za-z0-9_.+:!\[\]-]+|[^\\`]*/[^\\`]*")


def end_of_statement(text: str, at: int) -> Optional[int]:
    """Return where the statement at *at* ends: a list of commands, with whatever compound commands are in it.

    None if that is not sure, or if what follows may not run, or not mean what it says.
    """
    walk = _Walk()
    while True:
        at = after(_COMMENTED, text, at)
        if at >= len(text):
            return at if walk.complete() else None
        operator = _OPERATOR.match(text, at)
        if operator is None:
            end = _raw_word(text, at, 0)
            if end is None or not walk.word(text[at:end], redirects=text[end : end + 1] in ("<", ">")):
                return None
            at = end
        elif operator.group()[0] in "<>":
            at = after(GAP, text, operator.end())
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
        self.closed = False
        """Whether a compound command has just ended: no word may follow."""

    def complete(self, sign: str = "\n") -> bool:
        """Return whether the statement ends with *sign*."""
        return not self.awaited and not self.joined and not (self.bare and sign == ";")

    def word(self, word: str, *, redirects: bool) -> bool:
        """Go over *word*; False if that is not safe."""
        if self.closed:
            return redirects and word.isdigit()
        if self.header == "pattern":
            if word == "esac":
                self.awaited.pop()
                self.header, self.commands, self.closed = "", False, True
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
            self.commands, self.closed = False, True
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
        self.closed = False
        if sign == "(":
            self.awaited.append(")")
            return self.commands and not self.header
        if sign == ")":
            if inner == [")"]:
                self.awaited.pop()
            self.commands, self.bare, self.closed = False, False, True
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
    """Return where the word at *at* ends, whatever is in it."""
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
    """Return where what a quote, a backquote or a `$` at *at* begins ends."""
    char, following = text[at], text[at + 1 : at + 2]
    if char == "'":
        return text.find("'", at + 1) + 1 or None
    if char == "`":
        return end_of_backquotes(text, at)
    if char == '"':
        return _enclosed(text, at + 1, '"', depth)
    if following == "(":
        return end_of_parentheses(text, at + 1, depth)
    if following == "{":
        return end_of_braces(text, at + 1, depth)
    return None if following in ("'", '"', "[") and following else at + 1


def end_of_backquotes(text: str, at: int) -> Optional[int]:
    """Return where the backquotes at *at* are closed."""
    match = _BACKQUOTES.match(text, at)
    return match.end() if match else None


def end_of_braces(text: str, at: int, depth: int) -> Optional[int]:
    """Return where the `{` of a parameter at *at* is closed; None also where shells may differ on it."""
    return _enclosed(text, at + 1, "}", depth)


def end_of_parentheses(text: str, at: int, depth: int) -> Optional[int]:
    """Return where the parenthesis at *at* is closed; None also where what is in it may hide a parenthesis."""
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


def after(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where what *pattern* matches at *at* ends; *at* if it matches nothing."""
    match = pattern.match(text, at)
    return match.end() if match else at
