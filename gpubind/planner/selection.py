"""Which GPUs a container gets: the nodes that stay, and the variables that say it to the libraries in there.

UUIDs wherever they are known, for they mean the same with and without isolation. Numbers are said only where they must
be, counted in what the container's /dev will have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from gpubind.model import Decision, DeviceNode, EnvVar, Finding, Inventory
from gpubind.planner.asked import asked
from gpubind.planner.choice import CUDA, CUDA_ORDER, HIP, PCI_ORDER, ROCR, Choice, Chosen, names_of, usable
from gpubind.planner.ordinals import ORDINALS, renumbered
from gpubind.planner.plan import ABOUT_NODES
from gpubind.planner.visible import visible

NO_GPU = "-1"
"""CUDA's and ROCr's lists end at it. Not an empty value: some runtimes take that for none at all."""
_PLAIN = re.compile(r"[\w,:/. -]{1,4096}", re.ASCII)
_GPU_NODE = re.compile(r"/dev/(nvidia[0-9]+|dri/.+)")


class Selection(NamedTuple):
    """An inventory with the GPUs that were chosen of it."""

    inventory: Inventory
    """Without the nodes of the others, and what was found about those."""
    decisions: tuple[Decision, ...]
    """Why each of those nodes is left out."""
    env: tuple[EnvVar, ...]


def select(
    inventories: Sequence[Inventory], gpus: Optional[str], environ: Mapping[str, str], *, isolated: bool
) -> tuple[Selection, ...]:
    """What *gpus* (the value of `--gpus`), or else *environ*, chooses of *inventories*.

    *isolated*: whether the container's /dev will have the planned nodes alone. Errors: `UsageError` for a GPU in *gpus*
    that is not there, or that cannot be told.
    """
    choices = _choices(inventories, gpus, environ)
    envs = [tuple(_environment(c, i, environ, isolated)) for c, i in zip(choices, inventories)]
    said = any(variable.name == CUDA and variable.op == "set" for env in envs for variable in env)
    selections = []
    for choice, inventory, env in zip(choices, inventories, envs):
        if inventory.driver.vendor == "amd":
            env += tuple(_hip(choice, inventory, environ, said))
        selections.append(_selection(choice, inventory, env))
    return tuple(selections)


def _choices(inventories: Sequence[Inventory], gpus: Optional[str], environ: Mapping[str, str]) -> tuple[Choice, ...]:
    if gpus is not None:
        return asked(gpus, inventories)
    usables = [usable(inventory) for inventory in inventories]
    choices = []
    for number, inventory in enumerate(inventories):
        others = [gpu for other, gpus_of in enumerate(usables) if other != number for gpu in gpus_of]
        choices.append(visible(inventory, others, environ))
    return tuple(choices)


def _environment(choice: Choice, inventory: Inventory, environ: Mapping[str, str], isolated: bool) -> Iterator[EnvVar]:
    variable = ROCR if inventory.driver.vendor == "amd" else CUDA
    if choice.variables:
        yield from _handed_on(choice.variables)
        return
    if choice.everything:
        # Only what the caller's own variable would take away again has to be said.
        gpus = usable(inventory)
        if variable not in environ or not gpus:
            return
        if any(gpu.mig for gpu in gpus):
            yield EnvVar(variable, "unset", None, None, "gpus")  # nothing names whole and divided GPUs at once
            return
        # All numbers together mean all GPUs, in whatever order they are counted.
        uuids = [gpu.uuid for gpu in gpus if gpu.uuid is not None]
        value = ",".join(uuids if len(uuids) == len(gpus) else map(str, range(len(gpus))))
        yield EnvVar(variable, "set", value, None, "gpus")
        return
    if choice.gpus is None:
        return
    if not choice.gpus:
        yield EnvVar(variable, "set", NO_GPU, None, "gpus")
        return
    names = [name for chosen in choice.gpus for name in names_of(chosen)]
    if None not in names:
        yield EnvVar(variable, "set", ",".join(name or "" for name in names), None, "gpus")
    elif any(chosen.parts or chosen.gpu.mig for chosen in choice.gpus):
        # A part has no number. The nodes alone choose it, and a number of the caller's would hide it.
        if variable in environ:
            yield EnvVar(variable, "unset", None, None, "gpus")
    else:
        yield from _ordinals(choice, variable, inventory, environ, isolated)


def _handed_on(variables: Iterable[tuple[str, str]]) -> Iterator[EnvVar]:
    """The caller's own values, as they are. What no list of GPUs holds is left to the runtime: some evaluate values."""
    for name, value in variables:
        if _PLAIN.fullmatch(value):
            yield EnvVar(name, "set", value, None, "handed-on")


