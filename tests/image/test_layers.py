"""Layers, one over the other, in every format of tar."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpubind.errors import FormatError
from gpubind.files.blob import BytesBlob
from gpubind.image.facts import Image
from gpubind.image.layers import LayeredTree, LayerIndex
from gpubind.image.open import open_image
from gpubind.image.tar import members
from gpubind.model import HostPath, Missing, RootedPath
from tests.support.elf import elf
from tests.support.layers import LAYER, HardLink, oci_layout, tar, write
from tests.support.trees import Dir, File, Item, Link, Node, make_tree


def opened(tmp_path: Path, layers: list[bytes], env: tuple[str, ...] = ()) -> Image:
    return open_image(write(tmp_path / "layout", oci_layout(layers, env, layer_type=LAYER)))


def test_a_whiteout_hides_a_file_and_a_directory_below(tmp_path: Path) -> None:
    lower = tar({"/a/file": "a", "/a/kept": "k", "/b/c/d": "d"})
    tree = opened(tmp_path, [lower, tar({"/a/.wh.file": "", "/.wh.b": ""})]).tree
    assert tree.list("/a") == ("kept",)
    assert tree.list("/") == ("a",)


@pytest.mark.parametrize("first", [True, False])
def test_an_opaque_directory_has_only_what_its_own_layer_put_there(tmp_path: Path, first: bool) -> None:
    upper: list[tuple[str, Item]] = [("a/new/file", "new"), ("a/.wh..wh..opq", "")]
    layers = [tar({"/a/old": "old", "/a/new/old": "old"}), tar(upper if first else upper[::-1], directories=False)]
    tree = opened(tmp_path, layers).tree
    assert tree.list("/a") == ("new",)
    assert tree.list("/a/new") == ("file",)


def test_a_whiteout_leaves_what_its_own_layer_put_there(tmp_path: Path) -> None:
    tree = opened(tmp_path, [tar({"/a": "old"}), tar([("a", "new"), (".wh.a", "")])]).tree
    assert tree.read("/a") == b"new"


def test_a_file_replaces_a_directory_and_a_directory_a_file(tmp_path: Path) -> None:
    lower = tar({"/a/b": "b", "/c": "c", "/d": Link("a")})
    tree = opened(tmp_path, [lower, tar({"/a": "file", "/c": Dir(), "/d": "d"})]).tree
    assert tree.read("/a") == b"file"
    assert tree.list("/c") == ()
    assert tree.read("/d") == b"d"


def test_hard_links_lead_into_their_own_layer_and_lower_ones(tmp_path: Path) -> None:
    layers = [
        tar({"/usr/lib/one": "one", "/other": HardLink("usr/lib/one")}),
        tar({"/lib": Link("usr/lib")}),
        tar([("third", HardLink("./lib/one")), ("usr/lib/one", "changed"), ("fourth", HardLink("no/where/one"))]),
    ]
    tree = opened(tmp_path, layers).tree
    assert [tree.read(path) for path in ("/other", "/third", "/lib/one")] == [b"one", b"one", b"changed"]
    assert isinstance(tree.lstat("/fourth"), Missing)
    assert isinstance(tree.lstat("/no"), Missing)  # a link makes no directory for what it leads to


def test_members_below_a_link_go_where_it_leads(tmp_path: Path) -> None:
    layers = [tar({"/lib": Link("/usr/lib"), "/usr/lib/a": "a"}), tar({"/lib/b": "b"}, directories=False)]
    tree = opened(tmp_path, layers).tree
    assert tree.readlink("/lib") == "/usr/lib"
    assert tree.list("/usr/lib") == ("a", "b")


def test_a_link_upwards_stops_at_the_root(tmp_path: Path) -> None:
    links = {"/a/b/l": Link("../../c"), "/m": Link("../../d"), "/a/n": Link("b/../../e")}
    layers = [tar(dict(links)), tar({"/a/b/l/f": "c", "/m/f": "d", "/a/n/f": "e"}, directories=False)]
    tree = opened(tmp_path, layers).tree
    assert [tree.read(f"/{name}/f") for name in "cde"] == [b"c", b"d", b"e"]
    assert tree.list("/a/b") == ("l",)


def test_a_directory_that_comes_again_keeps_what_is_in_it(tmp_path: Path) -> None:
    tree = opened(tmp_path, [tar({"/tmp/a": "a"}), tar({"/tmp": Dir(0o1777)})]).tree
    assert tree.list("/tmp") == ("a",)
    found = tree.lstat("/tmp")
    assert not isinstance(found, Missing)
    assert found.mode == 0o1777


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_format_is_read(tmp_path: Path, form: int) -> None:
    long = "/" + "/".join(["directory-with-a-long-name"] * (4 if form == tarfile.USTAR_FORMAT else 8))
    link = {} if form == tarfile.USTAR_FORMAT else {"/link": Link(f"{long}/file")}
    spec = {f"{long}/file": "text", **link, "/dev/nvidia0": Node("char", 195, 0)}
    image = opened(tmp_path, [tar(spec, form=form)])  # type: ignore[arg-type]
    if link:
        assert image.tree.read("/link") == b"text"
    assert image.tree.read(f"{long}/file") == b"text"
    node = image.tree.lstat("/dev/nvidia0")
    assert not isinstance(node, Missing)
    assert (node.kind, node.major, node.minor) == ("char", 195, 0)


@pytest.mark.skipif(not shutil.which("tar"), reason="GNU tar is not there")
def test_what_gnu_tar_writes_is_read(tmp_path: Path) -> None:
    make_tree(tmp_path / "root", {"/etc/a": "a", "/usr/b": File(b"b" * 1000, 0o4755), "/l": Link("etc/a")})
    with open(tmp_path / "root" / "sparse", "wb") as file:
        file.truncate(1 << 20)
    words = ["tar", "-cSf", "layer.tar", "-C", "root", "."]
    subprocess.run(words, cwd=tmp_path, check=True)
    tree = opened(tmp_path, [(tmp_path / "layer.tar").read_bytes()]).tree
    assert tree.list("/") == ("etc", "l", "sparse", "usr")
    assert tree.read("/l") == b"a"
    assert tree.read("/usr/b") == b"b" * 1000
    assert tree.read("/sparse") == bytes(1 << 20)


def test_names_and_paths_that_no_runtime_could_unpack_are_passed_over(tmp_path: Path) -> None:
    fits, long = "n" * 255, "n" * 256
    deep = "/".join(["d" * 254] * 16)  # 4079 bytes
    layer = tar(
        [
            (fits, "x"),
            (long, "x"),
            (f"{deep}/{'e' * 16}", "x"),
            (f"{deep}/{'e' * 17}", "x"),
            ("l", Link("t" * 4096)),
            ("m", Link("t" * 4097)),
        ],
        directories=False,
    )
    tree = opened(tmp_path, [layer]).tree
    assert tree.list("/") == ("d" * 254, "l", fits)
    assert tree.list(f"/{deep}") == ("e" * 16,)


@pytest.mark.parametrize("limit", [9, 10])
def test_the_names_in_all_paths_are_bounded(tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubind.image.layers.STEPS_LIMIT", limit)
    index = LayerIndex()
    blob = BytesBlob(tar([(f"{'d/' * 7}f", "x")], directories=False), "x")
    if limit == 10:
        index.add(blob, members(blob))
        index.add(blob, ())
        index._count_steps(10 - index._steps)
    else:
        with pytest.raises(FormatError) as caught:
            index.add(blob, members(blob))
            index._count_steps(10 - index._steps)
        error = caught.value
        assert (error.code, error.what, error.where, error.place, error.why) == (
            "image-bomb",
            "the image has far longer paths than images do",
            "x: more than 9 names in them",
            "more than 9 names in them",
            "an index of them would take too much time",
        )


def test_a_file_that_is_no_elf_file_is_not_read_for_its_facts(tmp_path: Path) -> None:
    tree = opened(tmp_path, [tar({"/text": "t" * 100, "/short": "s", "/elf": elf("a.so")})]).tree
    assert (tree.elf("/text"), tree.elf("/short")) == (Missing("unreadable", "not an ELF file"),) * 2
    assert not isinstance(tree.elf("/elf"), Missing)


class CountedBlob(BytesBlob):
    """A layer in a packed archive, and the offsets at which it is read."""

    place = 1

    def __init__(self, data: bytes) -> None:
        super().__init__(data, "x")
        self.offsets: list[int] = []

    def read_at(self, offset: int, size: int) -> bytes:
        self.offsets.append(offset)
        return super().read_at(offset, size)


def counted(spec: dict[str, Item]) -> tuple[CountedBlob, LayeredTree]:
    blob, layers = CountedBlob(tar(spec)), LayerIndex()
    layers.add(blob, members(blob))
    return blob, LayeredTree(layers, HostPath("/images/test"))


COMMON = ("/etc", "/etc/ld.so.conf.d", "/lib", "/lib64", "/usr/lib", "/usr/lib64")


@pytest.mark.parametrize("directory", [*COMMON, "/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/opt"])
def test_files_of_common_directories_and_of_the_same_one_are_read_with_the_first_file(directory: str) -> None:
    blob, tree = counted({"/opt/first": "1", f"{directory}/x": "x", "/srv/y": "y"})
    assert tree.read("/opt/first") == b"1"
    blob.offsets.clear()
    assert tree.read(f"{directory}/x") == b"x"
    assert blob.offsets == []
    assert tree.read("/srv/y") == b"y"
    assert len(blob.offsets) == 1


@pytest.mark.parametrize(("size", "is_kept"), [(8 << 20, True), ((8 << 20) + 1, False)])
def test_a_file_of_8_mib_is_kept_and_a_larger_one_is_read_where_it_is(size: int, is_kept: bool) -> None:
    blob, tree = counted({"/opt/x": bytes(size)})
    for _ in range(2):
        opened_file = tree.open(RootedPath("/opt/x"))
        assert not isinstance(opened_file, Missing)
        blob.offsets.clear()
        assert opened_file.read_at(size - 1, 2) == b"\0"
        assert bool(blob.offsets) is not is_kept
