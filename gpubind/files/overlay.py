"""Read an image whose layers are unpacked in a store, without copying or mounting them.

Sources: the kernel's `overlayfs.rst` (whiteouts, opaque directories, redirects); containers/storage `drivers/overlay`
and `pkg/archive/archive_linux.go` (fuse-overlayfs and its `.wh.NAME`, `override_stat`, composefs); moby
`daemon/graphdriver/overlay2`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from posixpath import dirname
from typing import Optional, TypeVar, Union

from gpubind.files.blob import Blob, FileBlob
from gpubind.files.live import LiveTree
from gpubind.files.opened import OpenedTree
from gpubind.formats.archive.oci import OPAQUE, WHITEOUT
from gpubind.frozen import NamedTuple
from gpubind.machine import system
from gpubind.machine.answers import lexists
from gpubind.machine.budget import spend
from gpubind.machine.regular import open_regular
from gpubind.model import ABSENT, HostPath, Missing, RootedPath, Stat

T = TypeVar("T")

COMPOSEFS = "composefs-data"
"""The directory next to a layer whose files are stored under their digests."""
_SPACES = ("user.overlay.", "trusted.overlay.", "user.fuseoverlayfs.")
_OPAQUE = frozenset(f"{space}opaque" for space in _SPACES)
_ELSEWHERE = frozenset(f"{space}{name}" for space in _SPACES for name in ("redirect", "metacopy"))
"""The attributes of a directory or file whose content is elsewhere."""
_OWNER_AND_MODE = "user.containers.override_stat"
"""The attribute that stores a file's owner and mode (`force_mask`)."""
_INEXACT = Missing("unreadable", "the layer's directory does not have it as a container sees it")


class Names(NamedTuple):
    """The names in one directory of a layer."""

    shown: frozenset[str]
    hidden: frozenset[str]
    """Names of lower layers that are hidden."""
    opaque: bool
    """Whether all names of lower layers are hidden."""


class Layer(LiveTree):
    """The unpacked directory of one layer. No parent of a path is a link in it."""

    directories_kept = 2  # an image has up to 127 layers

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._scanned: dict[str, Union[Names, Missing]] = {}

    def is_exact(self) -> bool:
        """Return whether its files equal those in a container, and all attributes of overlayfs can be read.

        Only root of the machine, or of the store's user namespace, can read `trusted.overlay.*`.
        """
        if lexists(os.path.join(dirname(self.root), COMPOSEFS)):
            return False
        with self._root.directory(".") as root:
            return root.facts().st_uid == system.effective_user() and _OWNER_AND_MODE not in root.attributes()

    def scan(self, path: str) -> Union[Names, Missing]:
        """Return the names in directory *path*."""
        if path not in self._scanned:
            try:
                self._scanned[path] = self._scan(path)
            except (OSError, ValueError) as error:
                self._scanned[path] = Missing("unreadable", str(error))
        return self._scanned[path]

    def stat_existing(self, path: str) -> Union[Stat, Missing]:
        """Return the facts of the existing *path*."""
        file_stat = self._lstat(path)
        return _INEXACT if file_stat is ABSENT else file_stat  # it has been removed meanwhile

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        try:
            place, name = self._open_parent(path)
            file = open_regular(name, place)
            blob = FileBlob(file, label or self.real(path))
            return blob if _ELSEWHERE.isdisjoint(file.attributes()) else _INEXACT
        except (OSError, ValueError) as error:
            return Missing("unreadable", str(error))

    def _scan(self, path: str) -> Union[Names, Missing]:
        """Errors: `OSError`, `ValueError`."""
        place, name = self._open_parent(path)
        with place.directory(name) as directory:
            attributes = frozenset(directory.attributes())
            if _ELSEWHERE & attributes or any(directory.attribute(each) != b"y" for each in _OPAQUE & attributes):
                return _INEXACT
            names = {entry.name: _is_whiteout(entry) for entry in directory.entries()}
        spend("texts", sum(map(len, names)))
        shown = frozenset(name for name, hides in names.items() if not hides and not name.startswith(WHITEOUT))
        hidden = frozenset(name.removeprefix(WHITEOUT) for name in names if name not in shown)
        return Names(shown, hidden, bool(_OPAQUE & attributes) or OPAQUE in names)


