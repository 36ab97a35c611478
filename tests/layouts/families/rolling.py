"""Distributions without releases: Arch, Gentoo."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import Places, driver, libraries, nodes, planned
from tests.support.driver import V, kernel
from tests.support.trees import Link

ARCH = Places(lib="/usr/lib", xorg="/usr/lib/xorg/modules/drivers")

LAYOUTS = (
    HostLayout(
        name="arch",
        who="Arch and its kind; nvidia-utils, lib32-nvidia-utils",
        source="https://archlinux.org/packages/extra/x86_64/nvidia-utils/files/",
        spec={
            "/lib": Link("usr/lib"),
            "/lib64": Link("usr/lib"),
            "/usr/lib64": Link("lib"),
            "/bin": Link("usr/bin"),
            **driver(ARCH),
            **libraries("/usr/lib32", V, "i386"),
            **kernel(),
        },
        planned=planned(),
        nodes=nodes(),
        gpus=("0", "1"),
    ),
)
