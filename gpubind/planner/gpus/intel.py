"""The variables by which Level Zero, SYCL and Gaudi's software in a container show Intel's GPUs.

| variable                              | what it does                                                                |
| ------------------------------------- | --------------------------------------------------------------------------- |
| ZE_AFFINITY_MASK                      | lists devices of Level Zero: a number is a tile, or a GPU with COMPOSITE    |
| ZE_FLAT_DEVICE_HIERARCHY              | FLAT, COMPOSITE or COMBINED: whether tiles are devices                      |
| ZE_ENABLE_PCI_ID_DEVICE_ORDER         | 1: devices are counted by PCI address                                       |
| ONEAPI_DEVICE_SELECTOR                | backends and devices of SYCL; SYCL_DEVICE_FILTER until 2023                 |
| HABANA_VISIBLE_DEVICES, ..._MODULES   | accelerators, for Gaudi's runtime and for its software                      |

The caller's own stay: all nodes are planned and the variables are handed on, so that they mean in the container what
they mean on the host. With `--gpus`, a minimal /dev has the nodes of the chosen GPUs only; else ZE_AFFINITY_MASK lists
them. Sources: Level Zero specification, "Environment Variables"; Intel, "Exposing the Device Hierarchy"; DPC++
`EnvironmentVariables.md`; compute-runtime `shared/source/execution_environment`; Gaudi documentation, "Docker
Installation".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpubind.formats.driver.gpu_names import INTEL_VARIABLES, ZE_AFFINITY_MASK, ZE_HIERARCHY, ZE_PCI_ORDER
from gpubind.model import EnvVar, Inventory
from gpubind.planner.gpus.choice import Choice


def handed_on(environ: Mapping[str, str]) -> Choice:
    """Return the choice of all of Intel's GPUs, with the variables of the caller's *environ* that are about them."""
    forwarded = tuple((name, environ[name]) for name in INTEL_VARIABLES if name in environ)
    return Choice(forwarded[0][0] if forwarded else "", None, forwarded, already_set=bool(forwarded))


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
        if gpu.render is None or not gpu.render.startswith("/dev/dri/"):
            continue
        if gpu.index in inventory.hidden:
            continue  # Level Zero does not list it
        count = 1 if is_whole else tiles
        numbers += range(first, first + count) if gpu.index in chosen else ()
        first += count
    return tuple(numbers)
