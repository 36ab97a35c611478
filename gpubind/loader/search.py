"""Find libraries as the dynamic loader does, in a tree or in a container of it.

Source: ld.so(8) for the order and the tokens of a search path, ldconfig(8) for the cache; glibc `elf/dl-load.c`
(`_dl_dst_substitute`, `_dl_map_object`), `elf/dl-cache.c`; LSB "Symbol Versioning".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal, Optional, Union

from gpubind.files import Tree, glob
from gpubind.files.ldconfig import read_ldcache, read_ldsoconf
from gpubind.formats.elf.elf import LIBC, ElfFacts, ElfIdent, NotElf
from gpubind.formats.elf.ldcache import LdCache, LdCacheEntry
from gpubind.frozen import NamedTuple
from gpubind.loader.hwcaps import HWCAPS_DIRECTORY, OLD_KINDS_UNTIL, Cpu, hwcaps_subdirectories, platforms
from gpubind.loader.namespace import UserBind
from gpubind.model import Missing, Mount, ResolvedFile, RootedPath, Stat, architecture
from gpubind.model.arch import library_token
from gpubind.model.cuda import version_key
from gpubind.model.files import or_none

_DEFAULT_DIRECTORIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_DEFAULT_DIRECTORIES_32 = ("/lib32", "/usr/lib32")
MULTIARCH = "*-linux-gnu*"
LOADERS = "ld-linux*.so.*"
_DEFAULT_PREFIXES = tuple(f"{directory}/" for directory in (*_DEFAULT_DIRECTORIES, *_DEFAULT_DIRECTORIES_32))
STORES = ("/nix/store", "/gnu/store")
_STORED_LIMIT = 16
"""Releases of glibc in a store that are inspected."""
HEADER_SIZE = 64
"""Bytes of an ELF header; a shorter file is "too short"."""

SearchRule = Literal["interpreter", "path", "rpath", "library-path", "runpath", "cache", "default"]
"""The rules of the search for a library, in their order. `interpreter`: the program's loader, which is already mapped;
`path`: the name is a path."""

_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")
"""A dynamic string token. Source: ld.so(8); glibc `elf/dl-load.c`, `is_dst`: `$LIBS` is not one."""


class ContainerFile(NamedTuple):
    """A file that a process in the container would open."""

    path: str
    """The path that the process opens."""
    tree: Tree
    """The tree that holds it: the image's, or the host's."""
    tree_path: RootedPath
    """The resolved file in that tree."""
    mount: Optional[Mount]
    """The bind of the plan that provides it."""
    bind: Optional[UserBind] = None
    """The bind of the user, the site or the runtime that provides it. Without any bind the image provides it."""
    resolved_path: str = ""
    """The same path with links followed, as in /proc/self/exe."""

    @property
    def elf(self) -> Optional[ElfFacts]:
        """The facts of the ELF file; None if the file is not a readable ELF file."""
        return or_none(self.tree.elf(self.tree_path))


class LoadFailure(NamedTuple):
    """Why the loader refuses a library or program."""

    kind: Literal["missing", "version", "unreadable", "stack"]
    name: str
    """A soname that is missing or needs an executable stack, or an undefined version."""
    provider: Optional[str]
    """The library that does not define the version."""
    needed_by: str
    """The file that needs it."""
    why: str = "absent"
    """For a missing or unreadable file: `absent`, `forbidden`, `no-elf`, `too-short`, or the error of reading it."""
    found: Optional[str] = None
    """A file of that name that is not a library."""

    @property
    def message(self) -> str:
        """The loader's own message."""
        if self.kind == "version":
            return f"{self.provider}: version `{self.name}' not found (required by {self.needed_by})"
        if self.kind == "stack":
            return f"{self.needed_by}: cannot enable executable stack as shared object requires: Invalid argument"
        if self.kind == "unreadable":
            return f"{self.needed_by}: {_NO_LIBRARY.get(self.why, self.why)}"
        if self.why in _NO_LIBRARY:
            return f"{self.found}: {_NO_LIBRARY[self.why]}"
        return f"{self.name}: cannot open shared object file: {_NOT_OPENED.get(self.why, self.why)}"


_NO_LIBRARY = {"no-elf": "invalid ELF header", "too-short": "file too short"}
_NOT_OPENED = {"absent": "No such file or directory", "forbidden": "Permission denied"}


