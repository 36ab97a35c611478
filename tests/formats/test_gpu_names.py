"""Names of GPUs, and which of them the reader of each variable understands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.errors import UsageError
from gpubind.formats.driver import gpu_names as variables
from gpubind.formats.driver.gpu_names import (
    LIST_RULES,
    GpuId,
    is_index,
    is_uuid,
    parse_gpu_id,
    parse_gpus_option,
    parse_list_item,
    split_visible,
)
from tests.support.golden import assert_listed, assert_none

UUID = "GPU-00000000-1111-2222-3333-444444444444"
CUDA, ROCR, NVIDIA = variables.CUDA_VISIBLE_DEVICES, variables.ROCR_VISIBLE_DEVICES, variables.NVIDIA_VISIBLE_DEVICES
SLURM = variables.SLURM_GPUS[0]


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
    assert (parse_gpus_option("All"), parse_gpus_option("none ")) == ("all", "none")
    with pytest.raises(UsageError, match="bad-gpus"):
        parse_gpus_option("none,0")


def test_a_comma_at_the_end_of_a_variable_names_nothing() -> None:
    assert split_visible(" 0, 1,") == ("0", "1")
    assert split_visible("") == ("",)


@given(st.text())
def test_any_text_is_a_list_or_an_error_of_usage(text: str) -> None:
    try:
        parse_gpus_option(text)
    except UsageError as error:
        assert error.code == "bad-gpus"


def test_every_variable_that_lists_gpus_has_its_rule() -> None:
    passed_through = {*variables.INTEL_VARIABLES, variables.GPU_DEVICE_ORDINAL}
    file = "gpubind/formats/driver/gpu_names.py"
    assert_listed(
        [*LIST_RULES, *sorted(passed_through)],
        variables.GPU_VARIABLES,
        add=f"{file}: add the rule of `{{}}` to RULES: how the library or program that reads it understands it",
        remove=f"{file}: add `{{}}` to GPU_VARIABLES",
    )
    assert_none(sorted(passed_through & LIST_RULES.keys()), f"{file}: remove `{{}}` from RULES: it is passed through")


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        (variables.CUDA_VISIBLE_DEVICES, "CUDA_VISIBLE_DEVICES"),
        (variables.CUDA_DEVICE_ORDER, "CUDA_DEVICE_ORDER"),
        (variables.ROCR_VISIBLE_DEVICES, "ROCR_VISIBLE_DEVICES"),
        (variables.HIP_VISIBLE_DEVICES, "HIP_VISIBLE_DEVICES"),
        (variables.GPU_DEVICE_ORDINAL, "GPU_DEVICE_ORDINAL"),
        (variables.NVIDIA_VISIBLE_DEVICES, "NVIDIA_VISIBLE_DEVICES"),
        (variables.CAPS_VARIABLE, "NVIDIA_DRIVER_CAPABILITIES"),
        (variables.AMD_VISIBLE_DEVICES, "AMD_VISIBLE_DEVICES"),
        (variables.ZE_AFFINITY_MASK, "ZE_AFFINITY_MASK"),
        (variables.ZE_HIERARCHY, "ZE_FLAT_DEVICE_HIERARCHY"),
        (variables.ZE_PCI_ORDER, "ZE_ENABLE_PCI_ID_DEVICE_ORDER"),
        (variables.HABANA_VISIBLE_DEVICES, "HABANA_VISIBLE_DEVICES"),
        (variables.PCI_ORDER, "PCI_BUS_ID"),
    ],
)
def test_a_variable_has_the_name_that_its_vendor_documents(variable: str, name: str) -> None:
    assert variable == name


def test_variables_that_list_gpus_are_read_in_this_order() -> None:
    assert (
        *("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
        *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES"),
        *("ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER"),
        *("ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_FILTER", "HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"),
    ) == variables.GPU_VARIABLES


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("0", {SLURM, CUDA, ROCR, NVIDIA}),
        (UUID, {CUDA, ROCR, NVIDIA}),
        (UUID.lower(), {NVIDIA}),
        (f"MIG-{UUID}/1/0", {CUDA, NVIDIA}),
        ("MIG-aaaa", {CUDA, NVIDIA}),
        ("0000:17:00.0", {NVIDIA}),
        ("0:1", {NVIDIA}),
        ("0:1/0", set()),
        ("minor:0", set()),
        ("renderD128", set()),
        ("all", set()),
        ("", {NVIDIA}),  # an empty place in its list
    ],
)
def test_a_name_is_understood_by_these_readers(name: str, readers: set[str]) -> None:
    assert {
        variable for variable in (SLURM, CUDA, ROCR, NVIDIA) if parse_list_item(name, LIST_RULES[variable])
    } == readers


@pytest.mark.parametrize(("variable", "found"), [(NVIDIA, "other"), (CUDA, None)])
def test_names_of_other_devices_are_for_the_toolkit_alone(variable: str, found: object) -> None:
    assert parse_list_item("nvidia.com/gpu=0", LIST_RULES[variable]) == found


def test_a_number_is_no_uuid_and_a_word_is_neither() -> None:
    assert [(is_index(name), is_uuid(name)) for name in ("7", UUID, "MIG-aaaa", "all", "-1")] == [
        (True, False),
        (False, True),
        (False, True),
        (False, False),
        (False, False),
    ]
