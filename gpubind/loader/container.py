"""Predict what the dynamic loader loads in a planned container, and its error messages.

Source: ld.so(8) for the search order; glibc `elf/dl-load.c`, `elf/dl-deps.c` (objects are loaded breadth first, each
name once), `elf/dl-version.c` (a library without version definitions satisfies every need), and the news of 2.41 about
executable stacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from posixpath import basename, dirname, normpath
from types import MappingProxyType
from typing import Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts, is_glibc_file, split_library_path
from gpubind.frozen import NamedTuple
from gpubind.loader.hwcaps import Cpu
from gpubind.loader.musl import is_provided_by_musl, musl_loader_for, system_directories
from gpubind.loader.namespace import Cover, MountedTree, Namespace, NamespaceEntry, UserBind, UserMounts
from gpubind.loader.search import (
    ContainerFile,
    Glibc,
    Hit,
    LibrarySearch,
    LoadedObject,
    Loader,
    LoadFailure,
    SearchRule,
    library_failure,
    newest_version,
    refusal_reason,
)
from gpubind.loader.verdict import lacking
from gpubind.model import EnvVar, FileKind, Missing, Mount, RootedPath
from gpubind.model.cuda import version_key
from gpubind.model.host import values_of

OBJECTS_LIMIT = 4096
"""Libraries that one program may load; the limit bounds the work for a crafted image."""
MISSING_LIMIT = 256
"""Missing libraries of one program that are listed; the loader itself stops at the first."""
_NO_EXECUTABLE_STACKS_SINCE = (2, 41)
"""The first glibc whose dlopen does not make the stack executable."""
NO_MOUNTS = UserMounts()


class LoadResult(NamedTuple):
    """The outcome of loading a program or library."""

    files: tuple[ContainerFile, ...]
    """The program or library and everything it is linked with, in the loader's order."""
    failures: tuple[LoadFailure, ...]


class Closure(NamedTuple):
    """The objects that the loader maps for one library or program, breadth first."""

    objects: tuple[LoadedObject, ...]
    """The library or program itself comes first."""
    names: Mapping[str, Optional[LoadedObject]]
    """The objects by soname and by the name in DT_NEEDED; None for a missing library."""
    missing: tuple[LoadFailure, ...]
    musl: Optional[str] = None
    """The name of musl's loader, which compares no versions, if it maps the objects."""


