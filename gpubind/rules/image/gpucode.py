"""Rules about GPU code: is there any in the image for the GPUs of this host?

A framework's libraries are opened by name, so no loader complains: the first kernel that starts fails. Which
architecture runs what is in `model/gpucode.py`; which files a framework has, in data/cuda.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Optional

from gpubind.inventory.architectures import GpuArch, architectures
from gpubind.inventory.asked import asked_gpus
from gpubind.model import Finding, Severity, cases_of, finding
from gpubind.model.cuda import framework_called, is_addition
from gpubind.model.gpucode import OVERRIDE, XNACK, CodeFile, GpuCode, arch_of_override, override_for, sum_of
from gpubind.model.layouts import ALL_GPUS
from gpubind.rules.preflight import ImagePreflight, ProgramPreflight


def gpu_code_missing(preflight: ImagePreflight) -> Iterator[Finding]:
    """Yield a framework, a library of it, or the program, that has no code for a GPU that the container gets.

    Also `gpu-code-unread`, where that could not be found out.
    """
    files = preflight.gpu_code
    gpus = _gpus(preflight) if files else ()
    known = tuple(gpu for gpu in gpus if gpu.arch is not None)
    if len(known) < len(gpus):
        names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus if gpu.arch is None))
        yield finding("gpu-code-unread", case="of-gpu", subject=names, where=files[0].path)
    if not known:
        return
    groups: dict[Optional[str], list[CodeFile]] = {}
    for file in files:
        groups.setdefault(file.framework, []).append(file)
    for name, group in groups.items():
        mains = [file for file in group if file.is_main]
        missing = _lacking(known, mains)
        if missing:
            yield _missing(preflight, mains, missing, _severity(preflight, name, groups, known))
            continue
        for file in group:
            missing = _lacking(known, [file]) if file not in mains or name is None else ()
            if missing:
                yield _missing(preflight, [file], missing, "warning")
    yield from _unread(known, files)


def _unread(gpus: Iterable[GpuArch], files: Iterable[CodeFile]) -> Iterator[Finding]:
    """Yield the files of which no part that was read is for some of *gpus*."""
    for file in files:
        code = file.gpu_code
        if code.unread is not None and not all(code.runs_on(gpu.arch or "") for gpu in gpus):
            yield finding("gpu-code-unread", subject=file.path, why=code.unread)


def _gpus(preflight: ImagePreflight) -> tuple[GpuArch, ...]:
    """Return the chosen GPUs, as the programs in the container see them."""
    chosen = [gpu for gpu in preflight.plan.gpus if gpu.chosen and gpu.index is not None]
    if any(node.vendor == "nvidia" and node.target in ALL_GPUS for node in preflight.plan.devices):
        chosen += asked_gpus(preflight.host)
    override = arch_of_override(_variable(preflight, OVERRIDE) or "")
    xnack = {"0": ":xnack-", "1": ":xnack+"}.get(_variable(preflight, XNACK) or "", "")
    on_tegra = {planned.driver.vendor for planned in preflight.plan.drivers if planned.driver.kind == "tegra"}
    return tuple(
        one._replace(arch=f"{override or one.arch}{xnack}") if one.gpu.vendor == "amd" and one.arch else one
        for one in architectures(preflight.host, chosen)
        if one.gpu.vendor not in on_tegra
    )


def _variable(preflight: ImagePreflight, name: str) -> Optional[str]:
    """Return the value of *name* in the container; where the runtime is not known, also that of the caller."""
    value = preflight.image.facts.env.get(name)
    if preflight.own_mounts is None:
        return value or preflight.host.variable(name) or None
    for variable in preflight.own_mounts.env:
        if variable.name == name and (variable.op != "default" or not value):
            value = variable.value
    return value


def _lacking(gpus: Iterable[GpuArch], files: Iterable[CodeFile]) -> tuple[GpuArch, ...]:
    """Return those of *gpus* that run none of *files*; none of them where that is not known."""
    has = sum_of(files)
    if not has or has.unread is not None:
        return ()
    # An image for the other vendor as well is right.
    asked = [gpu for gpu in gpus if gpu.gpu.vendor in has.vendors] or gpus
    return tuple(gpu for gpu in asked if not has.runs_on(gpu.arch or ""))


def _severity(
    preflight: ImagePreflight, name: Optional[str], groups: dict[Optional[str], list[CodeFile]], gpus: Iterable[GpuArch]
) -> Severity:
    """Return `error` if the program cannot do without *name*, or is not known; `warning` if it may use another."""
    if name is None:
        return "error"
    if is_addition(name) or (isinstance(preflight, ProgramPreflight) and not preflight.uses_frameworks):
        return "warning"
    others = ([file for file in group if file.is_main] for other, group in groups.items() if other != name)
    works = any(mains and not is_addition(mains[0].framework) and not _lacking(gpus, mains) for mains in others)
    return "warning" if works else "error"


def _missing(
    preflight: ImagePreflight, files: list[CodeFile], gpus: tuple[GpuArch, ...], severity: Severity
) -> Finding:
    """Return the finding that *files* have no code for *gpus*."""
    first, vendor = files[0], gpus[0].gpu.vendor
    has = sum_of(files)
    archs = list(dict.fromkeys(gpu.arch or "" for gpu in gpus))
    framework = framework_called(first.framework)
    releases = framework.releases if framework is not None else {}
    release = next((releases[arch] for arch in archs if arch in releases), None)
    override = override_for(archs[0], has.code)
    is_other = vendor not in has.vendors
    return finding(
        "gpu-code-missing",
        subject=first.framework if first.is_main and first.framework else basename(first.path),
        case=cases_of(
            ("of-amd", vendor == "amd"),
            ("released", release),
            ("override", override),
            ("of-other-vendor", is_other),
        ),
        severity=severity,
        vendor=vendor,
        where=first.path,
        gpus=", ".join(dict.fromkeys(gpu.name for gpu in gpus)),
        archs=", ".join(archs),
        has=_listed(has),
        release=release,
        variable=OVERRIDE,
        override=override,
    )


def _listed(code: GpuCode) -> str:
    """Return the architectures of *code*, for people."""
    return " and ".join(filter(None, (" ".join(code.code), " ".join(code.ptx)))) or "nothing"
