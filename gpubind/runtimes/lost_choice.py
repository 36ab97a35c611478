"""The finding `lost-choice`: the caller's variables choose other GPUs than the container gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpubind.formats.driver.gpu_names import (
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    hides_all,
    is_uuid,
    parse_gpu_id,
    split_visible,
)
from gpubind.model import Finding, Gpu, Plan, Vendor, finding, with_count

_VENDORS: Mapping[str, Vendor] = {
    CUDA_VISIBLE_DEVICES: "nvidia",
    ROCR_VISIBLE_DEVICES: "amd",
    HIP_VISIBLE_DEVICES: "amd",
}
"""The vendor whose GPUs each variable chooses."""


def choice_outside(
    plan: Plan, environ: Mapping[str, str], is_outside: Callable[[str], bool], case: str = "outside"
) -> Iterator[Finding]:
    """Yield a finding for each variable of *environ* that does not reach the container and chooses fewer GPUs than it
    gets.

    *is_outside* returns whether a variable does not reach it. *case* is the case of the finding.
    """
    if plan.request.gpus is not None or plan.request.cdi_devices:
        return
    for name, value, gpus in _chosen(plan, environ):
        names = split_visible(value)
        if is_outside(name) and (hides_all(names) or len(names) < len(gpus)):
            yield _lost(case, name, value, gpus)


def choice_of_others(plan: Plan, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each variable of *environ* that selects other GPUs for a command that enters a running
    instance.

    In the instance, the GPUs are numbered from 0.
    """
    renumbered = {variable.name for variable in plan.env if variable.op == "set"} if plan.isolated else set()
    for name, value, gpus in _chosen(plan, environ):
        names = split_visible(value)
        is_same = all(_is_same_inside(gpu_name, gpus, plan) for gpu_name in names)
        if name in renumbered and not hides_all(names) and not is_same:
            yield _lost("entered", name, value, gpus)


def choice_by_count(plan: Plan, environ: Mapping[str, str], option: str) -> Iterator[Finding]:
    """Yield a finding for each variable of *environ* that names other GPUs than *option*, which gives a number of
    GPUs.
    """
    for name, value, gpus in _chosen(plan, environ):
        names = split_visible(value)
        if hides_all(names):
            yield _lost("count-none", name, value, gpus, option)
        from gpubind.planner.gpus.choice import find_gpus

        ids = [parse_gpu_id(text) for text in names]
        named_indexes = {gpu.index for gpu_id in ids if gpu_id is not None for gpu in find_gpus(gpu_id, plan.gpus)}
        if named_indexes and None not in ids and not {gpu.index for gpu in gpus} <= named_indexes:
            yield _lost("count", name, value, gpus, option)


def _is_same_inside(name: str, gpus: Sequence[Gpu], plan: Plan) -> bool:
    """Return whether *name* means the same GPU in a container that has only *gpus*, numbered from 0.

    Also True for a name that no GPU of *plan* has.
    """
    from gpubind.planner.gpus.choice import find_gpus

    gpu_id = parse_gpu_id(name)
    vendor_gpus = [gpu for gpu in plan.gpus if gpu.vendor == gpus[0].vendor]
    named_gpus = find_gpus(gpu_id, vendor_gpus) if gpu_id is not None else ()
    if is_uuid(name):
        return all(gpu in gpus for gpu in named_gpus)
    numbered_gpus = sorted(gpus, key=lambda gpu: gpu.index or 0)
    return not named_gpus or (name.isdigit() and named_gpus == tuple(numbered_gpus[int(name) : int(name) + 1]))


def _chosen(plan: Plan, environ: Mapping[str, str]) -> Iterator[tuple[str, str, list[Gpu]]]:
    """Yield (name, value, chosen GPUs of its vendor) for each variable of *environ* that chooses GPUs."""
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
        choice="none" if hides_all(split_visible(value)) else f'"${name}"',
        gpus=with_count(len(gpus), "GPU"),
        numbers=", ".join(str(gpu.index) for gpu in gpus),
    )
