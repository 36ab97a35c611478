"""Which code a GPU runs: machine code within a major version, PTX upward, suffixes, AMD's processors."""

from __future__ import annotations

import pytest

from gpubind.model.gpucode import (
    CodeFile,
    CodeModule,
    GpuCode,
    Ptx,
    Share,
    arch_of_capability,
    arch_of_override,
    arch_sort_key,
    best_share,
    gpu_code,
)
from tests.support.gpucode import module

RUNS = {
    "sm_70": "sm_70 compute_50 compute_70",
    "sm_75": "sm_70 sm_75 compute_52 compute_75",
    "sm_86": "sm_80 sm_86 compute_80",
    "sm_89": "sm_80 sm_86 sm_89 compute_86",
    "sm_90": "sm_90 sm_90a compute_90 compute_90a compute_89",
    "sm_100": "sm_100 sm_100a sm_100f compute_100a compute_100f compute_90",
    "sm_103": "sm_100 sm_100f sm_103 sm_103a compute_100f compute_100",
    "sm_120": "sm_120 sm_120a sm_120f compute_120a compute_100 compute_90",
    "sm_121": "sm_120 sm_120f sm_121a compute_120f compute_90",
    "sm_87": "sm_87 compute_87",
    "gfx1030": "gfx1030 gfx10-3-generic amdgcnspirv",
    "gfx1036": "gfx1036 gfx10-3-generic",
    "gfx90a": "gfx90a gfx90a:xnack+ gfx90a:sramecc+:xnack- amdgcnspirv",
    "gfx90a:xnack-": "gfx90a gfx90a:xnack- gfx90a:sramecc+",
    "gfx942": "gfx942 gfx9-4-generic gfx942:sramecc+:xnack-",
}
RUNS_NOT = {
    "sm_70": "sm_60 sm_75 compute_75 gfx900 amdgcnspirv",
    "sm_86": "sm_87 sm_89 sm_90 sm_75 compute_90",
    "sm_90": "sm_80 sm_89 sm_100 compute_100",
    "sm_100": "sm_90 sm_90a sm_103 sm_120 compute_90a compute_120 compute_103f",
    "sm_103": "sm_100a compute_100a sm_120f",
    "sm_120": "sm_100 sm_100f compute_100f compute_100a sm_121a compute_121",
    "sm_121": "sm_120a compute_120a",
    "sm_87": "sm_80 sm_86",
    "gfx1030": "gfx1031 gfx10-1-generic gfx11-generic sm_80 compute_52",
    "gfx1032": "gfx1030",
    "gfx90a": "gfx908 gfx9-generic gfx942",
    "gfx90a:xnack-": "gfx90a:xnack+",
    "gfx942": "gfx90a gfx9-generic",
}


def code(one: str) -> GpuCode:
    if one == "amdgcnspirv":
        return GpuCode((CodeModule((), (Ptx(one),)),))
    return GpuCode((module(one),))


@pytest.mark.parametrize("gpu", RUNS)
def test_a_gpu_runs_the_code_for_it(gpu: str) -> None:
    assert [one for one in RUNS[gpu].split() if not code(one).runs_on(gpu)] == []


@pytest.mark.parametrize("gpu", RUNS_NOT)
def test_a_gpu_does_not_run_the_code_for_others(gpu: str) -> None:
    assert [one for one in RUNS_NOT[gpu].split() if code(one).runs_on(gpu)] == []


def shuffled(names: list[str]) -> list[str]:
    return names[1::2] + names[::2]


def test_architectures_stand_in_the_order_of_their_numbers() -> None:
    nvidia = ["sm_50", "sm_90", "sm_90a", "sm_100", "sm_120"]
    amd = ["gfx803", "gfx90a", "gfx90a:xnack-", "gfx942", "gfx1030", "gfx1100", "gfx9-generic", "gfx10-3-generic"]
    assert sorted(shuffled(nvidia), key=arch_sort_key) == nvidia
    assert sorted(shuffled(amd), key=arch_sort_key) == amd


