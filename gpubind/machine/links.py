"""Follow a path along symbolic links, name by name, as the kernel does. Source: path_resolution(7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Union

from gpubind.frozen import NamedTuple
from gpubind.machine.budget import LINKS_LIMIT
from gpubind.model import Missing
from gpubind.model.files import ABSENT, LOOP

T = TypeVar("T")


class Link(NamedTuple):
    """A symbolic link on the way."""

    target: str


def walk_path(
    path: str,
    current: T,
    root: T,
    step: Callable[[T, str], Union[T, Link, Missing]],
    up: Callable[[T], T],
    is_directory: Callable[[T], bool] = lambda here: True,
) -> tuple[Union[T, Missing], T, list[str]]:
    """Return the result of following *path* from *current*, the last position, and the names not followed.

    *step* looks up a name in a directory, *up* returns the parent directory. Absolute links start at *root*.
    """
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        name = todo.pop()
        if not is_directory(current):
            return ABSENT, current, [name, *reversed(todo)]
        if name in ("", "."):
            continue
        if name == "..":
            current = up(current)
            continue
        result = step(current, name)
        if isinstance(result, Link):
            links += 1
            if links <= LINKS_LIMIT:
                current = root if result.target.startswith("/") else current
                todo.extend(result.target.split("/")[::-1])
                continue
            result = LOOP
        if isinstance(result, Missing):
            return result, current, [name, *reversed(todo)]
        current = result
    return current, current, []
