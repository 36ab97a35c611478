"""The closure of a host's libraries over DT_NEEDED, as that host's own loader resolves it.

Source: ld.so(8): RPATH, LD_LIBRARY_PATH, RUNPATH, the cache, the default directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import is_glibc_file
from gpubind.frozen import NamedTuple
from gpubind.loader.container import Container
from gpubind.loader.search import Loader
from gpubind.model import RootedPath


class Dependency(NamedTuple):
    """A library that others need."""

    name: str
    """As in DT_NEEDED."""
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
    """Return the libraries that *roots* need, except themselves and glibc, by name.

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
