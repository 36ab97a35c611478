"""The variables by which Level Zero, SYCL and Gaudi's software in a container show Intel's GPUs.

| variable                              | what it does                                                                |
| ------------------------------------- | --------------------------------------------------------------------------- |
| ZE_AFFINITY_MASK                      | lists devices of Level Zero: a number is a tile, or a GPU with COMPOSITE    |
| ZE_FLAT_DEVICE_HIERARCHY              | FLAT, COMPOSITE or COMBINED: whether tiles are devices                      |
| ZE_ENABLE_PCI_ID_DEVICE_ORDER         | 1: devices are counted by PCI address                                       |
| ONEAPI_DEVICE_SELECTOR                | backends and devices of SYCL; SYCL_DEVICE_FILTER until 2023                 |
| HABANA_VISIBLE_DEVICES                | `all`, or the numbers of the nodes of Gaudi accelerators                    |
| HABANA_VISIBLE_MODULES                | the modules of accelerators, which no file names                            |

The caller's variables stay, and mean the same in the container as on the host. Two of them choose nodes; a minimal /dev
then has no other nodes of GPUs:

- HABANA_VISIBLE_DEVICES chooses the listed accelerators, if it lists nothing else, as Gaudi's container runtime does.
- ZE_AFFINITY_MASK, which Slurm sets, chooses the GPUs with a listed device, if their meaning is certain. The container
  gets the numbers that the same tiles have there. Otherwise all nodes stay, and a finding reports why.

ONEAPI_DEVICE_SELECTOR chooses no nodes: its numbers are places among the devices of Level Zero, which are the same in a
container, and programs without SYCL ignore it. Numbers of SLURM_STEP_GPUS and SLURM_JOB_GPUS are places in gres.conf.

With `--gpus`, a minimal /dev has the nodes of the chosen GPUs only; else ZE_AFFINITY_MASK lists them.

Sources: Level Zero specification, "Environment Variables"; Intel, "Exposing the Device Hierarchy"; DPC++
`EnvironmentVariables.md`; compute-runtime `shared/source/execution_environment/execution_environment.cpp`
(parseAffinityMask, comparePciIdBusNumber); Slurm `src/plugins/gres/common/gres_common.c`,
`src/plugins/gpu/oneapi`; Gaudi documentation, "Docker Installation".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from gpubind.formats.driver.gpu_names import (
    HABANA_VISIBLE_DEVICES,
    INTEL_VARIABLES,
    ZE_AFFINITY_MASK,
    ZE_HIERARCHY,
    ZE_PCI_ORDER,
)
from gpubind.frozen import NamedTuple
from gpubind.model import EnvVar, Finding, Gpu, Inventory, Severity, finding
from gpubind.planner.gpus.choice import ChosenGpu, GpuChoice, same_model, usable_gpus

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
"""The part of an entry that `std::stoul(entry, nullptr, 0)` reads: a hexadecimal, octal or decimal number."""
_LONGEST = 22
"""The number of digits of the greatest 64-bit number in base 8."""
_TRUE = re.compile(r"0*[1-9][0-9]*")
_HIERARCHIES = ("FLAT", "COMPOSITE", "COMBINED")


class _Mask(NamedTuple):
    gpus: tuple[Gpu, ...] = ()
    """The GPUs that stay; empty if all do."""
    value: str = ""
    """The mask for the same tiles where only these GPUs exist."""
    findings: tuple[Finding, ...] = ()


def all_gpus_passed_through(inventory: Inventory, environ: Mapping[str, str]) -> GpuChoice:
    """Return the choice of all of Intel's GPUs, or of those that *environ* lists; pass their variables through."""
    forwarded = {name: environ[name] for name in INTEL_VARIABLES if name in environ}
    by = next(iter(forwarded), "")
    accelerators = _listed(inventory, environ.get(HABANA_VISIBLE_DEVICES, ""))
    mask = _read_mask(inventory, environ)
    findings = (*mask.findings, *_unlisted_findings(inventory, environ.get(HABANA_VISIBLE_DEVICES, "")))
    if not accelerators and not mask.gpus:
        return GpuChoice(by, None, tuple(forwarded.items()), already_set=bool(forwarded), findings=findings)
    if mask.gpus:
        forwarded[ZE_AFFINITY_MASK] = mask.value
    gpus = (ChosenGpu(gpu) for gpu in mask.gpus or usable_gpus(inventory) if not gpu.is_gaudi)
    gaudis = accelerators or (ChosenGpu(gpu) for gpu in usable_gpus(inventory) if gpu.is_gaudi)
    by = ZE_AFFINITY_MASK if mask.gpus else HABANA_VISIBLE_DEVICES
    return GpuChoice(by, (*gpus, *gaudis), tuple(forwarded.items()), already_set=True, findings=findings)


