"""`plan --json`: the plan document, schema `gpubind.plan/1` (gpubind/data/plan.schema.json)."""

from __future__ import annotations

import json
from typing import Any, Optional

from gpubind import __version__
from gpubind.model import Gpu, ImageFacts, Plan, PlannedDriver

SCHEMA = "gpubind.plan/1"


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values. Every key is always there, null when unknown; arrays keep the plan's order."""
    request = plan.request
    return {
        "schema": SCHEMA,
        "gpubind": __version__,
        "request": {
            "vendors": request.vendors,
            "caps": request.caps,
            "caps_explicit": request.caps_explicit,
            "gpus": request.gpus,
            "source": request.source,
            "like": request.like,
            "layout": plan.layout,
            "vendor_neutral": request.vendor_neutral,
            "userspace": request.userspace,
            "libc": "image",
            "cuda_compat": request.cuda_compat,
        },
        "drivers": [_driver(driver) for driver in plan.drivers],
        "image": image_document(plan.image),
        "gpus": [_gpu(gpu) for gpu in plan.gpus],
        "libdir": plan.libdir,
        "libdir32": plan.libdir32,
        "mounts": [mount._asdict() for mount in plan.mounts],
        "devices": [node._asdict() for node in plan.devices],
        "env": [variable._asdict() for variable in plan.env],
        "decisions": [decision._asdict() for decision in plan.decisions],
        "findings": [finding._asdict() for finding in plan.findings],
        "digest": plan.digest,
    }


def render_json(plan: Plan, *, verbose: bool = False) -> str:
    """The document as text: ASCII, one member of each array a line, so that two plans can be compared with diff.

    *verbose* changes nothing: what was left out is always in it.
    """
    parts = []
    for key, value in plan_document(plan).items():
        if isinstance(value, list) and value:
            members = ",\n  ".join(json.dumps(member) for member in value)
            parts.append(f'"{key}": [\n  {members}\n ]')
        else:
            parts.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _driver(planned: PlannedDriver) -> dict[str, Any]:
    source = planned.source._asdict()
    source["passed_over"] = [passed._asdict() for passed in planned.source.passed_over]
    return {**planned.driver._asdict(), "source": source}


def image_document(image: Optional[ImageFacts]) -> Optional[dict[str, Any]]:
    """The facts of an image as JSON values."""
    if image is None:
        return None
    return {
        "kind": image.kind,
        "arch": image.arch,
        "libc": {"family": image.libc_family, "version": image.libc_version},
        "libstdcxx": image.libstdcxx,
        "env": image.env,
        "undecided": image.undecided,
        "driver": [library._asdict() for library in image.driver],
        "vendor_neutral": image.vendor_neutral,
        "cuda": image.cuda,
        "compat": [{**library._asdict(), "note": library.note and library.note._asdict()} for library in image.compat],
        "rocm": image.rocm,
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {**gpu._asdict(), "mig": [device._asdict() for device in gpu.mig]}
