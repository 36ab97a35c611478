"""NVIDIA's driver for the trees of layouts: what it consists of, and the places where hosts have it.

Source: "Installed Components" in the driver's README, and the file lists of Debian's packages of 550.163.01.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.support.driver import V
from tests.support.elf import AARCH64, ARM, I386, PPC64, X86_64, elf
from tests.support.ldcache import ELF_LIBC6, build_ldcache, entry
from tests.support.trees import Dir, File, Item, Link, Spec

MACHINES = {  # e_machine, class, the architecture in the flags of ld.so.cache
    "x86_64": (X86_64, 64, 0x0300),
    "i386": (I386, 32, 0),
    "aarch64": (AARCH64, 64, 0x0A00),
    "arm": (ARM, 32, 0x0900),
    "ppc64le": (PPC64, 64, 0x0500),
}
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "compute": (
        *("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4"),
        *("libnvidia-gpucomp.so.V", "libnvidia-opencl.so.1", "libcudadebugger.so.1", "libnvidia-cfg.so.1"),
        *("libnvidia-allocator.so.1", "libnvidia-pkcs11.so.V", "libnvidia-pkcs11-openssl3.so.V"),
    ),
    "video": ("libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-opticalflow.so.1", "vdpau/libvdpau_nvidia.so.1"),
    "graphics": (
        *("libGLX_nvidia.so.0", "libEGL_nvidia.so.0", "libGLESv1_CM_nvidia.so.1", "libGLESv2_nvidia.so.2"),
        *("libnvidia-glcore.so.V", "libnvidia-eglcore.so.V", "libnvidia-glsi.so.V", "libnvidia-tls.so.V"),
        *("libnvidia-glvkspirv.so.V", "libnvidia-rtcore.so.V", "libnvoptix.so.1", "libnvidia-ngx.so.1"),
        *("libnvidia-fbc.so.1", "libnvidia-egl-gbm.so.1.1.1", "libnvidia-egl-wayland.so.1.1.13"),
        "libnvidia-api.so.1",
    ),
}
"""The sonames, by category; V is the driver's version. What has a version of its own is named by its file."""
OWN_VERSION = {
    "libnvidia-egl-gbm.so.1.1.1": "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1.1.13": "libnvidia-egl-wayland.so.1",
}
GBM = "gbm/nvidia-drm_gbm.so"
PROGRAMS = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
)
STAYS = ("nvidia-modprobe", "nvidia-bug-report.sh", "nvidia_drv.so", "gsp_ga10x.bin")
"""What no container gets."""


class Places(NamedTuple):
    """The directories that a host has the driver's files in."""

    lib: str = "/usr/lib64"
    bin: str = "/usr/bin"
    share: str = "/usr/share"
    etc: str = "/etc"
    vulkan: str = "/usr/share/vulkan"
    icd: str = "nvidia_icd.json"
    icd_library: str = "libGLX_nvidia.so.0"
    xorg: str = "/usr/lib64/xorg/modules/drivers"
    firmware: str = "/usr/lib/firmware/nvidia"


def libraries(lib: str, version: str = V, machine: str = "x86_64", categories: Iterable[str] = LIBRARIES) -> Spec:
    """Return the libraries of *categories* in directory *lib*, with their links."""
    e_machine, bits, _ = MACHINES[machine]
    spec: dict[str, Item] = {}
    for name in (name for category in categories for name in LIBRARIES[category]):
        directory, _, last = f"{lib}/{name}".replace(".so.V", f".so.{version}").rpartition("/")
        soname = OWN_VERSION.get(last, last)
        stem = soname.partition(".so")[0]
        file = last if last in OWN_VERSION or stem == "libnvidia-api" else f"{stem}.so.{version}"
        spec[f"{directory}/{file}"] = elf(soname, bits=bits, machine=e_machine)
        if soname != file:
            spec[f"{directory}/{soname}"] = Link(file)
    if "compute" in categories:
        spec[f"{lib}/libcuda.so"] = Link("libcuda.so.1")
        spec[f"{lib}/{GBM}"] = Link(f"../libnvidia-allocator.so.{version}")
    return spec


