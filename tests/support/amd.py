"""Hosts with AMD's ROCm, laid out as AMD's packages and Debian do, and the recorded host that ships.

python -m tests.support.amd FILE, writes the record; tests/inventory/amd/test_amd.py fails if another one ships.
The host is made up: from what Linux' amdgpu and KFD show in /sys, and from what is in AMD's packages of ROCm 6.2.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Optional

from gpubind.host.recorded import RecordedHost
from tests.support.elf import elf
from tests.support.images import GLIBC
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Dir, Item, Link, Node, Spec, record

LIB = "/usr/lib/x86_64-linux-gnu"
NAME = "mi300x-rocm62"
DESCRIPTION = (
    "Made up, not recorded: Ubuntu 22.04, ROCm 6.2.4 beside 6.1.2 from AMD's packages, amdgpu 6.8.5, 8 x MI300X, a BMC"
)
RENDER, VIDEO = 110, 44
BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
UNIQUE_IDS = tuple(0x7E5F0A1B2C3D4E00 + 0x11 * number for number in range(8))

STDCXX = ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6")
CXX_NEEDS = {"libstdc++.so.6": ("GLIBCXX_3.4", "GLIBCXX_3.4.26"), "libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.34")}
GLIBCXX = tuple(f"GLIBCXX_{version}" for version in ("3.4", *(f"3.4.{minor}" for minor in range(1, 31))))


def glibcxx(newest: int) -> tuple[str, ...]:
    """What libstdc++ defines up to GLIBCXX_3.4.<newest>."""
    return GLIBCXX[: newest + 1]


def needs(**versions: str) -> dict[str, tuple[str, ...]]:
    """`libc="2.34"` and the like, as version needs."""
    names = {"libc": "libc.so.6", "libm": "libm.so.6"}
    return {names[name]: (f"GLIBC_{version}",) for name, version in versions.items()}


def rocm(prefix: str, release: str, hip: str = "libamdhip64.so.6") -> Spec:
    """AMD's own packages of one release, in *prefix*."""
    lib = f"{prefix}/lib"
    major, minor, patch = release.split(".")
    build = f"{major}0{minor}0{patch}"
    spec: dict[str, Item] = {f"{prefix}/.info/version": f"{release}-116\n"}

    def library(soname: str, version: str, *needed: str, plain: bool = True) -> None:
        file = f"{soname.partition('.so')[0]}.so.{version}.{build}"
        spec[f"{lib}/{file}"] = elf(
            soname, needed=(*needed, *STDCXX), runpath="$ORIGIN:$ORIGIN/llvm/lib", needs=CXX_NEEDS
        )
        spec[f"{lib}/{soname}"] = Link(file)
        if plain:
            spec[f"{lib}/{soname.partition('.so')[0]}.so"] = Link(soname)

    runtime = "libhsa-runtime64.so.1"
    library(hip, f"{hip.rpartition('.')[2]}.{minor}", "libamd_comgr.so.2", runtime, "librocprofiler-register.so.0")
    library("libhiprtc.so.6", "6.2", "libamd_comgr.so.2", runtime)
    library(runtime, "1.14", "libelf.so.1", "libdrm.so.2", "libdrm_amdgpu.so.1", "libnuma.so.1")
    library("libamd_comgr.so.2", "2.8", "libz.so.1", "libzstd.so.1", "libtinfo.so.6")
    library("librocprofiler-register.so.0", "0.4")
    library("librocm_smi64.so.7", "7.3")
    library("libamd_smi.so.24", "24.6", "libdrm.so.2", "libdrm_amdgpu.so.1")
    spec[f"{lib}/libamdocl64.so"] = elf("libamdocl64.so", needed=("libamd_comgr.so.2", runtime, *STDCXX))
    spec[f"{lib}/libhsa-amd-aqlprofile64.so.1"] = elf("libhsa-amd-aqlprofile64.so.1", needed=STDCXX)
    spec[f"{lib}/libhsa-amd-aqlprofile64.so"] = Link("libhsa-amd-aqlprofile64.so.1")
    loader = "/lib64/ld-linux-x86-64.so.2"
    spec[f"{prefix}/bin/rocminfo"] = elf(
        kind=2, needed=(runtime, *STDCXX), runpath="$ORIGIN/../lib", interpreter=loader, needs=needs(libc="2.34")
    )
    spec[f"{prefix}/bin/rocm-smi"] = "#!/usr/bin/env python3\n"
    return spec


