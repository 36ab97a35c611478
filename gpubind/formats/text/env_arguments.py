"""What env(1) starts, told from its arguments.

Source: env(1) and `src/env.c` of GNU coreutils 8.30 to 9.7; BusyBox `coreutils/env.c`, which knows fewer options.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple, Optional, Union

DEFAULT_PATH = "/bin:/usr/bin"
"""Where execvp(3) of glibc looks without PATH."""
_FLAGS, _VALUED = "iv0", "uCSa"
_LONG = {
    "ignore-environment": "i",
    "debug": "v",
    "null": "0",
    "unset": "u",
    "chdir": "C",
    "split-string": "S",
    "argv0": "a",
    "block-signal": "",
    "default-signal": "",
    "ignore-signal": "",
    "list-signal-handling": "",
}
_BUSYBOX_FLAGS, _BUSYBOX_VALUED = "i0", "u"
WORDS_LIMIT = 1000


class EnvCall(NamedTuple):
    """What env would execute."""

    command: Optional[str]
    """None: no argument names it, so that it is what follows them: the script itself."""
    path: Optional[str]
    """PATH as env searches it; None: as it was."""


class EnvError(NamedTuple):
    """Why env ends without starting anything."""

    message: str
    """As env says it, without its name."""


def parse_env_arguments(words: list[str], busybox: bool = False) -> Union[EnvCall, EnvError]:
    """Return what env does with *words*, after which the path of a script follows."""
    flags, valued = (_BUSYBOX_FLAGS, _BUSYBOX_VALUED) if busybox else (_FLAGS, _VALUED)
    words = list(words)
    path: Optional[str] = None
    options, null = True, False
    for _ in range(WORDS_LIMIT):
        if not words:
            return EnvError("cannot specify --null (-0) with command") if null else EnvCall(None, path)
        word = words.pop(0)
        if not options or not word.startswith("-"):
            options = False
            if "=" not in word:
                return EnvError("cannot specify --null (-0) with command") if null else EnvCall(word, path)
            path = word[len("PATH=") :] if word.startswith("PATH=") else path
            continue
        if word in ("-", "--"):
            options = False
            path = DEFAULT_PATH if word == "-" else path
            continue
        letters = _letters(word, flags, valued)
        if isinstance(letters, EnvError):
            return letters
        for letter, value in letters:
            if letter in valued and letter and value is None:
                if not words:
                    return EnvError("nothing to start: the option takes the script for its value")
                value = words.pop(0)
            if letter == "i" or (letter == "u" and value == "PATH"):
                path = DEFAULT_PATH
            elif letter == "0":
                null = True
            elif letter == "S":
                try:
                    words = [*shlex.split(value or ""), *words]
                except ValueError:
                    return EnvError("no terminating quote in -S string")
    return EnvError("too many arguments")


def _letters(word: str, flags: str, valued: str) -> Union[list[tuple[str, Optional[str]]], EnvError]:
    """The options in *word*: a long one, or a cluster of letters; each with its value, if that is in the same word."""
    if word.startswith("--"):
        name, has_value, value = word[2:].partition("=")
        known = [option for option in _LONG if option.startswith(name) and (_LONG[option] or "S" in valued)]
        known = [name] if name in known else known
        if len(known) != 1 or (_LONG[known[0]] and _LONG[known[0]] not in flags + valued):
            return EnvError(f"unrecognized option '{word}'")
        return [(_LONG[known[0]], value if has_value else None)]
    found: list[tuple[str, Optional[str]]] = []
    for at, letter in enumerate(word[1:], 2):
        if letter in valued:
            return [*found, (letter, word[at:] or None)]
        if letter not in flags:
            return EnvError(f"invalid option -- '{letter}'")
        found.append((letter, None))
    return found
