"""Linkage: which file of a container gets each library that another one needs, and the symbol versions that it lacks.

The loader's closure has the answers; here they are values by file, for a page that shows what needs what.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts
from gpubind.frozen import NamedTuple
from gpubind.loader.container import Closure, Container, Object
from gpubind.model import Missing, Mount, RootedPath


class Use(NamedTuple):
    """A library that a file needs."""

    name: str
    """As DT_NEEDED has it."""
    path: Optional[str]
    """The file in the container that is loaded for it; None if there is none, or it is not known."""
    state: Literal["found", "missing", "unknown"]
    """`unknown`: no image is known, which may well have it."""
    versions: tuple[str, ...] = ()
    """The symbol versions that are needed of it."""
    lacking: tuple[str, ...] = ()
    """Those of them that it does not define."""

    @property
    def is_broken(self) -> bool:
        """Whether the loader refuses the file for it."""
        return self.state == "missing" or bool(self.lacking)


class LinkedFile(NamedTuple):
    """A program or library, and what it is linked with."""

    path: str
    """In the container; of one that is left out, the host's file."""
    origin: Literal["plan", "image", "user", "left-out"]
    uses: tuple[Use, ...] = ()
    fault: Optional[str] = None
    """The loader's message, where it refuses the file itself."""


def linked_files(container: Container, paths: Iterable[str]) -> tuple[LinkedFile, ...]:
    """Return the files at *paths* that the loader maps, and everything that they are linked with, each once."""
    found: dict[str, LinkedFile] = {}
    for path in paths:
        faults = {one.needed_by: one.message for one in container.failures(path) if one.kind in ("unreadable", "stack")}
        closure = container.closure(path)
        for here in closure.objects if closure is not None else ():
            file = LinkedFile(here.file.path, _origin(here), _uses(here, closure), faults.get(here.file.path))
            found[file.path] = _worse(found.get(file.path), file)
        if closure is None and path in faults:
            found[path] = LinkedFile(path, "plan", (), faults[path])
    return tuple(found.values())


def linked_in_plan(tree: Tree, mounts: Iterable[Mount]) -> tuple[LinkedFile, ...]:
    """Return *mounts*, of files in *tree*, where no image is known: the plan has what they need, or it is unknown."""
    mounts = tuple(mounts)
    names = {mount.target.rpartition("/")[2]: mount.target for mount in mounts if mount.kind == "library"}
    linked = []
    for mount in mounts:
        elf = _facts(tree, mount.source)
        versions = _versions(elf)
        uses = (
            Use(name, names.get(name), "found" if name in names else "unknown", versions.get(name, ()))
            for name in (elf.needed if elf is not None else ())
        )
        linked.append(LinkedFile(mount.target, "plan", tuple(uses)))
    return tuple(linked)


def linked_outside(container: Container, tree: Tree, path: RootedPath) -> LinkedFile:
    """Return the file *path* of *tree*, which the container does not have, as if it had."""
    elf = _facts(tree, tree.real(path))
    versions = _versions(elf)
    uses = []
    for name in elf.needed if elf is not None else ():
        found = container.find(name)
        provider = None if found is None else found.tree.elf(found.at)
        lacking = () if isinstance(provider, Missing) else _lacking(versions.get(name, ()), provider)
        state: Literal["found", "missing"] = "missing" if found is None else "found"
        uses.append(Use(name, None if found is None else found.path, state, versions.get(name, ()), lacking))
    return LinkedFile(path, "left-out", tuple(uses))


def _facts(tree: Tree, source: Optional[str]) -> Optional[ElfFacts]:
    at = tree.rooted(source) if source is not None else None
    elf = tree.elf(at) if at is not None else None
    return elf if isinstance(elf, ElfFacts) else None


def _versions(elf: Optional[ElfFacts]) -> dict[str, tuple[str, ...]]:
    return {need.library: need.versions for need in (elf.version_needs if elf is not None else ())}


def _lacking(versions: tuple[str, ...], provider: Optional[ElfFacts]) -> tuple[str, ...]:
    """Return those of *versions* that *provider* does not define; one without definitions satisfies everybody."""
    defined = provider.version_definitions if provider is not None else ()
    return tuple(version for version in versions if defined and version not in defined)


def _origin(here: Object) -> Literal["plan", "image", "user"]:
    return "plan" if here.file.mount is not None else "user" if here.file.bind is not None else "image"


def _uses(here: Object, closure: Optional[Closure]) -> tuple[Use, ...]:
    versions = _versions(here.elf)
    names = closure.names if closure is not None else {}
    uses = []
    for name in here.elf.needed:
        found, needed = names.get(name), versions.get(name, ())
        if found is None:
            uses.append(Use(name, None, "missing", needed))
        else:
            uses.append(Use(name, found.file.path, "found", needed, _lacking(needed, found.elf)))
    return tuple(uses)


def _worse(before: Optional[LinkedFile], now: LinkedFile) -> LinkedFile:
    """Return *now*, unless the file lacked more where another one loaded it *before*."""
    if before is None:
        return now
    return max(before, now, key=lambda file: sum(use.is_broken for use in file.uses))
