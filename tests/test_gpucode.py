"""Which code a GPU runs: machine code within a major version, PTX upward, suffixes, AMD's processors."""

from __future__ import annotations

import pytest

from gpubind.model.gpucode import GpuCode, arch_of_capability, arch_of_override, arch_order, made_of

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
    is_compiled = one.startswith("compute_") or one == "amdgcnspirv"
    return made_of((), (one,)) if is_compiled else made_of((one,))


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
    assert sorted(shuffled(nvidia), key=arch_order) == nvidia
    assert sorted(shuffled(amd), key=arch_order) == amd


def test_a_compute_capability_names_an_architecture() -> None:
    assert [arch_of_capability(text) for text in ("7.0", "8.6", "12.0", "8", "x.y", "8.10")] == [
        "sm_70", "sm_86", "sm_120", None, None, None,
    ]  # fmt: skip


def test_the_override_names_a_processor_in_decimal_numbers() -> None:
    assert [arch_of_override(text) for text in ("10.3.0", "9.0.10", "11.0.0", "10.3", "", "gfx1030")] == [
        "gfx1030", "gfx90a", "gfx1100", None, None, None,
    ]  # fmt: skip
