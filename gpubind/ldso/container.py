"""The dynamic loader in the container that a plan makes of an image: what would load, and what it would complain about.

Source: ld.so(8) for the search order; glibc `elf/dl-load.c`, `elf/dl-deps.c` (objects are loaded breadth first, each
name once) and `elf/dl-version.c` (a library without version definitions satisfies everybody).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename, dirname, normpath
from typing import Literal, NamedTuple, Optional, Union

from gpubind.formats.elf import ElfFacts, ElfIdent
from gpubind.ldso.loader import Loader
from gpubind.ldso.namespace import Cover, Namespace
from gpubind.model import Brought, EnvVar, Missing, Mount, RootedPath, UserBind
from gpubind.tree import Tree

OBJECTS_LIMIT = 4096
"""Libraries that one program may load; a crafted image must not make this endless."""

NOTHING = Brought()


class Located(NamedTuple):
    """A file that a process in the container would open."""

    path: str
    """Under which path it asked for it."""
    tree: Tree
    """The tree that holds it: the image's, or the host's."""
    at: RootedPath
    """The resolved file in that tree."""
    mount: Optional[Mount]
    """The plan's bind that brings it; None if it is not the plan's."""
    bind: Optional[UserBind] = None
    """The bind of the user, the site or the runtime that brings it. With neither it is the image's own."""
    real: str = ""
    """The same path in the container, with links followed: what the kernel says of it in /proc/self/exe."""


class Failure(NamedTuple):
    """Why the loader refuses a library or program."""

    kind: Literal["missing", "version", "unreadable"]
    name: str
    """The soname that nothing provides, or the version that the provider does not define."""
    provider: Optional[str]
    """The library that lacks the version."""
    needed_by: str
    """The file that asks for it."""
    message: str
    """What the loader says, word for word."""


class Loaded(NamedTuple):
    """The outcome of loading a program or library."""

    files: tuple[Located, ...]
    """It and everything that it is linked with, in the loader's order."""
    failures: tuple[Failure, ...]


class Object(NamedTuple):
    """A library or program that the loader maps."""

    file: Located
    elf: ElfFacts
    rpaths: tuple[str, ...]
    """Directories of DT_RPATH, its own and those of what loaded it."""


class Closure(NamedTuple):
    """What the loader maps for one library or program, breadth first."""

    objects: tuple[Object, ...]
    """The first is the library or program itself."""
    names: dict[str, Optional[Object]]
    """By soname and by the name that was asked for; None for what it does not find."""
    missing: tuple[Failure, ...]