def core_sdk(prefix: str, release: str, hip: str = "libamdhip64.so.7") -> Spec:
    """ROCm's Core SDK of one release, as its packages and its wheels have it in *prefix*, with dependencies of its own.

    Source: ROCm/TheRock `docs/packaging/python_packaging.md`, `build_tools/packaging/`.
    """
    lib, own = f"{prefix}/lib", "librocm_sysdeps_"
    needed = {
        hip: ("libamd_comgr.so.3", "libhsa-runtime64.so.1", "librocprofiler-register.so.0"),
        "libhsa-runtime64.so.1": tuple(f"{own}{name}" for name in ("elf.so.1", "drm.so.2", "drm_amdgpu.so.1")),
        "libamd_comgr.so.3": (f"{own}z.so.1", f"{own}zstd.so.1"),
        "libhiprtc.so.7": ("libamd_comgr.so.3",),
        "librocprofiler-register.so.0": (),
        "librocm_smi64.so.1": (),
        "libamd_smi.so.26": (f"{own}drm.so.2",),
    }
    runpath = "$ORIGIN:$ORIGIN/rocm_sysdeps/lib:$ORIGIN/llvm/lib"
    spec: dict[str, Item] = {f"{prefix}/.info/version": f"{release}\n"}
    for name, others in needed.items():
        spec[f"{lib}/{name}"] = elf(name, needed=(*others, *STDCXX), runpath=runpath, needs=CXX_NEEDS)
    for name in ("elf.so.1", "drm.so.2", "drm_amdgpu.so.1", "z.so.1", "zstd.so.1"):
        spec[f"{lib}/rocm_sysdeps/lib/{own}{name}"] = elf(f"{own}{name}", needed=("libc.so.6",))
    return spec


def alternatives(*prefixes: str) -> Spec:
    """The links of /opt/rocm to the Core SDKs in *prefixes*, of which the first serves."""
    spec: dict[str, Item] = {f"/opt/rocm/{name}": Link(f"/etc/alternatives/rocm-{name}") for name in ("lib", "bin")}
    spec["/opt/rocm/core"] = Link("/etc/alternatives/core")
    spec["/etc/alternatives/core"] = Link(prefixes[0])
    spec.update({f"/etc/alternatives/rocm-{name}": Link(f"{prefixes[0]}/{name}") for name in ("lib", "bin")})
    return spec


def system(newest: str = "2.35", newest_cxx: int = 30) -> Spec:
    """A distribution's libraries that ROCm needs, and its C library."""
    defined = GLIBC[: GLIBC.index(f"GLIBC_{newest}") + 1]
    cxx = glibcxx(newest_cxx)
    return {
        "/lib": Link("usr/lib"),
        "/lib64": Link("usr/lib64"),
        "/bin": Link("usr/bin"),
        "/usr/lib64/ld-linux-x86-64.so.2": elf("ld-linux-x86-64.so.2"),
        f"{LIB}/libc.so.6": elf("libc.so.6", defines=("libc.so.6", *defined)),
        f"{LIB}/libm.so.6": elf("libm.so.6", defines=("libm.so.6", *defined)),
        f"{LIB}/libstdc++.so.6.0.{newest_cxx}": elf(
            "libstdc++.so.6", needed=("libm.so.6", "libc.so.6", "libgcc_s.so.1"), defines=("libstdc++.so.6", *cxx)
        ),
        f"{LIB}/libstdc++.so.6": Link(f"libstdc++.so.6.0.{newest_cxx}"),
        f"{LIB}/libgcc_s.so.1": elf("libgcc_s.so.1", needed=("libc.so.6",)),
        f"{LIB}/libelf.so.1": elf(
            "libelf.so.1", needed=("libz.so.1", "libc.so.6"), defines=("libelf.so.1", "ELFUTILS_1.0")
        ),
        f"{LIB}/libnuma.so.1": elf("libnuma.so.1", needed=("libc.so.6",), defines=("libnuma.so.1", "libnuma_1.1")),
        f"{LIB}/libtinfo.so.6": elf(
            "libtinfo.so.6", needed=("libc.so.6",), defines=("libtinfo.so.6", "NCURSES6_TINFO_5.0")
        ),
        f"{LIB}/libz.so.1": elf("libz.so.1", needed=("libc.so.6",), defines=("libz.so.1", "ZLIB_1.2.0")),
        f"{LIB}/libzstd.so.1": elf("libzstd.so.1", needed=("libc.so.6",)),
    }


