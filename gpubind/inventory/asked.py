"""Facts about NVIDIA's GPUs that are in no file: answers of nvidia-smi."""

from __future__ import annotations

from collections.abc import Iterable

from gpubind.formats.driver.nvidia import COMPUTE_CAPABILITY_QUERY, GPU_QUERY, parse_capabilities, parse_gpu_rows
from gpubind.host import Host
from gpubind.model import ABSENT, Gpu, Inventory, Missing

TIMEOUT_S = 10.0


def with_gpus_of_smi(host: Host, inventories: Iterable[Inventory]) -> tuple[Inventory, ...]:
    """Return *inventories*. NVIDIA's gets the GPUs that nvidia-smi lists if it has devices, but no file names a GPU."""
    return tuple(
        each._replace(gpus=query_gpus(host))
        if each.driver.vendor == "nvidia" and each.devices and not each.gpus
        else each
        for each in inventories
    )


def query_gpus(host: Host) -> tuple[Gpu, ...]:
    """Return NVIDIA's GPUs as nvidia-smi lists them; none where it cannot run or does not answer."""
    return parse_gpu_rows(_answer(host, GPU_QUERY))


def query_capabilities(host: Host) -> dict[str, str]:
    """Return the compute capabilities of NVIDIA's GPUs by PCI address; none where nvidia-smi does not answer."""
    return parse_capabilities(_answer(host, COMPUTE_CAPABILITY_QUERY))


def _answer(host: Host, argv: tuple[str, ...]) -> str:
    answer = host.run(argv, TIMEOUT_S) if host.driver.root == "/" else ABSENT
    return "" if isinstance(answer, Missing) or answer.status else answer.stdout
