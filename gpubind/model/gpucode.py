"""GPU code: the architectures in a file, and which of them a GPU runs.

Sources: CUDA Programming Guide, "Compute Capabilities" (feature set compiler targets) and "Binary Compatibility";
ptxas 13.5, `--gpu-name`; LLVM, "User Guide for AMDGPU Backend" (target ID, generic processors); libhsakmt `topology.c`
(HSA_OVERRIDE_GFX_VERSION).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.cuda import serves_ptx, version_key
from gpubind.model.host import Vendor
from gpubind.model.plain import to_json_value

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
"""The variable that makes ROCm treat every GPU as another one: `10.3.0` is gfx1030."""
XNACK = "HSA_XNACK"
"""The variable that turns retries of page faults on (1) or off (0). Code is compiled for one of the two."""
XNACK_OFF = ("gfx90a", "gfx942", "gfx950")
"""The processors on which each process chooses XNACK, and on which it is off by default.

Source: Linux `amdgpu_gmc.c`, `amdgpu_gmc_noretry_set`, and `kfd_process.c`, `kfd_process_xnack_mode`.
"""
SPIRV = "amdgcnspirv"
"""AMD's code for every GPU: ROCm compiles it at load time, as NVIDIA's driver compiles PTX."""
SPIR64 = "spir64"
"""Intel's code for every GPU: the compute runtime compiles it at load time."""
INTEL = (
    "bdw", "skl", "apl", "glk", "kbl", "cfl", "icl", "ehl", "tgl", "rkl", "dg1", "adl-s", "adl-p", "adl-n", "dg2",
    "pvc", "mtl", "arl", "lnl", "bmg", "ptl", "nvl-s", "nvl-p", "cri",
)  # fmt: skip
"""Intel's GPUs, by the names of its compilers, the oldest first."""
_ALSO_RUNS = {"arl": "mtl", "lnl": "bmg", "nvl-s": "ptl"}
"""Intel GPUs that also run another one's code. An Arrow Lake may have the cores of Meteor Lake.

Source: intel/compute-runtime `third_party/aot_config_headers/platforms.h` (compatibilityMapping).
"""
GENERIC = {
    "gfx9-generic": "900 902 904 906 909 90c",
    "gfx9-4-generic": "940 941 942 950",
    "gfx10-1-generic": "1010 1011 1012 1013",
    "gfx10-3-generic": "1030 1031 1032 1033 1034 1035 1036",
    "gfx11-generic": "1100 1101 1102 1103 1150 1151 1152 1153",
    "gfx12-generic": "1200 1201",
    "gfx12-5-generic": "1250 1251",
}
"""The processors of each generic processor of LLVM."""
_TEGRA = (53, 62, 72, 87, 101, 110)
"""The architectures of Jetson and DRIVE. No other GPU runs their code."""
_CUDA = re.compile(r"(?:sm|compute)_([0-9]{2,3})([af]?)")


class Ptx(NamedTuple):
    """Intermediate code, which a driver compiles at load time."""

    arch: str
    """The oldest architecture that runs it: `compute_90`; AMD's is `amdgcnspirv`."""
    isa: str = ""
    """The version of PTX, `8.5`: a driver that is too old refuses it. Empty for AMD's."""


class CodeModule(NamedTuple):
    """Equal modules of a file: they have code for the same architectures. A GPU loads each module as a whole."""

    code: tuple[str, ...] = ()
    """The architectures of the machine code: `sm_90`, `sm_90a`, `gfx942:sramecc+:xnack-`."""
    ptx: tuple[Ptx, ...] = ()
    alike: int = 1
    """The number of these modules."""

    def runs_on(self, arch: str, cuda: Optional[str] = None) -> bool:
        """Return whether a GPU of *arch* runs it with a driver for *cuda*; None means a new enough driver."""
        if any(_runs_machine_code(arch, code) for code in self.code):
            return True
        return any(_jit_compiles(arch, ptx.arch) and (cuda is None or serves_ptx(cuda, ptx.isa)) for ptx in self.ptx)

    def is_specific(self) -> bool:
        """Return whether all its code is for single architectures, such as `sm_90a`; other GPUs run other modules."""
        archs = (*self.code, *(ptx.arch for ptx in self.ptx))
        return all(match is not None and match.group(2) for match in map(_CUDA.fullmatch, archs))


