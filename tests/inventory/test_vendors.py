"""Which vendors' inventories a request gets, what is told of the others, and the architectures of all GPUs."""

from __future__ import annotations

import pytest

from gpubind.errors import NothingToBindError
from gpubind.formats.driver.nvidia import COMPUTE_CAPABILITY_QUERY, GPU_QUERY
from gpubind.host.record import RecordedRun
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.architectures import GpuArch, architectures
from gpubind.inventory.asked import query_capabilities, query_gpus, with_gpus_of_smi
from gpubind.inventory.vendors import read_inventories
from gpubind.model import Gpu, Request, Vendor
from tests.support import amd, intel
from tests.support.driver import host, kernel, rhel
from tests.support.trees import Node, Spec

OWN = intel.gpu("0000:00:02.0", 41, 191, "0x9a49")
CARD = intel.gpu("0000:f3:00.0", 40, 190)
AMD_WITHOUT_DRIVER = amd.opt()
DRIVERS = ", ".join(f"/sys/bus/pci/drivers/{name}" for name in ("i915", "xe", "habanalabs"))
LOG = "the kernel log (`dmesg`) says why a driver does not take a device"


def vendors(*parts: Spec, asked: tuple[Vendor, ...] = ()) -> list[str]:
    found = read_inventories(intel.intel_host(*parts), Request(vendors=asked)).inventories
    return [inventory.driver.vendor for inventory in found]


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ((rhel(), kernel()), ["nvidia"]),
        ((rhel(), kernel(), OWN), ["nvidia"]),
        ((rhel(), kernel(), CARD), ["nvidia", "intel"]),
        ((rhel(), kernel(), AMD_WITHOUT_DRIVER), ["nvidia"]),
        ((rhel(), kernel(), amd.opt(), amd.kernel()), ["nvidia", "amd"]),
        ((amd.opt(), amd.kernel(), OWN), ["amd"]),
        ((AMD_WITHOUT_DRIVER, OWN), ["intel"]),
        ((AMD_WITHOUT_DRIVER,), ["amd"]),
        ((OWN,), ["intel"]),
    ],
)
def test_a_host_has_the_vendors_whose_devices_compute_and_any_other_only_by_itself(
    parts: tuple[Spec, ...], found: list[str]
) -> None:
    assert vendors(*parts) == found


def test_vendors_that_are_named_are_read_in_their_order() -> None:
    both: tuple[Vendor, ...] = ("intel", "nvidia")
    assert vendors(rhel(), kernel(), OWN, asked=both) == ["intel", "nvidia"]


def test_cdi_devices_name_their_vendors() -> None:
    on = intel.intel_host(amd.opt(), amd.kernel())
    with pytest.raises(NothingToBindError) as caught:
        read_inventories(on, Request(cdi_devices=("nvidia.com/gpu=0",)))
    assert caught.value.what == "no NVIDIA driver library and no NVIDIA device on this host"


def test_where_no_vendor_has_anything_the_reasons_of_all_are_one_error() -> None:
    with pytest.raises(NothingToBindError) as caught:
        read_inventories(host({}), Request())
    error = caught.value
    assert error.code == "nothing-to-bind"
    assert error.what.split("; ") == [
        "no NVIDIA driver library and no NVIDIA device on this host",
        "no device of Intel's that a program could use",
        "no ROCm library and no AMD device on this host",
    ]
    nvidia = "no usable ld.so.cache, /, /dev/nvidia*, /sys/module/nvidia, /proc/driver/nvidia"
    assert error.where == f"{nvidia}, {DRIVERS}, /dev/kfd, {amd_topology()}"
    assert error.why.split("; ") == [
        "no NVIDIA kernel module is loaded",
        "none of these drivers has a device",
        "no file matches, and amdgpu is not loaded",
    ]
    assert error.hint.split("; ")[2:] == [
        "load i915 or xe or habanalabs",
        LOG,
        "with AMD's GPUs: load amdgpu, or name ROCm's place with ROCM_PATH or --root",
    ]


def amd_topology() -> str:
    return "/sys/class/kfd/kfd/topology/nodes"


def test_a_vendor_that_was_named_and_is_not_there_is_told_beside_another() -> None:
    on = host(rhel(), kernel())
    (finding,) = read_inventories(on, Request(vendors=("nvidia", "intel"))).findings
    assert (finding.code, finding.severity, finding.vendor, finding.subject) == (
        "nothing-to-bind",
        "error",
        "intel",
        "host",
    )
    assert finding.what == "no device of Intel's that a program could use"
    assert (finding.where, finding.why) == (DRIVERS, "none of these drivers has a device")
    assert finding.hint == f"load i915 or xe or habanalabs; {LOG}"
    assert read_inventories(on, Request()).findings == ()


