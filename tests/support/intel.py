"""Hosts with Intel's GPUs, NPUs and Gaudi accelerators.

What Linux' i915, xe, intel_vpu and habanalabs show in /sys, and Debian's packages of the user space. Sources: Linux
Documentation/gpu and Documentation/accel; https://packages.debian.org/sid/amd64/intel-opencl-icd/filelist,
libze-intel-gpu1, libze1, libigc2.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Optional

from gpubind.host.recorded import RecordedHost
from gpubind.model.data import read_data
from tests.support.amd import LIB, RENDER, VIDEO, cached, drm_device, merged, system
from tests.support.elf import elf
from tests.support.trees import Dir, Item, Link, Node, Spec, record

ARC, FLEX, MAX_1550, INTEGRATED, GAUDI2 = "0x56a0", "0x56c0", "0x0bd5", "0xa7a0", "0x1020"
STDCXX = ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6")
BASE: Spec = {
    "/proc/devices": "Character devices:\n226 drm\n231 infiniband_verbs\n261 accel\n\nBlock devices:\n  8 sd\n",
    "/etc/group": f"root:x:0:\nvideo:x:{VIDEO}:\nrender:x:{RENDER}:\n",
}


def _driven(driver: str, pci: str) -> dict[str, Item]:
    return {
        f"/sys/module/{driver}": Dir(),
        f"/sys/bus/pci/drivers/{driver}/{pci}": Link(f"../../../../devices/pci0000:00/{pci}"),
        f"/sys/devices/pci0000:00/{pci}/driver": Link(f"../../../bus/pci/drivers/{driver}"),
    }


def gpu(pci: str, card: int, minor: int, device: str = ARC, driver: str = "i915", mode: int = 0o660) -> Spec:
    """A GPU with its driver, nodes and links."""
    return {
        **drm_device(pci, card, minor, vendor="0x8086", kind="0x030000", mode=mode),
        **_driven(driver, pci),
        f"/sys/devices/pci0000:00/{pci}/device": f"{device}\n",
        f"/dev/dri/by-path/pci-{pci}-card": Link(f"../card{card}"),
        f"/dev/dri/by-path/pci-{pci}-render": Link(f"../renderD{minor}"),
    }


def npu(pci: str = "0000:00:0b.0", number: int = 0) -> Spec:
    """The NPU of a processor."""
    device = f"/sys/devices/pci0000:00/{pci}"
    return {
        **_driven("intel_vpu", pci),
        f"/sys/bus/pci/devices/{pci}": Link(f"../../../devices/pci0000:00/{pci}"),
        f"{device}/vendor": "0x8086\n",
        f"{device}/device": "0x7d1d\n",
        f"{device}/class": "0x120000\n",
        f"{device}/accel/accel{number}": Dir(),
        f"/dev/accel/accel{number}": Node("char", 261, number, 0o660, 0, RENDER),
    }


def gaudi(pci: str, number: int, uverbs: Optional[int] = None, older: bool = False) -> Spec:
    """A Gaudi accelerator; *older*: of a driver that has a class of its own."""
    device = f"/sys/devices/pci0000:00/{pci}"
    kind, names = "accel", (f"accel{number}", f"accel_controlD{number}")
    if older:
        kind, names = "habanalabs", (f"hl{number}", f"hl_controlD{number}")
    directory = "/dev" if older else "/dev/accel"
    spec: dict[str, Item] = {
        **_driven("habanalabs", pci),
        f"/sys/bus/pci/devices/{pci}": Link(f"../../../devices/pci0000:00/{pci}"),
        f"{device}/vendor": "0x1da3\n",
        f"{device}/device": f"{GAUDI2}\n",
        f"{device}/class": "0x120000\n",
    }
    for at, name in enumerate(names):
        spec[f"{device}/{kind}/{name}"] = Dir()
        spec[f"{directory}/{name}"] = Node("char", 261, 2 * number + at, 0o666)
    if uverbs is not None:
        spec[f"{device}/infiniband_verbs/uverbs{uverbs}"] = Dir()
        spec[f"/dev/infiniband/uverbs{uverbs}"] = Node("char", 231, 192 + uverbs, 0o666)
    return spec


def neo(release: str, platforms: str, xe: bool, name: str = "libze_intel_gpu.so.1") -> Spec:
    """The compute runtime, with the texts that its constants have."""
    texts = (*platforms.split(), f"{release}.24595", "N3NEO11IoctlHelperE", "N3NEO13IoctlHelperXeE" if xe else "")
    constants = b"\0" + b"".join(text.encode() + b"\0" for text in texts)
    return {f"{LIB}/{name}": elf(name.rpartition("/")[2], more={".rodata": constants})}


def registrations(*devices: str, register: int = 0xBF) -> bytes:
    """Code that hands each of *devices* to a function in a register, as iHD's does when it is loaded."""
    return b"".join(
        b"\x48\x89\xde" + bytes([register]) + struct.pack("<I", int(device, 16)) + b"\xe8\0\1\2\3" for device in devices
    )


