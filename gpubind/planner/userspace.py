"""A user space that may as well be the image's: whose is it, and what of the host's goes into the container?

AMD's user space is not tied to one kernel driver and belongs in the image; one that is there is never mixed with the
host's. Else the host's goes in, library by library: see `gpubind.ldso.userspace`.
"""

from __future__ import annotations

from typing import Optional

from gpubind.model import Conflict, Decision, Finding, HostFile, ImageFit, Request, Severity, Unfit
from gpubind.planner.sides import left_out

HEART = ("libhsa-runtime64.so.1", "libamdhip64.so")
"""Without these no program computes; by the start of the name."""


def sided(
    files: list[HostFile], request: Request, fit: Optional[ImageFit]
) -> tuple[list[HostFile], list[Decision], list[Finding]]:
    """Those of *files*, a user space, that the container gets from the host; what becomes of the others."""
    whole = _whole_is_the_images(request, fit)
    decisions: list[Decision] = []
    if whole is not None:
        for file in files:
            decisions += left_out(file, "userspace", whole)
        return [], decisions, missing(request, fit)
    unfit = fit.unfit if fit is not None else {}
    theirs = fit.theirs if fit is not None else {}
    kept: list[HostFile] = []
    left: list[tuple[HostFile, Unfit]] = []
    for file in files:
        if file.path in unfit:
            left.append((file, unfit[file.path]))
            decisions += left_out(file, unfit[file.path].rule, unfit[file.path].detail)
        elif file.path in theirs:
            decisions += left_out(file, "userspace", theirs[file.path])
        else:
            kept.append(file)
    names = [name for file in kept for name in file.names]
    for file in [file for file in kept if file.kind == "manifest"]:
        # A manifest that names what is not there would be one more platform that fails.
        library = (file.content or b"").decode("utf-8", "surrogateescape").strip().rpartition("/")[2]
        if library not in names:
            kept.remove(file)
            decisions += left_out(file, "userspace", f"{library}, which it names, is not brought along")
    findings = _left_out(left, request)
    if fit is not None:
        findings += [_conflict(conflict) for conflict in fit.conflicts]
    elif request.userspace == "auto" and any(file.kind == "library" for file in kept):
        findings.append(_unknown_image(kept))
    return kept, decisions, findings


def _whole_is_the_images(request: Request, fit: Optional[ImageFit]) -> Optional[str]:
    if request.userspace == "image":
        return "the image's own was asked for"
    if request.userspace == "auto" and fit is not None and fit.own_userspace is not None:
        return f"the image brings its own: {fit.own_userspace}"
    return None


def missing(request: Request, fit: Optional[ImageFit]) -> list[Finding]:
    """That a container has no ROCm at all: its image has none, and the host's does not come in."""
    if fit is None or fit.own_userspace is not None:
        return []
    asked = request.userspace == "image"
    what = (
        "the image's own ROCm was asked for, and it has none" if asked else "neither the image nor the host has a ROCm"
    )
    why = "programs that need it do not start: libamdhip64.so, libhsa-runtime64.so.1: cannot open shared object file"
    hint = "use an image with ROCm" + (", or let the host's in: --userspace auto" if asked else "")
    return [Finding("userspace-missing", "warning", "amd", "userspace", what, None, why, hint)]


def _unknown_image(kept: list[HostFile]) -> Finding:
    libraries = sorted({file.path for file in kept if file.kind == "library"})
    return Finding(
        "userspace-unknown",
        "warning",
        "amd",
        "userspace",
        f"the host's ROCm is planned, {len(libraries)} libraries, without a look at the image",
        None,
        "an image with a ROCm of its own must not get a second one, and one with an older C library cannot load the "
        "host's; copies of libstdc++ or libtinfo that are not made for it break its shell",
        "plan with --image; or say whose ROCm it is: --userspace host or --userspace image",
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
    return [Finding("userspace-left-out", severity, "amd", "userspace", what, where, why, hint)]


def _conflict(conflict: Conflict) -> Finding:
    what = f"neither the image's {conflict.soname} nor the host's serves everybody: {conflict.lacks}"
    why = f"{conflict.why_not_host}; so what needs the newer one is left out"
    hint = f"install a newer {conflict.soname} in the image, or use an image with ROCm of its own"
    return Finding("userspace-conflict", "warning", "amd", conflict.soname, what, None, why, hint)
