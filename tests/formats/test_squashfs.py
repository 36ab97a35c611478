"""squashfs: superblock, inodes of all types, listings, blocks; and what damage is called."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.archive.squashfs import (
    Inode,
    MetadataReference,
    Squashfs,
    SquashfsFile,
    inode_body_size,
    parse_inode,
    parse_listing,
)
from tests.support import answers, damaged
from tests.support.squashfs import Squashfs as Fields
from tests.support.squashfs import opened as reader
from tests.support.squashfs import squashfs
from tests.support.trees import Fifo, Link, Node, Spec

IMAGES = Path(__file__).parent.parent / "data" / "images"
PLACE = MetadataReference(96, 0)
SPEC: Spec = {
    "/etc/file": b"x" * 5000 + bytes(4096) + b"y" * 5000,
    "/etc/empty": b"",
    "/lib": Link("usr/lib"),
    "/dev/nvidia0": Node("char", 195, 255),
    "/dev/sda": Node("block", 8, 1),
    "/dev/fifo": Fifo(),
    "/usr/lib/\udcff\udcfe": "not UTF-8",
}
RAW = squashfs(SPEC, block_size=4096, pack=bytes)
"""Nothing in it is packed, so that damage meets the structures."""


class Found(NamedTuple):
    """A file of any kind."""

    inode: Inode
    data: bytes
    """Its bytes, or the target of a link."""


def walk(image: Squashfs, limit: int = 3000) -> dict[str, Found]:
    """What is in *image*, at most *limit* files of at most 1 MiB each."""
    found: dict[str, Found] = {}
    todo = [("", image.superblock.root)]
    while todo and len(found) < limit:
        path, reference = todo.pop()
        inode = image.inode(reference)
        image.id(inode.uid), image.id(inode.gid)
        data = b""
        if inode.kind == "dir":
            todo += [(f"{path}/{name}", child) for name, child in image.listing(inode).items()]
        elif inode.kind == "link":
            data = image.target(inode)
        elif inode.kind == "file":
            data = SquashfsFile(image, inode).read_at(0, 1 << 20)
        found[path or "/"] = Found(inode, data)
    return found


def of(name: str) -> dict[str, Found]:
    return walk(reader((IMAGES / f"{name}.squashfs").read_bytes()))


@pytest.mark.parametrize("name", ["xz", "lz4", "zstd", "lzma"])
def test_every_compression_has_the_same_tree(name: str) -> None:
    def plain(found: dict[str, Found]) -> object:
        inodes = {path: one.inode for path, one in found.items()}
        return {path: (i.kind, i.mode, i.size, i.device, found[path].data) for path, i in inodes.items()}

    assert plain(of(name)) == plain(of("gzip"))
    assert len(of(name)) > 300


def test_extended_inodes_are_read() -> None:
    found = of("extended")
    device = {path[5:]: (one.inode.kind, one.inode.mode, one.inode.device) for path, one in found.items()}
    assert device["char"] == ("char", 0o600, (195, 255))
    assert device["block"] == ("block", 0o640, (259, 0x12345))
    assert (device["fifo"][0], device["socket"][0]) == ("fifo", "socket")
    assert found["/sub/file"] == found["/sub/other"]
    assert found["/sub/file"].data == b"text\n"
    assert (found["/sub/link"].inode.kind, found["/sub/link"].data) == ("link", b"file")
    assert found["/sparse"].data == bytes(300_000) + b"end"
    assert len([path for path in found if path.startswith("/many/")]) == 1200  # with an index, over several blocks


def test_what_was_built_is_read() -> None:
    found = walk(reader(RAW))
    assert found["/etc/file"].data == SPEC["/etc/file"]
    assert found["/etc/empty"].inode.size == 0
    assert found["/usr/lib/\udcff\udcfe"].data == b"not UTF-8"
    assert found["/dev/sda"].inode.device == (8, 1)


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (4095, 2), (4999, 4200), (9000, 9999), (14095, 9), (99999, 1)])
def test_any_part_of_a_file_can_be_read(offset: int, size: int) -> None:
    image = reader(RAW)
    data = SPEC["/etc/file"]
    assert isinstance(data, bytes)
    file = SquashfsFile(image, walk(image)["/etc/file"].inode)
    assert file.read_at(offset, size) == data[offset : offset + size]


def test_one_byte_of_a_file_costs_one_block() -> None:
    image = reader(RAW)
    inode = walk(image)["/etc/file"].inode
    image = reader(RAW)
    SquashfsFile(image, inode).read_at(0, 1)
    assert image.unpacked_total < 3 * 8192


TYPES = {
    1: ("dir", struct.pack("<IIHHI", 7, 2, 103, 9, 1), (100, 7, 9, None, (0, 0))),
    2: ("file", struct.pack("<IIII", 96, 3, 9, 5), (5, 96, 9, 3, (0, 0))),
    3: ("link", struct.pack("<II", 1, 4), (4, 0, 0, None, (0, 0))),
    4: ("block", struct.pack("<II", 1, 0x12301045), (0, 0, 0, None, (16, 0x12345))),
    5: ("char", struct.pack("<II", 1, 0xC3FF), (0, 0, 0, None, (195, 255))),
    6: ("fifo", struct.pack("<I", 1), (0, 0, 0, None, (0, 0))),
    7: ("socket", struct.pack("<I", 1), (0, 0, 0, None, (0, 0))),
    8: ("dir", struct.pack("<IIIIHHI", 2, 70003, 7, 1, 3, 9, 5), (70000, 7, 9, None, (0, 0))),
    9: ("file", struct.pack("<QQQIIII", 1 << 40, 1 << 41, 8, 2, 0xFFFFFFFF, 0, 5), (1 << 41, 1 << 40, 0, None, (0, 0))),
    10: ("link", struct.pack("<II", 1, 4), (4, 0, 0, None, (0, 0))),
    11: ("block", struct.pack("<III", 1, 0x801, 5), (0, 0, 0, None, (8, 1))),
    12: ("char", struct.pack("<III", 1, 0x801, 5), (0, 0, 0, None, (8, 1))),
    13: ("fifo", struct.pack("<II", 1, 5), (0, 0, 0, None, (0, 0))),
    14: ("socket", struct.pack("<II", 1, 5), (0, 0, 0, None, (0, 0))),
}


@pytest.mark.parametrize("number", TYPES)
def test_each_type_of_inode_is_read(number: int) -> None:
    kind, body, expected = TYPES[number]
    header = struct.pack("<HHHHII", number, 0o4750, 1, 2, 0, 9)
    assert inode_body_size(header, PLACE) == len(body)
    inode = parse_inode(header, body, PLACE, PLACE)
    assert (inode.kind, inode.mode, inode.uid, inode.gid) == (kind, 0o4750, 1, 2)
    assert (inode.size, inode.start, inode.offset, inode.fragment, inode.device) == expected


@pytest.mark.parametrize(("mode", "good"), [(0o040755, True), (0o755, True), (0o020755, False), (0o170000, False)])
def test_a_mode_may_not_contradict_the_type(mode: int, good: bool) -> None:
    header = struct.pack("<HHHHII", 1, mode, 0, 0, 0, 1)
    assert answers(lambda body: parse_inode(header, body, PLACE, PLACE), TYPES[1][1]) == good


@pytest.mark.parametrize("number", [0, 15, 0xFFFF])
def test_an_inode_of_no_type_is_damage(number: int) -> None:
    with pytest.raises(FormatError, match="bad-squashfs"):
        inode_body_size(struct.pack("<HHHHII", number, 0, 0, 0, 0, 1), PLACE)


def entry(name: bytes, offset: int = 0) -> bytes:
    return struct.pack("<HhHH", offset, 0, 1, len(name) - 1) + name


def run(*entries: bytes, more: int = 0, block: int = 0) -> bytes:
    return struct.pack("<III", len(entries) - 1 + more, block, 1) + b"".join(entries)


def test_a_listing_refers_to_inodes() -> None:
    data = run(entry(b"a", 32), entry(b"b" * 256, 64)) + run(entry(b"c", 96), block=8194)
    assert parse_listing(data, PLACE, 99) == {"a": 32, "b" * 256: 64, "c": 8194 << 16 | 96}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (run(entry(b"a"), more=1), "bad-squashfs"),
        (run(entry(b"a"), more=256), "bad-squashfs"),
        (run(entry(b"a"))[:-1], "bad-squashfs"),
        (run(entry(b"a")) + b"\0" * 11, "bad-squashfs"),
        (run(entry(b"..")), "bad-squashfs"),
        (run(entry(b"a/b")), "bad-squashfs"),
        (run(entry(b"a\0")), "bad-squashfs"),
        (run(entry(b"n" * 257)), "bad-squashfs"),
        (run(*(entry(b"%d" % number) for number in range(12))), "image-bomb"),
    ],
)
def test_a_listing_that_cannot_be_is_damage(data: bytes, code: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_listing(data, PLACE, 10)
    assert (caught.value.code, caught.value.place) == (code, "byte 96, offset 0")


CHANGES: dict[str, tuple[Callable[[Fields], Fields], str]] = {
    "blocks of 2 GiB": (lambda s: s._replace(block_size=1 << 31, block_log=31), "byte 12"),
    "a size that is no power": (lambda s: s._replace(block_size=5000), "byte 12"),
    "another logarithm": (lambda s: s._replace(block_log=16), "byte 12"),
    "more bytes than there are": (lambda s: s._replace(bytes_used=1 << 40), "byte 40"),
    "no inodes": (lambda s: s._replace(inode_table=s.directory_table), "byte 64"),
    "tables in the superblock": (lambda s: s._replace(inode_table=5), "byte 64"),
    "directories behind the end": (lambda s: s._replace(directory_table=1 << 63), "byte 64"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_damage_of_the_superblock_is_said_with_its_place(name: str) -> None:
    change, place = CHANGES[name]
    with pytest.raises(FormatError) as caught:
        reader(squashfs(SPEC, change=change))
    assert (caught.value.code, caught.value.place) == ("bad-squashfs", place)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "more than a block": lambda data: zlib.compress(data + bytes(1 << 20)),
    "less than a block": lambda data: zlib.compress(data[:-1]),
    "an end that is missing": lambda data: zlib.compress(data)[:-5],
    "nothing": lambda data: zlib.compress(b""),
    "no zlib": lambda data: bytes(5),
}


@pytest.mark.parametrize("name", PACKERS)
def test_a_block_that_unpacks_to_something_else_is_damage(name: str) -> None:
    data = squashfs(SPEC, pack=lambda data: PACKERS[name](data) if len(data) > 9999 else data)
    good = {"/etc/file": SPEC["/etc/file"]}
    assert answers(lambda data: walk(reader(data)), squashfs(good))
    assert not answers(lambda data: walk(reader(data)), data)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_damage_makes_another_exception(data: st.DataObject) -> None:
    answers(lambda data: walk(reader(data), 200) if unpackable(data) else None, data.draw(damaged(RAW)))


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(["gzip", "lzma", "xz", "lz4", "zstd", "extended"]), st.data())
def test_no_damage_of_what_mksquashfs_wrote_makes_another_exception(name: str, data: st.DataObject) -> None:
    whole = (IMAGES / f"{name}.squashfs").read_bytes()
    answers(lambda data: walk(reader(data), 200) if unpackable(data) else None, data.draw(damaged(whole)))


def unpackable(data: bytes) -> bool:
    """Whether the compression that it names, damaged or not, is one that needs no package which may not be there."""
    return struct.unpack_from("<H", data.ljust(96), 20)[0] in (1, 2, 4, 5, 6)
