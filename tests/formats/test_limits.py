"""What is exactly at a limit is read, and what is one above it is not; and what a reading costs."""

from __future__ import annotations

import io
import struct

import pytest
import zstandard

from gpubind.errors import FormatError
from gpubind.formats.archive import squashfs
from gpubind.formats.archive.squashfs import SquashfsFile
from gpubind.formats.driver.cdi import CdiHook, HookCall, parse_hook
from gpubind.formats.elf import named
from gpubind.formats.elf.ldcache import parse_ldcache
from gpubind.formats.elf.named import parse_named_libraries, read_constants, read_first_code
from gpubind.formats.gpucode import hip, sycl
from gpubind.formats.text import shell
from gpubind.formats.text.shell import Exports, parse_exports
from gpubind.model import Missing
from tests.formats.test_squashfs import walk
from tests.formats.test_sycl import PVC_AND_DG2, SPIRV, archive, code
from tests.support.elf import elf
from tests.support.gpucode import bundle, compressed
from tests.support.ldcache import build_ldcache, entry
from tests.support.squashfs import opened
from tests.support.squashfs import squashfs as built

TREE = built({"/x/a": b"1" * 9000, "/y/b": b""}, block_size=4096, pack=bytes)


def refusal(data: bytes = TREE) -> tuple[str, str, str]:
    with pytest.raises(FormatError) as caught:
        walk(opened(data))
    return caught.value.code, caught.value.place, caught.value.why


def test_the_names_of_all_directories_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squashfs, "NAMES_LIMIT", 4)
    assert len(walk(opened(TREE))) == 5
    monkeypatch.setattr(squashfs, "NAMES_LIMIT", 3)
    code, _, why = refusal()
    assert (code, why) == ("image-bomb", "a directory has more than 0 names")


def test_the_bytes_of_all_listings_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(file.inode.size for file in walk(opened(TREE)).values() if file.inode.kind == "dir")
    monkeypatch.setattr(squashfs, "ALL_LISTINGS_LIMIT", size)
    assert len(walk(opened(TREE))) == 5
    monkeypatch.setattr(squashfs, "ALL_LISTINGS_LIMIT", size - 1)
    code, _, why = refusal()
    assert (code, why) == ("image-bomb", f"the directories that were looked at have {size} bytes")


def test_a_listing_is_read_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    image = opened(TREE)
    root = image.inode(image.superblock.root)
    monkeypatch.setattr(squashfs, "_LISTING_LIMIT", root.size)
    assert len(walk(opened(TREE))) == 5
    monkeypatch.setattr(squashfs, "_LISTING_LIMIT", root.size - 1)
    assert refusal()[::2] == ("bad-squashfs", f"a directory of {root.size} bytes")


def test_what_one_file_unpacks_to_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    image = opened(TREE)
    inode = image.inode(image.listing(image.inode(image.listing(image.inode(image.superblock.root))["x"]))["a"])
    file = SquashfsFile(image, inode)
    assert len(file.read_at(0, 9999)) == 9000
    used = squashfs.FILE_UNPACKED_LIMIT - file.unpack_allowance
    assert 9000 <= used < 10_000
    monkeypatch.setattr(squashfs, "FILE_UNPACKED_LIMIT", used)
    assert len(walk(opened(TREE))) == 5
    monkeypatch.setattr(squashfs, "FILE_UNPACKED_LIMIT", used - 1)
    why = f"one file has unpacked to more than {used - 1} bytes"
    assert refusal() == ("image-bomb", f"byte {inode.start}", why)


def test_what_all_blocks_unpack_to_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    image = opened(TREE)
    walk(image)
    read = min(image._packed_total, len(TREE))
    monkeypatch.setattr(squashfs, "_UNPACKED_RATIO", 1)
    monkeypatch.setattr(squashfs, "_UNPACKED_ALLOWANCE", image.unpacked_total - read)
    assert len(walk(opened(TREE))) == 5
    monkeypatch.setattr(squashfs, "_UNPACKED_ALLOWANCE", image.unpacked_total - read - 1)
    code, _, why = refusal()
    assert (code, why) == ("image-bomb", "196 bytes have unpacked to 196")  # the first block is one too many


def test_blocks_may_unpack_to_20_times_what_was_read_and_an_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    data = built({"/x/a": b"1" * (1 << 16)}, block_size=1 << 16)
    image = opened(data)
    walk(image)
    allowance = image.unpacked_total - 20 * min(image._packed_total, len(data))
    assert allowance > 0
    monkeypatch.setattr(squashfs, "_UNPACKED_ALLOWANCE", allowance)
    assert len(walk(opened(data))) == 3
    monkeypatch.setattr(squashfs, "_UNPACKED_ALLOWANCE", allowance - 1)
    code, _, why = refusal(data)
    assert (code, why) == ("image-bomb", f"{image._packed_total} bytes have unpacked to {image.unpacked_total}")


