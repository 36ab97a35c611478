"""Host or image: whose copy of a shared file a container uses.

What host and image may both have comes in groups: libglvnd's family, the OpenCL loader, ROCm, Intel's compute runtime,
glibc. Whose a group is, is one decision. What is in no group is the host's, unless the image's C library cannot load
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from gpubind.formats.driver.names import known
from gpubind.formats.elf.elf import LIBC
from gpubind.frozen import NamedTuple
from gpubind.model import (
    USERSPACES,
    Capability,
    Decision,
    Finding,
    Group,
    HostFile,
    Request,
    RootedPath,
    Severity,
    Side,
)
from gpubind.model.findings import cases_of, counted, finding, worst

if TYPE_CHECKING:
    from gpubind.loader.verdict import ImageFit, Unfit

GROUPS: tuple[Group, ...] = ("glvnd", "opencl", *USERSPACES, "libc")
_NAMES = {"glvnd": "libglvnd (libGL, libEGL, ...)", "opencl": "the OpenCL loader (libOpenCL)"}
"""What each vendor-neutral group is called."""
_MAIN = ("libGL.so.1", "libEGL.so.1")
"""The loaders of which a program for graphics needs one."""
_MISSING = "vendor-neutral-missing"
_UNSEEN = "shared by all vendors; most images have their own copy, and no image was named"
_THEIRS = {
    "complete": "the image has its own, and it defines all that is needed of it",
    "unneeded": "nothing that needs it comes from the host",
}
"""Why a library is the image's, where it is not that neither copy serves everybody."""
_CODES = {"libc": "image-libc", "architecture": "image-architecture"}
"""Codes of findings, by why a file cannot be loaded; all else is `image-without-glibc`."""

BY_DEFAULT: tuple[Capability, ...] = ("video", "graphics", "display", "ngx")
"""Capabilities that most jobs have without wanting them."""


class SharedGroup(NamedTuple):
    """Files that the host and the image may both have, and that a container takes from one of them."""

    name: Group
    members: tuple[HostFile, ...]
    """The host's."""
    compat32: bool
    """Whether they are for 32-bit programs of a 64-bit host: these decide by themselves."""
    asked: Side
    own: Optional[str]
    """That the image has its own, if it has."""
    refused: Optional[Unfit] = None
    """Why the image cannot load one of the members, where these only work with each other."""

    @property
    def rule(self) -> str:
        """Of decisions."""
        return "userspace" if self.name in USERSPACES else "libc" if self.name == "libc" else "vendor-neutral"


class Sided(NamedTuple):
    """The host's side of a plan."""

    files: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]
    images: tuple[Group, ...] = ()
    """The groups of which it has nothing: the image has them, or they are missing."""


def host_side(files: Iterable[HostFile], request: Request, fit: Optional[ImageFit]) -> Sided:
    """Return those of *files* that the container gets from the host; a Decision for each that it does not.

    The findings about user spaces are made in `gpubind.planner.userspace`.
    """
    files = sorted(files, key=lambda file: file.group not in USERSPACES)
    groups = _groups(files, request, fit)
    reasons = ((group, _why_not_the_hosts(group, fit)) for group in groups)
    images = {(group.name, group.compat32): (group, why) for group, why in reasons if why is not None}
    unfit = fit.unfit if fit is not None else {}
    theirs = fit.theirs if fit is not None else {}
    kept: list[HostFile] = []
    decisions: list[Decision] = []
    refused: list[tuple[HostFile, Unfit]] = []
    for file in files:
        name = file.group
        if name is not None and (name, file.compat32) in images:
            group, why = images[name, file.compat32]
            decisions += left_out(file, group.rule, why)
        elif file.path in unfit and (file.group in USERSPACES or unfit[file.path].rule != "dependency"):
            decisions += left_out(file, unfit[file.path].rule, unfit[file.path].message)
            refused += [(file, unfit[file.path])] if name not in USERSPACES else []
        elif file.path in theirs:
            why_theirs = theirs[file.path]
            detail = _THEIRS[why_theirs] if isinstance(why_theirs, str) else why_theirs.message
            decisions += left_out(file, "userspace", detail)
        else:
            kept.append(file)
    neutral = [one for group, _ in images.values() for one in _vendor_neutral(group, request, fit)]
    once = {(one.code, one.subject): one for one in reversed(neutral)}  # once, where both classes have one cause
    helps = fit.libc.helps if fit is not None and fit.libc is not None else ()
    findings = (*_refusals(refused, request, helps), *once.values())
    return Sided(tuple(kept), tuple(decisions), findings, tuple(name for name, compat32 in images if not compat32))