class LoadedObject(NamedTuple):
    """A library or program that the loader maps."""

    file: ContainerFile
    elf: ElfFacts
    rpaths: tuple[str, ...]
    """Directories of its DT_RPATH and of the objects that loaded it."""
    runpath: tuple[str, ...]
    """Directories of its DT_RUNPATH."""
    found_by: Optional[SearchRule] = None
    """The search rule that found it; None for the first object and preloaded ones."""
    needed_by: Optional[str] = None
    """The file whose search found it; None as for `found_by`."""


class Hit(NamedTuple):
    """The result of a search."""

    file: ContainerFile
    rule: SearchRule


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
        self,
        tree: Tree,
        arch: Optional[str] = None,
        sibling: Optional[Loader] = None,
        extra_directories: tuple[str, ...] = (),
    ) -> None:
        """Make the loader, which searches *extra_directories* last. *sibling* is the loader of another architecture,
        with the same cache and configuration.
        """
        self.tree = tree
        self.arch = arch
        self._all: dict[Optional[str], Loader] = {} if sibling is None else sibling._all
        self._all[arch] = self
        cache = read_ldcache(tree) if sibling is None else sibling._cache
        self._cache: Optional[LdCache] = cache if isinstance(cache, LdCache) else None
        self._configured: tuple[str, ...] = read_ldsoconf(tree).directories if sibling is None else sibling._configured
        self._more: tuple[str, ...] = extra_directories if sibling is None else sibling._more
        every = (*self._configured, *_multiarch(tree), *_DEFAULT_DIRECTORIES, *extra_directories)
        directories = _existing(tree, every) if sibling is None else sibling.directories
        if arch is not None and architecture(arch).bits == 32:
            directories = _existing(tree, (*directories, *_DEFAULT_DIRECTORIES_32))
        self.directories: tuple[RootedPath, ...] = directories
        self._search = LibrarySearch(self, self.locate, distrusts_cache=True)

    def for_arch(self, arch: Optional[str]) -> Loader:
        """Return the loader of the same tree for programs of *arch*."""
        return self._all.get(arch) or Loader(self.tree, arch, self)

    @cached_property
    def glibc(self) -> Optional[Glibc]:
        """The glibc of the tree; None if it has none for this architecture."""
        path, facts = self.find(LIBC), self.elf_facts(LIBC)
        version = None if facts is None else newest_version(facts.version_definitions, "GLIBC")
        return None if path is None or facts is None or version is None else Glibc(path, version, facts.ident.arch)

    @property
    def forbidden_directory(self) -> Optional[str]:
        """The first directory whose C library, if it has one, may not be read."""
        places = (*_DEFAULT_DIRECTORIES, *self.directories)
        idents = ((place, self.tree.ident(f"{place}/{LIBC}")) for place in places)
        return next((at for at, ident in idents if isinstance(ident, Missing) and ident.why == "forbidden"), None)

    def find(self, soname: str) -> Optional[RootedPath]:
        """Return the resolved file that the loader opens for *soname*; None if there is none for this architecture."""
        hit = self._search.find(soname)
        return hit.file.tree_path if isinstance(hit, Hit) else None

    def elf_facts(self, soname: str) -> Optional[ElfFacts]:
        """Return the ELF facts of the library *soname*; None if it is missing or damaged."""
        path = self.find(soname)
        return None if path is None else or_none(self.tree.elf(path))

    def paths(self, soname: str) -> Iterator[str]:
        """Yield the paths at which the loader looks for *soname*: those in the cache, then the directories."""
        return (path for path, *_ in self._search.candidates(soname))

    def locate(self, path: str) -> Optional[ContainerFile]:
        at = self.tree.resolve(path)
        return None if isinstance(at, Missing) else ContainerFile(path, self.tree, at, None, None, "")

    def cached(self, soname: str) -> tuple[LdCacheEntry, ...]:
        entries = self._cache.entries_named(soname) if self._cache else ()
        return tuple(entry for entry in entries if entry.path.startswith("/"))

    @cached_property
    def default_directories(self) -> tuple[RootedPath, ...]:
        """The directories that programs search after the cache, including those of 32-bit programs.

        Only ldconfig reads ld.so.conf; without a cache its directories are included.
        """
        configured = () if self._cache else self._configured
        places = (*_multiarch(self.tree), *_DEFAULT_DIRECTORIES, *_DEFAULT_DIRECTORIES_32)
        return _existing(self.tree, (*configured, *places, *self._more))


