"""What is said of a ROCm, host's or image's: see `gpubind.planner.sides` for whose it is.

AMD's user space is not tied to one kernel driver and belongs in the image; one that is there is never mixed with the
host's. Else the host's goes in, library by library: see `gpubind.ldso.userspace`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from gpubind.model import Conflict, Finding, HostFile, ImageFit, Request, Severity, Unfit
from gpubind.planner.sides import Sided, left_out

HEART = ("libhsa-runtime64.so.1", "libamdhip64.so")
"""Without these no program computes; by the start of the name."""


def with_rocm(
    sided: Sided, files: Sequence[HostFile], asked: Sequence[HostFile], request: Request, fit: Optional[ImageFit]
) -> Sided:
    """*sided*, the host's side of *asked*, with what is to be said of a ROCm; *files* are all that the host has."""
    members = [file for file in asked if file.userspace]
    if "rocm" in sided.images or not any(file.userspace for file in files):
        return sided._replace(findings=(*sided.findings, *_missing(request, fit)))
    kept = list(sided.files)
    decisions = list(sided.decisions)
    for file, detail in _without_library([file for file in kept if file.userspace]):
        kept.remove(file)
        decisions += left_out(file, "userspace", detail)
    unfit = fit.unfit if fit is not None else {}
    findings = _left_out([(file, unfit[file.path]) for file in members if file.path in unfit], request)
    libraries = {file.path for file in kept if file.userspace and file.kind == "library"}
    if fit is not None:
        findings += [_conflict(conflict) for conflict in fit.conflicts if members]
    elif request.userspace == "auto" and libraries:
        findings.append(_unknown_image(len(libraries)))
    return sided._replace(files=tuple(kept), decisions=tuple(decisions), findings=(*sided.findings, *findings))


def _without_library(files: Sequence[HostFile]) -> Iterator[tuple[HostFile, str]]:
    """The manifests whose library is not in *files*, and why they are left out: one more platform would fail."""
    names = [name for file in files for name in file.names]
    for file in files:
        library = (file.content or b"").decode("utf-8", "surrogateescape").strip().rpartition("/")[2]
        if file.kind == "manifest" and library not in names:
            yield file, f"{library}, which it names, is not brought along"


def _missing(request: Request, fit: Optional[ImageFit]) -> list[Finding]:
    """That a container has no ROCm at all: its image has none, and the host's does not come in."""
    if fit is None or fit.own_userspace is not None:
        return []
    asked = request.userspace == "image"
    what = (
        "the image's own ROCm was asked for, and it has none" if asked else "neither the image nor the host has a ROCm"
    )
    why = "programs that need it do not start: libamdhip64.so, libhsa-runtime64.so.1: cannot open shared object file"
    hint = "use an image with ROCm" + (", or let the host's in: --userspace auto" if asked else "")
    finding = Finding(
        code="userspace-missing", severity="warning", vendor="amd", subject="userspace", what=what, why=why, hint=hint
    )
    return [finding]


def _unknown_image(count: int) -> Finding:
    return Finding(
        code="userspace-unknown",
        severity="warning",
        vendor="amd",
        subject="userspace",
        what=f"the host's ROCm is planned, {count} libraries, without a look at the image",
        why="an image with a ROCm of its own must not get a second one, and one with an older C library cannot load "
        "the host's; copies of libstdc++ or libtinfo that are not made for it break its shell",
        hint="plan with --image; or say whose ROCm it is: --userspace host or --userspace image",
    )


def _left_out(left: list[tuple[HostFile, Unfit]], request: Request) -> list[Finding]:
    """One finding for all that cannot be loaded: an error if nothing computes without it."""
    if not left:
        return []
    named = [(file.soname or (file.names[0] if file.names else file.path), unfit) for file, unfit in left]
    heart = sorted(name for name, _ in named if name.startswith(HEART))
    severity: Severity = "error" if heart and "compute" in request.caps else "warning"
    causes: dict[str, list[str]] = {}
    for name, unfit in sorted(named):
        if unfit.rule != "dependency" or all(other.rule == "dependency" for _, other in named):
            causes.setdefault(unfit.detail, []).append(name)
    names = ", ".join(sorted({name for name, _ in named}))
    what = f"{len(named)} files of the host's ROCm are left out, this image cannot load them: {names}"
    where = "; ".join(f"{', '.join(these)}: {detail}" for detail, these in causes.items())
    why = f"{heart[0]} is among them: no program sees a GPU" if heart else next(iter(causes))
    hint = "use an image with ROCm of its own, or one with a C library as new as the host's"
    return [
        Finding(
            code="userspace-left-out",
            severity=severity,
            vendor="amd",
            subject="userspace",
            what=what,
            where=where,
            why=why,
            hint=hint,
        )
    ]


def _conflict(conflict: Conflict) -> Finding:
    what = f"neither the image's {conflict.soname} nor the host's serves everybody: {conflict.lacks}"
    why = f"{conflict.why_not_host}; so what needs the newer one is left out"
    hint = f"install a newer {conflict.soname} in the image, or use an image with ROCm of its own"
    return Finding(
        code="userspace-conflict",
        severity="warning",
        vendor="amd",
        subject=conflict.soname,
        what=what,
        why=why,
        hint=hint,
    )
