"""Intel's GPUs, NPUs and Gaudi accelerators: the PCI devices that a kernel driver has, and their nodes in /dev.

Sources: Linux i915 and xe (`drm`), habanalabs and intel_vpu (`accel`; before Linux 6.2 `habanalabs`);
intel/intel-resource-drivers-for-kubernetes `pkg/gpu/discovery`, `pkg/gaudi/discovery` and `pkg/gaudi/cdihelpers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, Optional

from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory import nodes
from gpubind.model import Gpu, Missing, RootedPath
from gpubind.model.data import table

DRIVERS = "/sys/bus/pci/drivers"
GPU_DRIVERS, GAUDI, NPU = ("i915", "xe"), ("habanalabs",), ("intel_vpu",)
"""The kernel drivers of each kind of device."""
_PCI_CLASSES = (("0x8086", ("0x03",)), ("0x1da3", ("0x12",)))
"""Vendor and classes on the PCI bus: of GPUs, of Gaudi, which is Habana Labs'. Network cards are of Intel's, too."""
INTEGRATED = "0000:00:02."
"""Where a processor's own graphics are on the PCI bus."""
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODE_DIRECTORIES = {"accel": "/dev/accel", "habanalabs": "/dev", "infiniband_verbs": "/dev/infiniband"}
"""The directory of the nodes of each class that a device of theirs has in sysfs, besides `drm`."""
_PCI_ID = re.compile(r"0x([0-9a-f]{4})\s*")
_NODE = re.compile(r"(?:accel(?:_controlD)?|hl(?:_controlD)?|uverbs)[0-9]+")
_COMPUTE_NODE = re.compile(r"/dev/(?:accel/accel|hl)([0-9]+)")
_MAJORS = {"/dev/dri": "drm", "/dev/accel": "accel", "/dev": "habanalabs", "/dev/infiniband": "infiniband_verbs"}


class IntelDevices(NamedTuple):
    """Intel's devices."""

    devices: nodes.Devices
    tiles: tuple[int, ...]
    """How many devices Level Zero counts of each GPU, by default; 0 if that is not known."""
    unusable: tuple[tuple[str, str], ...]
    """The PCI addresses of those that no program can use, with the reason: `no-driver`, `no-node`."""


def addresses(host: Host, drivers: Iterable[str]) -> tuple[str, ...]:
    """Return the PCI addresses of the devices that *drivers* have, in order."""
    dev = host.lenient.dev  # older records do not have these directories
    names = (name for driver in drivers for name in dev.names(f"{DRIVERS}/{driver}"))
    return tuple(sorted(name for name in names if _ADDRESS.fullmatch(name)))


def has_compute_device(host: Host) -> bool:
    """Return whether the host has a device of Intel's that was bought for computing: no processor's own graphics."""
    return any(not address.startswith(INTEGRATED) for address in addresses(host, (*GPU_DRIVERS, *GAUDI)))


def read_devices(host: Host) -> IntelDevices:
    """Return GPUs by PCI address, then Gaudi accelerators by the numbers of their nodes; and the nodes, with NPUs'."""
    gpus: list[Gpu] = []
    tiles, expected = [], []
    device_addresses = (
        *addresses(host, GPU_DRIVERS),
        *sorted(addresses(host, GAUDI), key=lambda one: _node_number(host, one)),
    )
    unusable = [
        (address, "no-driver")
        for address in _bus_addresses(host)
        if address not in device_addresses and not nodes.is_for_guests(host, address)
    ]
    for address in device_addresses:
        paths = _nodes(host, address)
        node = next((path for path in paths if "/renderD" in path or _COMPUTE_NODE.fullmatch(path)), None)
        if node is None:
            unusable.append((address, "no-node"))
            continue
        minor = int(re.sub(r".*[^0-9]", "", node))
        name, parts = _name_and_tiles(host, address)
        index = len(gpus)
        gpus.append(Gpu("intel", index, None, address, minor, name, RootedPath(node), True))
        tiles.append(parts)
        expected += [_expected_node(path, index) for path in paths]
    for address in addresses(host, NPU):
        expected += [_expected_node(path, None) for path in _nodes(host, address)]
    devices = nodes.read_nodes(host, "intel", tuple(gpus), expected)
    return IntelDevices(devices, tuple(tiles), tuple(sorted(unusable)))


def _expected_node(path: str, gpu: Optional[int]) -> nodes.ExpectedNode:
    return nodes.ExpectedNode(path, (_MAJORS[path.rpartition("/")[0]],), None, gpu)


def _bus_addresses(host: Host) -> Iterator[str]:
    """Yield the addresses of Intel's GPUs and Gaudi accelerators, with or without a driver."""
    for maker, classes in _PCI_CLASSES:
        yield from nodes.pci_devices(host, maker, classes)


