"""Rules about GPU code: does the image have code for the GPUs of this host?

Without such code, the libraries still load, and only the first kernel fails. `model/gpucode.py` has the architectures
that run each code, data/cuda.json the files of each framework. Modules are counted, because a linked-in library may add
a few for architectures that all other modules lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import TYPE_CHECKING, Optional

from gpubind.frozen import NamedTuple
from gpubind.model import Finding, Plan, Severity, active_cases, finding
from gpubind.model.cuda import cuda_of_isa, first_native_driver, framework_named, is_extension
from gpubind.model.gpucode import (
    OVERRIDE,
    XNACK_OFF,
    CodeFile,
    GpuCode,
    Share,
    best_share,
    merge_gpu_code,
    override_for,
)
from gpubind.model.layouts import ALL_GPU_NODES
from gpubind.rules.image.cuda import Libcuda, libcuda_in_use
from gpubind.rules.image.rocm import HIP, as_rocm_sees, hip_in, own_variable
from gpubind.rules.preflight import Preflight

if TYPE_CHECKING:
    from gpubind.inventory.architectures import GpuArch


def gpu_code_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a framework, one of its libraries, or the program, if it has no code for a GPU of the container.

    It is reported as `ptx-too-new` if the driver refuses to compile the code, and as `gpu-code-unread` if some code
    could not be read.
    """
    files = preflight.gpu_code
    has_amds = any("amd" in file.gpu_code.vendors or file.gpu_code.unread for file in files)
    if preflight.looks_at_gpu_code and not has_amds:
        yield from _hip_without_code(preflight)
    gpus = _gpus(preflight) if files else ()
    known_gpus = tuple(gpu for gpu in gpus if gpu.arch is not None)
    for vendor in dict.fromkeys(gpu.gpu.vendor for gpu in gpus if gpu.arch is None):
        names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus if gpu.arch is None and gpu.gpu.vendor == vendor))
        yield finding(
            "gpu-code-unread",
            case="of-amds-gpu" if vendor == "amd" else "of-gpu",
            vendor=vendor,
            subject=names,
            where=files[0].path,
        )
    if not known_gpus:
        return
    groups: dict[Optional[str], list[CodeFile]] = {}
    for file in files:
        groups.setdefault(file.framework, []).append(file)
    libcuda = libcuda_in_use(preflight)
    for name, group in groups.items():
        mains = [file for file in group if file.is_main]
        shortage = _shortage(known_gpus, mains, libcuda)
        if shortage is not None:
            yield _finding(preflight, shortage, _severity(preflight, name, groups, known_gpus, libcuda))
            continue
        # No variable sets XNACK: it is off where that is the default.
        defaults = [gpu._replace(arch=f"{gpu.arch}:xnack-") if gpu.arch in XNACK_OFF else gpu for gpu in known_gpus]
        shortage = _shortage(defaults, mains, libcuda)
        if shortage is not None:
            yield _finding(preflight, shortage, "warning", has_xnack=True)
        for file in group:
            shortage = _shortage(known_gpus, [file], libcuda) if file not in mains or name is None else None
            if shortage is not None and shortage.share.modules:
                yield _finding(preflight, shortage, "warning")
    for file in files:  # files that were read in part, if these parts have no code for some GPU
        code = file.gpu_code
        if code.unread is not None and not all(code.runs_on(gpu.arch or "") for gpu in known_gpus):
            yield finding("gpu-code-unread", subject=file.path, why=code.unread)


def _hip_without_code(preflight: Preflight) -> Iterator[Finding]:
    gpus = [gpu for gpu in preflight.plan.gpus if gpu.vendor == "amd" and gpu.chosen]
    file = preflight.chain.file if preflight.has_program else None
    if preflight.has_program:
        loaded = preflight.container.load(file.path).files if file is not None else ()
        hip_paths = [each.path for each in loaded if basename(each.path).startswith(HIP)]
    else:
        hip_paths = list(hip_in(preflight))
    if gpus and hip_paths:
        yield finding("gpu-code-unread", subject=basename(hip_paths[0]), case="of-hip", where=hip_paths[0])


class _Shortage(NamedTuple):
    """Files that lack code for some GPUs."""

    files: list[CodeFile]
    gpus: tuple[GpuArch, ...]
    share: Share
    """The worst share of one GPU."""
    served: tuple[GpuArch, ...]
    """The other GPUs, which run enough of the code."""
    libcuda: Optional[Libcuda] = None
    """The driver that refuses the files' PTX; None if no driver runs them."""


def _shortage(gpus: Iterable[GpuArch], files: list[CodeFile], libcuda: Optional[Libcuda]) -> Optional[_Shortage]:
    """Return which of *gpus* run too little of the code in *files*; None if there are none, or if that is not known."""
    has = merge_gpu_code(files)
    if not has or has.unread is not None:
        return None
    # An image that is also for the other vendor is correct.
    checked_gpus = [gpu for gpu in gpus if gpu.gpu.vendor in has.vendors]
    # Many processors have Intel graphics, for which no code is expected.
    checked_gpus = checked_gpus or [gpu for gpu in gpus if gpu.gpu.vendor != "intel"]
    for refusing in (None, libcuda):
        cuda = refusing.serves if refusing is not None else None
        shares = {gpu: best_share(files, gpu.arch or "", cuda) for gpu in checked_gpus}
        lacking = tuple(gpu for gpu, share in shares.items() if not share.is_enough)
        if lacking:
            worst = min((shares[gpu] for gpu in lacking), key=lambda share: share.ratio)
            served = tuple(gpu for gpu in checked_gpus if gpu not in lacking)
            return _Shortage(files, lacking, worst, served, refusing)
    return None


