"""AMD's GPUs: ROCm's Core SDK, several releases side by side, a wheel that is named, partitions."""

from __future__ import annotations

from tests.layouts.families.rocm import DOCS, INSTALL, SYSTEM, WHEELS, rocm
from tests.layouts.frame import HostLayout
from tests.support import amd
from tests.support.trees import Item, Spec

OLD, NEW, VENV = "/opt/rocm/core-7.13", "/opt/rocm/core-7.14", "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_core"
SDK = (
    *("libamdhip64.so.7", "libhsa-runtime64.so.1", "libamd_comgr.so.3", "libhiprtc.so.7", "libamd_smi.so.26"),
    *("librocm_sysdeps_elf.so.1", "librocm_sysdeps_drm_amdgpu.so.1"),
)
SIX = ("libamdhip64.so.6", "libhsa-runtime64.so.1", "libamd_comgr.so.2", "librocm_smi64.so.7", "libhiprtc.so.6")
CORE = amd.merged(SYSTEM, amd.core_sdk(NEW, "7.14.0"), amd.core_sdk(OLD, "7.13.0"), amd.alternatives(NEW))
LEGACY = amd.merged(amd.opt("6.4.1"), amd.rocm("/opt/rocm-5.7.1", "5.7.1", "libamdhip64.so.5"))
IN_VENV = amd.merged(SYSTEM, amd.core_sdk(VENV, "7.14.0"))


def partitions() -> Spec:
    """Two GPUs, each divided into four partitions (CPX of a MI300A has six, of a MI300X eight)."""
    spec: dict[str, Item] = {**amd.kernel(0, bmc=False), **amd.kfd_node(0, None)}
    for at, bus in enumerate(amd.BUSES[:2]):
        for part in range(4):
            number = 4 * at + part
            node = amd.kfd_node(1 + number, 128 + number, bus=bus, unique=amd.UNIQUE_IDS[at], part=part)
            place = amd.xcp_device(3 * at + part - 1, number, 128 + number)
            spec.update(node)
            spec.update(place if part else amd.drm_device(f"0000:{bus:02x}:00.0", number, 128 + number))
    return spec


NODES = tuple(f"/dev/dri/{name}" for at in range(8) for name in (f"card{at}", f"renderD{128 + at}"))
PARTITIONED = rocm(
    "rocm-partitions",
    "AMD's GPUs in partitions (CPX, DPX)",
    f"{DOCS}/projects/amdgpu-docs/en/latest/gpu-partitioning/index.html",
    amd.opt("6.4.1"),
    SIX,
    gpus=tuple(map(str, range(8))),
    nodes=("/dev/kfd", *NODES),
)


def core(name: str, who: str, spec: Spec, **more: object) -> HostLayout:
    return rocm(name, who, WHEELS, spec, SDK, planned={"compute": SDK}, not_served={}, main=SDK[0], **more)


LAYOUTS = (
    core("rocm-core", "ROCm: the Core SDK's packages, several releases", CORE),
    core("rocm-wheel-named", "ROCm: a Python wheel, named by ROCM_PATH", IN_VENV, environ={"ROCM_PATH": VENV}),
    rocm(
        "rocm-chosen",
        "ROCm: several releases, one named by ROCM_PATH",
        INSTALL,
        LEGACY,
        ("libamdhip64.so.5", *SIX[1:]),
        main="libamdhip64.so.5",
        environ={"ROCM_PATH": "/opt/rocm-5.7.1"},
    ),
    PARTITIONED._replace(spec=amd.merged(amd.opt("6.4.1"), partitions())),
)
