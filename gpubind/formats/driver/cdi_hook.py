"""What a hook of a CDI spec is told to do, as far as NVIDIA's own hooks go.

Sources: nvidia-container-toolkit `cmd/nvidia-cdi-hook/` (each hook's own directory).
"""

from __future__ import annotations

from posixpath import basename, dirname, join, normpath
from typing import NamedTuple, Optional

from gpubind.formats.driver.cdi import CdiHook

PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk", "nvidia-container-toolkit")


class HookCall(NamedTuple):
    """A call of one of NVIDIA's hooks."""

    name: Optional[str]
    """`create-symlinks`; None: the hook is somebody else's."""
    links: dict[str, str]
    """Absolute paths in the container, and what they lead to there, absolute, too."""
    folders: tuple[str, ...]
    """Directories that the container's loader would search."""


def parse_hook(hook: CdiHook) -> HookCall:
    """Return the call of *hook*: `nvidia-cdi-hook NAME ...`, `nvidia-ctk hook NAME ...`. It never fails."""
    words = [word for word in hook.args[1:] if word != "hook"]
    name = words[0] if basename(hook.path).partition(".")[0] in PROGRAMS and words else None
    pairs = [value.partition("::") for value in _values(hook, "--link")]
    links = {
        normpath(link): normpath(join(dirname(link), target))
        for target, separator, link in pairs
        if separator and link.startswith("/") and target
    }
    folders = tuple(folder for folder in _values(hook, "--folder") if folder.startswith("/"))
    return HookCall(name, links, folders)


def _values(hook: CdiHook, option: str) -> list[str]:
    """Return the values of a repeatable option, spelled `--x V` or `--x=V`."""
    found = []
    words = iter(hook.args)
    for word in words:
        if word == option:
            found.append(next(words, ""))
        elif word.startswith(f"{option}="):
            found.append(word[len(option) + 1 :])
    return found
