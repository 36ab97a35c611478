"""Decide between the host's and the image's copy of shared files.

Files that host and image may both provide form groups: libglvnd's family, the OpenCL loader, ROCm, Intel's compute
runtime, glibc. One decision covers a whole group. A file in no group is the host's, unless the image's C library cannot
load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from gpubind.formats.driver.names import name_facts
from gpubind.formats.elf.elf import LIBC
from gpubind.frozen import NamedTuple
from gpubind.model.files import RootedPath
from gpubind.model.findings import active_cases, finding, with_count, worst
from gpubind.model.host import Capability, Decision, FileGroup, Finding, HostFile, Severity, Side
from gpubind.model.plan import Request
from gpubind.model.vendors import USERSPACES

if TYPE_CHECKING:
    from gpubind.loader.verdict import ImageFit, Unfit

GROUPS: tuple[FileGroup, ...] = ("glvnd", "opencl", *USERSPACES, "libc")
_NAMES = {"glvnd": "libglvnd (libGL, libEGL, ...)", "opencl": "the OpenCL loader (libOpenCL)"}
"""The names of vendor-neutral groups in findings."""
_GRAPHICS_LOADERS = ("libGL.so.1", "libEGL.so.1")
"""The loaders, one of which each graphics program needs."""
_MISSING = "vendor-neutral-missing"
_NO_IMAGE_REASON = "shared by all vendors; most images have their own copy, and no image was named"
_IMAGE_REASONS = {
    "complete": "the image has its own, and it defines all that is needed of it",
    "unneeded": "nothing that needs it comes from the host",
}
"""Reasons for the image's copy of a library, besides conflicts."""
_CODES_BY_CAUSE = {"libc": "image-libc", "architecture": "image-architecture"}
"""Codes of findings, by the rule that a file breaks; for other rules `image-without-glibc`."""

DEFAULT_EXTRAS: tuple[Capability, ...] = ("video", "graphics", "display", "ngx")
"""Capabilities that are requested by default, and that most jobs do not use."""


class SharedGroup(NamedTuple):
    """Files that the host and the image may both provide; a container uses one side's."""

    name: FileGroup
    members: tuple[HostFile, ...]
    """The host's files."""
    compat32: bool
    """Whether they are for 32-bit programs of a 64-bit host, for which gpubind decides separately."""
    requested_side: Side
    image_copy: Optional[str]
    """The reason for the image's copy; None if the image has none."""
    unfit: Optional[Unfit] = None
    """Why the image cannot load one of the members, in a group whose members need each other."""

    @property
    def rule(self) -> str:
        """The rule of Decisions about the group."""
        return "userspace" if self.name in USERSPACES else "libc" if self.name == "libc" else "vendor-neutral"


class HostSide(NamedTuple):
    """The host's side of a plan."""

    files: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]
    image_groups: tuple[FileGroup, ...] = ()
    """The groups that the image provides, or that are missing."""


def host_side(files: Iterable[HostFile], request: Request, fit: Optional[ImageFit]) -> HostSide:
    """Return those *files* that the container gets from the host, and a Decision for each other file.

    `gpubind.planner.userspace` adds the findings about user spaces.
    """
    files = sorted(files, key=lambda file: file.group not in USERSPACES)
    groups = _groups(files, request, fit)
    reasons = ((group, _image_side_reason(group, fit)) for group in groups)
    images = {(group.name, group.compat32): (group, why) for group, why in reasons if why is not None}
    unfit = fit.unfit if fit is not None else {}
    image_reasons = fit.image_side if fit is not None else {}
    host_files: list[HostFile] = []
    decisions: list[Decision] = []
    refused: list[tuple[HostFile, Unfit]] = []
    for file in files:
        name = file.group
        if name is not None and (name, file.compat32) in images:
            group, why = images[name, file.compat32]
            decisions += left_out_decisions(file, group.rule, why)
        elif file.path in unfit and (file.group in USERSPACES or unfit[file.path].rule != "dependency"):
            decisions += left_out_decisions(file, unfit[file.path].rule, unfit[file.path].message)
            refused += [(file, unfit[file.path])] if name not in USERSPACES else []
        elif file.path in image_reasons:
            reason = image_reasons[file.path]
            detail = _IMAGE_REASONS[reason] if isinstance(reason, str) else reason.message
            decisions += left_out_decisions(file, "userspace", detail)
        else:
            host_files.append(file)
    neutral = [finding for group, _ in images.values() for finding in _vendor_neutral_findings(group, request, fit)]
    # 64-bit and 32-bit groups may share a cause.
    once = {(finding.code, finding.subject): finding for finding in reversed(neutral)}
    helps = fit.libc.enables if fit is not None and fit.libc is not None else ()
    findings = (*_unfit_findings(refused, request, helps), *once.values())
    image_groups = tuple(name for name, compat32 in images if not compat32)
    return HostSide(tuple(host_files), tuple(decisions), findings, image_groups)


