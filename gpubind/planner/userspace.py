"""The findings about user spaces. `gpubind.planner.sides` decides between the host's and the image's.

AMD's and Intel's user spaces are not tied to one kernel driver and belong in the image. An image's user space is never
mixed with the host's. If the image has none, each library of the host's is bound if it fits: see `gpubind.loader.fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Optional

from gpubind.loader.verdict import ImageFit, Unfit
from gpubind.model.findings import active_cases, finding
from gpubind.model.host import FileGroup, Finding, HostFile, Inventory
from gpubind.model.plan import Request
from gpubind.model.vendors import VENDOR_ROWS, Userspace
from gpubind.planner.sides import HostSide, left_out_decisions


def add_userspace_findings(
    inventory: Inventory, side: HostSide, requested: Sequence[HostFile], request: Request, fit: Optional[ImageFit]
) -> HostSide:
    """Return *side*, the host's side of *requested*, files of *inventory*, with the findings about its user space."""
    vendor = inventory.driver.vendor
    userspace = VENDOR_ROWS[vendor].userspace
    if userspace is None:
        return side
    report: Callable[..., Finding] = partial(
        finding, subject="userspace", vendor=vendor, name=userspace.name, fails=userspace.symptom_without_any
    )
    group = userspace.group
    members = [file for file in requested if file.group == group]
    has_accelerators = any(gpu.is_gaudi and gpu.chosen for gpu in inventory.gpus)
    if group in side.image_groups or not any(file.group == group for file in inventory.files):
        if fit is None or group in fit.image_userspaces:
            return side
        if userspace.video_users and request.is_without_compute and group not in fit.for_video:
            return side  # the caller does not compute
        case = "asked" if request.userspace == "image" else "nowhere"  # neither the image's nor the host's
        without = _does_without(group, request, fit, has_accelerators)
        missing = report("userspace-missing", **{"case": case, "severity": "warning", **_as_note(without)})
        return side._replace(findings=(*side.findings, missing))
    alone = _without_library([file for file in side.files if file.group == group])
    kept_files = tuple(file for file in side.files if file not in alone)
    decisions = [decision for file, why in alone.items() for decision in left_out_decisions(file, "userspace", why)]
    findings = [*side.findings]
    if fit is not None:
        unfit_files = [(file, fit.unfit[file.path]) for file in members if file.path in fit.unfit]
        without = _does_without(group, request, fit, has_accelerators)
        if unfit_files:
            helped = len([file for file, _ in unfit_files if fit.libc is not None and file.path in fit.libc.enables])
            facts_left = _unfit_facts(userspace, unfit_files, request, helped)
            findings.append(report("userspace-left-out", **{**facts_left, **_as_note(without)}))
        for soname, version, needed_by, lost in fit.conflicts if members else ():
            facts = {"wanted": version, "needed_by": needed_by, "lost": lost}
            findings.append(report("userspace-conflict", subject=soname, **facts))
    elif request.userspace == "auto":
        libraries = [file for file in kept_files if file.group == group and file.kind == "library"]
        # Of two files with one name, the first one is bound.
        count = len({*{name: file.path for file in reversed(libraries) for name in file.names}.values()})
        findings += [report("userspace-unknown", count=count)] if count else []
    return side._replace(files=kept_files, decisions=(*side.decisions, *decisions), findings=tuple(findings))


def _as_note(without: Optional[str]) -> dict[str, Any]:
    return {"case": without, "severity": "note"} if without else {}


def _does_without(group: FileGroup, request: Request, fit: ImageFit, has_accelerators: bool) -> Optional[str]:
    """Return a finding's case: the purpose for which the image does not need *group*; None if it may need the group.

    Video is such a purpose only if the caller did not request computing by name.
    """
    if has_accelerators and group in fit.for_others and request.userspace != "host":
        return "accelerators"
    return "video" if group in fit.for_video and not request.computes_by_name else None


def _without_library(files: Sequence[HostFile]) -> dict[HostFile, str]:
    """Return the manifests whose library is not in *files*, with the reason.

    They are left out because the platform that such a manifest announces would fail.
    """
    names = [name for file in files for name in file.names]
    texts = {
        file: (file.content or b"").decode("utf-8", "surrogateescape") for file in files if file.kind == "manifest"
    }
    libraries = ((file, text.strip().rpartition("/")[2]) for file, text in texts.items())
    return {file: f"{name}, which it names, is not brought along" for file, name in libraries if name not in names}


def _unfit_facts(
    userspace: Userspace, unfit_files: Sequence[tuple[HostFile, Unfit]], request: Request, helped: int
) -> dict[str, Any]:
    """Return the facts of the finding about files that do not load. *helped* of them would load with the host's
    glibc.
    """
    refusals = sorted((file.name, unfit.rule, unfit.message) for file, unfit in unfit_files)
    core = next((name for name, _, _ in refusals if name.startswith(userspace.required_libraries)), None)
    causes: dict[str, list[str]] = {}
    for name, rule, why in refusals:
        if rule != "dependency" or all(other_rule == "dependency" for _, other_rule, _ in refusals):
            causes.setdefault(why, []).append(name)
    return {
        "case": ("core" if core else "other", *active_cases(("helped", helped))),
        "severity": "error" if core and "compute" in request.capabilities else "warning",
        "where": "; ".join(f"{', '.join(names)}: {why}" for why, names in causes.items()),
        "count": len(refusals),
        "names": ", ".join(sorted({name for name, _, _ in refusals})),
        "core": core,
        "cause": next(iter(causes)),
        "helped": helped,
        "blind": userspace.symptom_without_core,
    }
