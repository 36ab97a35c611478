"""ld.so.cache: the layout of glibc 2.2 and later, by itself or after the older one, and what damage does."""

from __future__ import annotations

import base64
import struct
from typing import Optional

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.elf.ldcache import LdCache, LdCacheEntry, parse_ldcache
from tests.support import answers, damaged
from tests.support.ldcache import AARCH64, ELF_LIBC6, I386, Layout, build_ldcache, entry
from tests.support.measure import is_less_work

# What glibc 2.36's own `ldconfig -c old|new|compat` wrote for four small libraries.
REAL_TAIL = (
    "eDg2LTY0LXYzAHg4Ni02NC12MgAvdXNyL2xpYjY0L2dsaWJjLWh3Y2Fwcy94ODYtNjQtdjIvbGliYi5zby4yAC91c3IvbGliL2xpYmEuc28uMQAv"
    "dXNyL2xpYjY0L2xpYmEuc28uMQAvdXNyL2xpYjY0L2dsaWJjLWh3Y2Fwcy94ODYtNjQtdjMvbGliYS5zby4xAA=="
)
REAL_OLD = "bGQuc28tMS43LjAABAAAAAMDAAA2AAAAFAAAAAMDAACKAAAAaAAAAAMDAACKAAAAUwAAAAMAAACKAAAAQAAAAA=="
REAL_NEW = (
    "Z2xpYmMtbGQuc28uY2FjaGUxLjEEAAAAlAAAAAIAAAAkAQAAAAAAAAAAAAAAAAAAAwMAAMYAAACkAAAAAAAAAAAAAAAAAABAAwMAABoBAAD4AAAA"
    "AAAAAAEAAAAAAABAAwMAABoBAADjAAAAAAAAAAAAAAAAAAAAAwAAABoBAADQAAAAAAAAAAAAAAAAAAAA"
)
REAL_NEW_EXTENSION = (
    "dCGk6gIAAAAAAAAAAAAAAFQBAABDAAAAAQAAAAAAAABMAQAACAAAAJoAAACQAAAAbGRjb25maWcgKERlYmlhbiBHTElCQyAyLjM2LTkrZGViMTJ1"
    "MTQpIHN0YWJsZSByZWxlYXNlIHZlcnNpb24gMi4zNg=="
)
REAL_COMBINED = (
    "bGQuc28tMS43LjAABAAAAAMDAADGAAAApAAAAAMDAAAaAQAA+AAAAAMDAAAaAQAA4wAAAAMAAAAaAQAA0AAAAGdsaWJjLWxkLnNvLmNhY2hlMS4x"
    "BAAAAJQAAAACAAAAZAEAAAAAAAAAAAAAAAAAAAMDAADGAAAApAAAAAAAAAAAAAAAAAAAQAMDAAAaAQAA+AAAAAAAAAABAAAAAAAAQAMDAAAaAQAA"
    "4wAAAAAAAAAAAAAAAAAAAAMAAAAaAQAA0AAAAAAAAAAAAAAAAAAAAA=="
)
REAL_COMBINED_EXTENSION = (
    "dCGk6gIAAAAAAAAAAAAAAJQBAABDAAAAAQAAAAAAAACMAQAACAAAAJoAAACQAAAAbGRjb25maWcgKERlYmlhbiBHTElCQyAyLjM2LTkrZGViMTJ1"
    "MTQpIHN0YWJsZSByZWxlYXNlIHZlcnNpb24gMi4zNg=="
)
REAL_ENTRIES = [
    entry("libb.so.2", "/usr/lib64/glibc-hwcaps/x86-64-v2/libb.so.2", hwcap="x86-64-v2"),
    entry("liba.so.1", "/usr/lib64/glibc-hwcaps/x86-64-v3/liba.so.1", hwcap="x86-64-v3"),
    entry("liba.so.1"),
    entry("liba.so.1", "/usr/lib/liba.so.1", flags=ELF_LIBC6 | I386),
]

