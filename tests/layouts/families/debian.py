"""Debian, Ubuntu and their kind: directories named after the architecture."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, Places, driver, nodes, planned
from tests.support.driver import kernel

MULTIARCH = Places(lib="/usr/lib/x86_64-linux-gnu", xorg="/usr/lib/x86_64-linux-gnu/nvidia/xorg")

LAYOUTS = (
    HostLayout(
        name="ubuntu2404",
        who="Ubuntu 22.04, 24.04; Ubuntu's packages",
        source="https://packages.ubuntu.com/noble/amd64/libnvidia-gl-550/filelist",
        spec={**MERGED, **driver(MULTIARCH), **kernel()},
        planned=planned(),
        nodes=nodes(),
        gpus=("0", "1"),
    ),
)