def amdgpu_libraries() -> Spec:
    """AMD's own libdrm, below /opt/amdgpu."""
    lib = "/opt/amdgpu/lib/x86_64-linux-gnu"
    return {
        f"{lib}/libdrm.so.2.4.0": elf("libdrm.so.2", needed=("libc.so.6",)),
        f"{lib}/libdrm.so.2": Link("libdrm.so.2.4.0"),
        f"{lib}/libdrm_amdgpu.so.1.0.0": elf("libdrm_amdgpu.so.1", needed=("libdrm.so.2", "libc.so.6")),
        f"{lib}/libdrm_amdgpu.so.1": Link("libdrm_amdgpu.so.1.0.0"),
        "/opt/amdgpu/share/libdrm/amdgpu.ids": "1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n",
    }


def cached(spec: Spec, *directories: str) -> Spec:
    """An ld cache of the sonames in *directories*, and the ld.so.conf that names them."""
    names = [
        entry(name, path)
        for path in sorted(spec, reverse=True)
        for directory, _, name in [path.rpartition("/")]
        if directory in directories and (".so." in name or name == "libamdocl64.so")
    ]
    conf = "".join(f"{directory}\n" for directory in directories)
    return {"/etc/ld.so.cache": build_ldcache(names), "/etc/ld.so.conf": conf}


def kernel(
    gpus: int = 8,
    version: Optional[str] = "6.8.5",
    bmc: bool = True,
    step: int = 8,
    gfx: int = 90402,
    parts: int = 1,
    buses: Sequence[int] = BUSES,
    uniques: Sequence[int] = UNIQUE_IDS,
) -> Spec:
    """The kernel side of *gpus* GPUs behind two processors: topology, DRM, nodes. Render nodes count by *step*, as they
    do where each GPU can be divided into that many; a BMC's display is card0 and has none. *parts*: partitions of each.
    """
    spec: dict[str, Item] = {
        "/proc/devices": "Character devices:\n  1 mem\n226 drm\n511 kfd\n\nBlock devices:\n  8 sd\n",
        "/etc/group": f"root:x:0:\nvideo:x:{VIDEO}:\nrender:x:{RENDER}:\n",
        "/sys/module/amdgpu": Dir(),
        "/dev/kfd": Node("char", 511, 0, 0o660, 0, RENDER),
    }
    if version is not None:
        spec["/sys/module/amdgpu/version"] = f"{version}\n"
    if bmc:
        spec.update(drm_device("0000:03:00.0", 0, None, vendor="0x1a03", kind="0x030000"))
    for cpu in range(2):
        spec.update(kfd_node(cpu, None))
    for number in range(gpus):
        minor = 128 + step * number
        card = step * number + bmc
        address = f"0000:{buses[number]:02x}:00.0"
        for part in range(parts):
            node, at = 2 + parts * number + part, minor + part
            spec.update(kfd_node(node, at, bus=buses[number], unique=uniques[number], gfx=gfx, part=part))
            spec.update(xcp_device(step * number + part - 1, card + part, at) if part else {})
        spec.update(drm_device(address, card, minor))
        spec.update(of_pci(address, device="0x74a1", revision="0x00"))
        spec.update(partition(address, "CPX" if parts > 1 else "SPX", "NPS1"))
    return spec


def of_pci(address: str, driver: str = "amdgpu", **facts: str) -> Spec:
    """The kernel driver of a PCI device, and small files of it."""
    device = f"/sys/devices/pci0000:00/{address}"
    files: Spec = {f"{device}/{name}": f"{text}\n" for name, text in facts.items()}
    return {**files, f"{device}/driver": Link(f"../../../bus/pci/drivers/{driver}")} if driver else files


