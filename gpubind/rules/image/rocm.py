"""ROCm in an image: its release, and the variables that change the architecture for which it loads code.

The variable of one node takes precedence over that of all nodes. The numbers of nodes skip those whose render device
cannot be opened. The runtime does not start if a value is not a version. AMD tests each kernel driver with some
releases of ROCm. Source: ROCR-Runtime `libhsakmt/src/topology.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename, dirname
from typing import TYPE_CHECKING, Optional

from gpubind.frozen import NamedTuple
from gpubind.host.base import HSA_VARIABLES
from gpubind.model import Finding, Gpu, Missing, finding
from gpubind.model.gpucode import OVERRIDE, XNACK, arch_of_override, instruction_set
from gpubind.model.rocm import bounds_of_kernel, is_outside, release_of_kernel
from gpubind.rules.preflight import Preflight, variable_of

if TYPE_CHECKING:
    from gpubind.inventory.architectures import GpuArch

HIP = "libamdhip64.so."
"""The beginning of the name of HIP's library."""
_IN_NAME = re.compile(r"libamdhip64\.so\.([0-9]{1,3}(?:\.[0-9]{1,3})?)")


class Override(NamedTuple):
    """A variable with which ROCm treats a GPU as another one."""

    variable: str
    value: str

    @property
    def arch(self) -> Optional[str]:
        """Return the architecture that the value names; None if the value is not a version."""
        return arch_of_override(self.value)


def hsa_override(preflight: Preflight) -> Iterator[Finding]:
    """Report a variable that ROCm refuses, or that makes it load code for another generation of GPUs."""
    from gpubind.inventory.architectures import architectures

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
    """Return the name of the variable that applies to this *gpu* only; None if there is none."""
    from gpubind.inventory.amd.devices import read_render_minors

    plan, nodes = preflight.plan, {node.target for node in preflight.plan.devices}
    minors = read_render_minors(preflight.host)
    numbers = [n for n in minors if n is None or not plan.isolated or f"/dev/dri/renderD{n}" in nodes]
    name = f"{OVERRIDE}_{numbers.index(gpu.minor)}" if gpu.minor is not None and gpu.minor in numbers else ""
    return name if name in HSA_VARIABLES else None


def hip_in(preflight: Preflight) -> Iterator[str]:
    """Yield the image's paths of HIP's library: in the directories of its loader and of its HSA runtime."""
    tree, runtime = preflight.image.tree, preflight.image.facts.rocm_runtime
    for place in (*preflight.image.loader.directories, *([dirname(runtime)] if runtime else ())):
        yield from (f"{place}/{name}" for name in tree.names(place) if name.startswith(HIP))


def rocm_untested(preflight: Preflight) -> Iterator[Finding]:
    """Report that AMD does not test the image's ROCm with this amdgpu. It is a note if amdgpu is the kernel's own."""
    drivers = (planned.driver for planned in preflight.plan.drivers)
    kernel = next((driver.kernel_version for driver in drivers if driver.vendor == "amd"), None)
    release = _release(preflight)
    if kernel is None or release is None or not any(gpu.vendor == "amd" and gpu.chosen for gpu in preflight.plan.gpus):
        return
    if kernel.startswith("Linux "):
        yield finding("rocm-untested", subject=release, case="in-tree", severity="note", kernel=kernel)
        return
    of_kernel = release_of_kernel(kernel)
    oldest, newest = bounds_of_kernel(of_kernel) if of_kernel is not None else (None, None)
    if is_outside(release, oldest, newest):
        tested = f"ROCm {oldest} to {newest}" if newest else f"ROCm {oldest} and later"
        yield finding("rocm-untested", subject=release, kernel=kernel, of_kernel=of_kernel, tested=tested)


def _release(preflight: Preflight) -> Optional[str]:
    """Return the release of the image's ROCm, `6.2.4`. If that is unknown, return the version in the name of HIP's
    library, `7`.
    """
    facts = preflight.image.facts
    if facts.rocm is not None and re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", facts.rocm):
        return facts.rocm
    resolved_paths = (preflight.image.tree.resolve(path) for path in hip_in(preflight))
    names = (_IN_NAME.match(basename(path)) for path in resolved_paths if not isinstance(path, Missing))
    return max((match.group(1) for match in names if match), key=len, default=None)