class Container:
    """What a process of a container sees: an image, over it what the user, the site and the runtime bring, and over
    that what a plan binds.

    *mounts* come from *host*, the tree of the driver root; *env* says what LD_LIBRARY_PATH becomes, *own* is the
    image's own value of it. What is *brought* lies in *local*, the tree of this machine; without one it is not seen.
    """

    def __init__(
        self,
        image: Loader,
        host: Tree,
        mounts: Iterable[Mount],
        env: Iterable[EnvVar],
        own: str,
        brought: Brought = NOTHING,
        local: Optional[Tree] = None,
    ) -> None:
        self.image = image
        self.host = host
        self.working_directory = brought.working_directory
        binds, unseen = _bound(brought.binds, local)
        self.unseen = (*brought.unseen, *unseen)
        """What is brought and cannot be looked at, each in a few words."""
        self.users_path = self._elements(_values(brought.env, "LD_LIBRARY_PATH", ("set", "prepend")))
        """Directories that the user puts in front in LD_LIBRARY_PATH, before the plan's."""
        self.library_path = self._library_path(env, own, brought.env)
        self.preloaded = tuple(part for v in _values(brought.env, "LD_PRELOAD") for part in re.split("[ :]", v) if part)
        self._namespace = Namespace(image.tree, (*binds, *(_planned(mount, host) for mount in mounts)))
        self._located: dict[str, Optional[Located]] = {}
        self._loaded: dict[str, Loaded] = {}

    def locate(self, path: str) -> Optional[Located]:
        """The file that *path* is in the container: of the plan, of what is brought, or the image's; None if none is.

        A path that is not absolute counts from the working directory; where that is not known, it is none.
        """
        if not path.startswith("/"):
            if self.working_directory is None:
                return None
            path = f"{self.working_directory.rstrip('/')}/{path}"
        if path not in self._located:
            self._located[path] = self._locate(path)
        return self._located[path]

    def is_directory(self, path: str) -> bool:
        """Whether absolute *path* leads to a directory."""
        place = self._namespace.look(path)
        return not isinstance(place, Missing) and place.kind == "dir"

    def find(self, soname: str) -> Optional[Located]:
        """The library that `dlopen(soname)` opens in a program without search paths of its own."""
        return self._search(soname, (), (), None)

    def failures(self, path: str) -> tuple[Failure, ...]:
        """What keeps the library or program at *path* from being loaded, in the loader's order; empty if it loads."""
        return self.load(path).failures

    def load(self, path: str) -> Loaded:
        """What loading the library or program at *path* comes to."""
        if path not in self._loaded:
            first = self.locate(path)
            if first is None:
                text = f"{path}: cannot open shared object file: No such file or directory"
                self._loaded[path] = Loaded((), (Failure("missing", path, None, path, text),))
            else:
                self._loaded[path] = self._load(first)
        return self._loaded[path]

    def closure(self, path: str) -> Optional[Closure]:
        """What the loader maps for the library or program at *path*; None if it cannot be read."""
        first = self.locate(path)
        facts = Missing("absent") if first is None else first.tree.elf(first.at)
        return None if first is None or isinstance(facts, Missing) else self._closure(first, facts)

    def _locate(self, path: str) -> Optional[Located]:
        place = self._namespace.look(path)
        if isinstance(place, Missing) or place.tree is None or place.kind != "file":
            return None  # nothing to load: a generated text, a socket, a directory
        cover = place.cover
        return Located(path, place.tree, place.at, cover and cover.mount, cover and cover.bind, place.path)

    def _library_path(self, env: Iterable[EnvVar], own: str, users: Iterable[EnvVar]) -> tuple[str, ...]:
        """The directories of LD_LIBRARY_PATH: the user's, the plan's, the image's own."""
        env, users = tuple(env), tuple(users)
        if any(variable.name == "LD_LIBRARY_PATH" and variable.op == "unset" for variable in users):
            return ()
        before = _values(env, "LD_LIBRARY_PATH", ("set", "prepend"))
        after = (*_values(env, "LD_LIBRARY_PATH", ("append",)), *_values(users, "LD_LIBRARY_PATH", ("append",)))
        images = [own] if own else []
        return tuple(dict.fromkeys((*self.users_path, *self._elements((*before, *images, *after)))))

    def _elements(self, values: Iterable[str]) -> tuple[str, ...]:
        """The directories in *values* of LD_LIBRARY_PATH; an empty one is the working directory."""
        found = []
        for part in (part for value in values for part in value.replace(";", ":").split(":")):
            if part.startswith("/"):
                found.append(part)
            elif self.working_directory is not None:
                found.append(normpath(f"{self.working_directory}/{part}"))
        return tuple(found)

    def _search(
        self, soname: str, rpaths: Iterable[str], runpath: Iterable[str], like: Optional[ElfIdent]
    ) -> Optional[Located]:
        if "/" in soname:
            return self.locate(soname) if soname.startswith("/") else None
        directories = (*rpaths, *self.library_path, *runpath)
        places = (f"{directory.rstrip('/')}/{soname}" for directory in directories)
        for place in (*places, *self.image.places(soname)):
            found = self.locate(place) if place.startswith("/") else None
            if found is not None and self._fits(found, like):
                return found
        return None

    def _fits(self, found: Located, like: Optional[ElfIdent]) -> bool:
        """Whether it is a library of the right machine: the loader passes over others and searches on."""
        ident = found.tree.ident(found.at)
        if not isinstance(ident, ElfIdent):
            return False
        if like is None:
            return self.image.arch in (None, ident.arch)
        return (ident.bits, ident.machine, ident.order) == (like.bits, like.machine, like.order)

    def _load(self, first: Located) -> Loaded:
        facts = first.tree.elf(first.at)
        if isinstance(facts, Missing):
            failure = Failure("unreadable", first.path, None, first.path, f"{first.path}: {facts}")
            return Loaded((first,), (failure,))
        closure = self._closure(first, facts)
        failures = list(closure.missing)
        for here in closure.objects:
            failures += _missing_versions(here, closure.names)
        return Loaded(tuple(here.file for here in closure.objects), tuple(failures))

    def _closure(self, first: Located, facts: ElfFacts) -> Closure:
        objects = [Object(first, facts, tuple(_directories(facts.rpath, first) if facts.runpath is None else ()))]
        names: dict[str, Optional[Object]] = {facts.soname or basename(first.path): objects[0]}
        missing: list[Failure] = []
        self._preload(objects, names)
        for here in objects:  # grows on the way: breadth first
            runpath = tuple(_directories(here.elf.runpath, here.file))
            rpaths = () if here.elf.runpath is not None else here.rpaths
            for name in here.elf.needed:
                if name in names or len(objects) > OBJECTS_LIMIT:
                    continue
                found = self._search(name, rpaths, runpath, here.elf.ident)
                elf = None if found is None else found.tree.elf(found.at)
                if found is None or elf is None or isinstance(elf, Missing):
                    names[name] = None
                    text = f"{name}: cannot open shared object file: {_why_not(elf)}"
                    missing.append(Failure("missing", name, None, here.file.path, text))
                    continue
                known = names.get(elf.soname or name)
                if known is None:
                    own = () if elf.runpath is not None else tuple(_directories(elf.rpath, found))
                    known = Object(found, elf, (*own, *here.rpaths))
                    objects.append(known)
                names[name] = names[elf.soname or name] = known
        return Closure(tuple(objects), names, tuple(missing))

    def _preload(self, objects: list[Object], names: dict[str, Optional[Object]]) -> None:
        """Add the libraries of LD_PRELOAD; the loader goes on without those that it does not find."""
        for name in self.preloaded:
            found = self._search(name, (), (), objects[0].elf.ident)
            elf = None if found is None else found.tree.elf(found.at)
            if found is None or elf is None or isinstance(elf, Missing) or (elf.soname or basename(name)) in names:
                continue
            own = () if elf.runpath is not None else tuple(_directories(elf.rpath, found))
            objects.append(Object(found, elf, own))
            names[elf.soname or basename(name)] = names[basename(name)] = objects[-1]


