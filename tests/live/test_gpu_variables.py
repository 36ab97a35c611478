"""The GPU variables that a container sees: beside those of the real `--nv`, and where its /dev has only some GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.live.containers import CONTAINERS, Case, image, start
from tests.live.machine import Bind, Machine

pytestmark = pytest.mark.live

CUDA, ORDER, JOB = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_JOB_GPUS"
UUID = "GPU-00000001-0000-0000-0000-000000000000"
SHOW = ("sh", "-c", f"echo ${{{CUDA}-unset}} ${{{ORDER}-unset}} $(ls /dev | grep '^nvidia[0-9]')")
INFORMATION = "/proc/driver/nvidia/gpus/0000:01:00.0/information"

OWN: list[dict[str, str]] = [
    {CUDA: "0,1"},
    {CUDA: "1"},
    {CUDA: " 1, 0,"},
    {CUDA: ""},
    {CUDA: "NoDevFiles"},
    {CUDA: UUID},
    {CUDA: "GPU-00000001"},
    {CUDA: "7,0"},
    {CUDA: "1", ORDER: "FASTEST_FIRST"},
    {CUDA: "0,1", JOB: "0,1"},
    {CUDA: "0", JOB: "1"},
]


@pytest.mark.parametrize("options", [(), ("--cleanenv",)], ids=" ".join)
@pytest.mark.parametrize("env", OWN, ids=str)
def test_the_callers_own_value_is_what_the_real_program_gives(
    trixie: Machine, env: Mapping[str, str], options: tuple[str, ...]
) -> None:
    words = ["apptainer", "--silent", "exec", "--nv", *options, image("bookworm-sb"), *SHOW]
    real = trixie.run(words, user=True, driver=True, env=env, binds=[CONTAINERS]).stdout
    ours = Case("apptainer", "bookworm-sb", True, ("--quiet", *(f"--backend-arg={word}" for word in options)))
    assert start(trixie, ours, *SHOW, env=env).stdout == real


MINIMAL: list[tuple[tuple[str, ...], dict[str, str], str]] = [
    (("--gpus", "1"), {CUDA: "0"}, "0 unset nvidia1"),
    (("--gpus", "1,0"), {}, "1,0 unset nvidia0 nvidia1"),
    (("--gpus", UUID), {}, f"{UUID} unset nvidia1"),
    (("--gpus", "all"), {CUDA: "1"}, "0,1 unset nvidia0 nvidia1"),
    ((), {CUDA: "1"}, "0 unset nvidia1"),
    ((), {CUDA: UUID}, f"{UUID} unset nvidia1"),
    ((), {JOB: "1"}, "0 unset nvidia1"),
    ((), {CUDA: "0", JOB: "1"}, "0 unset nvidia0 nvidia1"),
]


@pytest.mark.parametrize(("options", "env", "expected"), MINIMAL, ids=str)
def test_numbers_count_what_a_minimal_dev_has(
    trixie: Machine, options: tuple[str, ...], env: Mapping[str, str], expected: str
) -> None:
    case = Case("bwrap", "bookworm-sb", True, ("--quiet", *options))
    assert start(trixie, case, *SHOW, env=env).stdout.strip() == expected


def test_a_gpu_whose_file_tells_nothing_keeps_its_number(trixie: Machine) -> None:
    hidden = f"mount --bind /dev/null {INFORMATION} && PYTHONPATH=/srv/gpubind:/srv/python "
    command = f"python3 -m gpubind exec --nv --gpus 1 --backend bwrap {image('bookworm-sb')} ls /dev"
    modules: list[Bind] = [*trixie.modules, CONTAINERS]
    done = trixie.run(["sh", "-c", hidden + command], driver=True, binds=modules)
    assert [name for name in done.stdout.split() if name[-1].isdigit()] == ["nvidia1"]
    assert "warning: gpu-unreadable" in done.stderr
