"""Machines on which real stacks are checked: tests/data/stacks.json has the stacks, `make stacks` builds them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Optional

from gpubind import plan
from gpubind.errors import NothingToBindError
from gpubind.host.recorded import RecordedHost
from gpubind.image.facts import Image
from gpubind.model import Finding, Request
from gpubind.rules.preflight import preflight
from gpubind.rules.table import check
from tests.support.amd import LIB, amd_host, cached, kernel, merged, opt, system
from tests.support.elf import elf
from tests.support.intel import gaudi, gpu, intel_host
from tests.support.trees import Link, Spec


class AmdMachine(NamedTuple):
    """A machine with one of AMD's GPUs."""

    arch: str
    version: int
    """As KFD writes *arch*."""
    amdgpu: Optional[str] = "6.8.5"
    """The version of AMD's package of amdgpu; None for the kernel's own driver."""
    parts: int = 1


AMD = {
    "MI100": AmdMachine("gfx908", 90008),
    "MI250X": AmdMachine("gfx90a", 90010, "6.3.6"),
    "MI300X": AmdMachine("gfx942", 90402),
    "MI300X in CPX": AmdMachine("gfx942", 90402, parts=8),
    "MI355X": AmdMachine("gfx950", 90500, "6.14.14"),
    "W7900": AmdMachine("gfx1100", 110000, "6.12.12"),
    "RX 9070": AmdMachine("gfx1201", 120001, None),
    "Strix Halo": AmdMachine("gfx1151", 110501, None),
    "Phoenix": AmdMachine("gfx1103", 110003, None),
    "Raven": AmdMachine("gfx902", 90002, None),
    "MI60": AmdMachine("gfx906", 90006),
    "RX 6700": AmdMachine("gfx1031", 100301, None),
}


@cache
def amd_machine(name: str, rocm: Optional[str] = None) -> RecordedHost:
    """The machine *name* of `AMD`, with AMD's packages of the release *rocm*, or without ROCm."""
    machine = AMD[name]
    own: Spec = opt(rocm) if rocm else system()
    return amd_host(own, kernel(1, machine.amdgpu, bmc=False, gfx=machine.version, parts=machine.parts))


def _without_driver(spec: Spec) -> Spec:
    ours = ("/sys/bus/pci/devices/", "/vendor", "/device", "/class")
    return {path: item for path, item in spec.items() if path.startswith(ours[0]) or path.endswith(ours[1:])}


_CARDS = ("0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:9a:00.0")
_B580 = gpu("0000:03:00.0", 0, 128, "0xe20b", "xe")
INTEL: dict[str, Spec] = {
    "A770": gpu("0000:03:00.0", 0, 128),
    "B580": _B580,
    "B580 without a driver": _without_driver(_B580),
    "4 Max 1550": merged(*(gpu(pci, at, 128 + at, "0x0bd5") for at, pci in enumerate(_CARDS))),
    "2 Flex 170": merged(*(gpu(pci, at, 128 + at, "0x56c0") for at, pci in enumerate(_CARDS[:2]))),
    "Meteor Lake": gpu("0000:00:02.0", 0, 128, "0x7d55"),
    "Lunar Lake": gpu("0000:00:02.0", 0, 128, "0x64a0", "xe"),
    "Skylake": gpu("0000:00:02.0", 0, 128, "0x1912"),
    "Panther Lake": gpu("0000:00:02.0", 0, 128, "0xb080", "xe"),
    "Gaudi 2": merged(*(gaudi(pci, at, uverbs=at) for at, pci in enumerate(_CARDS[:2]))),
    "Gaudi 3": {
        path: "0x1060\n" if path.endswith("/device") else item for path, item in gaudi(_CARDS[0], 0, uverbs=0).items()
    },
}
INTEL_WITH_LEVEL_ZERO = (("A770", "22.43"), ("B580", "22.43"), ("A770", "26.27"))
_BUILDS = {"22.43": ("1.3.24595", "GLIBC_2.34"), "26.27": ("1.15.39122", "GLIBC_2.41")}
"""What the file of Level Zero's driver is called in Debian 12 and in sid, and the glibc that it needs here."""


@cache
def intel_machine(name: str, release: Optional[str] = None) -> RecordedHost:
    """The machine *name* of `INTEL`, with the compute runtime of *release*, or without."""
    own = dict(system("2.41"))
    if release is not None:
        version, needs = _BUILDS[release]
        file, needed = f"libze_intel_gpu.so.{version}", {"libc.so.6": (needs,)}
        own[f"{LIB}/{file}"] = elf("libze_intel_gpu.so.1", needed=("libc.so.6",), needs=needed)
        own[f"{LIB}/libze_intel_gpu.so.1"] = Link(file)
        own[f"{LIB}/intel-opencl/libigdrcl.so"] = elf("libigdrcl.so", needed=("libc.so.6",), needs=needed)
        own["/etc/OpenCL/vendors/intel.icd"] = f"{LIB}/intel-opencl/libigdrcl.so\n"
        own.update(cached(own, LIB))
    return intel_host(own, INTEL[name])


def all_on_amd(machine: str, image: Image, rocm: Optional[str], program: Optional[str] = None) -> tuple[Finding, ...]:
    """What is said on the machine of `AMD`, with or without the host's ROCm."""
    on = amd_machine(machine, rocm)
    made = plan(on, Request(vendors=("amd",)), image=image)
    return check(preflight(on, made, image, program=program))


def on_amd(
    machine: str, image: Image, rocm: Optional[str], *codes: str, program: Optional[str] = None
) -> list[Finding]:
    """What is said with one of *codes*."""
    return [finding for finding in all_on_amd(machine, image, rocm, program) if finding.code in codes]


def worst(found: list[Finding]) -> str:
    """`E` if one of *found* is an error, `w` if one is a warning, else `.`."""
    severities = {one.severity for one in found}
    return "E" if "error" in severities else "w" if "warning" in severities else "."


def on_intel(on: RecordedHost, image: Image) -> str:
    """`x` if there is nothing to bind; else the worst that is said."""
    try:
        made = plan(on, Request(vendors=("intel",)), image=image)
    except NothingToBindError:
        return "x"
    return worst(list(check(preflight(on, made, image))))


def on_intel_machines(image: Image) -> str:
    """The verdict on each machine of `INTEL`, and on those with Level Zero."""
    machines = (*((one, None) for one in INTEL), *INTEL_WITH_LEVEL_ZERO)
    return "".join(on_intel(intel_machine(*machine), image) for machine in machines)
