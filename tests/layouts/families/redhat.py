"""RHEL, its rebuilds, and Fedora."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, Places, driver, nodes, planned
from tests.support.driver import kernel

RUN = Places(vulkan="/etc/vulkan")

LAYOUTS = (
    HostLayout(
        name="rhel9-run",
        who="RHEL, Rocky, Alma 9; NVIDIA's .run installer",
        source="https://download.nvidia.com/XFree86/Linux-x86_64/550.54.14/README/installedcomponents.html",
        spec={**MERGED, **driver(RUN), **kernel(), "/usr/bin/nvidia-installer": b"", "/usr/bin/nvidia-uninstall": b""},
        planned=planned(),
        nodes=nodes(),
        gpus=("0", "1"),
    ),
)
