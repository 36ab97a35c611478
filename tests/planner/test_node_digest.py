"""The digest of a node: the same for equal nodes whatever a job chooses, another where a node has something else."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.inventory.nvidia.devices import GPUDIRECT_NODES
from gpubind.model import CAPABILITIES, Plan, Request
from gpubind.model.digest import _GPUDIRECT_NODES
from tests.rules.cases_host import CASES, RUNNING_MPS, mig
from tests.rules.situations import without
from tests.support.driver import V, host, kernel, rhel
from tests.support.elf import elf
from tests.support.images import GLVND, glibc, image
from tests.support.trees import Node, Socket, Spec

GOOD = (rhel(), kernel())


def planned(*parts: Spec, environ: Optional[dict[str, str]] = None, euid: int = 0, **request: Any) -> Plan:
    return plan(host(*parts, environ=environ, euid=euid), Request(**request))


def digest(*parts: Spec, **more: Any) -> Optional[str]:
    return planned(*parts, **more).node_digest


@pytest.mark.parametrize(
    "more",
    [
        {"environ": {"CUDA_VISIBLE_DEVICES": "1"}},
        {"environ": {"CUDA_VISIBLE_DEVICES": ""}},
        {"environ": {"SLURM_JOB_GPUS": "0", "SLURM_STEP_GPUS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}},
        {"environ": {"NVIDIA_VISIBLE_DEVICES": "none"}},
        {"environ": {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_MOFED": "enabled", "NVIDIA_GDS": "enabled"}},
        {"environ": {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mine"}},
        {"gpus": "1"},
        {"gpus": "none"},
        {"caps": ("utility",)},
        {"caps": CAPABILITIES},
        {"vendors": ("nvidia",)},
        {"libdir": "/opt/libs"},
        {"euid": 1000},
    ],
    ids=str,
)
def test_what_a_job_or_a_request_chooses_does_not_change_it(more: dict[str, Any]) -> None:
    there: Spec = {
        "/dev/gdrdrv": Node("char", 240, 0),
        "/dev/infiniband/uverbs0": Node("char", 231, 192),
        "/dev/infiniband/rdma_cm": Node("char", 10, 57),
        "/etc/cufile.json": "{}",
        "/run/udev/data": "",
    }
    assert digest(*GOOD, there, **more) == digest(*GOOD)


def test_an_image_does_not_change_it() -> None:
    machine = host(*GOOD)
    assert plan(machine, Request(), image=image(glibc(), GLVND)).node_digest == digest(*GOOD)


def test_the_nodes_that_only_a_variable_requests_are_known() -> None:
    assert all(path.startswith(_GPUDIRECT_NODES) for paths in GPUDIRECT_NODES.values() for path in paths)


def test_uuids_addresses_dynamic_majors_modes_and_services_do_not_change_it() -> None:
    pci, information = "0000:01:00.0", "/proc/driver/nvidia/gpus/0000:01:00.0/information"
    text = "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-99999999-1111-2222-3333-444444444444\nBus Location: \t {}\n"
    other: Spec = {
        information: text.format(pci) + "Device Minor: \t 0\nGPU Excluded:\t No\n",
        "/proc/devices": "Character devices:\n195 nvidia\n226 drm\n511 nvidia-uvm\n",
        "/dev/nvidia-uvm": Node("char", 511, 0, 0o660, 0, 44),
        "/run/nvidia-persistenced/socket": Socket(),
        **RUNNING_MPS,
    }
    assert digest(*GOOD, other) == digest(*GOOD)
    elsewhere = {path.replace("0000:01:00.0", "0000:81:00.0"): item for path, item in other.items()}
    moved = {information.replace(pci, "0000:81:00.0"): text.format("0000:81:00.0") + "Device Minor: \t 0\n"}
    assert digest(rhel(), without(kernel(), information), {**elsewhere, **moved}) == digest(*GOOD)


NVVM = ("/usr/lib64/libnvidia-nvvm.so.4", f"/usr/lib64/libnvidia-nvvm.so.{V}")
OTHERS: dict[str, tuple[Spec, ...]] = {
    "a library is gone": (without(rhel(), *NVVM), kernel()),
    "a library has another size": (*GOOD, {NVVM[1]: elf("libnvidia-nvvm.so.4") + b"more"}),
    "a manifest is another": (
        *GOOD,
        {"/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json": '{"ICD": {"library_path": "x"}}'},
    ),
    "a program is gone": (without(rhel(), "/usr/bin/nvidia-smi"), kernel()),
    "a GPU is gone": (rhel(), kernel(gpus=1)),
    "a GPU is of another model": CASES["gpu-order-unknown"].fires.parts,
    "a node is gone": (rhel(), without(kernel(), "/dev/nvidia-modeset")),
    "a GPU is divided": (*GOOD, mig()),
    "the driver is another": (rhel("535.54.03"), kernel("535.54.03")),
    "the module is not loaded": (rhel(), kernel(None)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_a_node_has_otherwise_changes_it(what: str) -> None:
    assert digest(*OTHERS[what]) not in (None, digest(*GOOD))


def test_a_document_keeps_it_and_an_older_one_has_none() -> None:
    made = planned(*GOOD)
    document = made.to_dict()
    assert Plan.from_dict(document).node_digest == made.node_digest
    del document["node_digest"]
    assert Plan.from_dict({**document, "gpubind": "0.0.1"}).node_digest is None


def test_as_another_program_sees_a_host_it_is_not_known() -> None:
    assert digest(*GOOD, vendors=("nvidia",), like="apptainer") is None
