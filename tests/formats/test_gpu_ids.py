"""Names of GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.errors import UsageError
from gpubind.formats.driver.gpu_ids import GpuId, parse_gpu_id, parse_gpus, split_visible


@pytest.mark.parametrize(
    ("text", "spelling", "value", "gi", "ci"),
    [
        ("0", "index", "0", None, None),
        ("007", "index", "7", None, None),
        ("GPU-DeadBeef", "uuid", "gpu-deadbeef", None, None),
        ("minor:3", "minor", "3", None, None),
        ("renderD129", "render", "/dev/dri/renderD129", None, None),
        ("/dev/dri/renderD0129", "render", "/dev/dri/renderD129", None, None),
        ("0000:3B:00.0", "pci", "0000:3b:00.0", None, None),
        ("00000000:3b:00.0", "pci", "0000:3b:00.0", None, None),
        ("3b:00.0", "pci", "0000:3b:00.0", None, None),
        ("0:1/2", "mig-instance", "0", 1, 2),
        ("MIG-GPU-12-34/5/6", "mig-gpu", "gpu-12-34", 5, 6),
        ("MIG-1234", "mig-uuid", "mig-1234", None, None),
        ("2:1", "mig-index", "2", 1, None),
    ],
)
def test_each_spelling_is_known(text: str, spelling: str, value: str, gi: object, ci: object) -> None:
    assert parse_gpu_id(text) == GpuId(text, spelling, value, gi, ci)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "-1", "GPU-", "GPU-xyz", "MIG-", "0:", ":0", "0:1/", "minor:", "minor:-1", "9999999999", "0-3", "all", "0 1",
     "\u0660", "GPU-12\n", "3b:00.8", "/dev/nvidia0"],
)  # fmt: skip
def test_anything_else_is_none(text: str) -> None:
    assert parse_gpu_id(text) is None


def test_all_and_none_stand_alone() -> None:
    assert (parse_gpus("All"), parse_gpus("none ")) == ("all", "none")
    with pytest.raises(UsageError, match="bad-gpus"):
        parse_gpus("none,0")


def test_a_comma_at_the_end_of_a_variable_names_nothing() -> None:
    assert split_visible(" 0, 1,") == ("0", "1")
    assert split_visible("") == ("",)


@given(st.text())
def test_any_text_is_a_list_or_an_error_of_usage(text: str) -> None:
    try:
        parse_gpus(text)
    except UsageError as error:
        assert error.code == "bad-gpus"
