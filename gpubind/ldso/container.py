"""The dynamic loader in the container that a plan makes of an image: what would load, and what it would complain about.

Source: ld.so(8) for the search order; glibc `elf/dl-load.c`, `elf/dl-deps.c` (objects are loaded breadth first, each
name once) and `elf/dl-version.c` (a library without version definitions satisfies everybody).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename, dirname
from typing import Literal, NamedTuple, Optional, Union

from gpubind.formats.elf import ElfFacts, ElfIdent
from gpubind.ldso.loader import Loader
from gpubind.model import EnvVar, Missing, Mount, RootedPath
from gpubind.tree import Tree

OBJECTS_LIMIT = 4096
"""Libraries that one program may load; a crafted image must not make this endless."""


class Located(NamedTuple):
    """A file that a process in the container would open."""

    path: str
    """Under which path it asked for it."""
    tree: Tree
    """The tree that holds it: the image's, or the host's."""
    at: RootedPath
    """The resolved file in that tree."""
    mount: Optional[Mount]
    """The bind that brings it; None if it is the image's own."""


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
    """What a process of a container sees: an image, and over it what a plan binds.

    *mounts* come from *host*, the tree of the driver root; *env* says what LD_LIBRARY_PATH becomes, *own* is the
    image's own value of it.
    """

    def __init__(self, image: Loader, host: Tree, mounts: Iterable[Mount], env: Iterable[EnvVar], own: str) -> None:
        self.image = image
        self.host = host
        self.library_path = _library_path(env, own)
        self._mounts = {self._placed(mount.target): mount for mount in mounts}
        self._located: dict[str, Optional[Located]] = {}
        self._loaded: dict[str, Loaded] = {}

    def locate(self, path: str) -> Optional[Located]:
        """What *path* is in the container: a file of the plan, else of the image; None if there is none.

        A path that is not absolute counts from a directory that is not known: it is none.
        """
        if not path.startswith("/"):
            return None
        if path not in self._located:
            self._located[path] = self._locate(path)
        return self._located[path]

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

    def _placed(self, target: str) -> str:
        """*target* with the links of the image above it followed: where its bind really lies."""
        parent = self.image.tree.resolve(dirname(target))
        return target if isinstance(parent, Missing) else f"{parent.rstrip('/')}/{basename(target)}"

    def _locate(self, path: str) -> Optional[Located]:
        mount = self._mounts.get(self._placed(path))
        if mount is None:
            real = self.image.tree.resolve(path)
            if isinstance(real, Missing):
                return None
            mount = self._mounts.get(real)
            if mount is None:
                found = self.image.tree.stat(real)
                is_file = not isinstance(found, Missing) and found.kind == "file"
                return Located(path, self.image.tree, real, None) if is_file else None
        inside = self.host.rooted(mount.source or "")
        if inside is None:
            return None  # a generated text, or a socket of another tree: nothing to load
        at = self.host.resolve(inside)
        return None if isinstance(at, Missing) else Located(path, self.host, at, mount)

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


def _library_path(env: Iterable[EnvVar], own: str) -> tuple[str, ...]:
    """The directories of LD_LIBRARY_PATH in the container. An empty element means the working directory: not known."""
    before: list[str] = []
    after: list[str] = []
    for variable in env:
        if variable.name == "LD_LIBRARY_PATH" and variable.value:
            (after if variable.op == "append" else before).append(variable.value)
    elements = [part for value in (*before, own, *after) for part in value.replace(";", ":").split(":")]
    return tuple(dict.fromkeys(part for part in elements if part.startswith("/")))


def _directories(search_path: Optional[str], file: Located) -> Iterator[str]:
    """The directories of a DT_RPATH or DT_RUNPATH; $ORIGIN is where the file was found."""
    for part in (search_path or "").split(":"):
        for token, value in (("ORIGIN", dirname(file.path)), ("LIB", "lib64"), ("PLATFORM", "x86_64")):
            part = part.replace(f"${{{token}}}", value).replace(f"${token}", value)
        if part.startswith("/"):
            yield part