class Container:
    """The files of a container: an image, over it the mounts of the user, the site and the runtime, and over these the
    plan's.

    *mounts* come from *host*, the tree of the driver root. *env* changes LD_LIBRARY_PATH, whose value in the image is
    *image_library_path*. The sources of *user_mounts* are in *local*, the tree of this machine. *cpu* reads the
    processor, or returns None if it is unknown.
    """

    def __init__(
        self,
        image: Loader,
        host: Tree,
        mounts: Iterable[Mount],
        env: Iterable[EnvVar],
        image_library_path: str,
        user_mounts: UserMounts = NO_MOUNTS,
        local: Optional[Tree] = None,
        cpu: Callable[[], Optional[Cpu]] = lambda: None,
    ) -> None:
        self.image = image
        self.host = host
        self.working_directory = user_mounts.working_directory
        binds, unseen = _user_covers(user_mounts.binds, local)
        self.unreadable_mounts = (*user_mounts.unknown_options, *unseen)
        """Descriptions of the mounts that cannot be read."""
        self.user_library_path = self._elements(values_of(user_mounts.env, "LD_LIBRARY_PATH", "set", "prepend"))
        """Directories that the user puts first in LD_LIBRARY_PATH."""
        self.library_path = self._library_path(env, image_library_path, user_mounts.env)
        preloads = values_of(user_mounts.env, "LD_PRELOAD", "set", "prepend", "append")
        self.preloaded = tuple(filter(None, re.split("[ :]", " ".join(preloads))))
        covers = (*binds, *(_planned(mount, host) for mount in mounts))
        self._namespace = Namespace(image.tree, covers)
        lenient = image.tree.lenient
        self._lenient = self._namespace if lenient is image.tree else Namespace(lenient, covers)
        self._search = LibrarySearch(image, self.locate, self._has_directory, self.library_path, cpu, self._glibc)
        self.tree: Tree = MountedTree(self._lenient)
        """The files that a process of the container sees."""
        self._located: dict[str, Optional[ContainerFile]] = {}
        self._loaded: dict[str, LoadResult] = {}

    def locate(self, path: str) -> Optional[ContainerFile]:
        """Return the file at *path*; None if it is missing, or relative to an unknown working directory."""
        at = self.absolute(path)
        if at is None:
            return None
        if at not in self._located:
            place = self._namespace.resolve(at)
            if isinstance(place, Missing) or place.tree is None or place.kind != "file":
                self._located[at] = None  # nothing to load: a generated text, a socket, a directory
            else:
                mount, bind = (None, None) if place.cover is None else (place.cover.mount, place.cover.bind)
                self._located[at] = ContainerFile(at, place.tree, place.tree_path, mount, bind, place.path)
        return self._located[at]

    def absolute(self, path: str) -> Optional[str]:
        """Return *path* as an absolute path; None if it is relative to an unknown working directory."""
        if path.startswith("/"):
            return path
        return None if self.working_directory is None else f"{self.working_directory.rstrip('/')}/{path}"

    def kind(self, path: str) -> Optional[FileKind]:
        """Return the kind of file at *path*; None if it is missing or unknown."""
        at = self.absolute(path)
        place = None if at is None else self._namespace.resolve(at)
        return place.kind if isinstance(place, NamespaceEntry) else None

    def find(self, soname: str) -> Optional[ContainerFile]:
        """Return the library that `dlopen(soname)` opens in a program without an RPATH."""
        hit = self._search.find(soname)
        return hit.file if isinstance(hit, Hit) else None

    def failures(self, path: str) -> tuple[LoadFailure, ...]:
        """Return why the library or program at *path* does not load, in the loader's order; empty if it loads."""
        return self.load(path).failures

    def load(self, path: str) -> LoadResult:
        if path not in self._loaded:
            first = self.locate(path)
            if first is None:
                self._loaded[path] = LoadResult((), (LoadFailure("missing", path, None, path),))
            else:
                self._loaded[path] = self._load(first)
        return self._loaded[path]

    def load_with_directories(self, path: str, directories: Iterable[str]) -> LoadResult:
        """Return the result of `load` for a program that also finds libraries in *directories*; empty if *path* is
        missing.
        """
        first = self.locate(path)
        return LoadResult((), ()) if first is None else self._load(first, tuple(directories))

    def closure(self, path: str) -> Optional[Closure]:
        """Return the closure of the library or program at *path*; None if it cannot be read."""
        first = self.locate(path)
        facts = None if first is None else first.elf
        return None if first is None or facts is None else self._closure(first, facts)

    def _glibc(self, glibc: Glibc) -> Glibc:
        """Return the plan's glibc if it is bound over the image's *glibc*, else *glibc*."""
        file = self.locate(glibc.path)
        facts = file.elf if file is not None and file.mount is not None else None
        version = None if facts is None else newest_version(facts.version_definitions, "GLIBC")
        return glibc if file is None or version is None else Glibc(file.tree_path, version, glibc.arch)

    def _library_path(self, env: Iterable[EnvVar], image_library_path: str, users: Iterable[EnvVar]) -> tuple[str, ...]:
        """Return the directories of LD_LIBRARY_PATH: the user's, the plan's, the image's."""
        env, users = tuple(env), tuple(users)
        if any(variable.name == "LD_LIBRARY_PATH" and variable.op == "unset" for variable in users):
            return ()
        before = values_of(env, "LD_LIBRARY_PATH", "set", "prepend")
        after = values_of((*env, *users), "LD_LIBRARY_PATH", "append")
        images = [image_library_path] if image_library_path else []
        return tuple(dict.fromkeys((*self.user_library_path, *self._elements((*before, *images, *after)))))

    def _elements(self, values: Iterable[str]) -> tuple[str, ...]:
        directories = []
        for part in (part for value in values for part in split_library_path(value)):
            if part.startswith("/"):
                directories.append(part)
            elif self.working_directory is not None:  # an empty element is the working directory
                directories.append(normpath(f"{self.working_directory}/{part}"))
        return tuple(directories)

    def _has_directory(self, path: str) -> Optional[bool]:
        place = self._lenient.resolve(path)
        return place.kind == "dir" if isinstance(place, NamespaceEntry) else False if place.why == "absent" else None

    def _load(self, first: ContainerFile, beside: tuple[str, ...] = ()) -> LoadResult:
        facts = first.elf
        if facts is None:
            failure = LoadFailure("unreadable", first.path, None, first.path, refusal_reason(first))
            return LoadResult((first,), (failure,))
        closure = self._closure(first, facts, beside)
        failures = list(closure.missing)
        for loaded in closure.objects if closure.musl is None else ():
            failures += _missing_versions(loaded, closure.names)
        failures += self._refused_stacks(closure)
        return LoadResult(tuple(loaded.file for loaded in closure.objects), tuple(failures))

    def _refused_stacks(self, closure: Closure) -> Iterator[LoadFailure]:
        """Yield the libraries that dlopen refuses because they need an executable stack.

        A program that is linked with such a library still starts: the loader makes its stack executable before `main`.
        """
        glibc = self._search.glibc_version(closure.objects[0].elf.ident.arch)
        is_program = closure.objects[0].elf.interpreter is not None
        if is_program or glibc is None or version_key(glibc) < _NO_EXECUTABLE_STACKS_SINCE:
            return
        for loaded in closure.objects:
            if loaded.elf.executable_stack:
                path = loaded.file.path
                yield LoadFailure("stack", loaded.elf.soname or basename(path), None, path)

    def _closure(self, first: ContainerFile, facts: ElfFacts, beside: tuple[str, ...] = ()) -> Closure:
        # $ORIGIN of a program is its directory with links followed.
        origin = dirname(first.resolved_path if facts.interpreter is not None and first.resolved_path else first.path)
        objects = [self._mapped(first, facts, origin, beside)]
        has_glibc = self.image.for_arch(facts.ident.arch).glibc is not None
        musl = musl_loader_for(facts, self.tree, has_glibc=has_glibc)
        last = None if musl is None else system_directories(musl, self.tree)
        names: dict[str, Optional[LoadedObject]] = {facts.soname or basename(first.path): objects[0]}
        missing: list[LoadFailure] = []
        for name, loaded in self._preloads(objects[0], beside):
            soname = loaded.elf.soname or basename(name)
            if soname not in names:
                objects.append(loaded)
                names[soname] = names[basename(name)] = loaded
        for loaded in objects:  # the loop appends to the list: breadth first
            consumer = loaded.file.path
            inherited = loaded.rpaths if musl is None else (*loaded.runpath, *loaded.rpaths)
            for name in loaded.elf.needed:
                if name in names or len(objects) > OBJECTS_LIMIT or len(missing) >= MISSING_LIMIT:
                    continue
                if musl is not None and is_provided_by_musl(name):
                    continue
                hit = self._search.find(name, loaded, last)
                elf = hit.file.elf if isinstance(hit, Hit) else None
                if isinstance(hit, LoadFailure) or elf is None:
                    names[name] = None
                    missing.append(hit if isinstance(hit, LoadFailure) else library_failure(name, consumer, hit.file))
                    continue
                provider = names.get(elf.soname or name)
                if provider is None:
                    origin = dirname(hit.file.path)
                    provider = self._mapped(hit.file, elf, origin, beside, inherited, hit.rule, consumer)
                    objects.append(provider)
                names[name] = names[elf.soname or name] = provider
        return Closure(tuple(objects), MappingProxyType(names), tuple(missing), musl)

    def _mapped(
        self,
        file: ContainerFile,
        elf: ElfFacts,
        origin: str,
        beside: tuple[str, ...],
        inherited: tuple[str, ...] = (),
        found_by: Optional[SearchRule] = None,
        needed_by: Optional[str] = None,
    ) -> LoadedObject:
        runpath = self._search.directories(elf.runpath, origin, elf.ident.arch)
        rpath = () if elf.runpath is not None else self._search.directories(elf.rpath, origin, elf.ident.arch)
        return LoadedObject(file, elf, (*rpath, *inherited), (*runpath, *beside), found_by, needed_by)

    def _preloads(self, program: LoadedObject, beside: tuple[str, ...]) -> Iterator[tuple[str, LoadedObject]]:
        """Yield the libraries of LD_PRELOAD; the loader ignores missing ones."""
        consumer = program._replace(rpaths=(), runpath=())
        for name in self.preloaded:
            hit = self._search.find(name, consumer)
            elf = hit.file.elf if isinstance(hit, Hit) else None
            if isinstance(hit, Hit) and elf is not None:
                yield name, self._mapped(hit.file, elf, dirname(hit.file.path), beside)