class LibrarySearch:
    """The search of a loader for libraries, in its tree or in a container of it."""

    def __init__(
        self,
        loader: Loader,
        locate: Callable[[str], Optional[ContainerFile]],
        has_directory: Callable[[str], Optional[bool]] = lambda path: None,
        library_path: tuple[str, ...] = (),
        cpu: Callable[[], Optional[Cpu]] = lambda: None,
        glibc: Callable[[Glibc], Glibc] = lambda own: own,
        *,
        distrusts_cache: bool = False,
    ) -> None:
        """Prepare the search of *loader*, in whose tree or container *locate* returns the file at a path.

        *has_directory* returns whether a directory exists, None if that is unknown. *cpu* reads the processor, if it is
        known. *glibc* returns the glibc that replaces the loader's own. *distrusts_cache*: the cache may be stale, and
        the processor may be any. The directories of ld.so.conf are then searched after the cache, and files that are
        not libraries are skipped.
        """
        self._loader = loader
        self._locate = locate
        self._has_directory = has_directory
        self._library_path = library_path
        self._read_cpu = cpu
        self._replace_glibc = glibc
        self._distrusts_cache = distrusts_cache
        self._answers: dict[tuple[Any, ...], Union[Hit, LoadFailure]] = {}
        """The results, by the name and by all properties of the consumer that determine the search."""
        self._existing: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._below: dict[tuple[str, str], tuple[str, ...]] = {}

    def find(
        self, name: str, consumer: Optional[LoadedObject] = None, musl: Optional[tuple[str, ...]] = None
    ) -> Union[Hit, LoadFailure]:
        """Return the file that *consumer* gets for *name*; without a consumer, what a program without search paths gets
        by dlopen.

        *musl* are the directories that musl's loader searches last, if that is the loader.
        """
        key: tuple[Any, ...] = (name, musl)
        if consumer is not None:
            elf = consumer.elf
            has_runpath = elf.runpath is not None
            key += (consumer.rpaths, consumer.runpath, has_runpath, elf.no_default_directories, elf.ident)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._first(name, consumer, musl)
            if consumer is None or isinstance(answer, Hit):  # a failure names its consumer
                self._answers[key] = answer
        return answer

    def _first(
        self, name: str, consumer: Optional[LoadedObject], musl: Optional[tuple[str, ...]]
    ) -> Union[Hit, LoadFailure]:
        """Return the first file for *name*. At a file that is not ELF the loader fails: it does not search on."""
        needed_by = "" if consumer is None else consumer.file.path
        if "/" in name or not name:
            file = self._locate(name) if name.startswith("/") and not self._distrusts_cache else None
            is_elf = file is not None and isinstance(file.tree.ident(file.tree_path), ElfIdent)
            return Hit(file, "path") if file is not None and is_elf else library_failure(name, needed_by, file)
        uncertain = []
        for place in self.candidates(name, consumer, musl):
            if not place[2]:
                uncertain.append(place)
                continue
            file, is_elf = self._usable(place[0], consumer)
            if file is not None:
                return Hit(file, place[1]) if is_elf else library_failure(name, needed_by, file)
        for path, rule, _ in uncertain:  # some processors use these, so the library is not reported as missing
            file, is_elf = self._usable(path, consumer)
            if file is not None:
                return Hit(file, rule) if is_elf else library_failure(name, needed_by, file)
        return library_failure(name, needed_by, None)

    def candidates(
        self, name: str, consumer: Optional[LoadedObject] = None, musl: Optional[tuple[str, ...]] = None
    ) -> Iterator[tuple[str, SearchRule, bool]]:
        """Yield each path for *name*, in order, with its rule, and whether this processor certainly uses the path."""
        rpaths, runpath = ((), ()) if consumer is None else (consumer.rpaths, consumer.runpath)
        if musl is not None:
            yield from ((f"{directory}/{name}", "library-path", True) for directory in self._library_path)
            yield from ((f"{directory}/{name}", "runpath", True) for directory in runpath)
            yield from ((f"{directory}/{name}", "rpath", True) for directory in rpaths)
            yield from ((f"{directory}/{name}", "default", True) for directory in musl)
            return
        arch = self._loader.arch or "" if consumer is None else consumer.elf.ident.arch
        has_runpath = consumer is not None and consumer.elf.runpath is not None
        rpaths = () if has_runpath else rpaths
        for directory in self._existing_directories(rpaths):
            yield from self._in_directory(directory, name, arch, "rpath")
        for directory in self._existing_directories(self._library_path):
            yield from self._in_directory(directory, name, arch, "library-path")
        for directory in self._existing_directories(runpath):
            yield from self._in_directory(directory, name, arch, "runpath")
        no_defaults = consumer is not None and consumer.elf.no_default_directories
        for path, certain in self._cached(name, arch):
            if not (no_defaults and path.startswith(_DEFAULT_PREFIXES)):
                yield path, "cache", certain
        defaults = self._loader.directories if self._distrusts_cache else self._loader.default_directories
        for directory in () if no_defaults else defaults:
            yield from self._in_directory(directory, name, arch, "default")

    def _usable(self, path: str, consumer: Optional[LoadedObject]) -> tuple[Optional[ContainerFile], bool]:
        """Return the file at *path*, None if the loader skips it (another architecture); and whether it is ELF."""
        file = self._locate(path) if path.startswith("/") else None
        if file is None:
            return None, False
        ident = file.tree.ident(file.tree_path)
        if not isinstance(ident, ElfIdent):
            return file if isinstance(ident, NotElf) and not self._distrusts_cache else None, False
        if consumer is None:
            is_like = self._loader.arch in (None, ident.arch)
        else:
            like = consumer.elf.ident
            is_like = (ident.bits, ident.machine, ident.order) == (like.bits, like.machine, like.order)
        return file if is_like else None, True

    def _existing_directories(self, directories: tuple[str, ...]) -> tuple[str, ...]:
        existing = self._existing.get(directories)  # once for all names: a search path may have thousands
        if existing is None:
            existing = tuple(path for path in directories if path[:1] != "/" or self._has_directory(path) is not False)
            self._existing[directories] = existing
        return existing

    def directories(self, search_path: Optional[str], origin: str, arch: str) -> tuple[str, ...]:
        """Return the directories of a DT_RPATH or DT_RUNPATH, for each possible value of $PLATFORM.

        The loader ignores a directory with a token for which it has no value.
        """
        directories: list[str] = []
        for part in search_path.split(":") if search_path else ():
            parts = [part]
            for token in dict.fromkeys(match[1] or match[2] for match in _TOKEN.finditer(part)):
                values = self._values(token, origin, arch)
                parts = [_TOKEN.sub(_replacing(token, value), text) for text in parts for value in values]
            directories += (part for part in parts if part.startswith("/"))
        return tuple(directories)

    def glibc_version(self, arch: str) -> Optional[str]:
        """Return the version of the container's glibc for *arch*; None without glibc."""
        glibc = self._glibc(arch or None)
        return None if glibc is None else glibc.version

    def _glibc(self, arch: Optional[str]) -> Optional[Glibc]:
        glibc = self._loader.for_arch(arch).glibc
        return None if glibc is None else self._replace_glibc(glibc)

    def _values(self, token: str, origin: str, arch: str) -> tuple[str, ...]:
        if token == "ORIGIN":
            return (origin,)
        if token == "PLATFORM":
            return platforms(arch, self._cpu)
        glibc = self._glibc(arch)
        library = library_token(glibc.path) if glibc is not None else None
        return () if library is None else (library,)

    def _in_directory(
        self, directory: str, name: str, arch: str, rule: SearchRule
    ) -> Iterator[tuple[str, SearchRule, bool]]:
        directory = directory.rstrip("/")
        for below in () if self._distrusts_cache else self._subdirectories(directory, arch):
            yield f"{directory}/{below}/{name}", rule, self._cpu is not None
        yield f"{directory}/{name}", rule, True

    def _subdirectories(self, directory: str, arch: str) -> tuple[str, ...]:
        names = self._below.get((directory, arch))
        if names is None:
            glibc = self.glibc_version(arch)
            firsts = dict.fromkeys(name.split("/")[0] for name in hwcaps_subdirectories(arch, glibc, None))
            has_any = any(self._has_directory(f"{directory}/{first}") for first in firsts)
            # Most images have no such directory: the processor need not be read.
            every = hwcaps_subdirectories(arch, glibc, self._cpu) if has_any else ()
            names = tuple(name for name in every if self._has_directory(f"{directory}/{name}"))
            self._below[directory, arch] = names
        return names

    def _cached(self, soname: str, arch: str) -> Iterator[tuple[str, bool]]:
        """Return the cache's paths for *soname*, the best for this processor first."""
        entries = self._loader.cached(soname)
        plain = [(entry.path, True) for entry in entries if not entry.hwcap]
        if len(plain) == len(entries) or self._distrusts_cache:
            return ((entry.path, True) for entry in entries)
        glibc = self.glibc_version(arch)
        cpu = self._cpu
        usable = hwcaps_subdirectories(arch, glibc, cpu)
        ranked = [
            (usable.index(f"{HWCAPS_DIRECTORY}/{entry.hwcap}"), entry.path)
            for entry in entries
            if f"{HWCAPS_DIRECTORY}/{entry.hwcap}" in usable
        ]
        has_old = glibc is not None and version_key(glibc)[:2] <= OLD_KINDS_UNTIL
        old = [(entry.path, False) for entry in entries if has_old and entry.hwcap == "legacy"]
        return iter([*((path, cpu is not None) for _, path in sorted(ranked)), *old, *plain])

    @cached_property
    def _cpu(self) -> Optional[Cpu]:
        return self._read_cpu()


