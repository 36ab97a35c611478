"""The dynamic loader in the container that a plan makes of an image: what would load, and what it would complain about.

Source: ld.so(8) for the search order; glibc `elf/dl-load.c`, `elf/dl-deps.c` (objects are loaded breadth first, each
name once), `elf/dl-version.c` (a library without version definitions satisfies everybody), and the news of 2.41 about
executable stacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from posixpath import basename, dirname, normpath
from typing import Literal, NamedTuple, Optional, Union

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf
from gpubind.loader.loader import Glibc, Loader, newest
from gpubind.loader.namespace import Brought, Cover, MountedTree, Namespace, Place, UserBind
from gpubind.loader.places import Cpu, Places
from gpubind.model import EnvVar, FileKind, Missing, Mount, RootedPath, Stat
from gpubind.model.cuda import version_key

OBJECTS_LIMIT = 4096
"""Libraries that one program may load; a crafted image must not make this endless."""
MISSING_LIMIT = 256
"""Libraries that one program lacks; the loader itself stops at the first."""
NO_EXECUTABLE_STACKS_SINCE = (2, 41)
"""The glibc whose dlopen no longer makes the stack executable."""
HEADER_SIZE = 64
"""Bytes of an ELF header; the loader calls what is shorter too short."""

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

    kind: Literal["missing", "version", "unreadable", "stack"]
    name: str
    """The soname that nothing provides or that wants an executable stack, or the version that is not defined."""
    provider: Optional[str]
    """The library that lacks the version."""
    needed_by: str
    """The file that asks for it."""
    why: str = "absent"
    """Of a missing or unreadable file: `absent`, `forbidden`, `no-elf`, `too-short`, or what reading it says."""
    found: Optional[str] = None
    """The file that was found in the place of a missing one, and that is no library."""

    @property
    def message(self) -> str:
        """What the loader says, word for word."""
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
    runpath: tuple[str, ...]
    """Directories of its DT_RUNPATH."""


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
    *cpu* tells the processor that it will run on, if that is known.
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
        cpu: Callable[[], Optional[Cpu]] = lambda: None,
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
        covers = (*binds, *(_planned(mount, host) for mount in mounts))
        self._namespace = Namespace(image.tree, covers)
        lenient = image.tree.lenient
        self._lenient = self._namespace if lenient is image.tree else Namespace(lenient, covers)
        self._places = Places(image, self._has_directory, self._may_have_directory, cpu, self._glibc)
        self.tree: Tree = MountedTree(self._lenient)
        """The files that a process of the container sees."""
        self._located: dict[str, Optional[Located]] = {}
        self._loaded: dict[str, Loaded] = {}

    def locate(self, path: str) -> Optional[Located]:
        """The file that *path* is in the container: of the plan, of what is brought, or the image's; None if none is.

        Nothing is at a relative path where the working directory is not known.
        """
        at = self.absolute(path)
        if at is not None and at not in self._located:
            self._located[at] = self._locate(at)
        return None if at is None else self._located[at]

    def absolute(self, path: str) -> Optional[str]:
        """Return *path*, from the working directory if it is relative; None where that is not known."""
        if path.startswith("/"):
            return path
        return None if self.working_directory is None else f"{self.working_directory.rstrip('/')}/{path}"

    def kind(self, path: str) -> Optional[FileKind]:
        """Return the kind of file at *path*; None where nothing is there, or nothing is known of it."""
        at = self.absolute(path)
        place = None if at is None else self._namespace.look(at)
        return place.kind if isinstance(place, Place) else None

    def find(self, soname: str) -> Optional[Located]:
        """Return the library that `dlopen(soname)` opens in a program without search paths of its own."""
        found = self._search(soname, (), (), None)
        return found if found is not None and isinstance(found.tree.ident(found.at), ElfIdent) else None

    def failures(self, path: str) -> tuple[Failure, ...]:
        """What keeps the library or program at *path* from being loaded, in the loader's order; empty if it loads."""
        return self.load(path).failures

    def load(self, path: str) -> Loaded:
        """Return what loading the library or program at *path* comes to."""
        if path not in self._loaded:
            first = self.locate(path)
            if first is None:
                self._loaded[path] = Loaded((), (Failure("missing", path, None, path),))
            else:
                self._loaded[path] = self._load(first)
        return self._loaded[path]

    def load_beside(self, path: str, directories: Iterable[str]) -> Loaded:
        """As `load`, where whoever opens *path* has opened the libraries in *directories* first, or knows them."""
        first = self.locate(path)
        return Loaded((), ()) if first is None else self._load(first, tuple(directories))

    def closure(self, path: str) -> Optional[Closure]:
        """Return what the loader maps for the library or program at *path*; None if it cannot be read."""
        first = self.locate(path)
        facts = Missing("absent") if first is None else first.tree.elf(first.at)
        return None if first is None or isinstance(facts, Missing) else self._closure(first, facts)

    def _locate(self, path: str) -> Optional[Located]:
        place = self._namespace.look(path)
        if isinstance(place, Missing) or place.tree is None or place.kind != "file":
            return None  # nothing to load: a generated text, a socket, a directory
        cover = place.cover
        return Located(path, place.tree, place.at, cover and cover.mount, cover and cover.bind, place.path)

    def _glibc(self, own: Glibc) -> Glibc:
        """What programs get in the place of the image's *own* glibc: another one, where a plan binds it there."""
        there = self.locate(own.path)
        facts = there.tree.elf(there.at) if there is not None and there.mount is not None else None
        version = newest(facts.version_definitions, "GLIBC") if isinstance(facts, ElfFacts) else None
        return own if there is None or version is None else Glibc(there.at, version, own.arch)

    def _library_path(self, env: Iterable[EnvVar], own: str, users: Iterable[EnvVar]) -> tuple[str, ...]:
        """Return the directories of LD_LIBRARY_PATH: the user's, the plan's, the image's own."""
        env, users = tuple(env), tuple(users)
        if any(variable.name == "LD_LIBRARY_PATH" and variable.op == "unset" for variable in users):
            return ()
        before = _values(env, "LD_LIBRARY_PATH", ("set", "prepend"))
        after = (*_values(env, "LD_LIBRARY_PATH", ("append",)), *_values(users, "LD_LIBRARY_PATH", ("append",)))
        images = [own] if own else []
        return tuple(dict.fromkeys((*self.users_path, *self._elements((*before, *images, *after)))))

    def _elements(self, values: Iterable[str]) -> tuple[str, ...]:
        """Return the directories in *values* of LD_LIBRARY_PATH; an empty one is the working directory."""
        found = []
        for part in (part for value in values for part in value.replace(";", ":").split(":")):
            if part.startswith("/"):
                found.append(part)
            elif self.working_directory is not None:
                found.append(normpath(f"{self.working_directory}/{part}"))
        return tuple(found)

    def _search(
        self, soname: str, rpaths: Iterable[str], runpath: Iterable[str], asker: Optional[ElfFacts]
    ) -> Optional[Located]:
        """Return what *asker* gets for *soname*; what is no ELF file ends the search, and the program."""
        if "/" in soname:
            return self.locate(soname) if soname.startswith("/") else None
        unsure: list[str] = []
        for place, is_sure in self._places.of(soname, (*rpaths, *self.library_path, *runpath), asker):
            if not is_sure:
                unsure.append(place)
                continue
            found = self._opened(place, asker)
            if found is not None:
                return found
        # On the right processor it is found: nobody is told that it is missing.
        return next((found for place in unsure if (found := self._opened(place, asker)) is not None), None)

    def _opened(self, place: str, asker: Optional[ElfFacts]) -> Optional[Located]:
        """Return the file at *place*, unless the loader passes over it and searches on: it is for another machine."""
        found = self.locate(place) if place.startswith("/") else None
        ident = Missing("absent") if found is None else found.tree.ident(found.at)
        if isinstance(ident, NotElf):
            return found
        if not isinstance(ident, ElfIdent):
            return None
        if asker is None:
            return found if self.image.arch in (None, ident.arch) else None
        like = asker.ident
        return found if (ident.bits, ident.machine, ident.order) == (like.bits, like.machine, like.order) else None

    def _has_directory(self, path: str) -> bool:
        """Return whether *path* is surely a directory; a recorded host may not know."""
        place = self._lenient.look(path) if path.startswith("/") else None
        return isinstance(place, Place) and place.kind == "dir"

    def _may_have_directory(self, path: str) -> bool:
        """Return whether *path* may be a directory: what is not absolute, or not known, is asked for name by name."""
        place = self._lenient.look(path) if path.startswith("/") else None
        return place is None or (place.kind == "dir" if isinstance(place, Place) else place.why != "absent")

    def _load(self, first: Located, beside: tuple[str, ...] = ()) -> Loaded:
        facts = first.tree.elf(first.at)
        if isinstance(facts, Missing):
            return Loaded((first,), (Failure("unreadable", first.path, None, first.path, _why_not(first, facts)),))
        closure = self._closure(first, facts, beside)
        failures = list(closure.missing)
        for here in closure.objects:
            failures += _missing_versions(here, closure.names)
        failures += self._refused_stacks(closure)
        return Loaded(tuple(here.file for here in closure.objects), tuple(failures))

    def _refused_stacks(self, closure: Closure) -> Iterator[Failure]:
        """Yield what dlopen refuses for the stack that it wants.

        A program that is linked with the same is started: the loader makes its stack executable before `main`.
        """
        glibc = self._places.glibc_version(closure.objects[0].elf.ident.arch)
        is_program = closure.objects[0].elf.interpreter is not None
        if is_program or glibc is None or version_key(glibc) < NO_EXECUTABLE_STACKS_SINCE:
            return
        for here in closure.objects:
            if here.elf.executable_stack:
                path = here.file.path
                yield Failure("stack", here.elf.soname or basename(path), None, path)

    def _closure(self, first: Located, facts: ElfFacts, beside: tuple[str, ...] = ()) -> Closure:
        objects = [self._mapped(first, facts, _origin(first, facts))]
        names: dict[str, Optional[Object]] = {facts.soname or basename(first.path): objects[0]}
        missing: list[Failure] = []
        for name, here in self._preloads(facts):
            soname = here.elf.soname or basename(name)
            if soname not in names:
                objects.append(here)
                names[soname] = names[basename(name)] = here
        for here in objects:  # grows on the way: breadth first
            rpaths = () if here.elf.runpath is not None else here.rpaths
            for name in here.elf.needed:
                if name in names or len(objects) > OBJECTS_LIMIT or len(missing) >= MISSING_LIMIT:
                    continue
                found = self._search(name, rpaths, (*here.runpath, *beside), here.elf)
                elf = Missing("absent") if found is None else found.tree.elf(found.at)
                if found is None or isinstance(elf, Missing):
                    names[name] = None
                    file = None if found is None else found.path
                    missing.append(Failure("missing", name, None, here.file.path, _why_not(found, elf), file))
                    continue
                known = names.get(elf.soname or name)
                if known is None:
                    known = self._mapped(found, elf, dirname(found.path), here.rpaths)
                    objects.append(known)
                names[name] = names[elf.soname or name] = known
        return Closure(tuple(objects), names, tuple(missing))

    def _mapped(self, file: Located, elf: ElfFacts, origin: str, inherited: tuple[str, ...] = ()) -> Object:
        """Return *file* with its search paths: DT_RPATH does not count beside a DT_RUNPATH."""
        runpath = self._places.directories(elf.runpath, origin, elf.ident.arch)
        own = () if elf.runpath is not None else self._places.directories(elf.rpath, origin, elf.ident.arch)
        return Object(file, elf, (*own, *inherited), runpath)

    def _preloads(self, program: ElfFacts) -> Iterator[tuple[str, Object]]:
        """Yield the libraries of LD_PRELOAD; the loader goes on without those that it does not find."""
        for name in self.preloaded:
            found = self._search(name, (), (), program)
            elf = Missing("absent") if found is None else found.tree.elf(found.at)
            if found is not None and not isinstance(elf, Missing):
                yield name, self._mapped(found, elf, dirname(found.path))


