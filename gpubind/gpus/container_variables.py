"""How a container is told which GPUs were chosen: the variables of CUDA, ROCr and HIP.

The caller's own value and spelling stay. Where the container's /dev counts GPUs as the host's does, and the caller's
variables say the choice, nothing is said at all: the runtime hands those on, and does with them what it does without
gpubind. What must be said is said by number, for vLLM, DeepSpeed and others read CUDA_VISIBLE_DEVICES with `int()`: the
place of a GPU among those that programs in the container can open.

UUIDs are said where the caller used them, and where no number is right: beside a divided GPU (MIG), for of those CUDA
lists one MIG device and no whole GPU; and for a GPU that this process cannot open, which has no place in the count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpubind.formats.gpu_lists import PCI_ORDER
from gpubind.formats.gpu_variables import (
    CUDA_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
)
from gpubind.gpus.choice import Choice, same_model, usable, uuids_of
from gpubind.model import EnvVar, Gpu, Inventory

NO_GPU = "-1"
"""CUDA's and ROCr's lists end at it. Not an empty value: some runtimes take that for none at all."""
_PLAIN = re.compile(r"[\w,:/. -]{1,4096}", re.ASCII)


def container_variables(
    choices: Sequence[Choice], inventories: Sequence[Inventory], environ: Mapping[str, str], *, isolated: bool
) -> list[tuple[EnvVar, ...]]:
    """What must be said of each choice to the libraries that count the GPUs of its inventory.

    *isolated*: whether the container's /dev has the nodes of the chosen GPUs alone.
    """
    env = [tuple(_variables(c, i, environ, isolated)) for c, i in zip(choices, inventories)]
    is_set = any(variable.name == CUDA_VISIBLE_DEVICES and variable.op == "set" for said in env for variable in said)
    for number, (choice, inventory) in enumerate(zip(choices, inventories)):
        if inventory.driver.vendor == "amd":
            env[number] += tuple(_hip(choice, inventory, environ, isolated, is_set))
    return env


def _variables(choice: Choice, inventory: Inventory, environ: Mapping[str, str], isolated: bool) -> Iterator[EnvVar]:
    variable = ROCR_VISIBLE_DEVICES if inventory.driver.vendor == "amd" else CUDA_VISIBLE_DEVICES
    if choice.already_set and not isolated:
        return
    if choice.forwarded:
        yield from _handed_on(choice.forwarded)
    elif choice.everything:
        if variable in environ:  # only what the caller's own would take away again has to be said
            yield from _all(variable, inventory)
    elif choice.gpus == ():
        yield _set(variable, NO_GPU)
    elif choice.gpus is not None:
        if choice.already_set and choice.by_uuid and choice.by == CUDA_VISIBLE_DEVICES:
            yield from _handed_on([(CUDA_VISIBLE_DEVICES, environ[CUDA_VISIBLE_DEVICES])])
        else:
            yield from _named(variable, choice, inventory, environ, isolated)


def _hip(
    choice: Choice, inventory: Inventory, environ: Mapping[str, str], isolated: bool, is_set: bool
) -> Iterator[EnvVar]:
    """HIP counts once more in what ROCr shows: by its own variable, or by CUDA's, which may be meant for NVIDIA's GPUs.

    All of what ROCr shows, by number, undoes that. *is_set*: whether the plan sets CUDA's.
    """
    stays = choice.already_set and not isolated
    if choice.forwarded or choice.gpus == () or (stays and HIP_VISIBLE_DEVICES in environ):
        return
    made = choice.gpus is not None or choice.everything
    if is_set or (made and not stays and (HIP_VISIBLE_DEVICES in environ or CUDA_VISIBLE_DEVICES in environ)):
        count = len(usable(inventory) if choice.gpus is None else choice.gpus)
        if count:
            yield _set(HIP_VISIBLE_DEVICES, ",".join(map(str, range(count))))


def _set(variable: str, value: str) -> EnvVar:
    return EnvVar(variable, "set", value, None, "gpus")


def _handed_on(pairs: Iterable[tuple[str, str]]) -> Iterator[EnvVar]:
    """The caller's own values, as they are. What no list of GPUs holds is left to the runtime: some evaluate values."""
    for name, value in pairs:
        if _PLAIN.fullmatch(value):
            yield EnvVar(name, "set", value, None, "handed-on")


def _all(variable: str, inventory: Inventory) -> Iterator[EnvVar]:
    gpus = usable(inventory)
    if any(gpu.mig for gpu in gpus):
        yield EnvVar(variable, "unset", None, None, "gpus")  # nothing names whole and divided GPUs at once
    elif gpus:
        # All numbers together mean all GPUs, in whatever order they are counted.
        yield _set(variable, ",".join(map(str, range(len(_open(inventory))))))


def _named(
    variable: str, choice: Choice, inventory: Inventory, environ: Mapping[str, str], isolated: bool
) -> Iterator[EnvVar]:
    """The chosen GPUs, in their order: by UUID or by number, whichever the module's rule says."""
    chosen = choice.gpus or ()
    uuids = [uuid for one in chosen for uuid in uuids_of(one)]
    counted = _counted(choice, inventory, isolated)
    places = [counted.index(one.gpu) for one in chosen if one.gpu in counted]
    numbered = bool(places) and not any(gpu.mig for gpu in counted)
    if None not in uuids and (choice.by_uuid or not numbered):
        yield _set(variable, ",".join(uuid or "" for uuid in uuids))
    elif numbered:
        if variable == CUDA_VISIBLE_DEVICES and not same_model(counted):
            yield _set(CUDA_DEVICE_ORDER, PCI_ORDER)
        yield _set(variable, ",".join(map(str, places)))
    elif not places:
        yield _set(variable, NO_GPU)  # none of them can be opened
    elif variable in environ:
        # A MIG device has no number. The nodes alone choose it, and a number of the caller's would hide it.
        yield EnvVar(variable, "unset", None, None, "gpus")


def _counted(choice: Choice, inventory: Inventory, isolated: bool) -> list[Gpu]:
    """The GPUs that programs in the container will count, in the order of their numbers."""
    gpus = _open(inventory)
    if not isolated:
        return gpus
    chosen = [one.gpu.index for one in choice.gpus or ()]
    there = {node.gpu for node in inventory.devices}
    # The node of a GPU that has not told its minor number may be any: it stays where one such is chosen.
    untold = any(_is_untold(one.gpu) for one in choice.gpus or ())
    return [
        gpu
        for gpu in gpus
        if (untold and _is_untold(gpu)) or (gpu.index in chosen and (gpu.index in there or _is_untold(gpu)))
    ]


def _open(inventory: Inventory) -> list[Gpu]:
    """The GPUs that this process can open, in the order of their indexes; all of them, where it can open none."""
    gpus = usable(inventory)
    return [gpu for gpu in gpus if gpu.index not in inventory.hidden] or list(gpus)


def _is_untold(gpu: Gpu) -> bool:
    return gpu.vendor == "nvidia" and gpu.minor is None
