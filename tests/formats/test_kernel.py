"""Texts of /proc, as the NVIDIA driver and the kernel print them."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.kernel import (
    GpuInformation,
    normalize_pci,
    parse_devices,
    parse_driver_version,
    parse_fields,
    parse_gpu_information,
    parse_module_version,
    parse_modules,
)
from tests.support import answers, damaged
from tests.support.measure import is_less_work

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\n"
    "GCC version:  gcc version 14.2.0 (Debian 14.2.0-19)\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (root@build)  Thu Feb 27\n"
    "GCC version:  gcc version 11.5.0 20240719 (Red Hat 11.5.0-5) (GCC)\n"
)
INFORMATION = """\
Model: \t\t NVIDIA H200
IRQ:   \t\t 201
GPU UUID: \t GPU-7c1a3f52-1f3e-4f0e-9f2a-0a1b2c3d4e5f
Video BIOS: \t 96.00.a0.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t 0000:4B:00.0
Device Minor: \t 3
GPU Firmware: \t 550.163.01
GPU Excluded:\t No
"""
DEVICES = """\
Character devices:
  1 mem
  5 /dev/tty
195 nvidia
195 nvidiactl
234 nvidia-caps
508 nvidia-uvm

Block devices:
  7 loop
259 blkext
"""
PARAMS = 'ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\nRegistryDwords: "a=1;b=2"\n'


def refusal(text: str, parse: object) -> FormatError:
    assert callable(parse)
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert caught.value.code == "bad-procfs"
    assert caught.value.place
    return caught.value


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param(PROPRIETARY, "550.163.01", id="proprietary"),
        pytest.param(OPEN, "570.124.06", id="open"),
        pytest.param("NVRM version: NVIDIA UNIX aarch64 Kernel Module  390.157  Wed\n", "390.157", id="two-numbers"),
        pytest.param("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07", "550.90.07", id="nothing-behind"),
        pytest.param("GCC version: gcc 12.3.0\nNVRM version: x  470.256.02  x", "470.256.02", id="second-line"),
    ],
)
def test_the_driver_version_is_read_in_both_wordings(text: str, version: str) -> None:
    assert parse_driver_version(text) == version


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        pytest.param("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8\n", "proprietary", id="x"),
        pytest.param("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  x\n", "open", id="open"),
        pytest.param("GCC version: a\nNVRM version: NVIDIA UNIX Open Kernel Module for aarch64 ", "open", id="second"),
        pytest.param("NVRM version: 550.1\nGCC version: Kernel Module", None, id="another-line"),
        pytest.param("", None, id="empty"),
    ],
)
def test_the_kind_of_the_kernel_modules_is_in_the_line_of_the_version(text: str, modules: Optional[str]) -> None:
    assert parse_modules(text) == modules


@pytest.mark.parametrize("text", ["", "GCC version: gcc 12.3.0", "NVRM version: NVIDIA UNIX", "NVRM version: a1.2b"])
def test_a_text_without_driver_version_is_refused(text: str) -> None:
    refusal(text, parse_driver_version)


@pytest.mark.parametrize("text", ["550.163.01\n", "550.163.01", "  550.163.01 \n"])
def test_the_module_version_is_the_whole_file(text: str) -> None:
    assert parse_module_version(text) == "550.163.01"


@pytest.mark.parametrize(
    "text", ["", "\n", "550", "550.163.01 x", "v550.163.01", "1.2.3.4.5", "550.\u0661\u0666\u0663"]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    refusal(text, parse_module_version)


def test_a_gpu_tells_its_model_uuid_address_and_minor() -> None:
    uuid = "GPU-7c1a3f52-1f3e-4f0e-9f2a-0a1b2c3d4e5f"
    assert parse_gpu_information(INFORMATION) == GpuInformation("NVIDIA H200", uuid, "0000:4b:00.0", 3, False)


def test_a_gpu_that_was_never_used_has_no_uuid() -> None:
    text = INFORMATION.replace("7c1a3f52-1f3e-4f0e-9f2a-0a1b2c3d4e5f", "????????-????-????-????-????????????")
    assert parse_gpu_information(text).uuid is None


@pytest.mark.parametrize(("value", "excluded"), [("Yes", True), ("No", False), ("", False)])
def test_a_gpu_says_whether_it_is_excluded(value: str, excluded: bool) -> None:
    assert parse_gpu_information(INFORMATION.replace("No", value)).excluded is excluded


@pytest.mark.parametrize(
    "line", ["Device Minor: -1", "Device Minor: 12345678901", "Device Minor: \u0663", "Bus Location: 4B:00.0", "x", ""]
)
def test_a_line_that_is_missing_or_odd_is_none(line: str) -> None:
    assert parse_gpu_information(line) == GpuInformation(None, None, None, None, False)


def test_parameters_are_names_and_values() -> None:
    params = parse_fields(PARAMS)
    assert params["DeviceFileGID"] == "44"
    assert params["RegistryDwords"] == '"a=1;b=2"'


def test_only_character_devices_are_listed_in_the_order_of_the_file() -> None:
    names = ("mem", "/dev/tty", "nvidia", "nvidiactl", "nvidia-caps", "nvidia-uvm")
    assert parse_devices(DEVICES) == tuple(zip(names, (1, 5, 195, 195, 234, 508)))
    assert parse_devices("Block devices:\n  7 loop\n\nCharacter devices:\n  1 mem\n") == (("mem", 1),)


@pytest.mark.parametrize("line", ["nvidia 195", "195", "-1 x", "1234567890 x", "\u0661 mem"])
def test_a_malformed_device_is_refused_by_line(line: str) -> None:
    assert refusal(f"Character devices:\n  1 mem\n{line}\n", parse_devices).place == "line 3"


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("0000:4B:00.0", "0000:4b:00.0"),
        ("00000000:4B:00.0", "0000:4b:00.0"),
        ("00010000:01:00.1", "10000:01:00.1"),
        ("4B:00.0", None),
        ("0000:4B:00.8", None),
        ("0000:4B:00.0\n", None),
        ("", None),
    ],
)
def test_a_pci_address_has_a_domain_of_four_digits_in_lower_case(address: str, normal: Optional[str]) -> None:
    assert normalize_pci(address) == normal


@pytest.mark.parametrize("text", ["NVRM version:" * 20_000, "NVRM version: " + "1 " * 200_000, "1.1" * 100_000])
def test_a_long_text_takes_no_long_time(text: str) -> None:
    assert not answers(lambda data: parse_driver_version(data.decode()), text.encode())
    assert is_less_work(lambda: answers(lambda data: parse_driver_version(data.decode()), text.encode()), 100)


def parse_all(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    parse_gpu_information(text)
    parse_fields(text)
    for parse in (parse_driver_version, parse_module_version, parse_devices):
        answers(lambda _, parse=parse: parse(text), b"")  # type: ignore[misc]


@given(st.one_of(*(damaged(text.encode()) for text in (PROPRIETARY, OPEN, INFORMATION, DEVICES, PARAMS))))
@settings(max_examples=100, deadline=None)
def test_damage_gives_a_value_or_a_place(data: bytes) -> None:
    parse_all(data)