def _why_not(elf: Union[ElfFacts, Missing, None]) -> str:
    if isinstance(elf, Missing):
        return "Permission denied" if elf.why == "forbidden" else elf.detail or elf.why
    return "No such file or directory"


def _missing_versions(here: Object, names: dict[str, Optional[Object]]) -> Iterator[Failure]:
    for need in here.elf.version_needs:
        provider = names.get(need.library)
        if provider is None or not provider.elf.version_definitions:
            continue
        defined = frozenset(provider.elf.version_definitions)
        for version in need.versions:
            if version not in defined:
                where = provider.file.path
                text = f"{where}: version `{version}' not found (required by {here.file.path})"
                yield Failure("version", version, where, here.file.path, text)


def _values(env: Iterable[EnvVar], name: str, ops: tuple[str, ...] = ("set", "prepend", "append")) -> tuple[str, ...]:
    """What the operations *ops* on variable *name* say, in order."""
    return tuple(variable.value for variable in env if variable.name == name and variable.op in ops and variable.value)


def _planned(mount: Mount, host: Tree) -> Cover:
    source = host.rooted(mount.source or "")
    return Cover(mount.target, None if source is None else host, source or "", mount.kind == "directory", mount)


def _bound(binds: Iterable[UserBind], local: Optional[Tree]) -> tuple[list[Cover], list[str]]:
    """*binds* as they lie in *local*; and those of which nothing can be known."""
    covers, unseen = [], []
    for bind in binds:
        source = None if local is None else local.rooted(bind.source)
        found = Missing("unreadable") if local is None or source is None else local.stat(source)
        if not isinstance(found, Missing):
            covers.append(Cover(bind.target, local, source or "", found.kind == "dir", None, bind))
        elif found.why != "absent":  # the runtime passes over what is not there, or does not start
            unseen.append(f"{bind.source}, bound to {bind.target}")
    return covers, unseen


def _directories(search_path: Optional[str], file: Located) -> Iterator[str]:
    """The directories of a DT_RPATH or DT_RUNPATH; $ORIGIN is where the file was found."""
    for part in (search_path or "").split(":"):
        for token, value in (("ORIGIN", dirname(file.path)), ("LIB", "lib64"), ("PLATFORM", "x86_64")):
            part = part.replace(f"${{{token}}}", value).replace(f"${token}", value)
        if part.startswith("/"):
            yield part
