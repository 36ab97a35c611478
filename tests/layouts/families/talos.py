"""Talos Linux, whose system extensions bring the driver, and a glibc beside the system's musl."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, PROGRAMS, Places, cached, driver, libraries, nodes, planned
from tests.support.driver import V, kernel
from tests.support.elf import elf
from tests.support.trees import File, Item, Link, Spec

NODES, GPUS = nodes(), ("0", "1")
INTERPRETER = "/usr/local/glibc/lib/ld-linux-x86-64.so.2"
OLD: Spec = {
    **libraries("/usr/local/glibc/usr/lib"),
    **{f"/usr/local/bin/{name}": File(elf(kind=2, interpreter=INTERPRETER), 0o755) for name in PROGRAMS},
}
PREFIX = Places(lib="/usr/local/lib", bin="/usr/local/bin", vulkan="/etc/vulkan")


def new() -> Spec:
    """Return what NVIDIA's installer puts below /usr/local: the weights of OptiX, too, and nothing for OpenCL."""
    made: dict[str, Item] = dict(driver(PREFIX))
    made["/usr/local/share/nvidia/nvoptix.bin"] = made.pop("/usr/share/nvidia/nvoptix.bin")
    del made["/etc/OpenCL/vendors/nvidia.icd"]
    made["/usr/bin/nvidia-smi"] = Link("/usr/local/bin/nvidia-smi")
    return made


LAYOUTS = (
    HostLayout(
        name="talos",
        who="Talos 1.13 and later",
        source="https://github.com/siderolabs/extensions",
        spec={**MERGED, **new(), **kernel()},
        planned={**planned(), "manifests": tuple(name for name in planned()["manifests"] if name != "nvidia.icd")},
        nodes=NODES,
        gpus=GPUS,
        findings=("manifest-missing",),
        remark="Talos has no OpenCL manifest.",
    ),
    HostLayout(
        name="talos-1.12",
        who="Talos until 1.12",
        source="https://github.com/siderolabs/extensions/issues/940",
        spec={**MERGED, **OLD, **cached({}), **kernel()},
        planned=planned(V, "manifests"),
        nodes=NODES,
        gpus=GPUS,
        findings=("companion-missing", "foreign-interpreter", "manifest-missing"),
        remark="The host has no manifests, and its programs need a glibc below /usr/local/glibc.",
    ),
)
