"""Variables that list GPUs: each is read as its own library or program reads it."""

from __future__ import annotations

import pytest

from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES
from gpubind.model import Inventory
from gpubind.planner.gpus.choice import usable_gpus
from gpubind.planner.gpus.environment import GpuList, ParsedGpuList, read_list
from tests.planner.gpus.hosts import HOSTS, amd, hexid, nvidia
from tests.support.driver import uuid

AMD = amd(4, uniques=(0xAA << 56, 0xAB << 56, 0x10 << 56, 0x20 << 56))


def read(variable: str, value: str, inventory: Inventory) -> ParsedGpuList:
    return read_list(GpuList(variable, inventory, {variable: value}), usable_gpus(inventory), certain=True)


@pytest.mark.parametrize(
    ("value", "seen", "ends_at"),
    [
        ("0", [0], []),
        ("3,0", [3, 0], []),
        (" 1 , 2 ", [1, 2], []),
        ("00", [0], []),
        ("GPU-ab", [1], []),
        ("GPU-AB", [1], []),
        ("GPU-1", [2], []),
        ("GPU-a", [], ["GPU-a"]),  # two of them
        ("0,4,1", [0], ["4"]),
        ("4,0", [], ["4"]),
        ("-1", [], ["-1"]),
        ("0,-1,1", [0], ["-1"]),
        ("0,", [0], []),
        ("0,,1", [0], [""]),
        ("all", [], ["all"]),
        ("GPU-", [], ["GPU-"]),
        ("1x", [], ["1x"]),
        ("\u00b2", [], ["\u00b2"]),
        ("99999999999999999999", [], ["99999999999999999999"]),
    ],
)
def test_rocrs_list_ends_at_the_first_word_that_it_does_not_know(
    value: str, seen: list[int], ends_at: list[str]
) -> None:
    got = read(ROCR_VISIBLE_DEVICES, value, AMD)
    assert [chosen.gpu.index for chosen in got.chosen] == seen
    assert got.unknown == tuple(ends_at)
    assert got.repeated is None


@pytest.mark.parametrize(("value", "at"), [("0,0", "0"), ("0,GPU-aa", "GPU-aa"), ("0,0,9", "0")])
def test_rocrs_list_ends_at_a_repetition(value: str, at: str) -> None:
    got = read(ROCR_VISIBLE_DEVICES, value, AMD)
    assert [chosen.gpu.index for chosen in got.chosen] == [0]
    assert (got.repeated, got.unknown) == (at, ())


def test_cudas_list_goes_on_after_a_repetition() -> None:
    assert [chosen.gpu.index for chosen in read(CUDA_VISIBLE_DEVICES, "0,0,1", nvidia(2)).chosen] == [0, 0, 1]


def test_the_toolkits_list_goes_on_after_a_name_that_is_unknown() -> None:
    got = read(NVIDIA_VISIBLE_DEVICES, "7,1,8,nvidia.com/gpu=0", nvidia(2))
    assert ([chosen.gpu.index for chosen in got.chosen], got.unknown) == ([1], ("7", "8"))


@pytest.mark.parametrize(("variable", "seen"), [(CUDA_VISIBLE_DEVICES, []), (NVIDIA_VISIBLE_DEVICES, [1])])
def test_small_letters_are_for_the_toolkit_alone(variable: str, seen: list[int]) -> None:
    assert [
        chosen.gpu.index for chosen in read(variable, uuid(1).lower().replace("GPU", "gpu"), nvidia(2)).chosen
    ] == seen


def test_a_number_that_may_be_anothers_leaves_everything_open() -> None:
    inventory = HOSTS["cgroup"][0]
    got = read_list(
        GpuList(CUDA_VISIBLE_DEVICES, inventory, {CUDA_VISIBLE_DEVICES: f"{uuid(2)},1"}),
        usable_gpus(inventory),
        certain=False,
    )
    assert (got.chosen, got.ambiguity) == ((), "order")


@pytest.mark.parametrize(("value", "doubt"), [(hexid(2), "uuid"), (hexid(0), None)])
def test_a_uuid_is_open_while_a_gpu_has_not_told_its_own(value: str, doubt: object) -> None:
    assert read(ROCR_VISIBLE_DEVICES, value, amd(3, untold=(2,))).ambiguity == doubt