def unserved(address: str, device: str, driver: str = "", **facts: str) -> Spec:
    """A GPU on the PCI bus of which amdgpu makes no node; *driver* has it."""
    here: Spec = {f"/sys/bus/pci/devices/{address}": Link(f"../../../devices/pci0000:00/{address}")}
    facts = {"vendor": "0x1002", "class": "0x120000", "device": device, "revision": "0x00", **facts}
    return {**here, **of_pci(address, driver, **facts)}


def partition(address: str, compute: str, memory: str) -> Spec:
    """The mode in which a GPU is divided."""
    return of_pci(address, "", current_compute_partition=compute, current_memory_partition=memory)


def kfd_node(
    number: int,
    minor: Optional[int],
    bus: int = 0,
    unique: int = 0,
    gfx: int = 90402,
    part: int = 0,
    device: int = 0x74A1,
    name: str = "ip discovery",
) -> Spec:
    """A node of the KFD topology; a processor's if *minor* is None. *part*: the number of a partition."""
    base = f"/sys/class/kfd/kfd/topology/nodes/{number}"
    if minor is None:
        return {
            f"{base}/gpu_id": "0\n",
            f"{base}/name": "\n",
            f"{base}/properties": "cpu_cores_count 96\nsimd_count 0\n",
        }
    properties = {
        "cpu_cores_count": 0,
        "simd_count": 1216,
        "gfx_target_version": gfx,
        "vendor_id": 4098,
        "device_id": device,
        "location_id": bus << 8 | part,
        "domain": 0,
        "drm_render_minor": minor,
        "unique_id": unique,
    }
    text = "".join(f"{name} {value}\n" for name, value in properties.items())
    return {f"{base}/gpu_id": f"{28000 + number}\n", f"{base}/name": f"{name}\n", f"{base}/properties": text}


def drm_device(
    pci: str, card: int, minor: Optional[int], vendor: str = "0x1002", kind: str = "0x120000", mode: int = 0o660
) -> Spec:
    """A PCI device with its DRM nodes, in /sys and /dev."""
    device = f"/sys/devices/pci0000:00/{pci}"
    spec: dict[str, Item] = {
        f"/sys/bus/pci/devices/{pci}": Link(f"../../../devices/pci0000:00/{pci}"),
        f"{device}/vendor": f"{vendor}\n",
        f"{device}/class": f"{kind}\n",
    }
    nodes = [(f"card{card}", card, VIDEO)] + ([(f"renderD{minor}", minor, RENDER)] if minor is not None else [])
    for name, number, group in nodes:
        spec[f"{device}/drm/{name}/device"] = Link("../../../" + pci)
        spec[f"/sys/class/drm/{name}"] = Link(f"../../devices/pci0000:00/{pci}/drm/{name}")
        spec[f"/dev/dri/{name}"] = Node("char", 226, number, mode, 0, group)
    return spec


def xcp_device(number: int, card: int, minor: int) -> Spec:
    """The platform device of a partition with its DRM nodes, in /sys and /dev; the first one is the PCI device."""
    device = f"/sys/devices/platform/amdgpu_xcp_{number}"
    spec: dict[str, Item] = {}
    for name, at, group in ((f"card{card}", card, VIDEO), (f"renderD{minor}", minor, RENDER)):
        spec[f"{device}/drm/{name}/device"] = Link(f"../../../amdgpu_xcp_{number}")
        spec[f"/sys/class/drm/{name}"] = Link(f"../../devices/platform/amdgpu_xcp_{number}/drm/{name}")
        spec[f"/dev/dri/{name}"] = Node("char", 226, at, 0o660, 0, group)
    return spec


def merged(*parts: Spec) -> dict[str, Item]:
    """All of *parts*; later ones win."""
    spec: dict[str, Item] = {}
    for part in parts:
        spec.update(part)
    return spec


