"""Read the results of ldconfig(8) in a tree: its cache, and the directories in ld.so.conf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Union

from gpubind.errors import FormatError
from gpubind.files.glob import glob_or_note
from gpubind.files.tree import Tree
from gpubind.formats.elf.ldcache import LdCache, LdCacheEntry, parse_ldcache, parse_ldsoconf
from gpubind.frozen import NamedTuple
from gpubind.machine.budget import spend
from gpubind.model import Missing

LD_CACHE_PATH = "/etc/ld.so.cache"
LD_CACHE_LIMIT = 16 << 20

_LD_SO_CONF = "/etc/ld.so.conf"
INCLUDES_LIMIT = 512
"""The maximum number of included patterns and files. Each is read once, so that a file may include itself."""
CONFIGURED_LIMIT = 1024
"""The limit of directories in ld.so.conf: each library is searched for in all of them."""


class ConfiguredDirectories(NamedTuple):
    """The directories in ld.so.conf."""

    directories: tuple[str, ...]
    """As written, in their order."""
    files: tuple[str, ...]
    """The files that name them."""


def read_ldcache(tree: Tree) -> Union[LdCache, Missing, FormatError]:
    """Return the ld cache of *tree*. For a damaged cache, the error is returned, not raised."""
    data = tree.read(LD_CACHE_PATH, LD_CACHE_LIMIT)
    if isinstance(data, Missing):
        return data
    try:
        return parse_ldcache(data)
    except FormatError as error:
        return error


def matching(cache: LdCache, prefixes: Iterable[str]) -> Iterator[LdCacheEntry]:
    """Yield the entries of *cache* whose name starts with one of *prefixes*. Their texts are kept in decisions.

    Errors: `BoundError`.
    """
    for entry in cache.entries_with_prefix(prefixes):
        spend("texts", len(entry.name) + len(entry.path))
        yield entry


def read_ldsoconf(tree: Tree) -> ConfiguredDirectories:
    """Return the directories in ld.so.conf and the files that it includes, and the paths of those files."""
    directories: list[str] = []
    files: list[str] = []
    seen: set[tuple[str, str]] = set()
    todo = [("include", _LD_SO_CONF)]
    while todo:
        if len(directories) >= CONFIGURED_LIMIT:
            tree.unseen[_LD_SO_CONF] = f"it names more than {CONFIGURED_LIMIT} directories"
            break
        kind, value = todo.pop()
        if kind == "directory":
            directories.append(value)
            continue
        if (kind, value) in seen:
            continue
        if len(seen) >= INCLUDES_LIMIT:
            tree.unseen[_LD_SO_CONF] = f"it includes more than {INCLUDES_LIMIT} patterns and files"
            continue
        seen.add((kind, value))
        if kind == "include":
            todo += [("file", path) for path in reversed(glob_or_note(tree, value, f"{_LD_SO_CONF}: {value}"))]
            continue
        text = tree.read_text(value)
        if not isinstance(text, Missing):
            files.append(value)
            parent = value.rpartition("/")[0]
            for entry_kind, entry_path in reversed(parse_ldsoconf(text)[: CONFIGURED_LIMIT + 1]):
                todo.append((entry_kind, entry_path if entry_path.startswith("/") else f"{parent}/{entry_path}"))
    return ConfiguredDirectories(tuple(directories), tuple(files))