def test_a_compute_capability_names_an_architecture() -> None:
    assert [arch_of_capability(text) for text in ("7.0", "8.6", "12.0", "8", "x.y", "8.10")] == [
        "sm_70", "sm_86", "sm_120", None, None, None,
    ]  # fmt: skip


def test_the_override_names_a_processor_in_decimal_numbers() -> None:
    assert [arch_of_override(text) for text in ("10.3.0", "9.0.10", "11.0.0", "10.3", "", "gfx1030")] == [
        "gfx1030", "gfx90a", "gfx1100", None, None, None,
    ]  # fmt: skip


# Modules.

PADDLE = GpuCode((module("sm_61", "sm_70", "sm_75", "sm_80", "sm_86", alike=665), module("sm_35", "sm_60", "sm_90")))
VLLM = GpuCode(
    (
        module("sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120", alike=29),
        module("sm_90a", alike=20),
        module("sm_80", "compute_80@8.8", alike=12),
        module("sm_100a", "sm_120a", alike=11),
        module("sm_89", "sm_120", alike=5),
        module("sm_52", "compute_52@8.8"),
    )
)


def test_equal_modules_become_one_with_their_number() -> None:
    made = gpu_code([(["sm_80"], []), (["sm_90", "sm_70"], [Ptx("compute_90", "8.4")]), (["sm_80"], []), ([], [])])
    assert made.modules == (module("sm_80", alike=2), module("sm_70", "sm_90", "compute_90@8.4"))


@pytest.mark.parametrize(("gpu", "share"), [("sm_90", (1, 666)), ("sm_61", (666, 666)), ("sm_86", (665, 666))])
def test_an_architecture_is_counted_by_the_modules_that_run_on_it(gpu: str, share: tuple[int, int]) -> None:
    assert PADDLE.share(gpu) == share


@pytest.mark.parametrize(
    ("gpu", "share"),
    [("sm_60", (1, 47)), ("sm_70", (30, 47)), ("sm_80", (42, 47)), ("sm_90", (62, 67)), ("sm_120", (58, 58))],
)
def test_modules_for_other_single_architectures_do_not_count(gpu: str, share: tuple[int, int]) -> None:
    assert VLLM.share(gpu) == share


def test_nothing_counts_of_a_file_for_another_single_architecture() -> None:
    assert GpuCode((module("sm_90a", alike=222),)).share("sm_80") == (0, 0)


@pytest.mark.parametrize(
    ("runs", "modules", "is_enough", "is_next_to_nothing"),
    [(0, 0, False, True), (0, 9, False, True), (24, 100, False, True), (25, 100, False, False),
     (49, 100, False, False), (50, 100, True, False), (1, 1, True, False)],
)  # fmt: skip
def test_half_of_the_modules_are_enough_and_less_than_a_quarter_is_next_to_nothing(
    runs: int, modules: int, is_enough: bool, is_next_to_nothing: bool
) -> None:
    share = Share(runs, modules)
    assert (share.is_enough, share.is_next_to_nothing) == (is_enough, is_next_to_nothing)


@pytest.mark.parametrize(
    ("isa", "cuda", "runs"),
    [("8.4", "12.4", 1), ("8.4", "12.3", 0), ("8.5", "12.6", 1), ("9.0", "12.9", 0), ("99.0", "12.9", 1)],
)
def test_a_driver_compiles_ptx_of_its_own_cuda_or_an_older_one(isa: str, cuda: str, runs: int) -> None:
    code = GpuCode((module("sm_80", f"compute_80@{isa}"),))
    assert code.share("sm_90", cuda) == (runs, 1)
    assert code.share("sm_80", cuda) == (1, 1)
    assert code.share("sm_90") == (1, 1)


def test_of_several_files_the_best_one_counts() -> None:
    files = [CodeFile(f"/{at}", "x", True, GpuCode((module(name),))) for at, name in enumerate(("sm_70", "sm_120"))]
    assert [best_share(files, gpu) for gpu in ("sm_75", "sm_120", "sm_90")] == [(1, 1), (1, 1), (0, 1)]
    assert best_share([], "sm_80") == (0, 0)