@pytest.mark.parametrize("limit", ["VALUE_LIMIT", "TOTAL_LIMIT"])
def test_values_of_scripts_are_known_up_to_a_size(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, limit, 4)
    assert parse_exports("A=1234", Exports({})).env == {"A": "1234"}
    assert parse_exports("A=12345", Exports({})) == Exports({}, unknown=frozenset(("A",)))
    both = parse_exports("A=12; B=345", Exports({})).env
    assert both == ({"A": "12", "B": "345"} if limit == "VALUE_LIMIT" else {"A": "12"})


def test_names_of_libraries_are_kept_up_to_a_number() -> None:
    for count, unread in ((1024, None), (1025, "it has more than 1024 names of libraries")):
        text = b"".join(b"libx%d.so\0" % number for number in range(count))
        found = parse_named_libraries(io.BytesIO(elf("libx.so", more={".rodata": text})))
        assert (len(found.names), found.unread, found.size) == (1024, unread, len(text))


def test_constants_and_code_are_read_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "READ_LIMIT", 8)
    monkeypatch.setattr(named, "CODE_LIMIT", 8)
    for size in (7, 8, 9):
        data = elf("libx.so", more={".rodata": b"123456789"[:size], ".text": b"abcdefghi"[:size]})
        too_large = Missing("unreadable", "its constants are too large, or cut off")
        assert read_constants(io.BytesIO(data)) == (b"123456789"[:size] if size < 9 else too_large)
        assert read_first_code(io.BytesIO(data)) == b"abcdefghi"[: min(size, 8)]
    assert read_constants(io.BytesIO(elf("libx.so"))) == b""


@pytest.mark.parametrize(("length", "names"), [(60_000, ("libcuda.so.1",)), (70_000, ())])
def test_the_names_of_sections_are_read_up_to_64_kib(length: int, names: tuple[str, ...]) -> None:
    data = elf("libx.so", more={"x" * length: b"1", ".rodata": b"libcuda.so.1\0"})
    assert parse_named_libraries(io.BytesIO(data)).names == names


@pytest.mark.parametrize("length", [1, 127, 128, 129, 4096])
def test_a_string_of_any_allowed_length_is_read(length: int) -> None:
    cache = parse_ldcache(build_ldcache([entry("x" * length, "/" + "y" * (length - 1))]))
    assert [(len(one.name), len(one.path)) for one in cache] == [(length, length)]


def test_a_cache_gives_64_entries_of_a_name() -> None:
    cache = parse_ldcache(build_ldcache([*(entry("a", f"/{number}") for number in range(65)), entry("ab")]))
    assert [one.path for one in cache.entries_named("a")] == [f"/{number}" for number in range(64)]
    assert [one.path for one in cache.entries_with_prefix(["a"])][-2:] == ["/63", entry("ab").path]
    assert cache.entries_named("b") == ()


def test_a_name_in_a_cache_has_at_most_255_bytes() -> None:
    cache = parse_ldcache(build_ldcache([entry("a" * 255), entry("a" * 256)], share_tails=False))
    assert [len(one.name) for one in cache.entries_named("a" * 255)] == [255]


def test_a_cache_begins_with_one_of_its_two_layouts() -> None:
    with pytest.raises(FormatError, match="bad-ldcache"):
        parse_ldcache(bytes(12) + build_ldcache([entry("a")]))


@pytest.mark.parametrize("sections", [64, 65])
def test_a_cache_has_at_most_64_extension_sections(sections: int) -> None:
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 0, 0, 2, 48)
    data = head + struct.pack("<II", 0xEAA42174, sections) + bytes(16 * sections)
    if sections == 64:
        assert list(parse_ldcache(data)) == []
    else:
        with pytest.raises(FormatError) as caught:
            parse_ldcache(data)
        assert (caught.value.place, caught.value.why) == ("byte 52", "65 extension sections")


# GPU code.


def test_places_of_bundles_are_looked_at_up_to_a_number() -> None:
    spent: list[int] = []
    assert hip.parse_bundles(lambda _, size: bytes(size), 0, 4096 * 16383, spent.append).unread is None
    assert set(spent) == {4}
    unread = hip.parse_bundles(lambda _, size: bytes(size), 0, 4096 * 16385, spent.append).unread
    assert unread == "over 16384 places of bundles"