A100: Spec = {"/sys/bus/pci/devices/0000:01:00.0/device": "0x20b0\n"}


def answers(*runs: RecordedRun, **facts: object) -> RecordedHost:
    return host(rhel(), kernel(gpus=2), A100, runs=runs, **facts)  # type: ignore[arg-type]


def known(on: RecordedHost) -> list[tuple[object, ...]]:
    gpus = [gpu for inventory in read_inventories(on, Request()).inventories for gpu in inventory.gpus]
    return [(one.gpu.vendor, one.arch, one.name) for one in architectures(on.lenient, gpus)]


def test_the_architecture_of_nvidias_gpus_is_by_the_pci_id_or_else_what_nvidia_smi_tells() -> None:
    assert known(answers()) == [("nvidia", "sm_80", "NVIDIA A100 (sm_80)"), ("nvidia", None, "NVIDIA A100")]
    rows = "00000000:01:00.0, 9.9\n00000000:02:00.0, 9.0\n"
    of_smi = RecordedRun(COMPUTE_CAPABILITY_QUERY, 0, rows)
    assert [arch for _, arch, _ in known(answers(of_smi))] == ["sm_80", "sm_90"]
    failed = RecordedRun(COMPUTE_CAPABILITY_QUERY, 1, rows)
    assert [arch for _, arch, _ in known(answers(failed))] == ["sm_80", None]
    elsewhere = answers(of_smi, root="/run/driver", dev=kernel())
    assert (query_capabilities(elsewhere), query_gpus(elsewhere)) == ({}, ())
    assert query_capabilities(answers(of_smi)) == {"0000:01:00.0": "9.9", "0000:02:00.0": "9.0"}


def test_the_architecture_of_the_others_is_by_the_topology_or_the_table() -> None:
    unknown = intel.gpu("0000:f4:00.0", 42, 192, "0x1234")
    on = intel.intel_host(amd.opt(), amd.kernel(gpus=1), CARD, OWN, unknown)
    gpus = [
        gpu for vendor in read_inventories(on, Request(vendors=("amd", "intel"))).inventories for gpu in vendor.gpus
    ]
    assert [(one.gpu.vendor, one.arch, one.name) for one in architectures(on.lenient, gpus)] == [
        ("amd", "gfx942", "AMD Instinct MI300X (gfx942)"),
        ("intel", "tgl", "Intel Iris Xe Graphics (Tiger Lake) (tgl)"),
        ("intel", "dg2", "Intel Arc A770 (dg2)"),
    ]
    assert architectures(on.lenient, []) == ()


@pytest.mark.parametrize(
    ("device", "arch"),
    [
        ("0x9a40", "tgl"),
        ("0x8a56", "icl"),
        ("0x5a84", "apl"),
        ("0x4680", "adl-s"),
        ("0x46a0", "adl-p"),
        ("0x46d0", "adl-n"),
        ("0xd740", "nvl-s"),
        ("0xd750", "nvl-p"),
    ],
)
def test_platforms_have_the_names_of_intels_compilers(device: str, arch: str) -> None:
    on = intel.intel_host(intel.gpu("0000:00:02.0", 0, 128, device))
    gpus = read_inventories(on, Request()).inventories[0].gpus
    assert [one.arch for one in architectures(on.lenient, gpus)] == [arch]


def test_a_gpu_without_a_model_is_called_by_its_vendor() -> None:
    gpu = Gpu("amd", 0, None, None, None, None, None, True)
    assert (GpuArch(gpu, None).name, GpuArch(gpu, "gfx942").name) == ("amd", "amd (gfx942)")


def test_nvidia_smi_is_asked_only_about_devices_of_nvidias_that_no_file_names() -> None:
    told = RecordedRun(GPU_QUERY, 0, "0, GPU-1, 00000000:01:00.0, A\n")
    nodes: Spec = {path: item for path, item in kernel().items() if isinstance(item, Node) or "version" in path}

    def gpus(on: RecordedHost) -> list[tuple[object, ...]]:
        found = with_gpus_of_smi(on, read_inventories(on, Request()).inventories)
        return [(gpu.vendor, gpu.uuid) for inventory in found for gpu in inventory.gpus]

    assert gpus(host(rhel(), nodes, runs=(told,))) == [("nvidia", "GPU-1")]
    assert gpus(host(rhel(), runs=(told,))) == []
    assert [uuid for _, uuid in gpus(host(rhel(), kernel(gpus=1), runs=(told,)))] != ["GPU-1"]
    assert [vendor for vendor, _ in gpus(host(OWN, runs=(told,)))] == ["intel"]
