"""The answer of `nvidia-smi --query-gpu`. Source: nvidia-smi(1), `nvidia-smi --help-query-gpu`."""

from __future__ import annotations

from gpubind.formats.driver.kernel import normal_pci

CAPABILITIES = ("nvidia-smi", "--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader")
"""The question for the compute capability of each GPU."""
LINES_LIMIT = 256


def parse_capabilities(text: str) -> dict[str, str]:
    """Return the compute capability of each GPU by its PCI address: `0000:01:00.0` -> `8.6`. Never raises."""
    found = {}
    for line in text.splitlines()[:LINES_LIMIT]:
        address, _, capability = (part.strip() for part in line.partition(","))
        pci = normal_pci(address)
        if pci is not None:
            found[pci] = capability
    return found