def _is_whiteout(entry: os.DirEntry[str]) -> bool:
    """Return whether *entry* is a character device 0:0; the usual kinds are known without a stat(2) of each."""
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink():
        return False
    stat_result = entry.stat(follow_symlinks=False)
    return stat.S_ISCHR(stat_result.st_mode) and stat_result.st_rdev == 0


class OverlayTree(OpenedTree):
    """The files in *layers*, the uppermost first.

    *load* returns a tree of the saved image. It is called once, at great cost, if a layer cannot answer: about a file
    that only the container's user may read, or because an attribute of overlayfs is unsupported here.
    """

    def __init__(self, layers: Sequence[Layer], root: HostPath, load: Callable[[], OpenedTree]) -> None:
        super().__init__(root)
        self._shown: dict[str, Union[tuple[Layer, ...], Missing]] = {}
        self._layers = tuple(layers)
        self._load_full_tree = load
        self._full_tree: Optional[OpenedTree] = None

    def close(self) -> None:
        for tree in (*self._layers, self._full_tree):
            if tree is not None:
                tree.close()
        super().close()

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        return self._answer(path, lambda layer: layer.open(path, label), lambda whole: whole.open(path, label))

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        return self._answer(path, lambda layer: layer.stat_existing(path), lambda whole: whole.lstat(path))

    def _readlink(self, path: str) -> Union[str, Missing]:
        return self._answer(path, lambda layer: layer._readlink(path), lambda whole: whole.readlink(path))

    def _answer(
        self,
        path: str,
        from_layer: Callable[[Layer], Union[T, Missing]],
        from_full_tree: Callable[[OpenedTree], Union[T, Missing]],
    ) -> Union[T, Missing]:
        layer = self._layer_of(path)
        answer = from_layer(layer) if isinstance(layer, Layer) else layer
        return from_full_tree(self._all) if _is_unknown(answer) else answer

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        layers = self._layers_with(path)
        if isinstance(layers, Missing):
            return self._all.list(path) if _is_unknown(layers) else layers
        shown: set[str] = set()
        hidden: set[str] = set()
        for layer in layers:
            names = layer.scan(path)
            if isinstance(names, Missing):
                return self._all.list(path)
            shown |= names.shown - hidden
            hidden |= names.hidden
        return tuple(shown)

    @property
    def _all(self) -> OpenedTree:
        if self._full_tree is None:
            self._full_tree = self._load_full_tree()
        return self._full_tree

    def _layer_of(self, path: str) -> Union[Layer, Missing]:
        if path == "/":
            return self._layers[0]
        head, _, name = path.rpartition("/")
        layers = self._layers_with(head or "/")
        for layer in () if isinstance(layers, Missing) else layers:
            names = layer.scan(head or "/")
            if isinstance(names, Missing):
                return names
            if name in names.shown:
                return layer
            if name in names.hidden:
                return ABSENT
        return layers if isinstance(layers, Missing) else ABSENT

    def _layers_with(self, path: str) -> Union[tuple[Layer, ...], Missing]:
        layers = self._shown.get(path)
        if layers is None:
            parent_layers = self._layers if path == "/" else self._layers_with(dirname(path))
            layers = parent_layers if isinstance(parent_layers, Missing) else _visible_layers(path, parent_layers)
            self._shown[path] = layers
        return layers


def _is_unknown(result: object) -> bool:
    return isinstance(result, Missing) and result is not ABSENT


def _visible_layers(path: str, layers: Sequence[Layer]) -> Union[tuple[Layer, ...], Missing]:
    """Return those of *layers* that provide the directory *path*. All of *layers* have its parent directory."""
    seen: list[Layer] = []
    name = path.rpartition("/")[2]
    for layer in layers:
        parent_names = layer.scan(dirname(path)) if name else Names(frozenset(("",)), frozenset(), False)
        if isinstance(parent_names, Missing):
            return parent_names
        if name in parent_names.shown:
            file_stat = layer.stat_existing(path)
            if isinstance(file_stat, Missing):
                return file_stat
            if file_stat.kind != "dir":
                break
            seen.append(layer)
            names = layer.scan(path)
            if isinstance(names, Missing):
                return names
            if names.opaque:
                break
        if name in parent_names.hidden:
            break
    return tuple(seen) or ABSENT
