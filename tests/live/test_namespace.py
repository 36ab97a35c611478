"""Where a path leads in a container is where the kernel says: random trees and binds, really mounted.

Needs root, as all live tests do: each case is mounted in a mount namespace of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from typing import Any, NamedTuple, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.files.live import LiveTree
from gpubind.loader.namespace import Cover, Namespace
from gpubind.model import Missing
from tests.support.trees import Dir, Item, Link, make_tree

pytestmark = pytest.mark.live

CLONE_NEWNS, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18

_PARTS = st.sampled_from(["a", "b", "c", "f", "l", "m", "new", "..", ".", ""])
_PATHS = st.lists(_PARTS, min_size=1, max_size=5).map("/".join)
_TARGETS = st.tuples(st.sampled_from(["", "/"]), _PATHS).map("".join).filter(bool)
_LINKS = st.dictionaries(
    st.sampled_from(["/l", "/m", "/a/l", "/a/m", "/a/b/l", "/c/l", "/a/b/c"]), _TARGETS, max_size=5
)
_SOURCES = st.sampled_from(["/a", "/a/b", "/c", "/f", "/a/f", "/l", "/a/l"])


class Bind(NamedTuple):
    """A file or directory of the second tree, and the path of the first over which it is mounted."""

    source: str
    target: str


_POINTS = st.lists(st.sampled_from(["a", "b", "c", "f", "l", "m", "new"]), min_size=1, max_size=4)
_BINDS = st.lists(st.builds(Bind, _SOURCES, _POINTS.map("/".join).map("/".__add__)), max_size=4)


def spec(links: dict[str, str]) -> dict[str, Item]:
    plain: dict[str, Item] = {"/a/b": Dir(), "/c": Dir(), "/f": b"", "/a/f": b"", "/a/b/f": b"", "/c/f": b""}
    return {**plain, **{path: Link(target) for path, target in links.items()}}


@given(_LINKS, _LINKS, _BINDS, st.lists(_PATHS.map("/".__add__), min_size=1, max_size=8))
@settings(max_examples=400, deadline=None)
def test_every_path_leads_where_the_kernel_says(
    inside: dict[str, str], outside: dict[str, str], binds: list[Bind], paths: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = os.path.realpath(directory)
        image, host = make_tree(f"{root}/image", spec(inside)), make_tree(f"{root}/host", spec(outside))
        wanted = image.root, host.root
        # The tree is read before mount points are made in it.
        before = make_tree(f"{root}/before", spec(inside))
        mounted, answers = of_kernel(*wanted, binds, paths)
        covers = [cover(host, bind) for bind in mounted]
        assert [number(before, f"{root}/image", Namespace(before, covers), path) for path in paths] == answers


def cover(host: LiveTree, bind: Bind) -> Cover:
    found = host.stat(bind.source)
    return Cover(bind.target, host, bind.source, not isinstance(found, Missing) and found.kind == "dir")


def number(image: LiveTree, real_image: str, namespace: Namespace, path: str) -> Optional[int]:
    """The inode that *path* is; None if it is nothing."""
    place = namespace.resolve(path)
    if isinstance(place, Missing):
        return None
    if place.tree is None or place.tree is image:  # of the image, or made for a mount point
        return os.lstat(real_image + (place.path if place.tree is None else place.tree_path)).st_ino
    return os.lstat(place.tree.real(place.tree_path)).st_ino


def of_kernel(image: str, host: str, binds: list[Bind], paths: list[str]) -> tuple[list[Bind], list[Optional[int]]]:
    """Those of *binds* that can be mounted, one after the other, and the inode of each of *paths* then."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(_mounted(image, host, binds, paths)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer: Any = json.loads(stream.read())
    os.waitpid(child, 0)
    return [Bind(*bind) for bind in answer[0]], answer[1]


def _mounted(image: str, host: str, binds: list[Bind], paths: list[str]) -> tuple[list[Bind], list[Optional[int]]]:
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: Optional[str], target: str, flags: int) -> None:
        if libc.mount(source and source.encode(), target.encode(), None, flags, None) != 0:
            raise OSError(ctypes.get_errno(), target)

    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount(None, "/", MS_REC | MS_PRIVATE)
    mount(image, image, MS_BIND)
    done = []
    os.chdir(host)
    outside = os.open("/", os.O_PATH)
    here = os.open(host, os.O_PATH)
    for bind in binds:
        try:
            known = LiveTree(host).resolve(bind.source)
            if isinstance(known, Missing):
                continue
            is_directory = os.path.isdir(host + known)
            os.chroot(image)
            _make(bind.target, is_directory)
            if os.path.samefile(bind.target, "/"):  # a process below such a mount cannot make it read-only any more
                continue
            os.fchdir(here)
            mount(f".{known}", bind.target, MS_BIND)
            mount(None, bind.target, MS_BIND | MS_REMOUNT | MS_RDONLY)  # so that no mount point is made in it
            done.append(bind)
        except OSError:
            pass
        finally:
            os.fchdir(outside)
            os.chroot(".")
    os.chroot(image)
    os.chdir("/")
    return done, [_inode(path) for path in paths]


def _make(target: str, is_directory: bool) -> None:
    """Make the mount point *target* if it is not there, as runtimes do."""
    if not os.path.exists(target):
        os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
        if not is_directory:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))


def _inode(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