def _nodes(host: Host, address: str) -> list[str]:
    """Return the paths of the nodes of the device at *address*: those that the kernel names and /dev has."""
    paths = list(nodes.drm_nodes(host, address))
    for kind, directory in _NODE_DIRECTORIES.items():
        names = host.lenient.dev.names(f"{nodes.PCI_DEVICES}/{address}/{kind}")
        paths += [f"{directory}/{name}" for name in names if _NODE.fullmatch(name)]
    return [path for path in paths if not isinstance(host.dev.lstat(path), Missing)]


def _node_number(host: Host, address: str) -> tuple[int, str]:
    """Return the number of an accelerator's node: HABANA_VISIBLE_DEVICES counts by these."""
    numbers = [int(match[1]) for match in map(_COMPUTE_NODE.fullmatch, _nodes(host, address)) if match]
    return (min(numbers, default=1 << 20), address)


def read_name(host: Host, address: str) -> str:
    """Return the name of the device at *address*, as in `Gpu.model`."""
    return _name_and_tiles(host, address)[0]


def platform(host: Host, address: str) -> Optional[str]:
    """Return the platform of the GPU at *address*, as the compute runtime names it: `bmg`; None if it is not known."""
    row = _platform(_pci_id(host, address))
    return row["platform"] if row is not None else None


def platforms() -> tuple[str, ...]:
    """Return all platforms, the oldest first."""
    return tuple(dict.fromkeys(row["platform"] for row in table("intel_gpus")["platforms"]))


def release_for(host: Host, address: str, component: Literal["compute", "media"]) -> Optional[tuple[str, str]]:
    """Return the first release of Intel's compute runtime, or of its driver for video, that knows all GPUs of the
    generation of that at *address*, and the generation's name: `("25.2.6", "Battlemage")`; None if it is not known.
    """
    row = _platform(_pci_id(host, address))
    return (row[component], row["name"]) if row is not None and component in row else None


def device_id(host: Host, address: str) -> Optional[str]:
    """Return the PCI device ID of the GPU at *address*: `e20b`; None if it cannot be read."""
    maker, _, device = _pci_id(host, address).partition(":")
    return device if maker == _PCI_CLASSES[0][0][2:] and "?" not in device else None


@lru_cache(maxsize=2)
def device_ids(before: Optional[str] = None) -> frozenset[str]:
    """Return the device IDs of all GPUs in the table, or of those older than the platform *before*."""
    names = platforms()
    counted = names[: names.index(before)] if before is not None else names
    rows = (row["devices"] for row in table("intel_gpus")["platforms"] if row["platform"] in counted)
    return frozenset(device for devices in rows for device in devices.split())


def platform_aliases(name: str) -> tuple[str, ...]:
    """Return the platforms as which older releases of the compute runtime may know *name*."""
    return ("mtl",) if name == "arl" else ()


def unsupported_platforms(build: int) -> tuple[str, ...]:
    """Return the platforms that the compute runtime of *build* certainly does not know, and `xe` if not that driver."""
    older = (
        row["older-lack"] for row in table("intel_gpus")["runtimes"] if "older-lack" in row and build <= row["build"]
    )
    newer = (
        row["newer-lack"] for row in table("intel_gpus")["runtimes"] if "newer-lack" in row and build >= row["build"]
    )
    return tuple(name for names in (*older, *newer) for name in names.split())


def _platform(pci_id: str) -> Optional[dict[str, str]]:
    maker, _, device = pci_id.partition(":")
    rows = table("intel_gpus")["platforms"] if maker == _PCI_CLASSES[0][0][2:] else ()
    return next((row for row in rows if device in row["devices"].split()), None)


def _pci_id(host: Host, address: str) -> str:
    base, dev = f"{nodes.PCI_DEVICES}/{address}", host.lenient.dev
    matches = (_PCI_ID.fullmatch(dev.text(f"{base}/{name}") or "") for name in ("vendor", "device"))
    return ":".join(match[1] if match else "????" for match in matches)


def _name_and_tiles(host: Host, address: str) -> tuple[str, int]:
    """Return the name of the device at *address*, and how many tiles it has; its PCI IDs and 0 if it is not known."""
    pci_id, gpu_table = _pci_id(host, address), table("intel_gpus")
    maker, row = pci_id.partition(":")[0], _platform(pci_id)
    kind = "Gaudi" if maker == _PCI_CLASSES[1][0][2:] else "integrated GPU" if address.startswith(INTEGRATED) else "GPU"
    unnamed = f"{row['name']} graphics" if row else f"{kind} {pci_id}"
    is_known = row is not None or pci_id in gpu_table["names"]
    return f"Intel {gpu_table['names'].get(pci_id, unnamed)}", gpu_table["tiles"].get(pci_id, int(is_known))