def host_libc_side(request: Request, fit: Optional[ImageFit]) -> HostSide:
    """Return the host's side of glibc: all of its files or none, with findings."""
    if fit is None:
        unknown = [finding("libc-without-image", subject=LIBC, asked=request.libc)] if request.libc != "image" else []
        return HostSide((), (), tuple(unknown))
    bridge = fit.libc
    if bridge is None:
        return HostSide((), (), ())
    files = bridge.files
    if not bridge.is_used:  # only a Decision about the C library itself
        files = tuple(file for file in files if request.libc == "image" and LIBC in file.names)[:1]
    side = host_side(files, request, fit)
    findings, version, image_version = side.findings, bridge.version, fit.facts.libc_version
    if bridge.refusal:
        case, about = bridge.refusal
        refused = finding("libc-refused", subject=LIBC, case=case, about=about, version=version, own=image_version)
        findings = (*findings, refused)
    elif bridge.is_used:
        findings = (*findings, finding("libc-host", subject=LIBC, version=version, own=image_version))
    return side._replace(findings=findings)


def _groups(files: Iterable[HostFile], request: Request, fit: Optional[ImageFit]) -> list[SharedGroup]:
    members: dict[tuple[bool, FileGroup], list[HostFile]] = {}
    for file in files:
        name = file.group
        if name is not None:
            members.setdefault((file.compat32, name), []).append(file)
    group_keys = sorted(members, key=lambda group: (group[0], GROUPS.index(group[1])))
    return [_group(name, compat32, tuple(members[compat32, name]), request, fit) for compat32, name in group_keys]


def _group(
    name: FileGroup, compat32: bool, members: tuple[HostFile, ...], request: Request, fit: Optional[ImageFit]
) -> SharedGroup:
    if name in USERSPACES:
        runtime = fit.image_userspaces.get(name) if fit is not None else None
        image_copy = f"the image brings its own: {runtime}" if runtime else None
        return SharedGroup(name, members, compat32, request.userspace, image_copy)
    if name == "libc":
        bridge = fit.libc if fit is not None else None
        helps = 0 if bridge is None else len(bridge.enables)
        image_copy = (
            f"the image's programs run on their own; with --libc host {with_count(helps, 'file')} more would load"
        )
        side: Side = "host" if bridge is not None and bridge.is_used else "auto"
        return SharedGroup(name, members, compat32, side, image_copy)
    unfit = [fit.unfit[file.path] for file in members if file.path in fit.unfit] if fit is not None else []
    refused = [fault for fault in unfit if fault.rule != "dependency"]  # that is about a part of a user space
    return SharedGroup(
        name,
        members,
        compat32,
        requested_side=request.vendor_neutral,
        image_copy="the image has its own" if fit is not None and (name, compat32) in fit.image_groups else None,
        unfit=refused[0] if refused else None,
    )


