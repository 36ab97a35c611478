"""Names in variables that list GPUs: which of them the reader of each understands."""

from __future__ import annotations

import pytest

from gpubind.formats.driver import gpu_variables as variables
from gpubind.formats.driver.gpu_lists import RULES, is_number, is_uuid, parse_listed

UUID = "GPU-00000000-1111-2222-3333-444444444444"
CUDA, ROCR, NVIDIA = variables.CUDA_VISIBLE_DEVICES, variables.ROCR_VISIBLE_DEVICES, variables.NVIDIA_VISIBLE_DEVICES
SLURM = variables.SLURM_GPUS[0]


def test_every_variable_that_lists_gpus_has_its_rule() -> None:
    assert tuple(RULES) == variables.GPU_VARIABLES


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
    assert {variable for variable in (SLURM, CUDA, ROCR, NVIDIA) if parse_listed(name, RULES[variable])} == readers


@pytest.mark.parametrize(("variable", "found"), [(NVIDIA, "other"), (CUDA, None)])
def test_names_of_other_devices_are_for_the_toolkit_alone(variable: str, found: object) -> None:
    assert parse_listed("nvidia.com/gpu=0", RULES[variable]) == found


def test_a_number_is_no_uuid_and_a_word_is_neither() -> None:
    assert [(is_number(name), is_uuid(name)) for name in ("7", UUID, "MIG-aaaa", "all", "-1")] == [
        (True, False),
        (False, True),
        (False, True),
        (False, False),
        (False, False),
    ]
