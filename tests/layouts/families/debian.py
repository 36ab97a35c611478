"""Debian, Ubuntu and their kind: directories named after the architecture."""

from __future__ import annotations

from tests.layouts.nvidia import MERGED, Places, driver, nodes, through_alternatives, whole_host
from tests.support.driver import V, kernel

LIB = "/usr/lib/x86_64-linux-gnu"
MULTIARCH = Places(lib=LIB, xorg=f"{LIB}/nvidia/xorg")
CURRENT = Places(lib=f"{LIB}/nvidia/current", bin="/usr/lib/nvidia/current", xorg="/usr/lib/nvidia/current")
NODES, GPUS = nodes(), ("0", "1")

LAYOUTS = (
    whole_host(
        name="debian",
        who="Debian 12, 13: Debian's packages",
        source="https://packages.debian.org/bookworm/amd64/libcuda1/filelist",
        spec={**MERGED, **through_alternatives(driver(CURRENT), CURRENT, LIB), **kernel()},
    ),
    whole_host(
        name="ubuntu",
        who="Ubuntu 20.04 to 24.04: Ubuntu's or NVIDIA's packages",
        source="https://packages.ubuntu.com/noble/amd64/libnvidia-gl-550/filelist",
        spec={**MERGED, **driver(MULTIARCH), **kernel()},
    ),
    whole_host(
        name="ubuntu-run",
        who="Ubuntu, Debian: NVIDIA's .run installer",
        source=f"https://download.nvidia.com/XFree86/Linux-x86_64/{V}/README/installedcomponents.html",
        spec={
            **MERGED,
            **driver(MULTIARCH._replace(vulkan="/etc/vulkan", xorg="/usr/lib/xorg/modules/drivers")),
            **kernel(),
        },
    ),
)
