"""The variables by which Level Zero, SYCL and Gaudi's software in a container show Intel's GPUs.

| variable                              | what it does                                                                |
| ------------------------------------- | --------------------------------------------------------------------------- |
| ZE_AFFINITY_MASK                      | lists devices of Level Zero: a number is a tile, or a GPU with COMPOSITE    |
| ZE_FLAT_DEVICE_HIERARCHY              | FLAT, COMPOSITE or COMBINED: whether tiles are devices                      |
| ZE_ENABLE_PCI_ID_DEVICE_ORDER         | 1: devices are counted by PCI address                                       |
| ONEAPI_DEVICE_SELECTOR                | backends and devices of SYCL; SYCL_DEVICE_FILTER until 2023                 |
| HABANA_VISIBLE_DEVICES                | `all`, or the numbers of the nodes of Gaudi accelerators                    |
| HABANA_VISIBLE_MODULES                | the modules of accelerators, which no file names                            |

The caller's own stay, and mean in the container what they mean on the host. Two of them choose nodes; a minimal
/dev then has no others:

- HABANA_VISIBLE_DEVICES, as with Gaudi's container runtime: the accelerators that it lists, if it lists nothing else.
- ZE_AFFINITY_MASK, which Slurm sets: the GPUs of which it lists anything, if it is certain which those are. In the
  container it then has the numbers that the same tiles have there. Else all nodes stay, and a finding says why.

ONEAPI_DEVICE_SELECTOR chooses none: its numbers are places in what Level Zero shows, which is the same in a container,
and programs without SYCL do not read it. Those of SLURM_STEP_GPUS and SLURM_JOB_GPUS are places in gres.conf.

With `--gpus`, a minimal /dev has the nodes of the chosen GPUs only; else ZE_AFFINITY_MASK lists them.

Sources: Level Zero specification, "Environment Variables"; Intel, "Exposing the Device Hierarchy"; DPC++
`EnvironmentVariables.md`; compute-runtime `shared/source/execution_environment/execution_environment.cpp`
(parseAffinityMask, comparePciIdBusNumber); Slurm `src/plugins/gres/common/gres_common.c`,
`src/plugins/gpu/oneapi`; Gaudi documentation, "Docker Installation".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpubind.formats.driver.gpu_names import (
    HABANA_VISIBLE_DEVICES,
    INTEL_VARIABLES,
    ZE_AFFINITY_MASK,
    ZE_HIERARCHY,
    ZE_PCI_ORDER,
)
from gpubind.frozen import NamedTuple
from gpubind.model import EnvVar, Finding, Gpu, Inventory, Severity, finding
from gpubind.planner.gpus.choice import Choice, Chosen, same_model, usable

_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)
_TRUE = re.compile(r"0*[1-9][0-9]*")
_HIERARCHIES = ("FLAT", "COMPOSITE", "COMBINED")


class _Mask(NamedTuple):
    """What ZE_AFFINITY_MASK chooses."""

    gpus: tuple[Gpu, ...] = ()
    """Those that stay; empty: all do."""
    value: str = ""
    """The mask that shows the same tiles where only these are."""
    findings: tuple[Finding, ...] = ()


def handed_on(inventory: Inventory, environ: Mapping[str, str]) -> Choice:
    """Return the choice of all of Intel's GPUs, or of those that the caller's *environ* lists.

    The container gets the variables of *environ* that are about them.
    """
    forwarded = {name: environ[name] for name in INTEL_VARIABLES if name in environ}
    by = next(iter(forwarded), "")
    accelerators = _listed(inventory, environ.get(HABANA_VISIBLE_DEVICES, ""))
    mask = _masked(inventory, environ)
    if not accelerators and not mask.gpus:
        return Choice(by, None, tuple(forwarded.items()), already_set=bool(forwarded), findings=mask.findings)
    if mask.gpus:
        forwarded[ZE_AFFINITY_MASK] = mask.value
    gpus = (Chosen(gpu) for gpu in mask.gpus or usable(inventory) if not gpu.is_gaudi)
    gaudis = accelerators or (Chosen(gpu) for gpu in usable(inventory) if gpu.is_gaudi)
    by = ZE_AFFINITY_MASK if mask.gpus else HABANA_VISIBLE_DEVICES
    return Choice(by, (*gpus, *gaudis), tuple(forwarded.items()), already_set=True, findings=mask.findings)


def _masked(inventory: Inventory, environ: Mapping[str, str]) -> _Mask:
    """Return what the caller's ZE_AFFINITY_MASK chooses, as Level Zero reads it.

    Without ZE_ENABLE_PCI_ID_DEVICE_ORDER, older releases of the compute runtime have no certain order, and newer ones
    list the GPUs of processors last. Without ZE_FLAT_DEVICE_HIERARCHY, a number means a GPU to older releases, and a
    tile to newer ones.
    """
    value = environ.get(ZE_AFFINITY_MASK, "")
    shown = [gpu for gpu in usable(inventory) if not gpu.is_gaudi and gpu.index not in inventory.hidden]
    if len(shown) < 2 or value in ("", "default"):
        return _Mask()
    hierarchy = environ.get(ZE_HIERARCHY, "")
    is_whole = hierarchy == "COMPOSITE"
    entries = [entry.partition(".") for entry in value.split(",")]
    if not all(_NUMBER.fullmatch(number) and (is_whole or not dot) for number, dot, _ in entries):
        return _kept(value, "ze-form")
    tiles = [1 if is_whole else inventory.tiles[inventory.gpus.index(gpu)] for gpu in shown]
    if min(tiles) == 0 or (max(tiles) > 1 and hierarchy not in _HIERARCHIES):
        return _kept(value, "ze-tiles")
    places = [(gpu, tile) for gpu, count in zip(shown, tiles) for tile in range(count)]
    numbers = [int(number) for number, _, _ in entries]
    if max(numbers) >= len(places):
        known = f"0 to {len(places) - 1}"
        return _kept(value, "ze", "visible-devices-unknown", name=max(numbers), known=known, program="sycl-ls")
    chosen = tuple(gpu for gpu in shown if any(places[number][0] == gpu for number in numbers))
    if len(chosen) == len(shown):
        return _Mask()
    if not same_model(shown) and not _TRUE.fullmatch(environ.get(ZE_PCI_ORDER, "")):
        return _kept(value, "ze-models")
    there = [place for place in places if place[0] in chosen]
    renumbered = (f"{there.index(places[number])}{dot}{tile}" for number, (_, dot, tile) in zip(numbers, entries))
    return _Mask(chosen, ",".join(renumbered))


def _kept(value: str, case: str, code: str = "gpu-order-unknown", **facts: object) -> _Mask:
    """Return that all GPUs stay, with the finding that says why."""
    where = f"the environment: {ZE_AFFINITY_MASK}={value[:200]}"
    severity: Severity = "warning" if code == "visible-devices-unknown" else "note"
    found = finding(code, subject=ZE_AFFINITY_MASK, case=case, severity=severity, vendor="intel", where=where, **facts)
    return _Mask(findings=(found,))


def _listed(inventory: Inventory, value: str) -> tuple[Chosen, ...]:
    """Return the accelerators that *value* lists; none if it is `all`, or names anything else."""
    gaudis = {str(gpu.minor): Chosen(gpu) for gpu in usable(inventory) if gpu.is_gaudi}
    names = dict.fromkeys(name.strip() for name in value.split(","))
    return tuple(gaudis[name] for name in names) if gaudis.keys() >= names.keys() else ()


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
        if gpu.is_gaudi:
            continue
        if gpu.index in inventory.hidden:
            continue  # Level Zero does not list it
        count = 1 if is_whole else max(tiles, 1)
        numbers += range(first, first + count) if gpu.index in chosen else ()
        first += count
    return tuple(numbers)