def libc_side(request: Request, fit: Optional[ImageFit]) -> Sided:
    """Return the host's side of glibc: all its files or none, and the findings about that."""
    if fit is None:
        unknown = [finding("libc-without-image", subject=LIBC, asked=request.libc)] if request.libc != "image" else []
        return Sided((), (), tuple(unknown))
    bridge = fit.libc
    if bridge is None:
        return Sided((), (), ())
    files = bridge.files
    if not bridge.acts:  # a Decision about the C library itself, where the default decides
        files = tuple(file for file in files if request.libc == "image" and LIBC in file.names)[:1]
    sided = host_side(files, request, fit)
    findings, version, own = sided.findings, bridge.version, fit.facts.libc_version
    if bridge.refused:
        case, about = bridge.refused
        refused = finding("libc-refused", subject=LIBC, case=case, about=about, version=version, own=own)
        findings = (*findings, refused)
    elif bridge.acts:
        findings = (*findings, finding("libc-host", subject=LIBC, version=version, own=own))
    return sided._replace(findings=findings)


def _groups(files: Iterable[HostFile], request: Request, fit: Optional[ImageFit]) -> list[SharedGroup]:
    """Return the groups of which the host has members, those of 32-bit programs last."""
    members: dict[tuple[bool, Group], list[HostFile]] = {}
    for file in files:
        name = file.group
        if name is not None:
            members.setdefault((file.compat32, name), []).append(file)
    there = sorted(members, key=lambda group: (group[0], GROUPS.index(group[1])))
    return [_group(name, compat32, tuple(members[compat32, name]), request, fit) for compat32, name in there]


def _group(
    name: Group, compat32: bool, members: tuple[HostFile, ...], request: Request, fit: Optional[ImageFit]
) -> SharedGroup:
    if name in USERSPACES:
        runtime = fit.own_userspaces.get(name) if fit is not None else None
        own = f"the image brings its own: {runtime}" if runtime else None
        return SharedGroup(name, members, compat32, request.userspace, own)
    if name == "libc":
        bridge = fit.libc if fit is not None else None
        helps = 0 if bridge is None else len(bridge.helps)
        own = f"the image's programs run on their own; with --libc host {counted(helps, 'file')} more would load"
        return SharedGroup(name, members, compat32, "host" if bridge is not None and bridge.acts else "auto", own)
    unfit = [fit.unfit[file.path] for file in members if file.path in fit.unfit] if fit is not None else []
    refused = [one for one in unfit if one.rule != "dependency"]  # of the same file in a user space
    return SharedGroup(
        name,
        members,
        compat32,
        asked=request.vendor_neutral,
        own="the image has its own" if fit is not None and (name, compat32) in fit.own_groups else None,
        refused=refused[0] if refused else None,
    )


def _why_not_the_hosts(group: SharedGroup, fit: Optional[ImageFit]) -> Optional[str]:
    """Return why a group is the image's, whole; None if the host's copy is bound, as far as it can be loaded."""
    if group.asked == "image":
        return "the image's own was asked for"
    if group.asked == "host":
        return f"asked for, but the image cannot load it: {group.refused.message}" if group.refused else None
    if fit is None:
        return None if group.name in USERSPACES else _UNSEEN
    if group.own is not None:
        return group.own
    return f"the image cannot load the host's: {group.refused.message}" if group.refused else None