@pytest.mark.parametrize(("size", "read"), [(262143, 262143), (262144, 262144), (262145, 262144), (0, 262144)])
def test_of_a_compressed_bundle_256_kib_are_read(size: int, read: int) -> None:
    """A size of 0 stands for an unknown one."""
    data = (b"CCOB" + struct.pack("<HHI", 2, 0, size)).ljust(300_000, b"\0")
    sizes: list[int] = []

    def read_at(at: int, length: int) -> bytes:
        sizes.append(length)
        return data[at : at + length]

    hip.parse_bundles(read_at, 0, len(data), lambda _: None)
    assert sizes[:2] == [32, read]
    assert set(sizes[2:]) == {32}


@pytest.mark.parametrize(
    ("data", "costs"),
    [
        (bundle("gfx900", "gfx906"), [4, 3]),
        (compressed(bundle("gfx900", "gfx906"), 2), [4, 32, 3]),
        (bytes(8192), [4, 4]),
        (bundle("gfx900").ljust(8192, b"\0")[:8192] + bundle("gfx906"), [4, 2, 4, 2]),
    ],
    ids=["plain", "packed", "padding", "two"],
)
def test_a_place_an_entry_and_a_packed_bundle_have_their_costs(data: bytes, costs: list[int]) -> None:
    spent: list[int] = []
    hip.parse_bundles(lambda at, size: data[at : at + size], 0, len(data), spent.append)
    assert spent == costs


@pytest.mark.parametrize(("length", "code"), [(256, ("gfx900",)), (257, ())])
def test_an_id_of_an_entry_has_at_most_256_characters(length: int, code: tuple[str, ...]) -> None:
    entries = (b"host".ljust(length, b"-"), b"hipv4-amdgcn-amd-amdhsa--gfx900")
    head = hip.MAGIC + struct.pack("<Q", 2) + b"".join(struct.pack("<QQQ", 4096, 9, len(one)) + one for one in entries)
    assert hip.parse_bundles(lambda at, size: head[at : at + size], 0, len(head), lambda _: None).code == code


@pytest.mark.parametrize(("number", "code"), [(511, ("gfx900",)), (512, ())])
def test_512_entries_of_a_bundle_are_read(number: int, code: tuple[str, ...]) -> None:
    entries = [*[b"host"] * number, b"hipv4-amdgcn-amd-amdhsa--gfx900"]
    head = hip.MAGIC + struct.pack("<Q", len(entries))
    head += b"".join(struct.pack("<QQQ", 4096, 9, len(one)) + one for one in entries)
    assert hip.parse_bundles(lambda at, size: head[at : at + size], 0, len(head), lambda _: None).code == code


@pytest.mark.parametrize(("number", "unread"), [(127, None), (128, "Intel GPU code that cannot be read")])
def test_fewer_than_256_files_of_an_archive_are_read(number: int, unread: object) -> None:
    assert code(archive(*["64.12.60.7"] * number, size=0)).unread == unread  # each with a file of padding


def test_an_image_whose_size_is_not_known_is_read() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(PVC_AND_DG2)
    assert code(packed) == code(PVC_AND_DG2)


def test_an_unpacked_image_is_read_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    last = PVC_AND_DG2.rindex(b"64.12.55.8")
    monkeypatch.setattr(sycl, "UNPACKED_LIMIT", last)
    packed = zstandard.compress(PVC_AND_DG2[: last + 60])
    assert code(packed).code == ("dg2", "pvc")
    monkeypatch.setattr(sycl, "UNPACKED_LIMIT", last - 1)
    assert (code(packed).code, code(packed).unread) == (("pvc",), "Intel GPU code that cannot be read")


def test_spirv_of_one_byte_more_than_nothing_is_code() -> None:
    assert [code(portable=SPIRV[:size]).ptx for size in (88, 89)] == [(), ("spir64",)]
    assert [code(PVC_AND_DG2, SPIRV[:size]).ptx for size in (88, 89)] == [(), ("spir64",)]


# Hooks.


@pytest.mark.parametrize(
    ("path", "args", "call"),
    [
        ("/usr/bin/nvidia-ctk", "x hook create-symlinks --link ../a::/b/c", ("create-symlinks", {"/b/c": "/a"}, ())),
        ("/usr/bin/nvidia-cdi-hook", "x create-symlinks --link=/a::/b", ("create-symlinks", {"/b": "/a"}, ())),
        ("/x/nvidia-container-toolkit.real", "x update", ("update", {}, ())),
        ("/usr/bin/other", "x update --folder /a --folder=/b --folder c", (None, {}, ("/a", "/b"))),
        ("/usr/bin/nvidia-ctk", "x hook", (None, {}, ())),
        ("/usr/bin/nvidia-ctk", "x y --link a::b --link ::/c --link d --link", ("y", {}, ())),
    ],
)
def test_a_hook_is_a_call_with_links_and_directories(path: str, args: str, call: HookCall) -> None:
    assert parse_hook(CdiHook("createContainer", path, tuple(args.split()))) == call
