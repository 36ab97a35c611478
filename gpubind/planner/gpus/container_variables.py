"""The variables by which CUDA, ROCr and HIP in a container show the chosen GPUs.

The caller's own value and spelling stay. If the caller's variables already choose these GPUs and /dev is shared,
gpubind sets nothing: the runtime passes the variables through as it does without gpubind. Otherwise the value consists
of numbers, because vLLM, DeepSpeed and others read CUDA_VISIBLE_DEVICES with `int()`. A number is a place among the
GPUs that programs in the container can open.

The value consists of UUIDs where the caller used them, and where numbers do not work: with a GPU in MIG mode, because
CUDA then lists one MIG device and no whole GPU; and for a GPU that this process cannot open, which has no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Optional

from gpubind.formats.driver import gpu_names as variables
from gpubind.frozen import NamedTuple
from gpubind.model import EnvVar, Gpu, Inventory
from gpubind.planner.gpus.choice import GpuChoice, same_model, usable_gpus, uuids_of

CUDA, ROCR, HIP = variables.CUDA_VISIBLE_DEVICES, variables.ROCR_VISIBLE_DEVICES, variables.HIP_VISIBLE_DEVICES
ORDINAL = variables.GPU_DEVICE_ORDINAL
_EMPTY_LIST = "-1"
"""The value for no GPU: CUDA's and ROCr's lists end at it. Some runtimes treat an empty value as unset."""
_SAFE_VALUE = re.compile(r"[\w,:/.*;! -]{1,4096}", re.ASCII)


def container_variables(
    choices: Sequence[GpuChoice], inventories: Sequence[Inventory], environ: Mapping[str, str], *, isolated: bool
) -> list[tuple[EnvVar, ...]]:
    """Return the variables of each choice, for the libraries of its vendor.

    *isolated*: whether the container's /dev has only the nodes of the chosen GPUs.
    """
    containers = [_VisibleDevices(*of_vendor, environ, isolated) for of_vendor in zip(choices, inventories)]
    env = [tuple(container.visible_devices()) for container in containers]
    sets_cuda = any(variable.name == CUDA and variable.op == "set" for variable in chain.from_iterable(env))
    return [
        (*planned_env, *container.hip_visible_devices(sets_cuda), *container.gpu_device_ordinal(planned_env))
        for container, planned_env in zip(containers, env)
    ]


class _VisibleDevices(NamedTuple):
    choice: GpuChoice
    inventory: Inventory
    environ: Mapping[str, str]
    """The caller's environment."""
    isolated: bool

    @property
    def is_inherited(self) -> bool:
        """Whether the caller's variables choose the same GPUs in the container as on the host."""
        return self.choice.already_set and not self.isolated

    def visible_devices(self) -> Iterator[EnvVar]:
        choice = self.choice
        if self.is_inherited:
            return
        if choice.passed_through:
            yield from _forwarded(choice.passed_through)
        elif self.inventory.driver.vendor == "intel":
            from gpubind.planner.gpus.intel import affinity_variables

            yield from affinity_variables(choice, self.inventory, self.environ, isolated=self.isolated)
        else:
            variable = ROCR if self.inventory.driver.vendor == "amd" else CUDA
            yield from self._listed(variable)

    def _listed(self, variable: str) -> Iterator[EnvVar]:
        choice = self.choice
        if choice.is_all:
            gpus = usable_gpus(self.inventory)
            if variable in self.environ and gpus:  # otherwise nothing would hide a GPU
                # All numbers mean all GPUs in any order. No value names both whole GPUs and MIG devices.
                numbers = ",".join(map(str, range(len(_openable_gpus(self.inventory)))))
                yield _set(variable, None if any(gpu.mig for gpu in gpus) else numbers)
        elif choice.gpus == ():
            yield _set(variable, _EMPTY_LIST)
        elif choice.already_set and choice.by_uuid and choice.source == CUDA:
            yield from _forwarded([(CUDA, self.environ[CUDA])])
        elif choice.gpus is not None:
            yield from self._named(variable)

    def hip_visible_devices(self, sets_cuda: bool) -> Iterator[EnvVar]:
        """Yield HIP_VISIBLE_DEVICES with every GPU that ROCr shows, where HIP would otherwise hide some of them.

        HIP reads its own variable or CUDA's, which may be meant for NVIDIA's GPUs.
        *sets_cuda*: whether the plan sets CUDA's.
        """
        choice = self.choice
        if self.inventory.driver.vendor != "amd" or choice.passed_through or choice.gpus == ():
            return
        if self.is_inherited and HIP in self.environ:
            return
        is_chosen = choice.gpus is not None or choice.is_all
        if sets_cuda or (is_chosen and not self.is_inherited and (HIP in self.environ or CUDA in self.environ)):
            count = self._count()
            if count:
                yield _set(HIP, ",".join(map(str, range(count))))

    def gpu_device_ordinal(self, planned_env: Sequence[EnvVar]) -> Iterator[EnvVar]:
        """Yield GPU_DEVICE_ORDINAL with every GPU that ROCr shows, where the caller's value names others.

        OpenCL numbers these from 0. *planned_env* are the plan's variables for ROCr; without any, nothing changes.
        """
        value = self.environ.get(ORDINAL)
        sets_rocr = any(variable.name == ROCR and variable.op == "set" for variable in planned_env)
        if value is None or self.choice.passed_through or not sets_rocr:
            return
        numbers = [str(number) for number in range(self._count())]
        if numbers and any(name not in numbers for name in variables.split_visible(value)):
            yield _set(ORDINAL, ",".join(numbers))

    def _count(self) -> int:
        return len(usable_gpus(self.inventory) if self.choice.gpus is None else self.choice.gpus)

    def _named(self, variable: str) -> Iterator[EnvVar]:
        """List the chosen GPUs in their order, by UUID or number as the module's docstring explains."""
        chosen = self.choice.gpus or ()
        uuids = [uuid for chosen_gpu in chosen for uuid in uuids_of(chosen_gpu)]
        counted = self._numbered_gpus()
        places = [counted.index(chosen_gpu.gpu) for chosen_gpu in chosen if chosen_gpu.gpu in counted]
        numbered = bool(places) and not any(gpu.mig for gpu in counted)
        known_uuids = [gpu.uuid for gpu in counted if gpu.uuid is not None]
        are_distinct = len(known_uuids) == len(set(known_uuids))  # the partitions of one of AMD's may share a UUID
        names_all = None not in uuids and (not numbered or are_distinct)
        if names_all and (self.choice.by_uuid or not numbered):
            yield _set(variable, ",".join(uuid or "" for uuid in uuids))
        elif numbered:
            if variable == CUDA and not same_model(counted):
                yield _set(variables.CUDA_DEVICE_ORDER, variables.PCI_ORDER)
            yield _set(variable, ",".join(map(str, places)))
        elif not places:
            yield _set(variable, _EMPTY_LIST)  # none of them can be opened
        elif variable in self.environ:
            # A MIG device has no number: the nodes choose it, and the caller's number would hide it.
            yield _set(variable, None)

    def _numbered_gpus(self) -> list[Gpu]:
        gpus = _openable_gpus(self.inventory)
        if not self.isolated:
            return gpus
        chosen = [chosen_gpu.gpu for chosen_gpu in self.choice.gpus or ()]
        with_node = {node.gpu for node in self.inventory.devices} & {gpu.index for gpu in chosen}
        # Any node may belong to a GPU without a known minor number: it stays if such a GPU is chosen.
        unnumbered = any(map(_has_no_number, chosen))
        return [gpu for gpu in gpus if gpu.index in with_node or (unnumbered and _has_no_number(gpu))]


def _set(variable: str, value: Optional[str]) -> EnvVar:
    return EnvVar(variable, "unset" if value is None else "set", value, None, "gpus")


def _forwarded(pairs: Iterable[tuple[str, str]]) -> Iterator[EnvVar]:
    """Yield the caller's variables unchanged. Unsafe values are dropped: some runtimes evaluate them."""
    for name, value in pairs:
        if _SAFE_VALUE.fullmatch(value):
            yield EnvVar(name, "set", value, None, "handed-on")


def _openable_gpus(inventory: Inventory) -> list[Gpu]:
    """Return the GPUs that this process can open, sorted by index; all if it can open none."""
    gpus = usable_gpus(inventory)
    return [gpu for gpu in gpus if gpu.index not in inventory.hidden_gpu_indexes] or list(gpus)


def _has_no_number(gpu: Gpu) -> bool:
    return gpu.vendor == "nvidia" and gpu.minor is None