def amd_host(*parts: Spec, environ: Optional[Mapping[str, str]] = None, **facts: object) -> RecordedHost:
    """The host that has all of *parts*; its caller is a member of the groups render and video."""
    facts = {"groups": (VIDEO, RENDER, 1000), **facts}
    return RecordedHost(record(merged(*parts), environ=environ, **facts), "test")  # type: ignore[arg-type]


def debian() -> Spec:
    """Debian's packages: one multiarch directory, and another libdrm's data."""
    runtime = "libhsa-runtime64.so.1"
    spec = merged(
        system("2.41"),
        {
            f"{LIB}/libamdhip64.so.5.7.31921": elf(
                "libamdhip64.so.5",
                needed=(runtime, "libamd_comgr.so.2", "libnuma.so.1", *STDCXX),
                needs=needs(libc="2.38"),
            ),
            f"{LIB}/libamdhip64.so.5": Link("libamdhip64.so.5.7.31921"),
            f"{LIB}/{runtime}.13.0": elf(
                runtime, needed=("libhsakmt.so.1", "libelf.so.1", "libdrm.so.2", *STDCXX), needs=needs(libc="2.38")
            ),
            f"{LIB}/{runtime}": Link(f"{runtime}.13.0"),
            f"{LIB}/libhsakmt.so.1": elf("libhsakmt.so.1", needed=("libdrm.so.2", "libnuma.so.1", "libc.so.6")),
            f"{LIB}/libdrm.so.2": elf("libdrm.so.2", needed=("libc.so.6",)),
            f"{LIB}/libamd_comgr.so.2": elf(
                "libamd_comgr.so.2", needed=("libLLVM-17.so.1", "libz.so.1", *STDCXX), needs=needs(libc="2.38")
            ),
            f"{LIB}/libLLVM-17.so.1": elf("libLLVM-17.so.1", needed=("libtinfo.so.6", *STDCXX)),
            f"{LIB}/librocm_smi64.so.1": elf("librocm_smi64.so.1", needed=STDCXX),
            f"{LIB}/libamdocl64.so": elf("libamdocl64.so", needed=("libamd_comgr.so.2", runtime, *STDCXX)),
            "/etc/OpenCL/vendors/amdocl64.icd": "libamdocl64.so\n",
            "/usr/share/libdrm/amdgpu.ids": "1.0.0\n",
            "/usr/bin/rocminfo": elf(kind=2, needed=(runtime, *STDCXX), interpreter="/lib64/ld-linux-x86-64.so.2"),
            "/usr/bin/rocm-smi": "#!/usr/bin/python3\n",
        },
    )
    return {**spec, **cached(spec, LIB)}


def opt(chosen: str = "6.2.4", *others: str) -> Spec:
    """AMD's packages in /opt/rocm-X.Y.Z, with /opt/rocm leading to the chosen one."""
    parts = [rocm(f"/opt/rocm-{release}", release) for release in (chosen, *others)]
    amdgpu = "/opt/amdgpu/lib/x86_64-linux-gnu"
    spec = merged(system(), amdgpu_libraries(), *parts)
    spec["/opt/rocm"] = Link(f"rocm-{chosen}")
    spec["/etc/OpenCL/vendors/amdocl64_60204_139.icd"] = "libamdocl64.so\n"
    return {**spec, **cached(spec, amdgpu, LIB)}


def mi300x() -> RecordedHost:
    """The host that ships, before anybody has looked at it."""
    spec = merged(opt("6.2.4", "6.1.2"), kernel())
    # A place for a partition, of which KFD says nothing.
    spec["/sys/class/drm/renderD129"] = Link("../../devices/platform/amdgpu_xcp_0/drm/renderD129")
    spec["/sys/devices/platform/amdgpu_xcp_0/drm/renderD129/device"] = Link("../../../amdgpu_xcp_0")
    spec["/dev/dri/renderD129"] = Node("char", 226, 129, 0o660, 0, RENDER)
    return amd_host(spec, environ={"PATH": "/usr/local/bin:/usr/bin:/opt/rocm/bin"}, release="5.15.0-generic")


def main(path: str) -> None:
    import gpubind

    with open(path, "w") as file:
        file.write(gpubind.record(mi300x(), DESCRIPTION))


if __name__ == "__main__":
    main(sys.argv[1])
