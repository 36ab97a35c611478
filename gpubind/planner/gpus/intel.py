"""The variables by which Level Zero, SYCL and Gaudi's software in a container show Intel's GPUs.

| variable                              | what it does                                                                |
| ------------------------------------- | --------------------------------------------------------------------------- |
| ZE_AFFINITY_MASK                      | lists devices of Level Zero: a number is a tile, or a GPU with COMPOSITE    |
| ZE_FLAT_DEVICE_HIERARCHY              | FLAT, COMPOSITE or COMBINED: whether tiles are devices                      |
| ZE_ENABLE_PCI_ID_DEVICE_ORDER         | 1: devices are counted by PCI address                                       |
| ONEAPI_DEVICE_SELECTOR                | backends and devices of SYCL; SYCL_DEVICE_FILTER until 2023                 |
| HABANA_VISIBLE_DEVICES                | `all`, or the numbers of the nodes of Gaudi accelerators                    |
| HABANA_VISIBLE_MODULES                | the modules of accelerators, which no file names                            |

The caller's own stay: all nodes are planned and the variables are handed on, so that they mean in the container what
they mean on the host. Only HABANA_VISIBLE_DEVICES chooses nodes, as it does with Gaudi's container runtime: those of
the accelerators that it lists, if it lists nothing else. With `--gpus`, a minimal /dev has the nodes of the chosen GPUs
only; else ZE_AFFINITY_MASK lists them. Sources: Level Zero specification, "Environment Variables"; Intel, "Exposing the
Device Hierarchy"; DPC++ `EnvironmentVariables.md`; compute-runtime `shared/source/execution_environment`; Gaudi
documentation, "Docker Installation".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpubind.formats.driver.gpu_names import (
    HABANA_VISIBLE_DEVICES,
    INTEL_VARIABLES,
    ZE_AFFINITY_MASK,
    ZE_HIERARCHY,
    ZE_PCI_ORDER,
)
from gpubind.model import EnvVar, Gpu, Inventory
from gpubind.planner.gpus.choice import Choice, Chosen, usable


def handed_on(inventory: Inventory, environ: Mapping[str, str]) -> Choice:
    """Return the choice of all of Intel's GPUs, or of the accelerators that are listed.

    The container gets the variables of the caller's *environ* that are about them.
    """
    forwarded = tuple((name, environ[name]) for name in INTEL_VARIABLES if name in environ)
    by = forwarded[0][0] if forwarded else ""
    listed = _listed(inventory, environ.get(HABANA_VISIBLE_DEVICES, ""))
    if listed:
        others = (Chosen(gpu) for gpu in usable(inventory) if not _is_gaudi(gpu))
        return Choice(HABANA_VISIBLE_DEVICES, (*others, *listed), forwarded, already_set=True)
    return Choice(by, None, forwarded, already_set=bool(forwarded))


def _listed(inventory: Inventory, value: str) -> tuple[Chosen, ...]:
    """Return the accelerators that *value* lists; none if it is `all`, or names anything else."""
    gaudis = {str(gpu.minor): Chosen(gpu) for gpu in usable(inventory) if _is_gaudi(gpu)}
    names = dict.fromkeys(name.strip() for name in value.split(","))
    return tuple(gaudis[name] for name in names) if gaudis.keys() >= names.keys() else ()


def _is_gaudi(gpu: Gpu) -> bool:
    """Return whether *gpu* is an accelerator: it has no render node."""
    return not (gpu.render or "").startswith("/dev/dri/")


def affinity(choice: Choice, inventory: Inventory, environ: Mapping[str, str], *, isolated: bool) -> Iterator[EnvVar]:
    """Yield the variables for the GPUs of *choice*, which the caller's own would take away again, or not choose.

    *isolated*: whether the container's /dev has only the nodes of those.
    """
    numbers = () if isolated or choice.everything else _numbers(choice, inventory, environ)
    if numbers:
        yield EnvVar(ZE_AFFINITY_MASK, "set", ",".join(map(str, numbers)), None, "gpus")
        if len(inventory.gpus) > 1:
            yield EnvVar(ZE_PCI_ORDER, "set", "1", None, "gpus")
    elif ZE_AFFINITY_MASK in environ and (choice.gpus or choice.everything):
        yield EnvVar(ZE_AFFINITY_MASK, "unset", None, None, "gpus")


def _numbers(choice: Choice, inventory: Inventory, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return what Level Zero calls the GPUs of *choice*: the numbers of their tiles, by PCI address."""
    is_whole = environ.get(ZE_HIERARCHY, "").upper() == "COMPOSITE"
    chosen = {one.gpu.index for one in choice.gpus or ()}
    numbers: list[int] = []
    first = 0
    for gpu, tiles in zip(inventory.gpus, inventory.tiles):
        if _is_gaudi(gpu):
            continue
        if gpu.index in inventory.hidden:
            continue  # Level Zero does not list it
        count = 1 if is_whole else tiles
        numbers += range(first, first + count) if gpu.index in chosen else ()
        first += count
    return tuple(numbers)
