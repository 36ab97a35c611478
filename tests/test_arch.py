"""Architectures: one table, from which everybody has their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gpubind
from gpubind.model.arch import ARCHITECTURES, DRIVER_ARCHITECTURES, architecture, architecture_of_elf, library_token

PACKAGE = Path(gpubind.__file__).parent


def test_each_architecture_is_found_by_every_name_of_its_own() -> None:
    for known in ARCHITECTURES:
        assert {architecture(name) for name in (known.name, *known.aliases)} == {known}
        assert architecture_of_elf(known.elf_machine, known.bits, known.byte_order) == known.name


def test_no_two_architectures_share_a_name() -> None:
    names = [name for known in ARCHITECTURES for name in (known.name, *known.aliases)]
    assert len(names) == len(set(names))
    for field in ("triplet", "goarch"):
        assert len({getattr(known, field) for known in ARCHITECTURES}) == len(ARCHITECTURES)


def test_the_class_and_the_order_tell_architectures_of_one_machine_apart() -> None:
    assert architecture_of_elf(62, 64, "little") == "x86_64"
    assert architecture_of_elf(62, 32, "little") == "x32"
    assert architecture_of_elf(21, 64, "little") == "ppc64le"
    assert architecture_of_elf(21, 64, "big") == "ppc64"
    assert architecture_of_elf(9999, 64, "little") == "machine-9999"


def test_the_32_bit_companion_is_one_of_32_bits() -> None:
    assert architecture("x86_64").compat32 == "i386"
    assert architecture("aarch64").compat32 == "arm"
    assert architecture("ppc64le").compat32 is None
    assert all(architecture(known.compat32).bits == 32 for known in ARCHITECTURES if known.compat32)


def test_one_that_nobody_knows_has_its_own_name() -> None:
    assert architecture("sparc64").name == architecture("sparc64").goarch == "sparc64"
    assert architecture("sparc64").compat32 is None


@pytest.mark.parametrize(
    ("libc", "token"),
    [
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu"),
        ("/lib/i386-linux-gnu/libc-2.31.so", "lib/i386-linux-gnu"),
        ("/usr/lib64/libc.so.6", "lib64"),
        ("/lib32/libc.so.6", "lib32"),
        ("/usr/lib/libc.so.6", "lib"),
        ("/nix/store/abc-glibc-2.39/lib/libc.so.6", "lib"),
        ("/opt/odd/libc.so.6", None),
    ],
)
def test_lib_is_where_libc_lies_without_the_prefix(libc: str, token: object) -> None:
    assert library_token(libc) == token


def test_no_other_module_has_a_table_of_architectures() -> None:
    names = {name for known in ARCHITECTURES for name in (known.name, known.goarch, known.triplet)} - {"arm", "x32"}
    literal = re.compile("|".join(f'"{re.escape(name)}"' for name in sorted(names)))
    modules = (path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "arch.py")
    assert {path.name for path in modules if literal.search(path.read_text())} == set()


def test_those_with_a_driver_are_known() -> None:
    assert set(DRIVER_ARCHITECTURES) <= {known.name for known in ARCHITECTURES}
