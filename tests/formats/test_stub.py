"""Stubs are told by what they hold."""

from __future__ import annotations

import pytest

from gpubind.formats.elf.elf import is_stub
from tests.support.elf import elf, stub


@pytest.mark.parametrize("soname", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_the_toolkits_libraries_are_stubs(soname: str) -> None:
    assert is_stub(stub(soname))


@pytest.mark.parametrize("way", ["ioctl", "dlopen", "syscall", "socket", "mmap"])
def test_a_libcuda_that_can_reach_a_driver_is_none(way: str) -> None:
    assert not is_stub(stub(imports=(way,)))


def test_a_libcuda_that_only_talks_is_a_stub_whoever_made_it() -> None:
    assert is_stub(stub(imports=("puts", "__cxa_finalize", "popen", "fopen")))


def test_a_stand_in_for_nvml_that_reports_gpus_is_no_stub() -> None:
    assert not is_stub(elf("libnvidia-ml.so.1") + b"\0nvmlInit_v2\0nvmlDeviceGetCount_v2\0snprintf\0")


@pytest.mark.parametrize("data", [b"", b"INPUT(-lcuda) cuInit\0", elf("libcuda.so.1")], ids=["empty", "text", "other"])
def test_what_has_none_of_the_functions_is_no_stub(data: bytes) -> None:
    assert not is_stub(data)
