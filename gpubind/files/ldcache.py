"""The ld cache of a tree: the one place that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Union

from gpubind.errors import FormatError
from gpubind.files.tree import Tree
from gpubind.formats.elf.ldcache import LdCache, LdCacheEntry, parse_ldcache
from gpubind.model import Missing
from gpubind.model.budget import spend

LD_CACHE_PATH = "/etc/ld.so.cache"
LD_CACHE_LIMIT = 16 << 20


def read_ldcache(tree: Tree) -> Union[LdCache, Missing, FormatError]:
    """The ld cache of *tree*. One that is found damaged is no error of the caller's: the damage is the answer."""
    data = tree.read(LD_CACHE_PATH, LD_CACHE_LIMIT)
    if isinstance(data, Missing):
        return data
    try:
        return parse_ldcache(data)
    except FormatError as error:
        return error


def matching(cache: LdCache, prefixes: Iterable[str]) -> Iterator[LdCacheEntry]:
    """Return the entries of *cache* whose name starts with one of *prefixes*: a decision keeps each name and path.

    Errors: `BoundError`.
    """
    for entry in cache.matching(prefixes):
        spend("texts", len(entry.name) + len(entry.path))
        yield entry