def cached(spec: Spec, *directories: str, machine: str = "x86_64") -> Spec:
    """Return the ld.so.cache that ldconfig makes of the libraries in *directories*."""
    flags = ELF_LIBC6 | MACHINES[machine][2]
    names = [
        entry(path.rpartition("/")[2], path, flags)
        for directory in directories
        for path in sorted(spec, reverse=True)
        if path.rpartition("/")[0] == directory and ".so." in path
    ]
    return {"/etc/ld.so.cache": build_ldcache(names)}


def programs(directory: str, machine: str = "x86_64") -> Spec:
    """Return the programs in *directory*."""
    e_machine, bits, _ = MACHINES[machine]
    return {f"{directory}/{name}": File(elf(kind=2, machine=e_machine, bits=bits), 0o755) for name in PROGRAMS}


def manifests(at: Places) -> Spec:
    """Return the manifests, and the data of OptiX."""

    def says(kind: str, library: str) -> str:
        return json.dumps({"file_format_version": "1.0.0", kind: {"library_path": library}})

    platform = f"{at.share}/egl/egl_external_platform.d"
    layer = {"name": "VK_LAYER_NV_optimus", "library_path": at.icd_library}
    return {
        f"{at.etc}/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n",
        f"{at.share}/glvnd/egl_vendor.d/10_nvidia.json": says("ICD", "libEGL_nvidia.so.0"),
        f"{platform}/10_nvidia_wayland.json": says("ICD", "libnvidia-egl-wayland.so.1"),
        f"{platform}/15_nvidia_gbm.json": says("ICD", "libnvidia-egl-gbm.so.1"),
        f"{at.vulkan}/icd.d/{at.icd}": says("ICD", at.icd_library),
        f"{at.vulkan}/implicit_layer.d/nvidia_layers.json": json.dumps(
            {"file_format_version": "1.0.0", "layers": [layer]}
        ),
        f"{at.share}/nvidia/nvoptix.bin": b"weights",
    }


def host_only(at: Places, version: str = V) -> Spec:
    """Return what a driver's packages have that stays on the host."""
    return {
        f"{at.bin}/nvidia-modprobe": File(elf(kind=2), 0o4755),
        f"{at.bin}/nvidia-bug-report.sh": "#!/bin/sh\n",
        f"{at.xorg}/nvidia_drv.so": elf("nvidia_drv.so"),
        f"{at.firmware}/{version}/gsp_ga10x.bin": b"\0firmware",
    }


def driver(at: Places = Places(), version: str = V, machine: str = "x86_64") -> Spec:  # noqa: B008 - a frozen value
    """Return everything that a driver has, at its places, and the ld.so.cache."""
    made = libraries(at.lib, version, machine)
    return {
        **made,
        **cached(made, at.lib, machine=machine),
        **programs(at.bin, machine),
        **manifests(at),
        **host_only(at, version),
    }


def planned(version: str = V, *without: str, icd: str = "nvidia_icd.json") -> dict[str, tuple[str, ...]]:
    """Return the names that a plan has of a whole driver, by category, without the categories in *without*."""
    every = {
        category: tuple(
            OWN_VERSION.get(last, last.replace(".so.V", f".so.{version}"))
            for last in (name.rpartition("/")[2] for name in names)
        )
        for category, names in LIBRARIES.items()
    }
    every["graphics"] += ("nvidia-drm_gbm.so",)
    every["programs"] = PROGRAMS
    every["manifests"] = tuple(path.rpartition("/")[2] for path in manifests(Places(icd=icd)))
    return {category: names for category, names in every.items() if category not in without}


def nodes(gpus: int = 2) -> tuple[str, ...]:
    """Return the nodes of `tests.support.driver.kernel`."""
    shared = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidiactl")
    return tuple(sorted((*shared, *(f"/dev/nvidia{number}" for number in range(gpus)))))


MERGED: Spec = {
    "/lib": Link("usr/lib"),
    "/lib64": Link("usr/lib64"),
    "/bin": Link("usr/bin"),
    "/sbin": Link("usr/sbin"),
    "/usr/lib64": Dir(),
    "/usr/sbin": Dir(),
}
"""A distribution whose directories are all below /usr."""