def _vendor_neutral(group: SharedGroup, request: Request, fit: Optional[ImageFit]) -> Iterator[Finding]:
    """Yield the finding about a vendor-neutral group that the host does not provide."""
    if group.name in (*USERSPACES, "libc"):
        return
    member, name = group.members[0], _NAMES[group.name]
    name += " for 32-bit programs" if group.compat32 else ""
    is_asked = group.asked == "host"
    if fit is None and group.asked == "auto":
        yield finding(
            "vendor-neutral-left-out", subject=group.name, vendor=member.vendor, where=member.source, name=name
        )
    elif fit is not None and group.own is not None and is_asked and not (group.refused and group.refused.is_total):
        refused = group.refused.message if group.refused else None
        where, vendor = member.source, member.vendor
        yield finding(_MISSING, subject=group.name, case="kept", vendor=vendor, where=where, name=name, refused=refused)
    elif fit is not None and group.own is None and not (group.refused and group.refused.is_total):
        by_name = request.caps_named and "graphics" in request.capabilities and group.name == "glvnd"
        for soname, file in _loaders(group):
            grave: Severity = "error" if is_asked or soname in _MAIN else "warning"
            is_other = soname in fit.facts.vendor_neutral
            yield finding(
                _MISSING,
                subject=soname,
                case="other" if is_other else "refused" if group.refused else "absent",
                severity=grave if is_asked or by_name else "note",
                vendor=file.vendor,
                where=file.source,
                packages=known(soname).packages,
                refused=group.refused.message if group.refused else None,
            )


def _loaders(group: SharedGroup) -> Iterator[tuple[str, HostFile]]:
    """Yield the names by which programs open the loaders of *group*, each with the host's file."""
    for file in group.members:
        yield from ((name, file) for name in file.names if known(name).packages and known(name).soname == name)


def left_out(file: HostFile, rule: str, detail: str) -> list[Decision]:
    """Return the Decisions that *file* is left out, one for each of its names."""
    subjects = file.names or (file.target or file.path,)
    return [file.decision(subject, "left-out", rule, "side", detail=detail) for subject in subjects]


def _refusals(
    refused: Sequence[tuple[HostFile, Unfit]], request: Request, helps: Sequence[RootedPath]
) -> Iterator[Finding]:
    """Yield a finding for each file that cannot be loaded; one for all where the image as a whole is the reason.

    *helps* are the files that the host's glibc would save.
    """
    by_code: dict[str, list[tuple[HostFile, Unfit]]] = {}
    for file, unfit in refused:
        by_code.setdefault(_CODES.get(unfit.rule, "image-without-glibc"), []).append((file, unfit))
    for code, several in by_code.items():
        if code == "image-libc" or len(several) == 1:
            for file, unfit in (one for one in several if not known(one[0].name).is_unused):
                case = "helped" if code == "image-libc" and file.path in helps else None
                yield _refusal(code, file, unfit, _severity(file, request), file.name, f"{file.name} is", case)
        else:
            severity = worst(_severity(file, request) for file, _ in several)
            yield _refusal(code, *several[0], severity, "image", f"{len(several)} files are")


def _refusal(
    code: str,
    file: HostFile,
    unfit: Unfit,
    severity: Severity,
    subject: str,
    files: str,
    case: Optional[str] = None,
) -> Finding:
    is_without = code == "image-without-glibc"
    rule: str = unfit.rule
    if rule == "no-libc" and unfit.wanted is not None:
        rule = "no-libc32"
    return finding(
        code,
        subject=subject,
        case=cases_of((rule, True), (unfit.has or "none", unfit.wanted is None)) if is_without else case,
        severity=severity,
        vendor=file.vendor,
        where=file.source,
        name=file.name,
        files=files,
        detail=unfit.message,
        library=unfit.library,
        wanted=unfit.wanted,
    )


def _severity(file: HostFile, request: Request) -> Severity:
    """Return an error if CUDA itself, or what was asked for by name, needs the file; a note if it came by default."""
    by_name = request.caps_named and file.capability in request.capabilities and file.kind == "library"
    if known(file.name).minor:
        return "warning" if by_name else "note"
    if by_name or (file.name == "libcuda.so.1" and file.kind == "library"):
        return "error"
    return "note" if file.capability in BY_DEFAULT else "warning"
