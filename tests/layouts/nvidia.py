"""NVIDIA's driver for the trees of layouts: what it consists of, and the places where hosts have it.

Which branch has which library: `tests/support/branches.py`. Their sonames: Debian's packages of 550.163.01, and
Ubuntu's of 470, 580 and 595.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tests.layouts.frame import HostLayout
from tests.support.branches import files_of
from tests.support.driver import V
from tests.support.elf import AARCH64, ARM, I386, PPC64, X86_64, elf
from tests.support.ldcache import ELF_LIBC6, build_ldcache, entry
from tests.support.trees import Dir, File, Item, Link, Node, Spec

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
        *("libnvidia-nvvm70.so.4", "libnvidia-tileiras.so.V", "libnvidia-sandboxutils.so.1"),
    ),
    "video": ("libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-opticalflow.so.1", "vdpau/libvdpau_nvidia.so.1"),
    "graphics": (
        *("libGLX_nvidia.so.0", "libEGL_nvidia.so.0", "libGLESv1_CM_nvidia.so.1", "libGLESv2_nvidia.so.2"),
        *("libnvidia-glcore.so.V", "libnvidia-eglcore.so.V", "libnvidia-glsi.so.V", "libnvidia-tls.so.V"),
        *("libnvidia-glvkspirv.so.V", "libnvidia-rtcore.so.V", "libnvoptix.so.1", "libnvidia-ngx.so.1"),
        *("libnvidia-fbc.so.1", "libnvidia-egl-gbm.so.1.1.1", "libnvidia-egl-wayland.so.1.1.13"),
        *("libnvidia-api.so.1", "libnvidia-egl-xcb.so.1.0.1", "libnvidia-egl-xlib.so.1.0.1"),
        *("libnvidia-vksc-core.so.1", "libnvidia-present.so.V", "libnvidia-egl-wayland2.so.1.0.0"),
    ),
}
"""The sonames, by category; V is the driver's version. What has a version of its own is named by its file."""
PACKAGED_APART = "libnvidia-egl-wayland"
"""In every branch, and in a package of its own: the lists of the driver's packages do not have it."""
ONLY_64 = (
    *("libcudadebugger", "libnvidia-pkcs11", "libnvidia-cfg", "libnvidia-rtcore", "libnvoptix", "libnvidia-ngx"),
    *("libnvidia-api", "libnvidia-vksc-core", "libnvidia-present", "libnvidia-sandboxutils", "libnvidia-nvvm70"),
)
"""The beginnings of names that the driver has not for 32-bit programs: Ubuntu's packages for i386."""
REAL = ("libnvidia-api.so.1", "libnvidia-nvvm70.so.4")
"""Sonames that are files in every package."""
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


def _of_branch(category: str, version: str, bits: int = 64) -> tuple[str, ...]:
    has = {PACKAGED_APART, *(file.partition(".so")[0] for file in files_of(int(version.partition(".")[0])))}
    names = [name for name in LIBRARIES[category] if name.rpartition("/")[2].partition(".so")[0] in has]
    if bits == 32:
        names = [name for name in names if not name.startswith(ONLY_64)]
    return tuple(name.replace(".so.V", f".so.{version}") for name in names)


def _soname(name: str) -> str:
    """Return the soname of what is called *name* in `LIBRARIES`."""
    own = re.fullmatch(r"(libnvidia-egl-.*\.so\.[0-9]+)\.[0-9.]+", name)
    return own.group(1) if own else name


def libraries(
    lib: str,
    version: str = V,
    machine: str = "x86_64",
    categories: Iterable[str] = LIBRARIES,
    real: Collection[str] = (),
) -> Spec:
    """Return the libraries of *categories* in directory *lib*, with their links. *real* are sonames of real files: the
    names with V are the links.
    """
    e_machine, bits, _ = MACHINES[machine]
    spec: dict[str, Item] = {}
    for name in (name for category in categories for name in _of_branch(category, version, bits)):
        directory, _, last = f"{lib}/{name}".rpartition("/")
        soname = _soname(last)
        file = last if last in REAL or last != soname else f"{soname.partition('.so')[0]}.so.{version}"
        if soname in real:
            file, soname = soname, file
        spec[f"{directory}/{file}"] = elf(file if file in real else soname, bits=bits, machine=e_machine)
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
        entry(name, f"{at}/{name}", flags) for at in directories for name in sorted(listed(spec, at), reverse=True)
    ]
    return {"/etc/ld.so.cache": build_ldcache(names)}


