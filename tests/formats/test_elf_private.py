"""The private symbols of a glibc, in files of both classes and orders."""

from __future__ import annotations

import pytest

from gpubind.formats.elf.private import private_symbols
from tests.support.elf import elf

BOTH = pytest.mark.parametrize(("bits", "order"), [(64, "little"), (64, "big"), (32, "little"), (32, "big")])
DEFINES = ("libc.so.6", "GLIBC_2.2.5", "GLIBC_PRIVATE")
NEEDS = {"libm.so.6": ("GLIBC_2.29",), "libc.so.6": ("GLIBC_2.2.5", "GLIBC_PRIVATE")}


@BOTH
def test_what_a_library_gives_to_the_others_of_its_glibc(bits: int, order: str) -> None:
    data = elf("libc.so.6", bits=bits, order=order, defines=DEFINES, private=("__a", "__b"))  # type: ignore[arg-type]
    assert private_symbols(data) == (frozenset({"__a", "__b"}), frozenset())


@BOTH
def test_what_a_file_wants_of_them(bits: int, order: str) -> None:
    data = elf("libx.so.1", bits=bits, order=order, needs=NEEDS, private=("__a",))  # type: ignore[arg-type]
    assert private_symbols(data) == (frozenset(), frozenset({"__a"}))


def test_a_file_without_that_version_has_none() -> None:
    assert private_symbols(elf("libx.so.1", defines=("libx.so.1", "V_1"))) == (frozenset(), frozenset())


def test_damage_is_no_error() -> None:
    data = elf("libx.so.1", needs=NEEDS, private=("__a",))
    assert private_symbols(b"") == private_symbols(b"#!/bin/sh") == (frozenset(), frozenset())
    for end in range(0, len(data), 7):
        private_symbols(data[:end])
        private_symbols(data[:end] + b"\xff" * 8 + data[end + 8 :])