ENTRIES = [
    entry("libcuda.so.1"),
    entry("libcuda.so.1", "/usr/lib/libcuda.so.1", flags=ELF_LIBC6 | I386),
    entry("libcuda.so", flags=ELF_LIBC6 | AARCH64),
    entry("libcudadebugger.so.1"),
    entry("libc.so.6", "/lib64/libc.so.6"),
]
HWCAPS = [
    entry("libc.so.6", "/lib64/glibc-hwcaps/x86-64-v3/libc.so.6", hwcap="x86-64-v3"),
    entry("libc.so.6", "/lib64/tls/libc.so.6", hwcap="legacy"),
    entry("libc.so.6", "/lib64/libc.so.6"),
]
LAYOUTS: tuple[Layout, ...] = ("new", "combined")
GENERATOR = "ldconfig (test) stable release version 2.41"


def real(*parts: str) -> bytes:
    return b"".join(base64.b64decode(part) for part in parts)


def full_cache(layout: Layout = "new") -> bytes:
    return build_ldcache([*HWCAPS, *ENTRIES], layout, generator=GENERATOR)


def read_all(data: bytes) -> list[LdCacheEntry]:
    cache = parse_ldcache(data)
    found = list(cache)
    assert list(cache.entries_with_prefix([""])) == found
    return found


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        parse_ldcache(data)
    assert caught.value.code == "bad-ldcache"
    return caught.value


def names(cache: LdCache, *prefixes: str) -> list[str]:
    return [found.name for found in cache.entries_with_prefix(prefixes)]


# What glibc writes.


def test_a_cache_with_the_older_layout_only_is_refused() -> None:
    assert refusal(real(REAL_OLD, REAL_TAIL)).place == "byte 0"


def test_a_new_cache_of_ldconfig_has_every_entry_and_its_hwcaps() -> None:
    cache = parse_ldcache(real(REAL_NEW, REAL_TAIL, REAL_NEW_EXTENSION))
    assert list(cache) == REAL_ENTRIES


def test_the_extensions_of_a_combined_cache_count_from_the_start_of_the_file() -> None:
    cache = parse_ldcache(real(REAL_COMBINED, REAL_TAIL, REAL_COMBINED_EXTENSION))
    assert list(cache) == REAL_ENTRIES


# What is built is read.