def device_table(*devices: str) -> bytes:
    """The table of a runtime of oneVPL: the ID, the platform and the size of each of *devices*."""
    return b"".join(struct.pack("<III", int(device, 16), 0x10001, 2) for device in devices)


def ihd(release: str, *platforms: str, xe: bool = True, more: tuple[str, ...] = ()) -> bytes:
    """The driver of VA-API for the GPUs of *platforms*, and those with the device IDs *more*."""
    constants = f"\0Intel iHD driver for Intel(R) Gen Graphics - {release} ()\0"
    constants += "INTEL_XE_BUFMGR_DEBUG\0" if xe else ""
    code = registrations(*devices_of(*platforms), *more)
    return elf("iHD_drv_video.so", more={".text": code, ".rodata": constants.encode()})


def devices_of(*platforms: str) -> tuple[str, ...]:
    """The device IDs of all GPUs of *platforms*, as the table in the package has them."""
    table = json.loads(read_data("model/data/intel_gpus.json"))["platforms"]
    return tuple(device for row in table if row["platform"] in platforms for device in row["devices"].split())


def userspace(newest: str = "2.41") -> Spec:
    """Debian's packages of Level Zero, OpenCL and the compiler, and what they need."""
    made: dict[str, Item] = {}

    def library(soname: str, version: str, *needed: str) -> None:
        file = f"{soname.partition('.so')[0]}.so.{version}"
        made[f"{LIB}/{file}"] = elf(soname, needed=(*needed, *STDCXX), needs={"libc.so.6": ("GLIBC_2.34",)})
        made[f"{LIB}/{soname}"] = Link(file)

    library("libze_loader.so.1", "1.20.6")
    library("libze_tracing_layer.so.1", "1.20.6")
    library("libze_validation_layer.so.1", "1.20.6")
    library("libze_intel_gpu.so.1", "1.6.32224", "libigdgmm.so.12")
    library("libigdgmm.so.12", "12.7.0")
    library("libigc.so.2", "2.11.7", "libLLVM.so.19.1")
    library("libigdfcl.so.2", "2.11.7", "libLLVM.so.19.1")
    library("libLLVM.so.19.1", "19.1.7", "libz.so.1")
    made[f"{LIB}/intel-opencl/libigdrcl.so"] = elf("libigdrcl.so", needed=("libigdgmm.so.12", *STDCXX))
    made["/etc/OpenCL/vendors/intel.icd"] = f"{LIB}/intel-opencl/libigdrcl.so\n"
    spec = merged(system(newest), made)
    return {**spec, **cached(spec, LIB)}


def intel_host(*parts: Spec, environ: Optional[Mapping[str, str]] = None, **facts: object) -> RecordedHost:
    """The host that has all of *parts*; its caller is a member of the groups render and video."""
    facts = {"groups": (VIDEO, RENDER, 1000), **facts}
    return RecordedHost(record(merged(BASE, *parts), environ=environ, **facts), "test")  # type: ignore[arg-type]


def synapse(release: str = "1.24.0", build: str = "482") -> Spec:
    """Habana's packages in an image, as Debian's dpkg and pip install them."""
    home, packages = "/usr/lib/habanalabs", "/usr/lib/python3/dist-packages"
    torch = f"{packages}/habana_frameworks/torch/lib"
    needed = ("libSynapse.so.1", "libhl_logger.so", "libc.so.6")
    return {
        f"{home}/libSynapse.so": Link("libSynapse.so.1"),
        f"{home}/libSynapse.so.1": elf("libSynapse.so.1", needed=("libhl_logger.so", "libc.so.6")),
        f"{home}/libhl_logger.so": elf("libhl_logger.so", needed=("libc.so.6",)),
        f"{torch}/libhabana_pytorch_backend.so": elf("libhabana_pytorch_backend.so", needed=needed),
        f"{packages}/habana_torch_plugin-{release}.{build}.dist-info/METADATA": "Name: habana-torch-plugin\n",
        "/usr/bin/python3": elf(kind=2),
        "/var/lib/dpkg/status": (
            "Package: habanalabs-thunk\nStatus: install ok installed\nVersion: 1.2.3-4\n\n"
            f"Package: habanalabs-graph\nStatus: install ok installed\nVersion: {release}-{build}\n\n"
        ),
    }


def habanalabs(version: str = "1.24.0-ee698fb") -> Spec:
    """Habana's own kernel driver."""
    return {"/sys/module/habanalabs/version": f"{version}\n"}
