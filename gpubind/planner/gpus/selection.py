"""Apply a choice of GPUs: keep their nodes, and set the variables of their libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.host.base import MIG_VARIABLES
from gpubind.model import Decision, DeviceNode, EnvVar, Finding, Gpu, Inventory, finding
from gpubind.planner.gpus.choice import OPTION, ChosenGpu, GpuChoice, usable_gpus
from gpubind.planner.gpus.container_variables import container_variables
from gpubind.planner.gpus.environment import choose_by_variables
from gpubind.planner.gpus.option import choose_by_option

_GPU_NODE = re.compile(r"/dev/(?:nvidia([0-9]+)|dri/.+)")


class SelectedInventory(NamedTuple):
    """An inventory with its chosen GPUs."""

    inventory: Inventory
    """The inventory without the nodes of other GPUs, and without findings about these nodes."""
    decisions: tuple[Decision, ...]
    """The Decisions about the nodes of other GPUs."""
    env: tuple[EnvVar, ...]


def select(
    inventories: Sequence[Inventory], gpus: Optional[str], environ: Mapping[str, str], *, isolated: bool
) -> tuple[SelectedInventory, ...]:
    """Return *inventories* with the GPUs that *gpus*, the value of `--gpus`, or else *environ*, chooses.

    *isolated*: whether the container's /dev will have only the planned nodes. Errors: `UsageError` for a GPU in *gpus*
    that does not exist or is ambiguous.
    """
    if gpus is not None:
        choices = choose_by_option(gpus, inventories)
    else:
        choices = tuple(choose_by_variables(inventory, inventories, environ) for inventory in inventories)
    env = container_variables(choices, inventories, environ, isolated=isolated)
    is_manager = any(environ.get(name) == "all" for name in MIG_VARIABLES)
    return tuple(_selection(*of_vendor, is_manager=is_manager) for of_vendor in zip(choices, inventories, env))


def _selection(
    choice: GpuChoice, inventory: Inventory, env: tuple[EnvVar, ...], *, is_manager: bool
) -> SelectedInventory:
    findings: tuple[Finding, ...] = (*inventory.findings, *choice.findings, *_forbidden_findings(choice, inventory))
    if choice.gpus is None:
        gpus = inventory.gpus if choice.is_all else _permitted_gpus(inventory)
        return SelectedInventory(inventory._replace(findings=findings, gpus=gpus), (), env)
    chosen = {chosen_gpu.gpu.index: chosen_gpu for chosen_gpu in choice.gpus}
    gpus = tuple(
        gpu._replace(chosen=True, mig=chosen[gpu.index].mig or gpu.mig)
        if gpu.index is not None and gpu.index in chosen
        else gpu._replace(chosen=False)
        for gpu in inventory.gpus
    )
    nodes, decisions = [], []
    for node in inventory.devices:
        why = _left_out_reason(node, inventory, chosen, choice.source)
        if why is None and not is_manager and _is_for_managers(node, inventory, chosen):
            why = f"gives a right over MIG as a whole, not over a chosen MIG device ({choice.source})"
        if why is None:
            nodes.append(node)
        else:
            decisions.append(node.decision("left-out", "not-chosen", "choice", detail=why))
    left_out = {decision.subject for decision in decisions}
    findings = tuple(finding for finding in findings if finding.subject not in left_out)
    selected = inventory._replace(devices=tuple(nodes), gpus=gpus, findings=findings)
    return SelectedInventory(selected, tuple(decisions), env)


def _permitted_gpus(inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs if there is no choice. GPUs that a device cgroup forbids are then not chosen, unless it forbids
    all.
    """
    closed = {gpu.index for gpu in inventory.gpus if gpu.node in inventory.forbidden}
    if all(gpu.index in closed for gpu in inventory.gpus if gpu.chosen):
        return inventory.gpus
    return tuple(gpu._replace(chosen=gpu.chosen and gpu.index not in closed) for gpu in inventory.gpus)


def _left_out_reason(
    node: DeviceNode, inventory: Inventory, chosen: Mapping[Optional[int], ChosenGpu], by: str
) -> Optional[str]:
    if not chosen:
        return f"no GPU of this vendor is chosen ({by})"
    if node.gpu is not None:
        return None if node.gpu in chosen else f"belongs to GPU {node.gpu}, which is not chosen ({by})"
    if match := _GPU_NODE.fullmatch(node.target):
        minors = [str(gpu.minor) for gpu in inventory.gpus]
        if any(chosen_gpu.gpu.minor is None for chosen_gpu in chosen.values()) and match.group(1) not in minors:
            return None  # it may belong to a chosen GPU whose number is unknown
        return f"belongs to a GPU that is not chosen, or is excluded ({by})"
    for guard in inventory.mig_nodes:
        if guard.target == node.target:
            chosen_gpu = next((each for each in chosen.values() if each.gpu.minor == guard.minor), None)
            if chosen_gpu is not None and (not chosen_gpu.mig or any(map(guard.guards, chosen_gpu.mig))):
                return None
            part = f"{guard.gi}" if guard.ci is None else f"{guard.gi}/{guard.ci}"
            return f"guards part {part} of the GPU with minor number {guard.minor}, which is not chosen ({by})"
    return None


def _is_for_managers(node: DeviceNode, inventory: Inventory, chosen: Mapping[Optional[int], ChosenGpu]) -> bool:
    """Return whether *node* guards no part of a GPU; False unless parts are chosen and all their nodes are known."""
    if not node.target.startswith("/dev/nvidia-caps/") or not all(chosen_gpu.mig for chosen_gpu in chosen.values()):
        return False
    devices = [(each.gpu.minor, device) for each in chosen.values() for device in each.mig]
    parts = [(minor, device.gi, ci) for minor, device in devices for ci in (None, device.ci)]
    target_by_part = {(guard.minor, guard.gi, guard.ci): guard.target for guard in inventory.mig_nodes}
    return target_by_part.keys() >= set(parts) and node.target not in target_by_part.values()


def _forbidden_findings(choice: GpuChoice, inventory: Inventory) -> Iterator[Finding]:
    """Yield a finding for each named GPU that a device cgroup forbids, or one finding if it forbids all GPUs.

    If other GPUs remain, unnamed forbidden ones cause no finding: a scheduler's cgroup forbids those of other jobs.
    """
    chosen = usable_gpus(inventory) if choice.gpus is None else [chosen_gpu.gpu for chosen_gpu in choice.gpus]
    closed = [gpu for gpu in chosen if gpu.index in inventory.hidden_gpu_indexes and gpu.node in inventory.forbidden]
    is_lost = all(gpu.index in inventory.hidden_gpu_indexes for gpu in chosen)
    by_name = choice.source == OPTION and choice.gpus is not None
    for gpu in closed if by_name else closed[:1] if is_lost else ():
        node = str(gpu.node)
        yield finding(
            "gpu-forbidden",
            subject=node,
            case="named" if by_name else "all",
            severity="error" if by_name and is_lost else "warning",
            vendor=inventory.driver.vendor,
            where=f"open({node}): Operation not permitted (EPERM)",
        )
