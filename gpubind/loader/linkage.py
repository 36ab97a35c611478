"""Linkage: the library that a file in a container gets for each name that it needs, and the missing symbol versions.

The facts come from the loader's closure. They are grouped by file, for documents that show what needs what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from posixpath import basename
from typing import Literal, Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts
from gpubind.frozen import NamedTuple
from gpubind.loader.container import Closure, Container
from gpubind.loader.search import LoadedObject, SearchRule
from gpubind.loader.verdict import lacking
from gpubind.model import Mount, RootedPath
from gpubind.model.files import or_none

State = Literal["found", "missing", "unknown"]
Origin = Literal["plan", "image", "user", "host", "left-out"]


class LinkUse(NamedTuple):
    """A library that a file needs."""

    name: str
    """Its name in DT_NEEDED."""
    path: Optional[str]
    """The file in the container that is loaded for it; None if it is missing or unknown."""
    state: State = "found"
    """`unknown`: the image, which may have it, is unknown; or the file is beyond `OBJECTS_LIMIT`."""
    versions: tuple[str, ...] = ()
    """The symbol versions that the file needs of it."""
    lacking: tuple[str, ...] = ()
    """The needed versions that the library does not define."""
    found_by: Optional[SearchRule] = None
    """The search rule that found it, for the first file that needs it; None if unknown."""
    fault: Optional[str] = None
    """The loader's message, if it refuses a file of that name."""

    @property
    def is_broken(self) -> bool:
        """Whether the loader refuses the file because of this library."""
        return self.state == "missing" or bool(self.lacking)


_Found = tuple[LinkUse, Optional[ElfFacts]]
"""The library that the loader finds for a name, and its ELF facts. Its versions are not compared yet."""


class LinkedFile(NamedTuple):
    """A program or library, and what it is linked with."""

    path: str
    """The path in the container; for a file that is left out, the path on the host."""
    origin: Origin
    uses: tuple[LinkUse, ...] = ()
    fault: Optional[str] = None
    """The loader's message, if it refuses the file itself."""
    source: Optional[str] = None
    """The host's file that is mounted there, if one is."""


def linked_files(
    container: Container, paths: Iterable[str], default_origin: Origin = "image"
) -> tuple[LinkedFile, ...]:
    """Return the files at *paths* that the loader maps, and everything that they are linked with, each once.

    Files that are not mounted get *default_origin*.
    """
    linked: dict[str, LinkedFile] = {}
    for path in paths:
        faults = {
            failure.needed_by: failure.message
            for failure in container.failures(path)
            if failure.kind in ("unreadable", "stack")
        }
        closure = container.closure(path)
        if closure is None:
            if path in faults:
                linked[path] = LinkedFile(path, "plan", (), faults[path])
            continue
        resolve = _in_closure(closure)
        for loaded in closure.objects:
            origin, source = _origin(loaded, default_origin)
            uses = _uses(loaded.elf, partial(resolve, loaded))
            file = LinkedFile(loaded.file.path, origin, uses, faults.get(loaded.file.path), source)
            # A file may lack fewer libraries if another program loads it. The worst case is kept.
            both = linked.get(file.path, file), file
            linked[file.path] = max(both, key=lambda file: sum(use.is_broken for use in file.uses))
    return tuple(linked.values())


def linked_in_plan(tree: Tree, mounts: Iterable[Mount]) -> tuple[LinkedFile, ...]:
    """Return the linkage of *mounts*, whose files are in *tree*, without an image: libraries outside the plan are
    unknown.
    """
    mounts = tuple(mounts)
    targets = {mount.target.rpartition("/")[2]: mount.target for mount in mounts if mount.kind == "library"}

    def resolve(name: str) -> _Found:
        return LinkUse(name, targets.get(name), "found" if name in targets else "unknown"), None

    return tuple(LinkedFile(each.target, "plan", _uses(_facts(tree, each.source), resolve)) for each in mounts)


def linked_outside(container: Container, tree: Tree, path: RootedPath) -> LinkedFile:
    """Return the linkage that a file outside the container, *path* of *tree*, would have in the container."""

    def resolve(name: str) -> _Found:
        file = container.find(name)
        if file is None:
            return LinkUse(name, None, "missing"), None
        return LinkUse(name, file.path), file.elf

    return LinkedFile(path, "left-out", _uses(_facts(tree, tree.real(path)), resolve))


def _facts(tree: Tree, source: Optional[str]) -> Optional[ElfFacts]:
    at = tree.rooted(source) if source is not None else None
    return None if at is None else or_none(tree.elf(at))


def _origin(loaded: LoadedObject, default_origin: Origin) -> tuple[Origin, Optional[str]]:
    if loaded.file.mount is not None:
        return "plan", loaded.file.mount.source
    return ("user", loaded.file.tree_path) if loaded.file.bind is not None else (default_origin, None)


def _uses(elf: Optional[ElfFacts], resolve: Callable[[str], _Found]) -> tuple[LinkUse, ...]:
    if elf is None:
        return ()
    needs = {need.library: need.versions for need in elf.version_needs}
    uses = []
    for name in elf.needed:
        use, provider = resolve(name)
        versions, defined = needs.get(name, ()), () if provider is None else provider.version_definitions
        uses.append(use._replace(versions=versions, lacking=lacking(versions, defined)))
    return tuple(uses)


def _in_closure(closure: Closure) -> Callable[[LoadedObject, str], _Found]:
    """Return a function that resolves the name of a library for an object of *closure*."""
    faults = {failure.name: failure.message for failure in closure.missing if failure.why != "absent"}
    interpreter = basename(closure.objects[0].elf.interpreter or "")

    def resolve(consumer: LoadedObject, name: str) -> _Found:
        provider = closure.names.get(name)
        if provider is None:
            state: State = "missing" if name in closure.names else "unknown"
            return LinkUse(name, None, state, fault=faults.get(name)), None
        rule = provider.found_by if provider.needed_by == consumer.file.path else None
        return LinkUse(name, provider.file.path, found_by="interpreter" if name == interpreter else rule), provider.elf

    return resolve
