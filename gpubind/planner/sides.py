"""Host's or image's? Whose copy of a shared thing a container uses, from what the image defines.

What host and image may both have comes in groups: libglvnd's family, the OpenCL loader, ROCm. Whose a group is, is one
decision. What is in no group is the host's, unless the image's C library cannot load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Optional

from gpubind.model import Capability, Decision, Finding, HostFile, ImageFit, Request, Severity, Side, Unfit
from gpubind.sources.liblist import known

GroupName = Literal["glvnd", "opencl", "rocm"]
GROUPS: tuple[GroupName, ...] = ("glvnd", "opencl", "rocm")
_NAMES = {"glvnd": "libglvnd (libGL, libEGL, ...)", "opencl": "the OpenCL loader (libOpenCL)"}

BY_DEFAULT: tuple[Capability, ...] = ("video", "graphics", "display", "ngx")
"""Capabilities that most jobs have without wanting them."""


def is_minor(name: str) -> bool:
    """Whether a job mostly goes without *name*, even if it asked for its capability by name."""
    about = known(name)
    return about is not None and about.minor


class Group(NamedTuple):
    """Files that the host and the image may both have, and that a container takes from one of them."""

    name: GroupName
    members: tuple[HostFile, ...]
    """The host's."""
    asked: Side
    own: Optional[str]
    """That the image has its own, if it has."""
    refused: Optional[str] = None
    """Why the image cannot load one of the members, where these only work with each other."""
    unseen: Optional[str] = None
    """Why it is left to an image that is not known; None: then it is the host's."""

    @property
    def rule(self) -> str:
        """Of decisions."""
        return "userspace" if self.name == "rocm" else "vendor-neutral"


class Sided(NamedTuple):
    """The host's side of a plan."""

    files: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]
    images: tuple[GroupName, ...] = ()
    """The groups of which it has nothing: they are the image's, or nobody's."""


def host_side(files: Iterable[HostFile], request: Request, fit: Optional[ImageFit]) -> Sided:
    """Those of *files* that the container gets from the host; a Decision for each that it does not.

    What is to be said of ROCm is said in `gpubind.planner.userspace`.
    """
    files = sorted(files, key=lambda file: not file.userspace)
    groups = [group for name in GROUPS if (group := _group(name, files, request, fit)).members]
    images = {group.name: (group.rule, why) for group in groups if (why := _why_not_the_hosts(group, fit)) is not None}
    unfit = fit.unfit if fit is not None else {}
    kept: list[HostFile] = []
    decisions: list[Decision] = []
    refused: list[Finding] = []
    for file in files:
        name = group_of(file)
        if name in images:
            decisions += left_out(file, *images[name])
        elif file.path in unfit:
            decisions += left_out(file, unfit[file.path].rule, unfit[file.path].detail)
            refused += [_unfit_finding(file, unfit[file.path], request)] if name != "rocm" else []
        elif fit is not None and file.path in fit.theirs:
            decisions += left_out(file, "userspace", fit.theirs[file.path])
        else:
            kept.append(file)
    findings = [one for group in groups if group.name in images for one in _vendor_neutral(group, request, fit)]
    return Sided(tuple(kept), tuple(decisions), (*_one_for_all(refused, fit), *findings), tuple(images))


def group_of(file: HostFile) -> Optional[GroupName]:
    """The group that *file* belongs to; None: it is the driver's, and no image has its own."""
    return "rocm" if file.userspace else file.family


def _group(name: GroupName, files: Sequence[HostFile], request: Request, fit: Optional[ImageFit]) -> Group:
    members = tuple(file for file in files if group_of(file) == name)
    if name == "rocm":
        runtime = fit.own_userspace if fit is not None else None
        return Group(name, members, request.userspace, f"the image brings its own: {runtime}" if runtime else None)
    refused = [fit.unfit[file.path].detail for file in members if file.path in fit.unfit] if fit is not None else []
    return Group(
        name,
        members,
        asked=request.vendor_neutral,
        own="the image has its own" if fit is not None and name in fit.own_families else None,
        refused=refused[0] if refused else None,
        unseen="shared by all vendors; the image's own is mostly the better one, and no image is known",
    )


