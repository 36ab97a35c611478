"""The ld.so.conf of a tree: the directories that it and the files that it includes name. Source: ldconfig(8)."""

from __future__ import annotations

from typing import NamedTuple

from gpubind.errors import FormatError
from gpubind.files.glob import glob
from gpubind.files.tree import Tree
from gpubind.formats.text.ldsoconf import parse_ldsoconf
from gpubind.model import Missing

LD_SO_CONF = "/etc/ld.so.conf"
INCLUDES_LIMIT = 512  # patterns and files, each looked at once: what includes itself says nothing new
CONFIGURED_LIMIT = 1024
"""Directories in ld.so.conf; a file that names more does not make gpubind look for each library in all of them."""


class ConfiguredDirectories(NamedTuple):
    """What the loader's configuration says."""

    directories: tuple[str, ...]
    """As they are named, in their order."""
    files: tuple[str, ...]
    """Where that stands."""


def read_ldsoconf(tree: Tree) -> ConfiguredDirectories:
    """Return the directories that ld.so.conf and what it includes name, and which files those are."""
    directories: list[str] = []
    files: list[str] = []
    seen: set[tuple[str, str]] = set()
    todo = [("include", LD_SO_CONF)]
    while todo:
        if len(directories) >= CONFIGURED_LIMIT:
            tree.unseen[LD_SO_CONF] = f"it names more than {CONFIGURED_LIMIT} directories"
            break
        kind, value = todo.pop()
        if kind == "directory":
            directories.append(value)
            continue
        if (kind, value) in seen:
            continue
        if len(seen) >= INCLUDES_LIMIT:
            tree.unseen[LD_SO_CONF] = f"it includes more than {INCLUDES_LIMIT} patterns and files"
            continue
        seen.add((kind, value))
        if kind == "include":
            try:
                todo += [("file", path) for path in reversed(glob(tree, value))]
            except FormatError as error:
                if error.code != "wide-glob":
                    raise
                tree.unseen[f"{LD_SO_CONF}: {value}"] = error.why
            continue
        text = tree.read_text(value)
        if not isinstance(text, Missing):
            files.append(value)
            here = value.rpartition("/")[0]
            for line, named in reversed(parse_ldsoconf(text).lines[: CONFIGURED_LIMIT + 1]):
                todo.append((line, named if named.startswith("/") else f"{here}/{named}"))
    return ConfiguredDirectories(tuple(directories), tuple(files))