def _why_not(found: Optional[Located], elf: Union[ElfFacts, Missing]) -> str:
    """Return what keeps the loader from taking what it *found*, in the words of `Failure.why`."""
    if found is not None and isinstance(elf, Missing) and elf.why == "unreadable":
        facts = found.tree.stat(found.at)
        if isinstance(facts, Stat) and facts.size < HEADER_SIZE:
            return "too-short"
        if isinstance(found.tree.ident(found.at), NotElf):
            return "no-elf"
    return (elf.detail if elf.why != "forbidden" else "") or elf.why if isinstance(elf, Missing) else "absent"


def _missing_versions(here: Object, names: dict[str, Optional[Object]]) -> Iterator[Failure]:
    for need in here.elf.version_needs:
        provider = names.get(need.library)
        if provider is None or not provider.elf.version_definitions:
            continue
        defined = frozenset(provider.elf.version_definitions)
        for version in need.versions:
            if version not in defined:
                yield Failure("version", version, provider.file.path, here.file.path)


def _values(env: Iterable[EnvVar], name: str, ops: tuple[str, ...] = ("set", "prepend", "append")) -> tuple[str, ...]:
    """Return what the operations *ops* on variable *name* say, in order."""
    return tuple(variable.value for variable in env if variable.name == name and variable.op in ops and variable.value)


def _planned(mount: Mount, host: Tree) -> Cover:
    source = host.rooted(mount.source or "")
    return Cover(mount.target, None if source is None else host, source or "", mount.kind == "directory", mount)


def _bound(binds: Iterable[UserBind], local: Optional[Tree]) -> tuple[list[Cover], list[str]]:
    """Return *binds* as they lie in *local*; and those of which nothing can be known."""
    covers, unseen = [], []
    for bind in binds:
        source = None if local is None else local.rooted(bind.source)
        found = Missing("unreadable") if local is None or source is None else local.stat(source)
        if not isinstance(found, Missing):
            covers.append(Cover(bind.target, local, source or "", found.kind == "dir", None, bind))
        elif found.why != "absent":  # the runtime passes over what is not there, or does not start
            unseen.append(f"{bind.source}, bound to {bind.target}")
    return covers, unseen


def _origin(file: Located, elf: ElfFacts) -> str:
    """Return the value of $ORIGIN: a library's directory as it was asked for; a program's with links followed."""
    return dirname(file.real if elf.interpreter is not None and file.real else file.path)
