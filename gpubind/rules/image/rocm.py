"""The variables with which ROCm treats a GPU as another one, or generates other code for it.

Source: ROCR-Runtime `libhsakmt/src/topology.c`: the variable of one node precedes that of all; nodes are counted
without those whose render device cannot be opened; the runtime does not start with a value that is not a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.host.base import HSA_VARIABLES
from gpubind.inventory.amd.devices import read_render_minors
from gpubind.inventory.architectures import GpuArch, architectures
from gpubind.model import Finding, Gpu, Plan, finding
from gpubind.model.gpucode import OVERRIDE, XNACK, arch_of_override, instruction_set
from gpubind.rules.preflight import Preflight, variable_of


class Override(NamedTuple):
    """A variable with which ROCm treats a GPU as another one."""

    variable: str
    value: str

    @property
    def arch(self) -> Optional[str]:
        """Return the architecture that the value names; None if the value is not a version."""
        return arch_of_override(self.value)


def hsa_override(preflight: Preflight) -> Iterator[Finding]:
    """Yield a variable that ROCm refuses, or with which it loads code for another generation of GPUs."""
    gpus = [gpu for gpu in preflight.chosen_gpus if gpu.vendor == "amd"]
    wrong: dict[Override, list[GpuArch]] = {}
    for gpu_arch in architectures(preflight.host, gpus):
        override = override_of(preflight, gpu_arch.gpu)
        if override is None or gpu_arch.arch is None:
            continue
        if override.arch is None or instruction_set(override.arch) != instruction_set(gpu_arch.arch):
            wrong.setdefault(override, []).append(gpu_arch)
    for override, of_gpus in wrong.items():
        yield finding(
            "hsa-override",
            subject=override.variable,
            case="invalid" if override.arch is None else "generation",
            severity="error" if override.arch is None else "warning",
            where=f"the environment of the container: {override.variable}={override.value[:80]}",
            value=override.value[:80],
            gpus=", ".join(dict.fromkeys(gpu_arch.name for gpu_arch in of_gpus)),
            arch=override.arch,
            generation=instruction_set(of_gpus[0].arch or ""),
        )


def as_rocm_sees(preflight: Preflight, gpus: Iterable[GpuArch]) -> Iterator[GpuArch]:
    """Yield *gpus* with the architectures for which ROCm in the container loads code."""
    xnack = {"0": ":xnack-", "1": ":xnack+"}.get(variable_of(preflight, XNACK) or "", "")
    for gpu_arch in gpus:
        if gpu_arch.gpu.vendor != "amd" or not gpu_arch.arch:
            yield gpu_arch
            continue
        override = override_of(preflight, gpu_arch.gpu)
        yield gpu_arch._replace(arch=f"{(override and override.arch) or gpu_arch.arch}{xnack}")


def override_of(preflight: Preflight, gpu: Gpu) -> Optional[Override]:
    """Return the variable of the container that applies to *gpu*; None if none does."""
    values = ((name, variable_of(preflight, name)) for name in (own_variable(preflight, gpu), OVERRIDE) if name)
    return next((Override(name, value) for name, value in values if value is not None), None)


def own_variable(preflight: Preflight, gpu: Gpu) -> Optional[str]:
    """Return the name of the variable for only this *gpu*; None if there is none."""
    numbers = [
        number for number in read_render_minors(preflight.host) if number is None or _opens(preflight.plan, number)
    ]
    name = f"{OVERRIDE}_{numbers.index(gpu.minor)}" if gpu.minor is not None and gpu.minor in numbers else ""
    return name if name in HSA_VARIABLES else None


def _opens(plan: Plan, number: int) -> bool:
    return not plan.isolated or any(node.target == f"/dev/dri/renderD{number}" for node in plan.devices)
