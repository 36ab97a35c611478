"""GPUs that the caller's variables choose, and that a container does not get: the findings `lost-choice`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpubind.formats.driver.gpu_names import (
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    parse_gpu_id,
    split_visible,
)
from gpubind.model import Finding, Gpu, Plan, Vendor, counted, finding
from gpubind.planner.gpus.choice import gpus_named

_VENDORS: Mapping[str, Vendor] = {
    CUDA_VISIBLE_DEVICES: "nvidia",
    ROCR_VISIBLE_DEVICES: "amd",
    HIP_VISIBLE_DEVICES: "amd",
}
"""Whose GPUs a variable chooses."""


def choice_outside(plan: Plan, environ: Mapping[str, str], is_outside: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield the variables of *environ* that stay outside the container, and that name fewer than its GPUs."""
    if plan.request.gpus is not None or plan.request.cdi_devices:
        return
    for name, value, gpus in _chosen(plan, environ):
        if is_outside(name) and len(split_visible(value)) < len(gpus):
            yield _lost("outside", name, value, gpus)


def choice_of_others(plan: Plan, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the variables of *environ* that later commands bring into an instance, whose GPUs have other numbers."""
    numbers = {one.name: one.value for one in plan.env if one.op == "set"} if plan.isolated else {}
    for name, value, gpus in _chosen(plan, environ):
        if name in numbers and numbers[name] != value:
            yield _lost("entered", name, value, gpus)


def choice_by_count(plan: Plan, environ: Mapping[str, str], option: str) -> Iterator[Finding]:
    """Yield the variables of *environ* that name other GPUs than the first ones, which *option* gives by a count."""
    for name, value, gpus in _chosen(plan, environ):
        ids = [parse_gpu_id(text) for text in split_visible(value)]
        named = {gpu.index for one in ids if one is not None for gpu in gpus_named(one, plan.gpus)}
        if named and None not in ids and not {gpu.index for gpu in gpus} <= named:
            yield _lost("count", name, value, gpus, option)


def _chosen(plan: Plan, environ: Mapping[str, str]) -> Iterator[tuple[str, str, list[Gpu]]]:
    """Yield each variable of *environ* that chooses GPUs, with the GPUs of *plan* that it is about."""
    for name, vendor in _VENDORS.items():
        gpus = [gpu for gpu in plan.gpus if gpu.vendor == vendor and gpu.chosen]
        if name in environ and gpus:
            yield name, environ[name], gpus


def _lost(case: str, name: str, value: str, gpus: list[Gpu], option: str = "") -> Finding:
    return finding(
        "lost-choice",
        subject=name,
        case=case,
        vendor=gpus[0].vendor,
        name=name,
        value=value,
        option=option,
        gpus=counted(len(gpus), "GPU"),
        numbers=", ".join(str(gpu.index) for gpu in gpus),
    )