@pytest.mark.parametrize("share_tails", [True, False], ids=["tails-shared", "tails-apart"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_entries_come_in_file_order(layout: Layout, share_tails: bool) -> None:
    cache = parse_ldcache(build_ldcache(ENTRIES, layout, share_tails=share_tails))
    assert list(cache) == ENTRIES
    assert len(cache) == len(ENTRIES)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hwcaps_are_read(layout: Layout) -> None:
    cache = parse_ldcache(build_ldcache(HWCAPS, layout, generator=GENERATOR, subdirectories=["x86-64-v4"]))
    assert list(cache) == HWCAPS


@pytest.mark.parametrize("flag", [0, 2, 6])
def test_a_cache_without_a_byte_order_is_little_endian(flag: int) -> None:
    assert list(parse_ldcache(build_ldcache(ENTRIES, flag=flag))) == ENTRIES


@pytest.mark.parametrize("flag", [0, 3, 7])
def test_a_big_endian_cache_is_refused(flag: int) -> None:
    assert refusal(build_ldcache(ENTRIES, order="big", flag=flag)).place == ("byte 28" if flag else "byte 20")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_cache_has_no_entries(layout: Layout) -> None:
    cache = parse_ldcache(build_ldcache([], layout))
    assert list(cache) == []
    assert names(cache, "lib") == []


def test_strings_that_are_not_utf8_come_as_surrogate_escapes() -> None:
    odd = entry("lib\udcff.so", "/usr/lib/\udcfe/lib\udcff.so")
    assert list(parse_ldcache(build_ldcache([odd]))) == [odd]


# matching().


def test_matching_means_that_the_name_starts_with_a_prefix() -> None:
    cache = parse_ldcache(build_ldcache(ENTRIES))
    assert names(cache, "libcuda.so") == ["libcuda.so.1", "libcuda.so.1", "libcuda.so"]
    assert names(cache, "uda.so", "LIBCUDA") == []


def test_matching_takes_several_prefixes_and_keeps_file_order() -> None:
    cache = parse_ldcache(build_ldcache(ENTRIES))
    assert names(cache, "libc.so", "libcudad") == ["libcudadebugger.so.1", "libc.so.6"]


@pytest.mark.parametrize(("prefixes", "found"), [((), []), (("",), [e.name for e in ENTRIES])], ids=["none", "empty"])
def test_no_prefix_matches_nothing_and_the_empty_prefix_everything(prefixes: tuple[str, ...], found: list[str]) -> None:
    assert names(parse_ldcache(build_ldcache(ENTRIES)), *prefixes) == found


def test_matching_takes_prefixes_from_an_iterator() -> None:
    cache = parse_ldcache(build_ldcache(ENTRIES))
    assert [found.name for found in cache.entries_with_prefix(iter(["libc.so"]))] == ["libc.so.6"]


def test_matching_does_not_look_past_the_end_of_a_name() -> None:
    # Strings lie one behind the other: `a` NUL `/x` NUL; a prefix must not match across the NUL.
    cache = parse_ldcache(build_ldcache([entry("a", "/x"), entry("ab", "/y")], share_tails=False))
    assert names(cache, "a\0") == []
    assert names(cache, "a") == ["a", "ab"]


def test_a_name_shorter_than_the_prefixes_is_no_match() -> None:
    cache = parse_ldcache(build_ldcache([entry("a.so"), entry("libnvidia-ml.so.1")]))
    assert names(cache, "libnvidia-ml.so", "a.so.1234567") == ["libnvidia-ml.so.1"]


def test_a_name_at_the_very_end_of_the_file_is_found() -> None:
    cache = parse_ldcache(build_ldcache([entry("z", "/z")]))
    assert names(cache, "zzzzzzzz", "z") == ["z"]


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_matching_is_filtering_by_startswith(data: st.DataObject) -> None:
    text = st.text("ab.é\udcff", max_size=10)
    built = data.draw(st.lists(st.builds(entry, text, text.map("/{}".format)), max_size=8))
    prefixes = data.draw(st.lists(st.text("ab.é", max_size=9), max_size=3))
    cache = parse_ldcache(build_ldcache(built))
    wanted = [found for found in built if found.name.startswith(tuple(prefixes))]
    assert list(cache.entries_with_prefix(prefixes)) == wanted


# Round trip.

_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
_HWCAPS = st.sampled_from(["", "", "legacy", "x86-64-v2", "x86-64-v3"])
_FLAGS = st.integers(0, 0x7FFFFFFF)
_ENTRIES = st.lists(st.builds(LdCacheEntry, _NAMES, _NAMES, _FLAGS, _HWCAPS), max_size=12)


@given(_ENTRIES, st.sampled_from(LAYOUTS), st.booleans(), st.text("ld 2.41", max_size=9))
@settings(max_examples=50, deadline=None)
def test_what_is_built_is_parsed_back(
    entries: list[LdCacheEntry], layout: Layout, share_tails: bool, generator: str
) -> None:
    cache = parse_ldcache(build_ldcache(entries, layout, generator=generator, share_tails=share_tails))
    assert list(cache) == entries


# Bounds.


def with_word(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + value.to_bytes(4, "little") + data[at + 4 :]


def word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


NEW = full_cache()
EXTENSION = word(NEW, 32)
SIZE = len(NEW)


@pytest.mark.parametrize(
    ("data", "place", "why"),
    [
        pytest.param(b"", "byte 0", "the magic string is not there", id="empty"),
        pytest.param(b"\x7fELF", "byte 0", "the magic string is not there", id="another-file"),
        pytest.param(
            b"glibc-ld.so.cache1.0" + bytes(60), "byte 0", "the magic string is not there", id="another-version"
        ),
        pytest.param(NEW[:30], "byte 30", "truncated header", id="header-cut"),
        pytest.param(
            NEW[:28] + b"\1" + NEW[29:], "byte 28", "the header marks the cache as invalid", id="marked-invalid"
        ),
        pytest.param(
            with_word(NEW, 20, 0xFFFFFFFF),
            "byte 20",
            "4294967295 entries; no machine has more than 65536",
            id="too-many-entries",
        ),
        pytest.param(
            with_word(NEW, 24, 0xFFFFFFFF),
            "byte 20",
            "8 entries and 4294967295 bytes of strings do not fit in the file",
            id="too-many-strings",
        ),
        pytest.param(
            with_word(NEW, 24, SIZE),
            "byte 20",
            "8 entries and 515 bytes of strings do not fit in the file",
            id="strings-behind-the-file",
        ),
        pytest.param(
            with_word(NEW, 48 + 4, SIZE), "byte 52", "entry 0 points past the last string", id="name-behind-the-file"
        ),
        pytest.param(
            with_word(NEW, 48 + 24 + 8, 0xFFFFFFFF),
            "byte 80",
            "entry 1 points past the last string",
            id="path-behind-the-file",
        ),
        pytest.param(
            with_word(NEW, 48 + 16, 7),
            "byte 64",
            "entry 0 names hwcaps subdirectory 7 of 1",
            id="unknown-hwcaps-subdirectory",
        ),
        pytest.param(with_word(NEW, 32, SIZE), f"byte {SIZE}", "truncated table", id="extension-behind-the-file"),
        pytest.param(
            with_word(NEW, 32, 48), "byte 48", "the extension block has no magic", id="extension-without-magic"
        ),
        pytest.param(
            with_word(NEW, EXTENSION + 4, 65), f"byte {EXTENSION + 4}", "65 extension sections", id="too-many-sections"
        ),
        pytest.param(
            with_word(NEW[: EXTENSION + 10], 24, 0), f"byte {EXTENSION + 10}", "truncated table", id="section-cut"
        ),
        pytest.param(
            with_word(NEW, EXTENSION + 16, SIZE),
            f"byte {EXTENSION + 8}",
            "an extension section ends after the end of the file",
            id="section-behind-the-file",
        ),
        pytest.param(
            with_word(NEW, EXTENSION + 20, SIZE),
            f"byte {EXTENSION + 8}",
            "an extension section ends after the end of the file",
            id="section-too-long",
        ),
        pytest.param(
            with_word(NEW, EXTENSION + 40, SIZE),
            f"byte {SIZE}",
            "a string has no end",
            id="subdirectory-behind-the-file",
        ),
        pytest.param(b"ld.so-1.7.0\0", "byte 0", "the magic string is not there", id="older-header-cut"),
    ],
)
def test_what_lies_outside_the_file_is_refused_with_its_place(data: bytes, place: str, why: str) -> None:
    assert (refusal(data).place, refusal(data).why) == (place, why)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cache_that_parses_can_be_read_to_its_end(layout: Layout) -> None:
    """Whoever got an LdCache needs to expect no error from it."""
    data = full_cache(layout)
    for at in range(len(data)):
        for value in (0, 1, 0x40, 0x7F, 0xFF):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            cache: Optional[LdCache] = None
            try:
                cache = parse_ldcache(changed)
            except FormatError as error:
                assert error.place.startswith("byte ")
            assert cache is None or len(list(cache)) == len(cache)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_cut_is_refused_or_read(layout: Layout) -> None:
    data = full_cache(layout)
    read = [answers(read_all, data[:end]) for end in range(len(data) + 1)]
    assert read[-1]
    assert not any(read[: len(data) // 3])


def test_a_path_without_end_is_cut_where_no_file_can_be() -> None:
    (found,) = parse_ldcache(build_ldcache([entry("a", "/" + "x" * 9000)]))
    assert len(found.path) == 4096  # PATH_MAX, its NUL included: the kernel says ENAMETOOLONG
    assert names(parse_ldcache(build_ldcache([entry("a" * 9000, "/a")])), "aaa") == ["a" * 4096]


def test_a_great_many_hwcaps_names_are_refused() -> None:
    """Each of 200,000 four-byte offsets could name the same string of 4 KiB."""
    strings = b"a\0" + b"x" * 4000 + b"\0"
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", 0, len(strings), 2, 48 + 4004)
    strings = strings.ljust(4004, b"\0")
    table = struct.pack("<I", 50) * 200_000
    extension = struct.pack("<IIIIII", 0xEAA42174, 1, 1, 0, 48 + 4004 + 24, len(table))
    assert refusal(head + strings + extension + table).place == f"byte {48 + 4004 + 8}"
    assert is_less_work(lambda: refusal(head + strings + extension + table), 20)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
def test_damage_gives_a_value_or_a_place(layout: Layout, data: st.DataObject) -> None:
    answers(read_all, data.draw(damaged(full_cache(layout))))