def _image_side_reason(group: SharedGroup, fit: Optional[ImageFit]) -> Optional[str]:
    """Return why the container uses the image's copy of the whole group; None if the host's loadable files are
    bound.
    """
    if group.requested_side == "image":
        return "the image's own was asked for"
    if group.requested_side == "host":
        return f"asked for, but the image cannot load it: {group.unfit.message}" if group.unfit else None
    if fit is None:
        return None if group.name in USERSPACES else _NO_IMAGE_REASON
    if group.image_copy is not None:
        return group.image_copy
    return f"the image cannot load the host's: {group.unfit.message}" if group.unfit else None


def _vendor_neutral_findings(group: SharedGroup, request: Request, fit: Optional[ImageFit]) -> Iterator[Finding]:
    if group.name in (*USERSPACES, "libc"):
        return
    member, name = group.members[0], _NAMES[group.name]
    name += " for 32-bit programs" if group.compat32 else ""
    is_asked = group.requested_side == "host"
    if fit is None and group.requested_side == "auto":
        subject, where = group.name, member.source
        yield finding("vendor-neutral-left-out", subject=subject, vendor=member.vendor, where=where, name=name)
    elif fit is not None and group.image_copy is not None and is_asked and not (group.unfit and group.unfit.is_total):
        refused = group.unfit.message if group.unfit else None
        where, vendor = member.source, member.vendor
        yield finding(_MISSING, subject=group.name, case="kept", vendor=vendor, where=where, name=name, refused=refused)
    elif fit is not None and group.image_copy is None and not (group.unfit and group.unfit.is_total):
        by_name = request.caps_named and "graphics" in request.capabilities and group.name == "glvnd"
        for soname, file in ((name, member) for member in group.members for name in member.names):
            if not name_facts(soname).packages or name_facts(soname).soname != soname:
                continue  # only loaders that a package provides
            grave: Severity = "error" if is_asked or soname in _GRAPHICS_LOADERS else "warning"
            is_other = soname in fit.facts.vendor_neutral
            yield finding(
                _MISSING,
                subject=soname,
                case="other" if is_other else "refused" if group.unfit else "absent",
                severity=grave if is_asked or by_name else "note",
                vendor=file.vendor,
                where=file.source,
                packages=name_facts(soname).packages,
                refused=group.unfit.message if group.unfit else None,
            )


def left_out_decisions(file: HostFile, rule: str, detail: str) -> list[Decision]:
    """Return a `left-out` Decision for each name of *file*."""
    subjects = file.names or (file.target or file.path,)
    return [file.decision(subject, "left-out", rule, "side", detail=detail) for subject in subjects]


def _unfit_findings(
    refused: Sequence[tuple[HostFile, Unfit]], request: Request, helps: Sequence[RootedPath]
) -> Iterator[Finding]:
    """Yield a finding for each file that cannot be loaded, or one for all if the image as a whole is the reason.

    *helps* are the files that could be loaded with the host's glibc.
    """
    by_code: dict[str, list[tuple[HostFile, Unfit]]] = {}
    for file, unfit in refused:
        by_code.setdefault(_CODES_BY_CAUSE.get(unfit.rule, "image-without-glibc"), []).append((file, unfit))
    for code, several in by_code.items():
        if code == "image-libc" or len(several) == 1:
            for file, unfit in (pair for pair in several if not name_facts(pair[0].name).is_unused):
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
    if rule == "no-libc" and unfit.needed is not None:
        rule = "no-libc32"
    return finding(
        code,
        subject=subject,
        case=active_cases((rule, True), (unfit.image_has or "none", unfit.needed is None)) if is_without else case,
        severity=severity,
        vendor=file.vendor,
        where=file.source,
        name=file.name,
        files=files,
        detail=unfit.message,
        library=unfit.library,
        wanted=unfit.needed,
    )


def _severity(file: HostFile, request: Request) -> Severity:
    """Return `error` for libcuda and for libraries requested by name; `note` for those included by default."""
    by_name = request.caps_named and file.capability in request.capabilities and file.kind == "library"
    if name_facts(file.name).minor:
        return "warning" if by_name else "note"
    if by_name or (file.name == "libcuda.so.1" and file.kind == "library"):
        return "error"
    return "note" if file.capability in DEFAULT_EXTRAS else "warning"
