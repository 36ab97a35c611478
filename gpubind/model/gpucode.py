"""GPU code: the architectures in a file, and which of them a GPU runs.

Sources: CUDA Programming Guide, "Compute Capabilities" (feature set compiler targets) and "Binary Compatibility";
ptxas 13.5, `--gpu-name`; LLVM, "User Guide for AMDGPU Backend" (target ID, generic processors); libhsakmt `topology.c`
(HSA_OVERRIDE_GFX_VERSION).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.host import Vendor
from gpubind.model.plain import plain

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
"""The variable that makes ROCm take every GPU for another one: `10.3.0` is gfx1030."""
XNACK = "HSA_XNACK"
"""The variable that turns retries of page faults on (1) or off (0), for which code is made apart."""
SPIRV = "amdgcnspirv"
"""AMD's code for every GPU: ROCm compiles it when it is loaded, as NVIDIA's driver compiles PTX."""
GENERIC = {
    "gfx9-generic": "900 902 904 906 909 90c",
    "gfx9-4-generic": "940 941 942 950",
    "gfx10-1-generic": "1010 1011 1012 1013",
    "gfx10-3-generic": "1030 1031 1032 1033 1034 1035 1036",
    "gfx11-generic": "1100 1101 1102 1103 1150 1151 1152 1153",
    "gfx12-generic": "1200 1201",
    "gfx12-5-generic": "1250 1251",
}
"""The processors that each generic one of LLVM serves."""
_TEGRA = (53, 62, 72, 87, 101, 110)
"""The architectures of Jetson and DRIVE: no other GPU runs their code."""
_CUDA = re.compile(r"(?:sm|compute)_([0-9]{2,3})([af]?)")


class GpuCode(NamedTuple):
    """The GPU code in a file."""

    code: tuple[str, ...] = ()
    """The architectures of its machine code: `sm_90`, `sm_90a`, `gfx942:sramecc+:xnack-`."""
    ptx: tuple[str, ...] = ()
    """Those of the code that a driver compiles when it is loaded: `compute_90`, `amdgcnspirv`."""
    unread: Optional[str] = None
    """Why more may be in it."""

    def __bool__(self) -> bool:
        return bool(self.code or self.ptx or self.unread)

    @property
    def vendors(self) -> frozenset[Vendor]:
        """Return the vendors whose GPUs run some of it."""
        return frozenset("nvidia" if _CUDA.fullmatch(one) else "amd" for one in (*self.code, *self.ptx))

    def runs_on(self, arch: str) -> bool:
        """Return whether a GPU of *arch* runs any of it: `sm_86`, or `gfx90a`."""
        return any(_runs(arch, code) for code in self.code) or any(_compiles(arch, code) for code in self.ptx)


class CodeFile(NamedTuple):
    """The GPU code of one file of an image, or of a directory of such files."""

    path: str
    framework: Optional[str]
    """`PyTorch`; None for the program and its libraries."""
    is_main: bool
    """Whether nothing of the framework, or of the program, runs on a GPU without it."""
    gpu_code: GpuCode

    def to_dict(self) -> dict[str, Any]:
        """Return the member of `gpu_code` in the documents."""
        code = plain(self.gpu_code)
        return {"path": self.path, "framework": self.framework, "main": self.is_main, **code}


def by_owner(files: Iterable[CodeFile], program: str = "") -> dict[str, list[CodeFile]]:
    """Return the main files of each framework; all its files where none is a main one.

    What is of no framework is of *program*, or each file by itself.
    """
    groups: dict[str, list[CodeFile]] = {}
    for file in files:
        groups.setdefault(file.framework or program or file.path, []).append(file)
    return {name: [file for file in group if file.is_main] or group for name, group in groups.items()}


def arch_order(arch: str) -> tuple[int, str]:
    """Return the key by which `sm_90` is before `sm_100`, `gfx90a` before `gfx1030`, and generic ones are last."""
    match = _CUDA.fullmatch(arch)
    return (int(match.group(1)), arch) if match else (len(arch.partition(":")[0]), arch)


def made_of(code: Iterable[str], ptx: Iterable[str] = (), unread: Optional[str] = None) -> GpuCode:
    """Return the `GpuCode` with each architecture once, in order."""
    return GpuCode(tuple(sorted(set(code), key=arch_order)), tuple(sorted(set(ptx), key=arch_order)), unread)


def sum_of(files: Iterable[CodeFile]) -> GpuCode:
    """Return all GPU code of *files*, and the first reason why there may be more."""
    codes = [file.gpu_code for file in files]
    unread = next((code.unread for code in codes if code.unread), None)
    return made_of((one for code in codes for one in code.code), (one for code in codes for one in code.ptx), unread)


def arch_of_capability(capability: str) -> Optional[str]:
    """Return the architecture of a compute capability: `8.6` -> `sm_86`, `12.0` -> `sm_120`; None if it is no such."""
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", capability)
    return f"sm_{match.group(1)}{match.group(2)}" if match else None


def arch_of_override(value: str) -> Optional[str]:
    """Return the architecture that a value of `OVERRIDE` means: `10.3.0` -> `gfx1030`; None for no such value."""
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{1,2})", value.strip())
    if match is None:
        return None
    major, minor, stepping = map(int, match.groups())
    return f"gfx{major}{minor:x}{stepping:x}"


def is_of_board(arch: str) -> bool:
    """Return whether *arch* is that of a Jetson or DRIVE: other GPUs run none of its code, and it none of theirs."""
    match = _CUDA.fullmatch(arch)
    return match is not None and int(match.group(1)) in _TEGRA


def override_for(arch: str, code: Iterable[str]) -> Optional[str]:
    """Return the value of `OVERRIDE` by which an RDNA GPU of *arch* runs *code*: `10.3.0` for gfx1032 and gfx1030.

    Processors that differ in the last digit only have nearly the same instructions, and many users do so.
    """
    match = re.fullmatch(r"gfx(1[0-9])([0-9a-f])[0-9a-f]", arch)
    if match is None:
        return None
    near = (one for one in code if re.fullmatch(f"{arch[:-1]}[0-9a-f]", one) and one != arch)
    return next((f"{match.group(1)}.{int(match.group(2), 16)}.{int(one[-1], 16)}" for one in near), None)


def _runs(arch: str, code: str) -> bool:
    """Return whether a GPU of *arch* runs machine code for *code*."""
    gpu, made_for = _CUDA.fullmatch(arch), _CUDA.fullmatch(code)
    if gpu is None or made_for is None:
        return gpu is made_for and _amd_runs(arch, code)
    here, there = int(gpu.group(1)), int(made_for.group(1))
    if made_for.group(2) == "a" or there in _TEGRA or here in _TEGRA:
        return here == there
    return here // 10 == there // 10 and here >= there


def _compiles(arch: str, code: str) -> bool:
    """Return whether the driver of a GPU of *arch* compiles *code* for it."""
    gpu, made_for = _CUDA.fullmatch(arch), _CUDA.fullmatch(code)
    if gpu is None or made_for is None:
        return gpu is None and made_for is None and code == SPIRV
    here, there, suffix = int(gpu.group(1)), int(made_for.group(1)), made_for.group(2)
    if suffix == "a":
        return here == there
    return here >= there and (not suffix or here // 10 == there // 10)


def _amd_runs(arch: str, code: str) -> bool:
    """As `_runs`, of AMD: a feature that only one of them names does not matter."""
    (gpu, *has), (processor, *wants) = arch.split(":"), code.split(":")
    if not gpu.startswith("gfx"):
        return False
    is_same = processor == gpu or gpu[3:] in GENERIC.get(processor, "").split()
    return is_same and not any(f"{want[:-1]}{'-' if want[-1:] == '+' else '+'}" in has for want in wants)
