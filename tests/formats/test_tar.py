"""tar headers and pax records."""

from __future__ import annotations

import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.archive.tar import apply_pax, parse_pax, parse_tar_header
from tests.support import answers, damaged

KINDS = {b"0": "file", b"1": "hardlink", b"2": "link", b"3": "char", b"4": "block", b"5": "dir", b"6": "fifo"}


def info(name: str = "usr/lib/libx.so", kind: bytes = b"0", **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for field, value in fields.items():
        setattr(made, field, value)
    return made


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT]),
    st.integers(0, 0o7777),
    st.integers(0, 0o7777777),
    st.integers(0, 8**11 - 1),
    st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=20),
)
def test_a_header_says_what_tarfile_says(kind: bytes, form: int, mode: int, uid: int, size: int, name: str) -> None:
    link = "target" if kind in (b"1", b"2") else ""
    made = info(f"etc/{name}", kind, mode=mode, uid=uid, gid=7, size=size, linkname=link, devmajor=195, devminor=2)
    block = made.tobuf(form, "utf-8", "surrogateescape")[-512:]  # type: ignore[arg-type]
    header = parse_tar_header(block)
    theirs = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    assert header is not None
    assert (header.kind, header.name.rstrip("/"), header.link) == (KINDS[kind], theirs.name, theirs.linkname)
    assert (header.mode, header.uid, header.gid) == (theirs.mode, theirs.uid, theirs.gid)
    assert header.size == (size if kind == b"0" else 0)
    assert (header.major, header.minor) == ((195, 2) if kind in (b"3", b"4") else (0, 0))


def test_a_name_in_two_fields_is_put_together() -> None:
    name = "/".join(["directory"] * 20)
    header = parse_tar_header(info(name).tobuf(tarfile.USTAR_FORMAT))
    assert header is not None
    assert header.name == name


@pytest.mark.parametrize(
    ("number", "read"),
    [(0, 0), (255, 255), (0xFFFFFFFE, 0xFFFFFFFE), (0xFFFFFFFF, 0xFFFFFFFF), (1 << 32, 0), ((1 << 32) + 1, 1)],
)
@pytest.mark.parametrize(
    ("field", "attribute"), [("devmajor", "major"), ("devminor", "minor"), ("uid", "uid"), ("gid", "gid")]
)
def test_numbers_of_devices_and_owners_have_32_bits(field: str, attribute: str, number: int, read: int) -> None:
    header = parse_tar_header(info("dev/x", b"3", **{field: number}).tobuf(tarfile.GNU_FORMAT))
    assert header is not None
    others = dict.fromkeys(("major", "minor", "uid", "gid"), 0)
    assert {name: getattr(header, name) for name in others} == {**others, attribute: read}


def test_sizes_of_more_than_eight_gigabytes() -> None:
    header = parse_tar_header(info(size=1 << 40).tobuf(tarfile.GNU_FORMAT))
    assert header is not None
    assert header.size == 1 << 40


@pytest.mark.parametrize("size", [-1, 1 << 80])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse_tar_header(info(size=size).tobuf(tarfile.GNU_FORMAT))
    assert caught.value.place == "byte 124"


def test_pax_attributes_correct_a_header() -> None:
    header = parse_tar_header(info(uid=1).tobuf())
    assert header is not None
    attributes = parse_pax(b"15 path=a/b/cd\n11 uid=777\n20 linkpath=a b = c\n12 size=123\n\0\0")
    assert attributes == {"path": "a/b/cd", "uid": "777", "linkpath": "a b = c", "size": "123"}
    corrected = apply_pax(header, attributes)
    assert (corrected.name, corrected.uid, corrected.link, corrected.size) == ("a/b/cd", 777, "a b = c", 123)


@pytest.mark.parametrize("data", [b"x", b"5", b"99 a=b\n", b"0 a=b\n", b"3 \n", b"5 ab\n", b"-5 a=\n", b"1" * 100])
def test_pax_attributes_that_are_none(data: bytes) -> None:
    assert not answers(parse_pax, data)


@pytest.mark.parametrize("text", ["x", "-1", "1" * 20, "\u0661"])
def test_a_pax_number_that_is_none_is_damage_of_its_header(text: str) -> None:
    header = parse_tar_header(info().tobuf())
    assert header is not None
    with pytest.raises(FormatError) as caught:
        apply_pax(header, {"uid": text})
    assert (caught.value.place, caught.value.why) == ("byte 0", f"pax uid {text!r}")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_damage_makes_another_exception(data: st.DataObject) -> None:
    answers(parse_tar_header, data.draw(damaged(info().tobuf(tarfile.USTAR_FORMAT))))
    answers(parse_pax, data.draw(damaged(b"15 path=a/b/cd\n11 uid=777\n20 linkpath=a b = c\n")))


def test_another_writers_checksum_counts_too() -> None:
    block = bytearray(info("\udce9t\udce9").tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape"))
    signed = sum(byte - 256 * (byte > 127) for byte in block[:148] + b" " * 8 + block[156:])
    block[148:156] = b"%06o\0 " % signed
    assert parse_tar_header(bytes(block)) is not None
