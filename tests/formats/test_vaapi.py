"""What the code and constants of Intel's drivers for video say: iHD, libmfx-gen, libmfxhw64, libva."""

from __future__ import annotations

import struct

import pytest

from gpubind.formats.driver.vaapi import (
    LEAST_DEVICES,
    lacks_xe,
    maps_xe,
    parse_device_table,
    parse_devices,
    parse_release,
)
from tests.support.intel import device_table, registrations

KNOWN = frozenset(f"{number:04x}" for number in range(0x9A40, 0x9A40 + 2 * LEAST_DEVICES))
SOME = sorted(KNOWN)[:LEAST_DEVICES]


@pytest.mark.parametrize("register", [0xBE, 0xBF])
def test_the_devices_that_ihd_registers_are_read(register: int) -> None:
    found = parse_devices(registrations(*SOME, "e20b", register=register), KNOWN)
    assert found is not None
    assert {*SOME, "e20b"} <= found and not KNOWN - {*SOME} & found


def test_code_that_registers_too_few_devices_says_nothing() -> None:
    assert parse_devices(registrations(*SOME[1:]), KNOWN) is None
    assert parse_devices(bytes(4096), KNOWN) is None
    assert parse_devices(b"", KNOWN) is None


def test_the_table_of_a_runtime_of_onevpl_is_read_with_the_devices_that_nobody_knows() -> None:
    table = device_table(*SOME[:40], "1234", *SOME[40:])
    found = parse_device_table(b"\x01" * 24 + table + bytes(40) + struct.pack("<I", 0x9AB0) + bytes(40), KNOWN)
    assert found == {*SOME, "1234"}
    assert parse_device_table(device_table(*SOME[1:]), KNOWN) is None
    assert parse_device_table(b"", KNOWN) is None


def test_the_release_of_ihd_is_in_its_constants() -> None:
    text = b"\0Intel iHD driver for Intel(R) Gen Graphics - 25.2.3 ()\0"
    assert parse_release(text) == "25.2.3"
    assert parse_release(b"\0Intel i965 driver for Intel(R) Skylake - 2.4.1\0") is None


def test_a_driver_and_a_libva_for_xe_are_known_by_a_text() -> None:
    assert lacks_xe(b"\0INTEL_BUFMGR\0") and not lacks_xe(b"\0INTEL_XE_BUFMGR_DEBUG\0")
    assert maps_xe(b"\0i915\0xe\0") and not maps_xe(b"\0i915\0iHD\0")