def _missing_versions(loaded: LoadedObject, names: Mapping[str, Optional[LoadedObject]]) -> Iterator[LoadFailure]:
    for need in loaded.elf.version_needs:
        provider = names.get(need.library)
        if provider is not None:
            for version in lacking(need.versions, provider.elf.version_definitions):
                yield LoadFailure("version", version, provider.file.path, loaded.file.path)


def _planned(mount: Mount, host: Tree) -> Cover:
    source = host.rooted(mount.source or "")
    return Cover(mount.target, None if source is None else host, source or "", mount.kind == "directory", mount)


def _user_covers(binds: Iterable[UserBind], local: Optional[Tree]) -> tuple[list[Cover], list[str]]:
    """Return the covers, and the *binds* whose source cannot be read in *local*."""
    covers, unseen = [], []
    for bind in binds:
        source = None if local is None else local.rooted(bind.source)
        source_stat = Missing("unreadable") if local is None or source is None else local.stat(source)
        if not isinstance(source_stat, Missing):
            covers.append(Cover(bind.target, local, source or "", source_stat.kind == "dir", None, bind))
        elif source_stat.why != "absent":  # the runtime skips a missing source, or does not start
            unseen.append(f"{bind.source}, bound to {bind.target}")
    return covers, unseen


class Dependency(NamedTuple):
    """A library that others need."""

    name: str
    """Its name in DT_NEEDED."""
    path: Optional[RootedPath]
    """The resolved file; None if the host has none."""
    found_by: str
    """The path that the loader opens."""
    needed_by: tuple[RootedPath, ...]
    """The roots of the closure that need it, directly or not."""
    first_consumer: str
    """The first file whose DT_NEEDED names it."""