def library_failure(name: str, needed_by: str, file: Optional[ContainerFile]) -> LoadFailure:
    """Return why *needed_by* does not get *name*: it is missing, or *file* is not a readable library."""
    return LoadFailure(
        "missing", name, None, needed_by, refusal_reason(file) if file else "absent", file.path if file else None
    )


def refusal_reason(file: ContainerFile) -> str:
    """Return why the loader refuses *file*, as in `LoadFailure.why`."""
    elf = file.tree.elf(file.tree_path)
    if isinstance(elf, Missing) and elf.why == "unreadable":
        facts = file.tree.stat(file.tree_path)
        if isinstance(facts, Stat) and facts.size < HEADER_SIZE:
            return "too-short"
        if isinstance(file.tree.ident(file.tree_path), NotElf):
            return "no-elf"
    return (elf.detail if elf.why != "forbidden" else "") or elf.why if isinstance(elf, Missing) else "absent"


def _replacing(token: str, value: str) -> Callable[[re.Match[str]], str]:
    return lambda match: value if token in match.groups() else match[0]


def _multiarch(tree: Tree) -> list[RootedPath]:
    return [path for base in ("/lib", "/usr/lib") for path in glob(tree, f"{base}/{MULTIARCH}")]


def unusual_glibc_directories(tree: Tree) -> tuple[str, ...]:
    """Return unusual directories of a glibc: those to which the usual loaders link, then those in a store, the newest
    first.

    Source: alpine-pkg-glibc `APKBUILD`, with /usr/glibc-compat; nixpkgs `pkgs/build-support/docker`.
    """
    loader_paths = (tree.resolve(path) for base in ("/lib64", "/lib") for path in glob(tree, f"{base}/{LOADERS}"))
    usual = [path.rpartition("/")[0] for path in loader_paths if not isinstance(path, Missing)]
    stored = [path for store in STORES for path in glob(tree, f"{store}/*-glibc-*/lib")]
    newest_first = sorted(stored, key=lambda path: path.partition("-glibc-")[2], reverse=True)
    return (*usual, *newest_first[:_STORED_LIMIT])


def _existing(tree: Tree, directories: Iterable[str]) -> tuple[RootedPath, ...]:
    places = (tree.find(directory) for directory in directories)
    return tuple(dict.fromkeys(at.path for at in places if isinstance(at, ResolvedFile) and at.stat.kind == "dir"))


_VERSION = re.compile(r"^([A-Z]+)_([0-9]+(?:\.[0-9]+)*)$")


def newest_version(definitions: Iterable[str], prefix: str) -> Optional[str]:
    """Return the newest version of *definitions* with *prefix*: `GLIBC_2.36` -> `2.36`."""
    matches = (_VERSION.match(definition) for definition in definitions)
    versions = (match.group(2) for match in matches if match and match.group(1) == prefix)
    return max(versions, key=version_key, default=None)


def version_prefix(version: str) -> Optional[str]:
    """Return `GLIBC` of `GLIBC_2.36`; None for a version of another form."""
    match = _VERSION.match(version)
    return match.group(1) if match else None