def _read_mask(inventory: Inventory, environ: Mapping[str, str]) -> _Mask:
    """Read the caller's ZE_AFFINITY_MASK as Level Zero does.

    Without ZE_ENABLE_PCI_ID_DEVICE_ORDER, older releases of the compute runtime have no certain order, and newer ones
    list the GPUs of processors last. Without ZE_FLAT_DEVICE_HIERARCHY, a number means a GPU to older releases, and a
    tile to newer ones.
    """
    value = environ.get(ZE_AFFINITY_MASK, "")
    hidden = inventory.hidden_gpu_indexes
    shown = [gpu for gpu in usable_gpus(inventory) if not gpu.is_gaudi and gpu.index not in hidden]
    if not shown or value in ("", "default"):
        return _Mask()
    hierarchy = environ.get(ZE_HIERARCHY, "")
    is_whole = hierarchy == "COMPOSITE"
    entries = _parse_mask(value)
    if entries is None:
        return _keep_all(value, "ze-throws", severity="warning")
    if any(len(entry) > (2 if is_whole else 1) for entry in entries):
        return _keep_all(value, "ze-form")
    counts = [inventory.devices_per_gpu[inventory.gpus.index(gpu)] for gpu in shown]
    tiles = [1] * len(shown) if is_whole else counts
    if len(shown) > 1 and (min(tiles) == 0 or (max(tiles) > 1 and hierarchy not in _HIERARCHIES)):
        return _keep_all(value, "ze-tiles")
    places = [(gpu, tile) for gpu, count in zip(shown, tiles) for tile in range(count)]
    if not places:  # one GPU whose tiles are unknown
        return _Mask()
    texts = zip(_split(value, ","), entries)
    unknown = [text.strip() for text, entry in texts if not _is_there(entry, len(places), counts)]
    if unknown:
        case = "ze" if len(unknown) < len(entries) else "ze-none"
        facts = {"name": unknown[0][:80], "known": f"0 to {len(places) - 1}" if len(places) > 1 else "0"}
        return _keep_all(value, case, "visible-devices-unknown", "warning", program="sycl-ls", **facts)
    numbers = [entry[0] for entry in entries]
    chosen = tuple(gpu for gpu in shown if any(places[number][0] == gpu for number in numbers))
    if len(chosen) == len(shown):
        return _Mask()
    if not same_model(shown) and not _TRUE.fullmatch(environ.get(ZE_PCI_ORDER, "")):
        return _keep_all(value, "ze-models")
    chosen_places = [place for place in places if place[0] in chosen]
    renumbered = (".".join(map(str, (chosen_places.index(places[number]), *tile))) for number, *tile in entries)
    return _Mask(chosen, ",".join(renumbered))


def _parse_mask(value: str) -> Optional[tuple[tuple[int, ...], ...]]:
    """Return the entries of a mask, each a device and perhaps a tile; None if the compute runtime cannot read one.

    Source: its `StringHelpers::split`, which drops an empty text at the end, and `toUint32t`.
    """
    entries = [_split(entry, ".") for entry in _split(value, ",")]
    numbers = [tuple(map(_parse_number, entry)) for entry in entries]
    return None if any(not entry or None in entry for entry in numbers) else tuple(numbers)  # type: ignore[arg-type]


