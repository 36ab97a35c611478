"""The files of a glibc that only work with each other, and where in an image each of a host's would have to be.

The loader and the C library share data whose layout changes with each release (GLIBC_PRIVATE), so they are exchanged as
one: a newer loader over the image's own, a newer copy over each file of the family that the image has, at its real
path. A program of the image finds them under the names that it always used.

Source: glibc `elf/rtld.c`, `iconv/gconv_conf.c`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Optional, Union

from gpubind.formats.elf.elf import ElfIdent, NotElf
from gpubind.formats.elf.glibc import AUDIT, CONVERTERS, CORE, LIBC, PROGRAMS, is_loader, is_member
from gpubind.loader.loader import Loader
from gpubind.loader.places import LEVELS
from gpubind.model import Found, Missing, RootedPath

_PROGRAM_DIRECTORIES = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")


class GlibcFile(NamedTuple):
    """A file or directory of the host's glibc, and where it takes the place of the image's."""

    name: str
    """What it is called: `libc.so.6`."""
    kind: Literal["library", "binary", "directory"]
    path: RootedPath
    """The host's, resolved."""
    target: RootedPath
    """The image's, resolved; empty where the image has none: then it lands among the other libraries."""


def family(loader: Loader) -> dict[str, tuple[RootedPath, ...]]:
    """The loader and the libraries of the glibc for programs of one architecture, by name: the resolved files."""
    found: dict[str, dict[RootedPath, None]] = {}
    for name, path, ident in _members(loader):
        if isinstance(path, str) and isinstance(ident, ElfIdent) and ident.arch == loader.arch:
            found.setdefault(name, {})[path] = None
    return {name: tuple(found[name]) for name in sorted(found)}


def unrecorded(loader: Loader) -> tuple[str, ...]:
    """The names in the same places of which a record of a host does not have what a loader reads of a library."""
    tree = loader.tree.lenient
    members = (
        (name, tree.elf(path) if isinstance(path, str) and isinstance(ident, ElfIdent) else ident)
        for name, path, ident in _members(loader)
    )
    return tuple(sorted({name for name, facts in members if isinstance(facts, Missing) and facts.why == "unrecorded"}))


def parts(host: Loader, image: Loader, *, is_companion: bool = False) -> tuple[GlibcFile, ...]:
    """Return where each file of the host's glibc goes in the image, by target.

    *is_companion*: both are for 32-bit programs, and what serves all programs is exchanged already.
    """
    ours, theirs = family(host), family(image)
    made = {
        target: GlibcFile(name, "library", ours[name][0], target) for name in ours for target in theirs.get(name, ())
    }
    made.update((part.target, part) for part in _modules(host, image))
    if not is_companion:
        made.update((part.target, part) for part in _programs(host, image))
    more = (
        GlibcFile(name, "library", ours[name][0], RootedPath(""))
        for name in ours
        if name not in theirs and name.startswith("lib") and not name.startswith("libnss_")
    )
    return (*(made[target] for target in sorted(made)), *more)


def lacks(host: Loader, image: Loader) -> tuple[str, ...]:
    """What the image's programs are linked with and the host's glibc has not: without it nothing can be exchanged."""
    ours, theirs = family(host), family(image)
    return tuple(name for name in theirs if name not in ours and (name in CORE or is_loader(name)))


def _members(
    loader: Loader,
) -> Iterator[tuple[str, Union[RootedPath, Missing], Union[ElfIdent, NotElf, Missing]]]:
    """Yield what is called as a part of a glibc, where the loader looks: the name, the resolved file, what that is."""
    tree = loader.tree.lenient
    for directory in _directories(loader):
        for name in tree.names(directory):
            if is_member(name):
                path = tree.resolve(f"{directory}/{name}")
                yield name, path, path if isinstance(path, Missing) else tree.ident(path)


def _directories(loader: Loader) -> Iterator[str]:
    """Yield where the loader looks, and in what is below for some processors."""
    for directory in dict.fromkeys((*loader.default_directories(), *loader.directories)):
        yield directory
        for level in loader.tree.lenient.names(f"{directory}/{LEVELS}"):
            yield f"{directory}/{LEVELS}/{level}"


def _modules(host: Loader, image: Loader) -> Iterator[GlibcFile]:
    """What glibc loads by its path: the converters between encodings, with their list, and the module of sotruss."""
    tree = host.tree.lenient
    for directory in dict.fromkeys(path.rpartition("/")[0] for path in family(host).get(LIBC, ())):
        for place in dict.fromkeys((directory, f"/usr{directory}")):
            ours, theirs = tree.find(f"{place}/{CONVERTERS}"), image.tree.find(f"{place}/{CONVERTERS}")
            if isinstance(ours, Found) and isinstance(theirs, Found) and ours.stat.kind == theirs.stat.kind == "dir":
                yield GlibcFile(CONVERTERS, "directory", ours.path, theirs.path)
            module, own = tree.find(f"{place}/{AUDIT}"), image.tree.find(f"{place}/{AUDIT}")
            if isinstance(module, Found) and isinstance(own, Found):
                yield GlibcFile("sotruss-lib.so", "library", module.path, own.path)


def _programs(host: Loader, image: Loader) -> Iterator[GlibcFile]:
    """The programs of glibc that both have; a link to something else (busybox, coreutils) is none of glibc's."""
    for name in PROGRAMS:
        found = [_program(loader, name) for loader in (host, image)]
        if found[0] is not None and found[1] is not None:
            yield GlibcFile(name, "binary", found[0], found[1])


def _program(loader: Loader, name: str) -> Optional[RootedPath]:
    places = (loader.tree.lenient.find(f"{directory}/{name}") for directory in _PROGRAM_DIRECTORIES)
    found = next((at for at in places if isinstance(at, Found)), None)
    is_own = found is not None and found.stat.kind == "file" and found.path.rpartition("/")[2] == name
    return found.path if found is not None and is_own else None