def _ordinals(
    choice: Choice, variable: str, inventory: Inventory, environ: Mapping[str, str], isolated: bool
) -> Iterator[EnvVar]:
    """The chosen GPUs by number: counted anew where only they are, else as on the host."""
    if not isolated and inventory.confined:
        # The job's cgroup holds in the container, too, and so does what the caller's value means in it.
        if variable in environ:
            yield from _handed_on([(variable, environ[variable])])
        return
    value = ",".join(str(chosen.gpu.index) for chosen in choice.gpus or ())
    if isolated:
        value = renumbered(value, (chosen.gpu for chosen in choice.gpus or ()))
    if variable == CUDA:
        yield EnvVar(CUDA_ORDER, "set", PCI_ORDER, None, "gpus")
    yield EnvVar(variable, "set", value, None, ORDINALS)


def _hip(choice: Choice, inventory: Inventory, environ: Mapping[str, str], said: bool) -> Iterator[EnvVar]:
    """HIP counts once more in what ROCr shows: by its own variable, or by CUDA's, which may be meant for NVIDIA's GPUs.

    All of what ROCr shows, by number, undoes that. *said*: whether the plan sets CUDA's.
    """
    if choice.variables or choice.gpus == ():
        return
    made = choice.gpus is not None or choice.everything
    if said or (made and (HIP in environ or CUDA in environ)):
        count = len(usable(inventory) if choice.gpus is None else choice.gpus)
        if count:
            yield EnvVar(HIP, "set", ",".join(map(str, range(count))), None, "gpus")


def _selection(choice: Choice, inventory: Inventory, env: tuple[EnvVar, ...]) -> Selection:
    findings: tuple[Finding, ...] = (*inventory.findings, *choice.findings)
    if choice.gpus is None:
        return Selection(inventory._replace(findings=findings), (), env)
    chosen = {one.gpu.index: one for one in choice.gpus}
    gpus = tuple(
        gpu._replace(chosen=True, mig=chosen[gpu.index].parts or gpu.mig)
        if gpu.index is not None and gpu.index in chosen
        else gpu._replace(chosen=False)
        for gpu in inventory.gpus
    )
    nodes, decisions = [], []
    for node in inventory.devices:
        why = _why_not(node, inventory, chosen, choice.by)
        if why is None:
            nodes.append(node)
        else:
            decisions.append(
                Decision(
                    node.vendor, node.target, "left-out", "not-chosen", "choice",
                    "devices", "/dev", node.target, "/dev", None, why,
                )
            )  # fmt: skip
    gone = {decision.subject for decision in decisions}
    kept = tuple(f for f in findings if not (f.code in ABOUT_NODES and f.subject in gone))
    return Selection(inventory._replace(devices=tuple(nodes), gpus=gpus, findings=kept), tuple(decisions), env)


def _why_not(node: DeviceNode, inventory: Inventory, chosen: Mapping[Optional[int], Chosen], by: str) -> Optional[str]:
    """Why *node* is left out; None if it stays: it is a chosen GPU's, or all GPUs need it."""
    if not chosen:
        return f"no GPU of this vendor is chosen ({by})"
    if node.gpu is not None:
        return None if node.gpu in chosen else f"belongs to GPU {node.gpu}, which is not chosen ({by})"
    if _GPU_NODE.fullmatch(node.target):
        return f"belongs to a GPU that is not chosen, or is excluded ({by})"
    for guard in inventory.mig_nodes:
        if guard.target == node.target:
            one = next((one for one in chosen.values() if one.gpu.minor == guard.minor), None)
            if one is not None and (not one.parts or _guards(guard.gi, guard.ci, one)):
                return None
            part = f"{guard.gi}" if guard.ci is None else f"{guard.gi}/{guard.ci}"
            return f"guards part {part} of the GPU with minor number {guard.minor}, which is not chosen ({by})"
    return None


def _guards(gi: int, ci: Optional[int], chosen: Chosen) -> bool:
    return any(part.gi == gi and ci in (None, part.ci) for part in chosen.parts)