def _gpus(preflight: Preflight) -> tuple[GpuArch, ...]:
    from gpubind.inventory.architectures import architectures
    from gpubind.inventory.asked import query_gpus

    chosen = list(preflight.chosen_gpus)
    if any(node.vendor == "nvidia" and node.target in ALL_GPU_NODES for node in preflight.plan.devices):
        chosen += query_gpus(preflight.host)
    on_tegra = {planned.driver.vendor for planned in preflight.plan.drivers if planned.driver.kind == "tegra"}
    archs = as_rocm_sees(preflight, architectures(preflight.host, chosen))
    return tuple(gpu_arch for gpu_arch in archs if gpu_arch.gpu.vendor not in on_tegra)


def _severity(
    preflight: Preflight,
    name: Optional[str],
    groups: dict[Optional[str], list[CodeFile]],
    gpus: Iterable[GpuArch],
    libcuda: Optional[Libcuda],
) -> Severity:
    """Return `error` if the program needs *name* or is not known; `warning` if it may use another framework."""
    if name is None:
        return "error"
    if is_extension(name) or (preflight.has_program and not preflight.uses_frameworks):
        return "warning"
    for other_name, group in groups.items():
        mains = [file for file in group if file.is_main]
        if other_name != name and mains and not is_extension(other_name) and not _shortage(gpus, mains, libcuda):
            return "warning"
    return "error"


def _finding(preflight: Preflight, shortage: _Shortage, severity: Severity, *, has_xnack: bool = False) -> Finding:
    """Return the finding about *shortage*. It has *severity* if almost no code runs and no other GPU runs it; else it
    is a warning.

    *has_xnack*: the files lack only code for XNACK.
    """
    first, vendor = shortage.files[0], shortage.gpus[0].gpu.vendor
    has = merge_gpu_code(shortage.files)
    archs = list(dict.fromkeys(gpu.arch for gpu in shortage.gpus if gpu.arch))
    framework = framework_named(first.framework)
    releases = framework.releases if framework is not None else {}
    release = next((releases[arch] for arch in archs if arch in releases), None)
    overrides, served = _override_assignments(preflight, shortage, has), _choice(preflight.plan, shortage.served)
    isa, libcuda = (has.isas[-1:] or ("",))[0], shortage.libcuda
    cases = active_cases(
        ("of-amd", vendor == "amd"),
        ("partly", shortage.share.runs),
        ("released", release),
        ("override", overrides),
        ("served", served),
        ("served-override", served and overrides),
        ("xnack", has_xnack),
        ("of-other-vendor", vendor not in has.vendors),
    )
    return finding(
        "gpu-code-missing" if libcuda is None else "ptx-too-new",
        subject=first.framework if first.is_main and first.framework else basename(first.path),
        case=cases if libcuda is None else None,
        severity=severity if shortage.share.is_next_to_nothing and not shortage.served else "warning",
        vendor=vendor,
        where=first.path,
        gpus=", ".join(dict.fromkeys(gpu.name for gpu in shortage.gpus)),
        archs=", ".join(archs),
        has=" and ".join(filter(None, (" ".join(has.code), " ".join(has.ptx)))) or "nothing",
        release=release,
        overrides=overrides,
        served=served,
        share=f"{shortage.share.runs} of {shortage.share.modules} modules",
        isa=isa,
        cuda=cuda_of_isa(isa),
        libcuda=libcuda.name if libcuda is not None else None,
        serves=libcuda.serves if libcuda is not None else None,
        driver=first_native_driver(cuda_of_isa(isa) or ""),
    )


def _override_assignments(preflight: Preflight, shortage: _Shortage, code: GpuCode) -> str:
    """Return `NAME=VALUE` for the variables with which the GPUs of *shortage* run *code*.

    A single variable serves if all GPUs need the same value. Otherwise there is one for each GPU, because a single
    value would also apply to GPUs that need none.
    """
    values = {gpu: override_for(gpu.arch or "", code.code) for gpu in shortage.gpus}
    different = set(values.values())
    if not shortage.served and len(different) == 1:
        value = different.pop()
        return f"{OVERRIDE}={value}" if value else ""

    names = {gpu: own_variable(preflight, gpu.gpu) for gpu, value in values.items() if value}
    return " and ".join(f"{name}={values[gpu]}" for gpu, name in names.items() if name)


def _choice(plan: Plan, gpus: Iterable[GpuArch]) -> str:
    """Return *gpus* as a value of `--gpus`; empty if none of them has a name.

    They are named by index if all GPUs of *plan* are of one vendor, else by PCI address: each vendor has its own
    indexes.
    """
    has_one = len({gpu.vendor for gpu in plan.gpus}) == 1
    names = (str(gpu_arch.gpu.index) if has_one else gpu_arch.gpu.pci for gpu_arch in gpus if gpu_arch.gpu in plan.gpus)
    return ",".join(dict.fromkeys(name for name in names if name))
