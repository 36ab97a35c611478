"""The architectures of a host's GPUs, by their names in compilers: `sm_86`, `gfx942`.

No file of NVIDIA's driver contains them: the PCI device ID identifies the chip, and `nvidia-smi` an unknown ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory.amd.devices import read_processors
from gpubind.inventory.asked import query_capabilities
from gpubind.inventory.nodes import PCI_DEVICES
from gpubind.model import Gpu
from gpubind.model.capability import compute_capability
from gpubind.model.gpucode import arch_of_capability

_COMPILER_NAMES = {
    "tgllp": "tgl", "icllp": "icl", "bxt": "apl", "adls": "adl-s", "adlp": "adl-p", "adln": "adl-n", "nvls": "nvl-s",
    "nvlp": "nvl-p",
}  # fmt: skip
"""Names of platforms in Intel's compilers, by those in its compute runtime, where they differ."""


class GpuArch(NamedTuple):
    """A GPU and its architecture."""

    gpu: Gpu
    arch: Optional[str]
    """The architecture by its name in compilers; None if unknown."""

    @property
    def name(self) -> str:
        """The name of the GPU in messages."""
        model = self.gpu.model or self.gpu.vendor
        return model if self.arch is None or self.arch in model else f"{model} ({self.arch})"


def architectures(host: Host, gpus: Iterable[Gpu]) -> tuple[GpuArch, ...]:
    """Return the architecture of each of *gpus*; *host* must be lenient."""
    every = tuple(gpus)
    nvidia, amd, intel = ([gpu for gpu in every if gpu.vendor == vendor] for vendor in ("nvidia", "amd", "intel"))
    processors = read_processors(host) if amd else {}
    amd_architectures = (GpuArch(gpu, processors.get(gpu.minor)) for gpu in amd)
    return (*_nvidia_architectures(host, nvidia), *amd_architectures, *_intel_architectures(host, intel))


def _nvidia_architectures(host: Host, gpus: list[Gpu]) -> Iterator[GpuArch]:
    capabilities = {gpu: compute_capability(host.dev.text(f"{PCI_DEVICES}/{gpu.pci}/device") or "") for gpu in gpus}
    if None in capabilities.values():
        smi_capabilities = query_capabilities(host)
        capabilities = {gpu: value or smi_capabilities.get(gpu.pci or "") for gpu, value in capabilities.items()}
    for gpu, capability in capabilities.items():
        yield GpuArch(gpu, arch_of_capability(capability or ""))


def _intel_architectures(host: Host, gpus: list[Gpu]) -> Iterator[GpuArch]:
    # Only those in the table: code for the others is usually compiled when it is loaded.
    if gpus:
        from gpubind.inventory.intel.devices import platform  # few hosts have such a device

        platforms = ((gpu, platform(host, gpu.pci or "")) for gpu in gpus)
        yield from (GpuArch(gpu, _COMPILER_NAMES.get(name, name)) for gpu, name in platforms if name is not None)