def _split(text: str, separator: str) -> list[str]:
    parts = text.split(separator)
    return parts if parts[-1] else parts[:-1]


def _parse_number(text: str) -> Optional[int]:
    match = _NUMBER.match(text)
    if match is None or len(match[2].lstrip("0xX")) > _LONGEST:
        return None
    digits = match[2].lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    value = int(digits, base)
    return None if value >> 64 else (-value if match[1] == "-" else value) & 0xFFFFFFFF


def _is_there(entry: tuple[int, ...], places: int, tiles: Sequence[int]) -> bool:
    """Return whether *entry* exists: its number is below *places*, and its tile, if any, below the GPU's number of
    *tiles*.
    """
    number, *tile = entry
    return number < places and (not tile or tiles[number] == 0 or tile[0] < tiles[number])


def _keep_all(
    value: str, case: str, code: str = "gpu-order-unknown", severity: Severity = "note", **facts: object
) -> _Mask:
    where = f"the environment: {ZE_AFFINITY_MASK}={value[:200]}"
    mask_finding = finding(
        code, subject=ZE_AFFINITY_MASK, case=case, severity=severity, vendor="intel", where=where, **facts
    )
    return _Mask(findings=(mask_finding,))


def _listed(inventory: Inventory, value: str) -> tuple[ChosenGpu, ...]:
    """Return the accelerators that *value* lists; none if it is `all`, or contains any other name."""
    gaudis = {str(gpu.minor): ChosenGpu(gpu) for gpu in usable_gpus(inventory) if gpu.is_gaudi}
    names = dict.fromkeys(name.strip() for name in value.split(","))
    return tuple(gaudis[name] for name in names) if gaudis.keys() >= names.keys() else ()


def _unlisted_findings(inventory: Inventory, value: str) -> Iterator[Finding]:
    minors = [str(gpu.minor) for gpu in usable_gpus(inventory) if gpu.is_gaudi]
    names = [name.strip() for name in value.split(",")] if minors and value not in ("", "all") else []
    unknown = next((name for name in names if name not in minors), None)
    if unknown is not None:
        yield finding(
            "visible-devices-unknown",
            subject=HABANA_VISIBLE_DEVICES,
            case="habana",
            severity="note",
            vendor="intel",
            where=f"the environment: {HABANA_VISIBLE_DEVICES}={value[:200]}",
            name=unknown[:80],
            known=", ".join(minors),
            program="hl-smi -L",
        )


def affinity_variables(
    choice: GpuChoice, inventory: Inventory, environ: Mapping[str, str], *, isolated: bool
) -> Iterator[EnvVar]:
    """Yield variables that choose the GPUs of *choice*, if the caller's variables would hide some or choose others.

    *isolated*: whether the container's /dev has only the nodes of the chosen GPUs.
    """
    numbers = () if isolated or choice.is_all else _numbers(choice, inventory, environ)
    if numbers:
        yield EnvVar(ZE_AFFINITY_MASK, "set", ",".join(map(str, numbers)), None, "gpus")
        if len(inventory.gpus) > 1:
            yield EnvVar(ZE_PCI_ORDER, "set", "1", None, "gpus")
    elif ZE_AFFINITY_MASK in environ and (choice.gpus or choice.is_all):
        yield EnvVar(ZE_AFFINITY_MASK, "unset", None, None, "gpus")


def _numbers(choice: GpuChoice, inventory: Inventory, environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return Level Zero's numbers of the tiles of *choice*, counted by PCI address."""
    is_whole = environ.get(ZE_HIERARCHY) == "COMPOSITE"
    chosen = {chosen_gpu.gpu.index for chosen_gpu in choice.gpus or ()}
    numbers: list[int] = []
    first = 0
    for gpu, tiles in zip(inventory.gpus, inventory.devices_per_gpu):
        if gpu.is_gaudi or gpu.index in inventory.hidden_gpu_indexes:
            continue  # Level Zero does not list these
        count = 1 if is_whole else max(tiles, 1)
        numbers += range(first, first + count) if gpu.index in chosen else ()
        first += count
    return tuple(numbers)
