"""The directories of a store's layers, one over the other: the same tree as the layers' archives make."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import NoReturn, Union

import pytest

from gpubind.files import Tree
from gpubind.files.blob import BytesBlob
from gpubind.files.opened import OpenedTree
from gpubind.files.overlay import Layer, OverlayTree
from gpubind.image.layers import LayeredTree, LayerIndex, members_with_ident
from gpubind.model import HostPath, Missing
from tests.support.layers import tar
from tests.support.trees import Dir, File, Link, make_tree

NAMES = ("a", "b", "c", "lib")
Item = Union[bytes, File, Link, Dir]


def no_archive() -> NoReturn:
    raise AssertionError("the whole image is asked for")


def layer_at_random(rng: random.Random, lower: set[str]) -> dict[str, Item]:
    """A layer, with whiteouts of what *lower* layers have, as fuse-overlayfs and archives write them."""
    spec: dict[str, Item] = {}
    for _ in range(rng.randint(1, 12)):
        path = "/" + "/".join(rng.choice(NAMES) for _ in range(rng.randint(1, 4)))
        above = {path[:at] for at in range(1, len(path)) if path[at] == "/"}
        if path in spec or any(not isinstance(spec.get(each, Dir()), Dir) for each in above):
            continue
        if any(known.startswith(f"{path}/") for known in spec):
            continue
        items: list[Item] = [Dir(), Dir(0o700), Link("b"), File(path.encode(), 0o600), b"x"]
        spec[path] = rng.choice(items)
    for path in sorted(lower):
        head, _, name = path.rpartition("/")
        if rng.random() < 0.2 and path not in spec and not any(known.startswith(f"{path}/") for known in spec):
            if all(isinstance(spec.get(head[:at] or "/", Dir()), Dir) for at in _slashes(head)):
                spec[f"{head}/.wh.{name}"] = b""
        elif rng.random() < 0.1 and isinstance(spec.get(path, b""), Dir):
            spec[f"{path}/.wh..wh..opq"] = b""
    return spec


def _slashes(path: str) -> list[int]:
    return [at for at in range(1, len(path) + 1) if at == len(path) or path[at] == "/"]


def everything(tree: Tree) -> dict[str, object]:
    """What *tree* answers, by path."""
    found: dict[str, object] = {}
    todo = ["/"]
    while todo:
        directory = todo.pop()
        for name in tree.names(directory):
            path = f"{directory.rstrip('/')}/{name}"
            facts = tree.lstat(path)
            assert not isinstance(facts, Missing), path
            if facts.kind == "dir":
                todo.append(path)
            body = tree.readlink(path) if facts.kind == "link" else tree.read(path) if facts.kind == "file" else ()
            found[path] = (facts.kind, facts.mode if facts.kind != "link" else 0, body)
    return found


def test_the_directories_of_layers_answer_as_their_archives(tmp_path: Path) -> None:
    for number in range(120):
        rng = random.Random(number)
        index = LayerIndex()
        specs: list[dict[str, Item]] = []
        for _ in range(rng.randint(1, 5)):
            specs.append(layer_at_random(rng, set(everything(LayeredTree(index, HostPath("/"))))))
            blob = BytesBlob(tar(specs[-1]))
            index.add(blob, members_with_ident(blob))
        places = [tmp_path / str(number) / str(depth) for depth in range(len(specs))]
        for place, spec in zip(places, specs):
            place.mkdir(parents=True)
            make_tree(place, spec)
        tree = OverlayTree([Layer(str(place)) for place in reversed(places)], HostPath("/"), no_archive)
        assert everything(tree) == everything(LayeredTree(index, HostPath("/"))), specs


def test_many_layers_keep_few_files_open(tmp_path: Path) -> None:
    for number in range(127):
        make_tree(tmp_path / str(number), {f"/usr/lib/{number}/{name}/x": b"x" for name in "abc"})
    before = len(os.listdir("/proc/self/fd"))
    tree: OpenedTree = OverlayTree([Layer(str(tmp_path / str(n))) for n in range(127)], HostPath("/"), no_archive)
    assert len(everything(tree)) == 2 + 127 * 7
    assert len(os.listdir("/proc/self/fd")) < before + 3 * 127 + 10


def test_for_a_directory_that_was_removed_meanwhile_the_whole_image_answers(tmp_path: Path) -> None:
    saved = make_tree(tmp_path / "saved", {"/opt/x": b"saved"})
    make_tree(tmp_path / "layer", {"/opt/x": b"x", "/etc/x": b"x"})
    tree = OverlayTree([Layer(str(tmp_path / "layer"))], HostPath("/"), lambda: saved)
    assert tree.read("/etc/x") == b"x"  # the names in / are known from now on
    shutil.rmtree(tmp_path / "layer/opt")
    assert tree.read("/opt/x") == b"saved"


@pytest.mark.parametrize("path", ["/etc/../../outside", "/out/x", "/up"])
def test_nothing_outside_of_a_layer_is_opened(tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").write_text("secret")
    make_tree(tmp_path / "layer", {"/etc/x": b"x", "/out": Link(str(tmp_path)), "/up": Link("../outside")})
    tree = OverlayTree([Layer(str(tmp_path / "layer"))], HostPath("/"), no_archive)
    assert tree.lacks(path)
