"""The answer of `nvidia-smi --query-gpu`. Source: nvidia-smi(1), `nvidia-smi --help-query-gpu`."""

from __future__ import annotations

from gpubind.formats.driver.kernel import normalize_pci
from gpubind.model import Gpu

COMPUTE_CAPABILITY_QUERY = ("nvidia-smi", "--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader")
GPU_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,pci.bus_id,name", "--format=csv,noheader")
"""Queries the GPUs, which no file lists in WSL."""
LINES_LIMIT = 256


def parse_gpu_rows(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs in the answer to `GPU_QUERY`, in the order of their indexes. Never raises."""
    gpus: dict[int, Gpu] = {}
    for line in text.splitlines()[:LINES_LIMIT]:
        index, uuid, address, model = (*(part.strip() for part in line.split(",", 3)), "", "", "")[:4]
        if index.isdigit() and index.isascii() and len(index) < 4 and uuid.startswith("GPU-"):
            pci = normalize_pci(address)
            gpus[int(index)] = Gpu("nvidia", int(index), uuid, pci, None, model or None, None, chosen=True)
    return tuple(gpu for _, gpu in sorted(gpus.items()))


def parse_capabilities(text: str) -> dict[str, str]:
    """Return the compute capability of each GPU by its PCI address: `0000:01:00.0` -> `8.6`. Never raises."""
    capabilities = {}
    for line in text.splitlines()[:LINES_LIMIT]:
        address, _, capability = (part.strip() for part in line.partition(","))
        pci = normalize_pci(address)
        if pci is not None:
            capabilities[pci] = capability
    return capabilities
