"""Find sonames as the dynamic loader of a tree does; compare symbol versions.

The cache of an image may be missing or stale, so the directories of its ld.so.conf are searched after it. Sources:
ld.so(8) for the order, ldconfig(8) for the cache, LSB "Symbol Versioning".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Optional

from gpubind.files import Tree, glob
from gpubind.files.ldconfig import read_ldcache, read_ldsoconf
from gpubind.formats.elf.elf import ElfFacts, ElfIdent
from gpubind.formats.elf.glibc import LIBC
from gpubind.formats.elf.ldcache import LdCache, LdCacheEntry
from gpubind.frozen import NamedTuple
from gpubind.model import Found, Missing, RootedPath, architecture
from gpubind.model.cuda import version_key

DEFAULT_DIRECTORIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
DEFAULT_DIRECTORIES_32 = ("/lib32", "/usr/lib32")
MULTIARCH = "*-linux-gnu*"
LOADERS = "ld-linux*.so.*"
STORES = ("/nix/store", "/gnu/store")
STORED_LIMIT = 16
"""Releases of glibc in a store that are looked at."""


class Glibc(NamedTuple):
    """The glibc that programs of one architecture get."""

    path: RootedPath
    """The resolved libc.so.6."""
    version: str
    """`2.36`, from its version definitions."""
    arch: str


class Loader:
    """The loader of *tree* for programs of one architecture, or of any."""

    def __init__(
        self, tree: Tree, arch: Optional[str] = None, beside: Optional[Loader] = None, more: tuple[str, ...] = ()
    ) -> None:
        """Make the loader, which searches directories *more* last; *beside* is that of another architecture, with the
        same cache and configuration.
        """
        self.tree = tree
        self.arch = arch
        self._all: dict[Optional[str], Loader] = {} if beside is None else beside._all
        self._all[arch] = self
        cache = read_ldcache(tree) if beside is None else beside._cache
        self._cache: Optional[LdCache] = cache if isinstance(cache, LdCache) else None
        self._configured: tuple[str, ...] = read_ldsoconf(tree).directories if beside is None else beside._configured
        self._more: tuple[str, ...] = more if beside is None else beside._more
        every = (*self._configured, *_multiarch(tree), *DEFAULT_DIRECTORIES, *more)
        directories = _existing(tree, every) if beside is None else beside.directories
        if arch is not None and architecture(arch).bits == 32:
            directories = _existing(tree, (*directories, *DEFAULT_DIRECTORIES_32))
        self.directories: tuple[RootedPath, ...] = directories
        self._found: dict[str, Optional[RootedPath]] = {}

    def of(self, arch: Optional[str]) -> Loader:
        """Return the loader of the same tree for programs of *arch*."""
        return self._all.get(arch) or Loader(self.tree, arch, self)

    @cached_property
    def glibc(self) -> Optional[Glibc]:
        """The glibc of the tree; None if it has none for this architecture."""
        path, facts = self.find(LIBC), self.facts(LIBC)
        version = None if facts is None else newest(facts.version_definitions, "GLIBC")
        return None if path is None or facts is None or version is None else Glibc(path, version, facts.ident.arch)

    @property
    def forbidden_directory(self) -> Optional[str]:
        """The first directory in which a C library may be and may not be read; None if there is none."""
        places = (*DEFAULT_DIRECTORIES, *self.directories)
        found = ((place, self.tree.ident(f"{place}/{LIBC}")) for place in places)
        return next((at for at, ident in found if isinstance(ident, Missing) and ident.why == "forbidden"), None)

    def find(self, soname: str) -> Optional[RootedPath]:
        """Return the resolved file that the loader opens for *soname*; None if there is none for this architecture."""
        if soname not in self._found:
            self._found[soname] = self._find(soname)
        return self._found[soname]

    def facts(self, soname: str) -> Optional[ElfFacts]:
        """Return the ELF facts of the file of *soname*; None if there is none, or it is damaged."""
        path = self.find(soname)
        facts = Missing("absent") if path is None else self.tree.elf(path)
        return None if isinstance(facts, Missing) else facts

    def _find(self, soname: str) -> Optional[RootedPath]:
        if "/" in soname or not soname:
            return None
        for place in self.places(soname):
            path = self.tree.resolve(place)
            if isinstance(path, Missing):
                continue
            ident = self.tree.ident(path)
            if isinstance(ident, ElfIdent) and self.arch in (None, ident.arch):
                return path
        return None

    def places(self, soname: str) -> tuple[str, ...]:
        """Return the paths at which the loader looks for *soname*: of the cache, then of the directories."""
        cached = (entry.path for entry in self.cached(soname))
        return (*cached, *(f"{directory.rstrip('/')}/{soname}" for directory in self.directories))

    def cached(self, soname: str) -> tuple[LdCacheEntry, ...]:
        """Return the entries of *soname* in the cache."""
        entries = self._cache.named(soname) if self._cache else ()
        return tuple(entry for entry in entries if entry.path.startswith("/"))

    @cached_property
    def default_directories(self) -> tuple[RootedPath, ...]:
        """The directories that programs search after the cache, also those of 32-bit programs.

        Only ldconfig reads ld.so.conf: its directories are included if there is no cache yet.
        """
        configured = () if self._cache else self._configured
        places = (*_multiarch(self.tree), *DEFAULT_DIRECTORIES, *DEFAULT_DIRECTORIES_32)
        return _existing(self.tree, (*configured, *places, *self._more))


def _multiarch(tree: Tree) -> list[RootedPath]:
    return [path for base in ("/lib", "/usr/lib") for path in glob(tree, f"{base}/{MULTIARCH}")]


def own_prefixes(tree: Tree) -> tuple[str, ...]:
    """Return where a glibc outside the usual directories may be: where usual loaders lead, or in a store, newest first.

    Source: alpine-pkg-glibc `APKBUILD`, with /usr/glibc-compat; nixpkgs `pkgs/build-support/docker`.
    """
    found = (tree.resolve(path) for base in ("/lib64", "/lib") for path in glob(tree, f"{base}/{LOADERS}"))
    usual = [path.rpartition("/")[0] for path in found if not isinstance(path, Missing)]
    stored = [path for store in STORES for path in glob(tree, f"{store}/*-glibc-*/lib")]
    newest_first = sorted(stored, key=lambda path: path.partition("-glibc-")[2], reverse=True)
    return (*usual, *newest_first[:STORED_LIMIT])


def _existing(tree: Tree, directories: Iterable[str]) -> tuple[RootedPath, ...]:
    """Return the *directories* that exist, resolved, each once."""
    places = (tree.find(directory) for directory in directories)
    return tuple(dict.fromkeys(at.path for at in places if isinstance(at, Found) and at.stat.kind == "dir"))


_VERSION = re.compile(r"^([A-Z]+)_([0-9]+(?:\.[0-9]+)*)$")


def newest(definitions: Iterable[str], prefix: str) -> Optional[str]:
    """Return the newest version among *definitions* that starts with *prefix*: `GLIBC_2.36` -> `2.36`."""
    matches = (_VERSION.match(definition) for definition in definitions)
    versions = (match.group(2) for match in matches if match and match.group(1) == prefix)
    return max(versions, key=version_key, default=None)


def prefix_of(version: str) -> Optional[str]:
    """Return `GLIBC` of `GLIBC_2.36`; None for a version of another form."""
    match = _VERSION.match(version)
    return match.group(1) if match else None