def host_closure(
    tree: Tree, arch: str, roots: Iterable[RootedPath], first: Iterable[str] = ()
) -> tuple[Dependency, ...]:
    """Return the libraries that *roots* need, sorted by name, without the roots themselves and without glibc.

    *first*: directories that are searched as in LD_LIBRARY_PATH; they stand for the container's directory of libraries.
    """
    roots = tuple(dict.fromkeys(roots))
    container = Container(Loader(tree, arch), tree, (), (), ":".join(first))
    dependencies: dict[str, Dependency] = {}
    for root in roots:
        closure = container.closure(root)
        if closure is None:
            continue
        consumers: dict[str, str] = {}
        for loaded in closure.objects:
            for name in () if is_glibc_file(loaded.elf.soname or "") else loaded.elf.needed:
                consumers.setdefault(name, loaded.file.tree_path)
        for name, consumer in consumers.items():
            provider = closure.names.get(name)
            path = provider.file.tree_path if provider is not None else None
            if is_glibc_file(name) or path in roots:
                continue
            earlier = dependencies.get(name)
            if earlier is not None:
                dependencies[name] = earlier._replace(needed_by=(*earlier.needed_by, root))
            else:
                place = provider.file.path if provider is not None else ""
                dependencies[name] = Dependency(name, path, place, (root,), consumer)
    return tuple(dependencies[name] for name in sorted(dependencies))