class Share(NamedTuple):
    """The number of modules of a file that a GPU runs, and the number of modules meant for it."""

    runs: int
    modules: int

    @property
    def ratio(self) -> float:
        """Return the part of the modules that run, from 0 to 1."""
        return self.runs / max(self.modules, 1)

    @property
    def is_enough(self) -> bool:
        """Return whether programs can be expected to work: at least half of the modules run. Some modules are for newer
        GPUs on purpose.
        """
        return 2 * self.runs >= self.modules > 0

    @property
    def is_next_to_nothing(self) -> bool:
        """Return whether programs can be expected to fail: fewer than a quarter of the modules run.

        The modules that run may be only those of a linked library.
        """
        return 4 * self.runs < self.modules or not self.modules


class GpuCode(NamedTuple):
    """The GPU code in a file."""

    modules: tuple[CodeModule, ...] = ()
    unread: Optional[str] = None
    """Why there may be more code."""

    def __bool__(self) -> bool:
        return bool(self.modules or self.unread)

    @property
    def code(self) -> tuple[str, ...]:
        """Return the architectures of the machine code of all modules, in order."""
        return _each_once(code for module in self.modules for code in module.code)

    @property
    def ptx(self) -> tuple[str, ...]:
        """Return the architectures of the PTX of all modules, in order."""
        return _each_once(ptx.arch for module in self.modules for ptx in module.ptx)

    @property
    def isas(self) -> tuple[str, ...]:
        """Return the versions of PTX in it, ascending."""
        versions = {ptx.isa for module in self.modules for ptx in module.ptx if ptx.isa}
        return tuple(sorted(versions, key=version_key))

    @property
    def vendors(self) -> frozenset[Vendor]:
        """Return the vendors whose GPUs run some of it."""
        return frozenset(map(vendor_of, (*self.code, *self.ptx)))

    def share(self, arch: str, cuda: Optional[str] = None) -> Share:
        """Return how many modules a GPU of *arch* (`sm_86`, `gfx90a`) runs with a driver for *cuda*.

        Modules for other single architectures do not count.
        """
        runs = sum(module.alike for module in self.modules if module.runs_on(arch, cuda))
        meant = (module for module in self.modules if module.runs_on(arch) or not module.is_specific())
        return Share(runs, sum(module.alike for module in meant))

    def runs_on(self, arch: str) -> bool:
        """Return whether a GPU of *arch* runs enough of it."""
        return self.share(arch).is_enough


class CodeFile(NamedTuple):
    """The GPU code of one file of an image, or of a directory of such files."""

    path: str
    framework: Optional[str]
    """`PyTorch`; None for the program and its libraries."""
    is_main: bool
    """Whether the framework or the program runs nothing on a GPU without it."""
    gpu_code: GpuCode

    def to_dict(self) -> dict[str, Any]:
        """Return the member of `gpu_code` in the documents."""
        code = self.gpu_code
        return {
            "path": self.path,
            "framework": self.framework,
            "main": self.is_main,
            "code": list(code.code),
            "ptx": list(code.ptx),
            **to_json_value(code),
        }


def main_files_by_owner(files: Iterable[CodeFile], program: str = "") -> dict[str, list[CodeFile]]:
    """Return the main files of each framework, or all its files if none is a main one.

    Files without a framework belong to *program*, or each to itself if *program* is empty.
    """
    groups: dict[str, list[CodeFile]] = {}
    for file in files:
        groups.setdefault(file.framework or program or file.path, []).append(file)
    return {name: [file for file in group if file.is_main] or group for name, group in groups.items()}


def vendor_of(arch: str) -> Vendor:
    """Return the vendor of the GPUs that run code for *arch*."""
    return "nvidia" if _CUDA.fullmatch(arch) else "intel" if arch in (*INTEL, SPIR64) else "amd"


def arch_sort_key(arch: str) -> tuple[int, str]:
    """Return the sort key that puts `sm_90` before `sm_100`, `gfx90a` before `gfx1030`, and generic ones last."""
    match = _CUDA.fullmatch(arch)
    return (int(match.group(1)), arch) if match else (len(arch.partition(":")[0]), arch)


def gpu_code(modules: Iterable[tuple[Iterable[str], Iterable[Ptx]]], unread: Optional[str] = None) -> GpuCode:
    """Return the `GpuCode` of *modules*, each machine code and PTX. Equal modules are merged, frequent ones first."""
    counts: Counter[tuple[frozenset[str], frozenset[Ptx]]] = Counter()
    for code, ptx in modules:
        counts[frozenset(code), frozenset(ptx)] += 1
    unique_modules = [
        CodeModule(_each_once(code), tuple(sorted(ptx, key=lambda one: (arch_sort_key(one.arch), one.isa))), count)
        for (code, ptx), count in counts.items()
        if code or ptx
    ]
    return GpuCode(tuple(sorted(unique_modules, key=lambda one: (-one.alike, one.code, one.ptx))), unread)


