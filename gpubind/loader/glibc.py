"""List the files of a glibc that only work with each other, and where each of a host's replaces one of an image.

The loader and the C library share data whose layout changes with each release (GLIBC_PRIVATE), so they are replaced
together, each at the real path of the image's file.

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
    """A file or directory of the host's glibc, and the image's that it replaces."""

    name: str
    """`libc.so.6`."""
    kind: Literal["library", "binary", "directory"]
    path: RootedPath
    """The host's, resolved."""
    target: RootedPath
    """The image's, resolved; empty if it has none: then it is placed with the other libraries."""


def family(loader: Loader) -> dict[str, tuple[RootedPath, ...]]:
    """Return the resolved files of the loader and the libraries of the glibc of one architecture, by name."""
    found: dict[str, dict[RootedPath, None]] = {}
    for name, path, ident in _members(loader):
        if isinstance(path, str) and isinstance(ident, ElfIdent) and ident.arch == loader.arch:
            found.setdefault(name, {})[path] = None
    return {name: tuple(found[name]) for name in sorted(found)}


def unrecorded(loader: Loader) -> tuple[str, ...]:
    """Return the names of members whose ELF facts a record of a host does not have."""
    tree = loader.tree.lenient
    members = (
        (name, tree.elf(path) if isinstance(path, str) and isinstance(ident, ElfIdent) else ident)
        for name, path, ident in _members(loader)
    )
    return tuple(sorted({name for name, facts in members if isinstance(facts, Missing) and facts.why == "unrecorded"}))


def parts(host: Loader, image: Loader, *, is_companion: bool = False) -> tuple[GlibcFile, ...]:
    """Return where each file of the host's glibc goes in the image, by target.

    *is_companion*: both are for 32-bit programs, and programs and modules of the 64-bit glibc are replaced already.
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
    """Return the members that the image's programs need and the host lacks: without them nothing is replaced."""
    ours, theirs = family(host), family(image)
    return tuple(name for name in theirs if name not in ours and (name in CORE or is_loader(name)))


def _members(
    loader: Loader,
) -> Iterator[tuple[str, Union[RootedPath, Missing], Union[ElfIdent, NotElf, Missing]]]:
    """Yield each name of a glibc's member where the loader looks, with the resolved file and its identification."""
    tree = loader.tree.lenient
    for directory in _directories(loader):
        for name in tree.names(directory):
            if is_member(name):
                path = tree.resolve(f"{directory}/{name}")
                yield name, path, path if isinstance(path, Missing) else tree.ident(path)


def _directories(loader: Loader) -> Iterator[str]:
    """Yield the directories that the loader searches, with those below for some processors."""
    for directory in dict.fromkeys((*loader.default_directories(), *loader.directories)):
        yield directory
        for level in loader.tree.lenient.names(f"{directory}/{LEVELS}"):
            yield f"{directory}/{LEVELS}/{level}"


def _modules(host: Loader, image: Loader) -> Iterator[GlibcFile]:
    """Yield the modules that glibc loads by path: the directory of converters between encodings, sotruss's module."""
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
    """Yield the programs of glibc that both have; a link to busybox or coreutils is not one."""
    for name in PROGRAMS:
        found = [_program(loader, name) for loader in (host, image)]
        if found[0] is not None and found[1] is not None:
            yield GlibcFile(name, "binary", found[0], found[1])


def _program(loader: Loader, name: str) -> Optional[RootedPath]:
    places = (loader.tree.lenient.find(f"{directory}/{name}") for directory in _PROGRAM_DIRECTORIES)
    found = next((at for at in places if isinstance(at, Found)), None)
    is_own = found is not None and found.stat.kind == "file" and found.path.rpartition("/")[2] == name
    return found.path if found is not None and is_own else None
