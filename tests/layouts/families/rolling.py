"""Distributions without releases: Arch, Gentoo."""

from __future__ import annotations

from tests.layouts.nvidia import MERGED, Places, driver, libraries, nodes, of_group, whole_host
from tests.support.driver import V, kernel
from tests.support.trees import Link

ARCH = Places(lib="/usr/lib", xorg="/usr/lib/xorg/modules/drivers")
GENTOO = Places(bin="/opt/bin")
NODES, GPUS = nodes(), ("0", "1")

LAYOUTS = (
    whole_host(
        name="arch",
        who="Arch and its kind: nvidia-utils, lib32-nvidia-utils",
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
    ),
    whole_host(
        name="gentoo",
        who="Gentoo: x11-drivers/nvidia-drivers",
        source="https://wiki.gentoo.org/wiki/NVIDIA/nvidia-drivers",
        spec={**MERGED, **driver(GENTOO), **of_group(kernel(), 27)},
        groups=(27, 1000),
        remark="The nodes belong to the group video: a user has to be a member of it.",
    ),
)