def _why_not_the_hosts(group: Group, fit: Optional[ImageFit]) -> Optional[str]:
    """Why a group is the image's, whole; None if the host's copy is bound, as far as it can be loaded."""
    if group.asked == "image":
        return "the image's own was asked for"
    if group.asked == "host":
        return f"asked for, but the image cannot load it: {group.refused}" if group.refused else None
    if fit is None:
        return group.unseen
    if group.own is not None:
        return group.own
    return f"the image cannot load the host's: {group.refused}" if group.refused else None


def _vendor_neutral(group: Group, request: Request, fit: Optional[ImageFit]) -> Iterator[Finding]:
    """What is to be said of a vendor-neutral group that the host does not give."""
    if group.name == "rocm":
        return
    member, name = group.members[0], _NAMES[group.name]
    is_asked = group.asked == "host"
    if fit is None and group.asked == "auto":
        yield Finding(
            code="vendor-neutral-left-out",
            severity="note",
            vendor=member.vendor,
            subject=group.name,
            what=f"the host's copy of {name} is not bound",
            where=member.source,
            why="an image mostly has its own, and the host's may need a newer C library than the image has",
            hint="give --image, and it is decided from both; programs that use it need it in the image",
        )
    elif fit is not None and (group.own is None or is_asked):
        by_name = request.caps_explicit and "graphics" in request.caps and group.name == "glvnd"
        packages = "libglvnd0, libgl1 and libegl1" if group.name == "glvnd" else "ocl-icd-libopencl1"
        yield Finding(
            code="vendor-neutral-missing",
            severity="error" if is_asked or by_name else "note",
            vendor=member.vendor,
            subject=group.name,
            what=f"neither the image nor the host gives {name} to this container"
            if group.own is None
            else f"the host's {name} was asked for, but the image cannot load it, and keeps its own",
            why=f"the host's: {group.refused}" if group.refused else "the image has none",
            hint=f"install it in the image: {packages} in Debian's words",
        )


def left_out(file: HostFile, rule: str, detail: str) -> list[Decision]:
    """That *file* is not the host's to give, under each of its names."""
    return [
        Decision(
            vendor=file.vendor,
            subject=subject,
            verdict="left-out",
            rule=rule,
            step="side",
            named_by=file.named_by,
            named_at=file.named_at,
            path=file.path,
            found_by=file.found_by,
            detail=detail,
        )
        for subject in file.names or (file.target or file.path,)
    ]


def _unfit_finding(file: HostFile, unfit: Unfit, request: Request) -> Finding:
    """An error if CUDA itself, or what was asked for by name, needs the file; a note if it came by default."""
    name = file.soname or (file.names[0] if file.names else file.path)
    by_name = request.caps_explicit and file.capability in request.caps
    needed = file.kind == "library" and (by_name or name == "libcuda.so.1") and not is_minor(name)
    code = {"libc": "image-libc", "architecture": "image-architecture"}.get(unfit.rule, "image-without-glibc")
    what = f"{name} is left out: {unfit.detail}"
    why = _CONSEQUENCES[unfit.rule].format(name=name)
    if unfit.rule == "libc" and unfit.wanted is not None:
        why = f"{unfit.library}: version `{unfit.wanted}' not found (required by {name})"
    hint = "use an image with a newer C library, or one of the host's architecture; or leave the capability out"
    severity: Severity = "error" if needed else "note" if file.capability in BY_DEFAULT else "warning"
    if is_minor(name):
        severity = "warning" if by_name and file.kind == "library" else "note"
    return Finding(
        code=code,
        severity=severity,
        vendor=file.vendor,
        subject=name,
        what=what,
        where=file.source,
        why=why,
        hint=hint,
    )


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
