"""Machines of other architectures, with parts of GPUs, and with many."""

from __future__ import annotations

import json

from gpubind.model import CAPABILITIES, Request
from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, Places, driver, libraries, nodes, planned, planned32
from tests.support import amd
from tests.support.driver import V, kernel
from tests.support.elf import elf
from tests.support.trees import Link, Node, Socket, Spec

MODERN = "595.58.03"
NODES, GPUS = nodes(), ("0", "1")
X86 = "/usr/lib/x86_64-linux-gnu"
I386 = "/usr/lib/i386-linux-gnu"
RENDER = {
    path: item
    for number in (0, 1)
    for path, item in amd.drm_device(
        f"0000:0{number + 1}:00.0", number, 128 + number, vendor="0x10de", kind="0x030200", mode=0o666
    ).items()
}
DRM = tuple(path for path in RENDER if path.startswith("/dev/"))
CAPS = "/proc/driver/nvidia/capabilities"
MAJORS = "Character devices:\n  1 mem\n195 nvidia\n235 nvidia-uvm\n239 nvidia-caps\n"
MIG: Spec = {
    "/proc/devices": MAJORS,
    "/proc/driver/nvidia-caps/mig-minors": "config 1\nmonitor 2\n",
    "/dev/nvidia-caps/nvidia-cap1": Node("char", 239, 1, 0o400),
    "/dev/nvidia-caps/nvidia-cap2": Node("char", 239, 2, 0o444),
    **{
        f"{CAPS}/gpu0/mig/{part}/access": f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        for part, minor in (("gi1", 12), ("gi1/ci0", 13), ("gi2", 21), ("gi2/ci0", 22))
    },
    **{f"/dev/nvidia-caps/nvidia-cap{minor}": Node("char", 239, minor, 0o444) for minor in (12, 13, 21, 22)},
}
CAP_NODES = tuple(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (1, 2, 12, 13, 21, 22))
IMEX: Spec = {
    "/dev/nvidia-caps-imex-channels/channel0": Node("char", 240, 0),
}
DEVICES = f"{MAJORS}240 nvidia-caps-imex-channels\n241 nvidia-nvswitch\n"


def grace(name: str, whose: str, spec: Spec) -> HostLayout:
    return HostLayout(
        name=f"gh200-{name}",
        who=f"GH200, Grace: {whose} on aarch64",
        source="https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/overview.html",
        spec={**MERGED, **spec, **kernel(), "/proc/devices": DEVICES, **IMEX},
        planned=planned(),
        nodes=(*NODES, *IMEX),
        gpus=GPUS,
        machine="aarch64",
    )


HGX: Spec = {
    **MERGED,
    **driver(version=MODERN),
    **kernel(MODERN, 8),
    "/proc/devices": DEVICES,
    "/dev/nvidia-nvswitchctl": Node("char", 241, 255),
    **{f"/dev/nvidia-nvswitch{number}": Node("char", 241, number) for number in range(4)},
    **IMEX,
    "/usr/bin/nv-fabricmanager": elf(kind=2),
    "/usr/bin/nvidia-imex": elf(kind=2),
    "/usr/bin/nvidia-imex-ctl": elf(kind=2),
    "/usr/lib64/libnvidia-nscq.so.2.0": elf("libnvidia-nscq.so.2"),
    "/usr/lib64/libnvidia-nscq.so.2": Link("libnvidia-nscq.so.2.0"),
    "/run/nvidia-persistenced/socket": Socket(),
    "/run/nvidia-fabricmanager/socket": Socket(),
    "/usr/share/nvidia/files.d/sandboxutils-filelist.json": json.dumps(
        [{"name": f"libcuda.so.{MODERN}", "type": "LIB", "category": ["cuda"]}]
    ),
}

LAYOUTS = (
    grace("ubuntu", "Ubuntu", driver(Places(lib="/usr/lib/aarch64-linux-gnu"), machine="aarch64")),
    grace("rhel", "RHEL", driver(machine="aarch64")),
    HostLayout(
        name="ppc64le",
        who="POWER9 with V100: RHEL on ppc64le",
        source="https://download.nvidia.com/XFree86/Linux-ppc64le/",
        spec={**MERGED, **driver(machine="ppc64le", version="535.183.01"), **kernel("535.183.01")},
        planned=planned("535.183.01"),
        nodes=NODES,
        gpus=GPUS,
        machine="ppc64le",
    ),
    HostLayout(
        name="i386",
        who="32-bit programs beside 64-bit ones, with `--caps all`",
        source="https://packages.ubuntu.com/noble/i386/libnvidia-gl-550/filelist",
        spec={**MERGED, **driver(Places(lib=X86)), **libraries(I386, V, "i386"), **kernel(), **RENDER},
        planned={**planned(), "32-bit": planned32()},
        nodes=(*NODES, *DRM),
        gpus=GPUS,
        request=Request(caps=CAPABILITIES),
    ),
    HostLayout(
        name="mig",
        who="MIG: a GPU that is divided in two",
        source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html",
        spec={**MERGED, **driver(), **kernel(gpus=1), **MIG},
        planned=planned(),
        nodes=(*nodes(1), *CAP_NODES),
        gpus=("0", "0:1/0", "0:2/0"),
        findings=("device-permission", "mig-mode"),
        remark="`--gpus 0:1/0` chooses one of its devices.",
    ),
    HostLayout(
        name="vgpu",
        who="a vGPU guest, NVIDIA's GRID driver",
        source="https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/index.html",
        spec={
            **MERGED,
            **driver(Places(lib=X86)),
            **kernel(gpus=1),
            "/etc/nvidia/gridd.conf": "FeatureType=1\n",
        },
        planned=planned(),
        nodes=nodes(1),
        gpus=("0",),
    ),
    HostLayout(
        name="hgx",
        who="HGX, DGX: 8 GPUs, NVSwitch, IMEX, driver 595",
        source="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
        spec=HGX,
        planned={
            **planned(MODERN),
            "machine": ("nv-fabricmanager", "nvidia-imex", "nvidia-imex-ctl", "libnvidia-nscq.so.2", "socket"),
        },
        nodes=(*nodes(8), *IMEX, "/dev/nvidia-nvswitchctl", *(f"/dev/nvidia-nvswitch{number}" for number in range(4))),
        gpus=tuple(map(str, range(8))),
    ),
)
