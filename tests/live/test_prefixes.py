"""The rig's real driver in a prefix of its own: in a known one, and in one that a module's LD_LIBRARY_PATH names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from tests.live.containers import CONTAINERS, PROBE, Case, image, start
from tests.live.machine import DRIVER, RIG, Bind, Machine, document, pairs

pytestmark = pytest.mark.live

REAL = "/usr/lib/x86_64-linux-gnu/nvidia/current"
PROGRAMS = "/usr/lib/nvidia/current"
OPTIX = "/usr/share/nvidia/nvoptix.bin"
KNOWN = "/opt/nvidia/current"
MODULE = f"/opt/apps/nvidia/{DRIVER}"
LOADED = {"LD_LIBRARY_PATH": f"/opt/apps/cuda/lib64:{MODULE}/lib64"}
CASES = [Case("apptainer", "bookworm-sb", user) for user in (True, False)] + [Case("bwrap", "bookworm", True)]


@pytest.fixture(scope="module", params=[KNOWN, MODULE], ids=["known", "module"])
def prefix(request: pytest.FixtureRequest, trixie: Machine) -> Iterator[tuple[str, tuple[Bind, ...]]]:
    """A prefix, and what makes the machine have its driver there and nowhere else."""
    directory = tempfile.mkdtemp(prefix="prefix-", dir=RIG)
    os.makedirs(f"{directory}/empty")
    place = f"{directory}{request.param}"
    os.makedirs(f"{place}/share/nvidia")
    subprocess.run(["cp", "-al", trixie.root + REAL, f"{place}/lib64"], check=True)
    subprocess.run(["cp", "-al", trixie.root + PROGRAMS, f"{place}/bin"], check=True)
    os.rename(f"{place}/lib64/nvoptix.bin", f"{place}/share/nvidia/nvoptix.bin")
    os.chmod(directory, 0o755)
    gone = (Bind(f"{directory}/empty", path) for path in (REAL, PROGRAMS))
    yield request.param, (CONTAINERS, Bind(f"{directory}/opt", "/opt"), *gone)
    shutil.rmtree(directory)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_driver_runs_with_its_programs(trixie: Machine, prefix: tuple[str, tuple[Bind, ...]], case: Case) -> None:
    done = start(trixie, case, "python3", "-c", PROBE, env=LOADED, binds=prefix[1])
    assert json.loads(done.stdout)["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}


def test_what_belongs_to_the_driver_is_taken_from_its_prefix(
    trixie: Machine, prefix: tuple[str, tuple[Bind, ...]]
) -> None:
    place, binds = prefix
    made = document(trixie.gpubind("plan", "--nv", "--json", driver=True, env=LOADED, binds=binds))
    assert {
        (f"{place}/lib64/libcuda.so.{DRIVER}", "/.gpubind/libs/libcuda.so.1"),
        (f"{place}/bin/nvidia-smi", "/.gpubind/bin/nvidia-smi"),
        (f"{place}/share/nvidia/nvoptix.bin", OPTIX),
    } <= pairs(made)
    told = [one["subject"] for one in made["findings"] if one["code"] == "driver-of-module"]
    assert told == ([f"{MODULE}/lib64"] if place == MODULE else [])


def test_apptainers_own_nv_finds_no_libcuda_there(trixie: Machine, prefix: tuple[str, tuple[Bind, ...]]) -> None:
    line = ["apptainer", "-s", "exec", "--nv", image("bookworm-sb"), "ls", "/.singularity.d/libs"]
    assert "libcuda" not in trixie.run(line, user=True, driver=True, env=LOADED, binds=prefix[1]).stdout


def test_without_the_module_nothing_is_found_and_the_variable_is_not_needed_for_a_known_prefix(
    trixie: Machine, prefix: tuple[str, tuple[Bind, ...]]
) -> None:
    place, binds = prefix
    found = trixie.gpubind("plan", "--nv", "--json", driver=True, binds=binds)
    assert ("no-libcuda" in {one["code"] for one in document(found)["findings"]}) == (place == MODULE)