def listed(spec: Spec, directory: str) -> dict[str, bytes]:
    """Return what ldconfig lists of *directory*, by name: sonames, and links for ld(1)."""
    found: dict[str, bytes] = {}
    for path, item in spec.items():
        at, _, name = path.rpartition("/")
        while isinstance(item, Link):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), item.target))
            item = spec.get(path, "")
        if at == directory and isinstance(item, bytes) and (name.endswith(".so") or name.encode() + b"\0" in item):
            found[name] = item
    return found


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


def driver(
    at: Places = Places(),  # noqa: B008 - a frozen value
    version: str = V,
    machine: str = "x86_64",
    real: Collection[str] = (),
) -> Spec:
    """Return everything that a driver has, at its places, and the ld.so.cache."""
    made = libraries(at.lib, version, machine, real=real)
    return {
        **made,
        **cached(made, at.lib, machine=machine),
        **programs(at.bin, machine),
        **manifests(at),
        **host_only(at, version),
    }


def through_alternatives(spec: Spec, at: Places, public: str) -> Spec:
    """Return *spec* with what Debian has beside it: sonames, programs and manifests are links by /etc/alternatives."""
    made: dict[str, Item] = dict(spec)
    for path, item in spec.items():
        directory, _, name = path.rpartition("/")
        if directory == at.lib and isinstance(item, Link) and ".so." in name:
            shown = f"{public}/{name}"
        elif directory == at.bin and name in PROGRAMS:
            shown = f"/usr/bin/{name}"
        else:
            continue
        made[f"/etc/alternatives/nvidia--{name}"] = Link(path)
        made[shown] = Link(f"/etc/alternatives/nvidia--{name}")
    return {**made, **cached(made, public)}


def of_group(spec: Spec, group: int) -> Spec:
    """Return *spec* with nodes that only *group* may open."""
    return {
        path: item._replace(mode=0o660, gid=group) if isinstance(item, Node) else item for path, item in spec.items()
    }


def planned(version: str = V, *without: str, icd: str = "nvidia_icd.json") -> dict[str, tuple[str, ...]]:
    """Return the names that a plan has of a whole driver, by category, without the categories in *without*."""
    every = {
        category: tuple(_soname(name.rpartition("/")[2]) for name in _of_branch(category, version))
        for category in LIBRARIES
    }
    every["graphics"] += ("nvidia-drm_gbm.so",)
    every["programs"] = PROGRAMS
    every["manifests"] = tuple(path.rpartition("/")[2] for path in manifests(Places(icd=icd)))
    return {category: names for category, names in every.items() if category not in without}


def planned32(version: str = V) -> tuple[str, ...]:
    """Return the names of the 32-bit libraries that a plan has of a whole driver."""
    names = (name for category in LIBRARIES for name in _of_branch(category, version, 32))
    return tuple(f"i386/{_soname(name.rpartition('/')[2])}" for name in names)


def nodes(gpus: int = 2) -> tuple[str, ...]:
    """Return the nodes of `tests.support.driver.kernel`."""
    shared = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidiactl")
    return tuple(sorted((*shared, *(f"/dev/nvidia{number}" for number in range(gpus)))))


def whole_host(*, name: str, who: str, source: str, spec: Spec, **more: Any) -> HostLayout:
    """Return the layout of a host with a whole driver and the GPUs of `tests.support.driver.kernel`."""
    return HostLayout(
        name=name, who=who, source=source, spec=spec, planned=planned(), nodes=nodes(), gpus=("0", "1"), **more
    )


MERGED: Spec = {
    "/lib": Link("usr/lib"),
    "/lib64": Link("usr/lib64"),
    "/bin": Link("usr/bin"),
    "/sbin": Link("usr/sbin"),
    "/usr/lib64": Dir(),
    "/usr/sbin": Dir(),
}
"""A distribution whose directories are all below /usr."""