def best_share(files: Iterable[CodeFile], arch: str, cuda: Optional[str] = None) -> Share:
    """Return the best `GpuCode.share` of *files*, of which a framework uses one."""
    shares = [file.gpu_code.share(arch, cuda) for file in files]
    return max(shares, key=lambda one: one.ratio, default=Share(0, 0))


def merge_gpu_code(files: Iterable[CodeFile]) -> GpuCode:
    """Return all GPU code of *files*, and the first reason why there may be more."""
    codes = [file.gpu_code for file in files]
    unread = next((code.unread for code in codes if code.unread), None)
    return GpuCode(tuple(module for code in codes for module in code.modules), unread)


def arch_of_capability(capability: str) -> Optional[str]:
    """Return the architecture of a compute capability: `8.6` -> `sm_86`, `12.0` -> `sm_120`; None if malformed."""
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", capability)
    return f"sm_{match.group(1)}{match.group(2)}" if match else None


def arch_of_override(value: str) -> Optional[str]:
    """Return the architecture that the value of `OVERRIDE` selects: `10.3.0` -> `gfx1030`; None if it is malformed."""
    match = re.fullmatch(r"\s*([0-9]{1,2})\.\s*([0-9]{1,3})\.\s*([0-9]{1,3})", value)
    if match is None:
        return None
    major, minor, stepping = map(int, match.groups())
    return f"gfx{major}{minor:x}{stepping:x}" if major < 64 and minor < 256 and stepping < 256 else None


def instruction_set(arch: str) -> str:
    """Return the generation of an AMD processor: `gfx1032` -> `gfx10`. Instruction sets differ between generations."""
    return arch.partition(":")[0][:-2]


def is_tegra_arch(arch: str) -> bool:
    """Return whether *arch* is a Jetson's or DRIVE's: it shares no code with other GPUs."""
    match = _CUDA.fullmatch(arch)
    return match is not None and int(match.group(1)) in _TEGRA


def override_for(arch: str, code: Iterable[str]) -> Optional[str]:
    """Return the value of `OVERRIDE` with which an RDNA GPU of *arch* runs *code*: `10.3.0` for gfx1032 and gfx1030.

    Processors that differ only in the last digit have nearly the same instructions, and many users set the variable.
    """
    match = re.fullmatch(r"gfx(1[0-9])([0-9a-f])[0-9a-f]", arch)
    if match is None:
        return None
    near = (candidate for candidate in code if re.fullmatch(f"{arch[:-1]}[0-9a-f]", candidate) and candidate != arch)
    return next((f"{match.group(1)}.{int(match.group(2), 16)}.{int(candidate[-1], 16)}" for candidate in near), None)


def _each_once(archs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(archs), key=arch_sort_key))


def _runs_machine_code(arch: str, code: str) -> bool:
    gpu_match, code_match = _CUDA.fullmatch(arch), _CUDA.fullmatch(code)
    if gpu_match is None or code_match is None:
        is_intels = arch in INTEL and code in (arch, _ALSO_RUNS.get(arch))
        return gpu_match is code_match and (is_intels or _amd_runs(arch, code))
    gpu_sm, code_sm = int(gpu_match.group(1)), int(code_match.group(1))
    if code_match.group(2) == "a" or code_sm in _TEGRA or gpu_sm in _TEGRA:
        return gpu_sm == code_sm
    return gpu_sm // 10 == code_sm // 10 and gpu_sm >= code_sm


def _jit_compiles(arch: str, code: str) -> bool:
    gpu_match, code_match = _CUDA.fullmatch(arch), _CUDA.fullmatch(code)
    if gpu_match is None or code_match is None:
        return code == (SPIR64 if arch in INTEL else SPIRV) and gpu_match is None
    gpu_sm, code_sm, suffix = int(gpu_match.group(1)), int(code_match.group(1)), code_match.group(2)
    if suffix == "a":
        return gpu_sm == code_sm
    return gpu_sm >= code_sm and (not suffix or gpu_sm // 10 == code_sm // 10)


def _amd_runs(arch: str, code: str) -> bool:
    """Return whether a processor *arch* runs *code*. A feature that only one of the two names has no influence."""
    (gpu, *has), (processor, *wants) = arch.split(":"), code.split(":")
    if not gpu.startswith("gfx"):
        return False
    is_same = processor == gpu or gpu[3:] in GENERIC.get(processor, "").split()
    return is_same and not any(f"{want[:-1]}{'-' if want[-1:] == '+' else '+'}" in has for want in wants)
