"""Clouds, operators and cluster managers: a driver in a prefix of its own."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, Places, driver, libraries, manifests, nodes, planned, programs
from tests.support.driver import V, kernel
from tests.support.trees import Link, Spec

GKE_SOURCE = (
    "https://github.com/GoogleCloudPlatform/container-engine-accelerators/tree/master/nvidia-driver-installer/cos"
)
ONLY_VULKAN = {
    name: "Google's installer keeps the manifests of Vulkan alone."
    for name in ("10_nvidia.json", "10_nvidia_wayland.json", "15_nvidia_gbm.json", "nvidia.icd", "nvoptix.bin")
}


def prefix(path: str, machine: str = "x86_64", lib: str = "lib64") -> Spec:
    """Return a driver whose libraries, programs and manifests are below *path*, as its installer puts them there."""
    places = Places(lib=f"{path}/{lib}", bin=f"{path}/bin", share=f"{path}/share", etc=f"{path}/etc")
    at = places._replace(vulkan=f"{path}/share/vulkan")
    return {**libraries(at.lib, V, machine), **programs(at.bin, machine), **manifests(at)}


def googles(path: str) -> Spec:
    """Return what Google's installer of the driver leaves: of the manifests Vulkan's, in a directory of the prefix."""
    kept = {name: item for name, item in prefix(path).items() if not name.startswith((f"{path}/share", f"{path}/etc"))}
    vulkan = manifests(Places(vulkan=f"{path}/vulkan"))
    return {**kept, **{name: item for name, item in vulkan.items() if name.startswith(f"{path}/vulkan")}}


def in_container(lib: str) -> Spec:
    """Return the driver container of the GPU Operator, whose root is mounted at /run/nvidia/driver."""
    root = "/run/nvidia/driver"
    at = Places(f"{root}{lib}", f"{root}/usr/bin", f"{root}/usr/share", f"{root}/etc", f"{root}/usr/share/vulkan")
    return {**libraries(at.lib), **programs(at.bin), **manifests(at)}
