"""Host's or image's? Whose copy of a shared thing a container uses, from what the image defines.

Vendor-neutral libraries: a family is one unit, for its members only work with each other. All else is the host's,
unless the image's C library cannot load it, or it is a user space that the image has, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Optional

from gpubind.model import Capability, Decision, Family, Finding, HostFile, ImageFit, Request, Severity, Unfit

FAMILIES: tuple[Family, ...] = ("glvnd", "opencl")
_NAMES: dict[Family, str] = {"glvnd": "libglvnd (libGL, libEGL, ...)", "opencl": "the OpenCL loader (libOpenCL)"}

BY_DEFAULT: tuple[Capability, ...] = ("video", "graphics", "display", "ngx")
"""Capabilities that most jobs have without wanting them."""

_MINOR = (
    "libcudadebugger.so",
    "libnvidia-egl-",
    "libnvidia-fbc.so",
    "libnvidia-gtk",
    "libnvidia-pkcs11",
    "libnvidia-wayland-client.so",
    "libvdpau_nvidia.so",
    "nv-fabricmanager",
    "nvidia-persistenced",
)
"""What most jobs of its capability do not miss: window systems, screen capture, debuggers, services of the host."""


def is_minor(name: str) -> bool:
    """Whether a job mostly goes without *name*, even if it asked for its capability by name."""
    return name.startswith(_MINOR)


class Sided(NamedTuple):
    """The host's side of a plan."""

    files: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]


def host_side(files: Iterable[HostFile], request: Request, fit: Optional[ImageFit]) -> Sided:
    """Those of *files* that the container gets from the host; a Decision for each that it does not."""
    files = tuple(files)
    decisions: list[Decision] = []
    findings: list[Finding] = []
    theirs: dict[Family, str] = {}
    for family in FAMILIES:
        members = [file for file in files if file.family == family]
        why = _not_the_hosts(family, members, request, fit) if members else None
        if why is not None:
            theirs[family] = why
            findings += _family_finding(family, members, request, fit)
    kept: list[HostFile] = []
    told: list[Finding] = []
    shared = [file for file in files if file.userspace]
    if shared:
        from gpubind.planner.userspace import sided  # only where there is one

        kept, more, told = sided(shared, request, fit)
        decisions += more
    for file in files:
        if file.userspace:
            continue
        unfit = fit.unfit.get(file.path) if fit is not None else None
        if file.family is not None and file.family in theirs:
            decisions += left_out(file, "vendor-neutral", theirs[file.family])
        elif unfit is not None:
            decisions += left_out(file, unfit.rule, unfit.detail)
            findings.append(_unfit_finding(file, unfit, request))
        else:
            kept.append(file)
    return Sided(tuple(kept), tuple(decisions), (*_one_for_all(findings, fit), *told))


def _not_the_hosts(family: Family, members: list[HostFile], request: Request, fit: Optional[ImageFit]) -> Optional[str]:
    """Why the host's copy of *family* is not bound; None if it is."""
    if request.vendor_neutral == "image":
        return "the image's own was asked for"
    refused = [fit.unfit[member.path] for member in members if member.path in fit.unfit] if fit is not None else []
    if request.vendor_neutral == "host":
        return f"asked for, but the image cannot load it: {refused[0].detail}" if refused else None
    if fit is None:
        return "shared by all vendors; the image's own is mostly the better one, and no image is known"
    if family in fit.own_families:
        return "the image has its own"
    return f"the image cannot load the host's: {refused[0].detail}" if refused else None


def _family_finding(
    family: Family, members: list[HostFile], request: Request, fit: Optional[ImageFit]
) -> list[Finding]:
    wanted: Capability = "graphics" if family == "glvnd" else "compute"
    if fit is None and request.vendor_neutral == "auto":
        what = f"the host's copy of {_NAMES[family]} is not bound"
        why = "an image mostly has its own, and the host's may need a newer C library than the image has"
        hint = "give --image, and it is decided from both; programs that use it need it in the image"
        vendor = members[0].vendor
        return [Finding("vendor-neutral-left-out", "note", vendor, family, what, members[0].source, why, hint)]
    asked = request.vendor_neutral == "host"
    if fit is None or (family in fit.own_families and not asked):
        return []
    named = asked or (request.caps_explicit and wanted in request.caps and family == "glvnd")
    what = f"neither the image nor the host gives {_NAMES[family]} to this container"
    if family in fit.own_families:
        what = f"the host's {_NAMES[family]} was asked for, but the image cannot load it, and keeps its own"
    refused = [fit.unfit[member.path].detail for member in members if member.path in fit.unfit]
    packages = "libglvnd0, libgl1 and libegl1" if family == "glvnd" else "ocl-icd-libopencl1"
    hint = f"install it in the image: {packages} in Debian's words"
    why = f"the host's: {refused[0]}" if refused else "the image has none"
    return [
        Finding(
            "vendor-neutral-missing", "error" if named else "note", members[0].vendor, family, what, None, why, hint
        )
    ]


def left_out(file: HostFile, rule: str, detail: str) -> list[Decision]:
    """That *file* is not the host's to give, under each of its names."""
    return [
        Decision(
            file.vendor, subject, "left-out", rule, "side",
            file.named_by, file.named_at, file.path, file.found_by, None, detail,
        )
        for subject in file.names or (file.target or file.path,)
    ]  # fmt: skip


def _unfit_finding(file: HostFile, unfit: Unfit, request: Request) -> Finding:
    """An error if CUDA itself, or what was asked for by name, needs the file; a note if it came by default."""
    name = file.soname or (file.names[0] if file.names else file.path)
    by_name = request.caps_explicit and file.capability in request.caps
    needed = file.kind == "library" and (by_name or name == "libcuda.so.1") and not is_minor(name)
    code = {"libc": "image-libc", "architecture": "image-architecture"}.get(unfit.rule, "image-without-glibc")
    what = f"{name} is left out: {unfit.detail}"
    why = _CONSEQUENCES[unfit.rule].format(name=name)
    wanted = re.match(r"it needs (\S+) of (\S+),", unfit.detail)
    if unfit.rule == "libc" and wanted:
        why = f"{wanted[2]}: version `{wanted[1]}' not found (required by {name})"
    hint = "use an image with a newer C library, or one of the host's architecture; or leave the capability out"
    severity: Severity = "error" if needed else "note" if file.capability in BY_DEFAULT else "warning"
    if is_minor(name):
        severity = "warning" if by_name and file.kind == "library" else "note"
    return Finding(code, severity, file.vendor, name, what, file.source, why, hint)


_CONSEQUENCES = {
    "libc": "the loader would say: version not found (required by {name})",
    "architecture": "the loader would say: wrong ELF class, or cannot open shared object file",
    "no-libc": "no program in this image can load {name}",
    "dependency": "the loader would say: cannot open shared object file, or version not found",
    "no-loader": "starting it would say: No such file or directory",
}


def _one_for_all(findings: list[Finding], fit: Optional[ImageFit]) -> tuple[Finding, ...]:
    """One finding instead of dozens, where the image as a whole is the reason."""
    if fit is None:
        return tuple(findings)
    for code in ("image-without-glibc", "image-architecture"):
        same = [finding for finding in findings if finding.code == code]
        if len(same) > 1:
            severities = {finding.severity for finding in same}
            severity: Severity = "error" if "error" in severities else "warning" if "warning" in severities else "note"
            what = f"{len(same)} files are left out: {same[0].what.partition(': ')[2]}"
            one = same[0]._replace(severity=severity, subject="image", what=what)
            findings = [finding for finding in findings if finding.code != code] + [one]
    return tuple(findings)
