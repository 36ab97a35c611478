"""Each flag of an `Inventory` is set by the reader of each vendor that has such a thing: from a host, not by hand."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

import pytest

from gpubind import plan
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.vendors import read_inventories
from gpubind.model import Inventory, Request, Vendor
from gpubind.planner.gpus.environment import GpuList
from tests.rules.cases_host import mig
from tests.support import amd, intel
from tests.support.driver import host, in_cgroup, kernel, rhel
from tests.support.trees import Hidden, Node, Spec

TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
NOT_OF_THE_JOB: Spec = {f"{TOPOLOGY}/{number}/properties": Hidden() for number in (2, 5)}
"""KFD hides the first and the last of four GPUs, as it does where a device cgroup forbids their render nodes."""
CLOSED: Spec = {"/dev/dri/renderD128": Node("char", 226, 128, 0o600)}
WHOLE = {"driver", "source", "searched", "files", "devices", "gpus", "decisions", "findings"}
"""What every vendor's inventory has."""


def of_amd(*more: Spec, environ: Optional[dict[str, str]] = None) -> RecordedHost:
    return amd.amd_host(amd.opt(), amd.kernel(gpus=4), *more, environ=environ)


def of_intel(*more: Spec) -> RecordedHost:
    gpus = (intel.gpu(f"0000:0{place + 3}:00.0", place, 128 + place) for place in range(2))
    return intel.intel_host(intel.userspace(), *gpus, *more)


class Case(NamedTuple):
    """A host on which a flag is set."""

    vendor: Vendor
    flag: str
    machine: Callable[[], RecordedHost]
    request: Request = Request()


def case(vendor: Vendor, flag: str, machine: Callable[[], RecordedHost], **request: object) -> Case:
    return Case(vendor, flag, machine, Request(vendors=(vendor,), **request))  # type: ignore[arg-type]


CASES = (
    case("nvidia", "hides_gpus", lambda: in_cgroup(host(rhel(), kernel()), "/dev/nvidia0")),
    case("nvidia", "hidden_gpu_indexes", lambda: in_cgroup(host(rhel(), kernel()), "/dev/nvidia0")),
    case("nvidia", "forbidden", lambda: in_cgroup(host(rhel(), kernel()), "/dev/nvidia0")),
    case("nvidia", "mig_nodes", lambda: host(rhel(), kernel(), mig())),
    case("nvidia", "libcuda_directories", lambda: host(rhel(), kernel())),
    case("amd", "hides_gpus", lambda: of_amd(NOT_OF_THE_JOB)),
    case("amd", "hides_gpus", lambda: of_amd(CLOSED)),
    case("amd", "hidden_gpu_indexes", lambda: of_amd(CLOSED)),
    case("amd", "forbidden", lambda: in_cgroup(of_amd(), "/dev/dri/renderD128")),
    case("intel", "hides_gpus", lambda: of_intel(CLOSED)),
    case("intel", "hidden_gpu_indexes", lambda: of_intel(CLOSED)),
    case("intel", "forbidden", lambda: in_cgroup(of_intel(), "/dev/dri/renderD128")),
    case("intel", "devices_per_gpu", of_intel),
    Case("intel", "devices_only", of_intel),
)
ELSEWHERE = {"mig_names", "env"}
"""They need a program's answer, a CDI spec or Windows: see test_nvidia_container_cli, test_cdi_source, test_amd."""


def inventory_of(case: Case) -> Inventory:
    read = read_inventories(case.machine(), case.request)
    return next(one for one in read.inventories if one.driver.vendor == case.vendor)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.vendor}-{case.flag}")
def test_a_reader_sets_the_flag_for_each_vendor_that_has_it(case: Case) -> None:
    assert getattr(inventory_of(case), case.flag)


def test_every_flag_has_its_host() -> None:
    assert {case.flag for case in CASES} | ELSEWHERE | WHOLE == set(Inventory._fields)


@pytest.mark.parametrize("name", ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"])
def test_in_a_cgroup_slurms_numbers_of_amd_gpus_take_none_from_the_job(name: str) -> None:
    """KFD has moved their indexes up: the host's GPUs 1 and 2 are 0 and 1 here, and both are the job's."""
    made = plan(of_amd(NOT_OF_THE_JOB, environ={name: "1,2"}), Request(vendors=("amd",)))
    assert [gpu.chosen for gpu in made.gpus] == [True, True]
    assert [node.target for node in made.devices if "/renderD" in node.target] == [
        "/dev/dri/renderD136",
        "/dev/dri/renderD144",
    ]
    assert [one.code for one in made.findings if one.code.startswith("visible-devices")] == []


def test_in_a_cgroup_a_number_of_rocr_may_count_either_way() -> None:
    (inventory,) = read_inventories(of_amd(NOT_OF_THE_JOB), Request(vendors=("amd",))).inventories
    assert not GpuList("ROCR_VISIBLE_DEVICES", inventory, {"ROCR_VISIBLE_DEVICES": "0"}).counts_all
