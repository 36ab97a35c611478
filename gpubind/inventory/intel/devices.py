"""Intel's GPUs, NPUs and Gaudi accelerators: the PCI devices with a kernel driver, and their nodes in /dev.

Sources: Linux i915 and xe (`drm`), habanalabs and intel_vpu (`accel`; before Linux 6.2 `habanalabs`);
intel/intel-resource-drivers-for-kubernetes `pkg/gpu/discovery`, `pkg/gaudi/discovery` and `pkg/gaudi/cdihelpers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
"""PCI vendor and classes: of GPUs, and of Gaudi (vendor Habana Labs). Intel's network cards have other classes."""
INTEGRATED = "0000:00:02."
"""The beginning of the PCI address of a processor's own graphics."""
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODE_DIRECTORIES = {"accel": "/dev/accel", "habanalabs": "/dev", "infiniband_verbs": "/dev/infiniband"}
"""The directory of nodes for each class of a device in sysfs, except `drm`."""
_PCI_ID = re.compile(r"0x([0-9a-f]{4})\s*")
_NODE = re.compile(r"(?:accel(?:_controlD)?|hl(?:_controlD)?|uverbs)[0-9]+")
_COMPUTE_NODE = re.compile(r"/dev/(?:accel/accel|hl)([0-9]+)")
_MAJORS = {"/dev/dri": "drm", "/dev/accel": "accel", "/dev": "habanalabs", "/dev/infiniband": "infiniband_verbs"}


class IntelDevices(NamedTuple):
    """Intel's devices."""

    devices: nodes.Devices
    tiles: tuple[int, ...]
    """The number of Level Zero devices of each GPU, by default; 0 if unknown."""
    unusable: tuple[tuple[str, str], ...]
    """The PCI addresses of unusable devices, with the reason: `no-driver`, `no-node`."""


def addresses(host: Host, drivers: Iterable[str]) -> tuple[str, ...]:
    """Return the PCI addresses of the devices bound to *drivers*, in order."""
    dev = host.lenient.dev  # older records do not have these directories
    names = (name for driver in drivers for name in dev.names(f"{DRIVERS}/{driver}"))
    return tuple(sorted(name for name in names if _ADDRESS.fullmatch(name)))


def has_compute_device(host: Host) -> bool:
    """Return whether the host has an Intel device for computing, not only a processor's own graphics."""
    return any(not address.startswith(INTEGRATED) for address in addresses(host, (*GPU_DRIVERS, *GAUDI)))


def read_devices(host: Host) -> IntelDevices:
    """Return the devices (GPUs by PCI address, then Gaudi by number), and all nodes, with those of NPUs."""
    gpus: list[Gpu] = []
    tiles, expected = [], []
    gaudis = sorted(addresses(host, GAUDI), key=lambda address: _node_number(host, address))
    device_addresses = (*addresses(host, GPU_DRIVERS), *gaudis)
    on_bus = (address for row in _PCI_CLASSES for address in nodes.pci_devices(host, *row))
    unserved = (address for address in on_bus if address not in device_addresses)
    unusable = [(address, "no-driver") for address in unserved if not nodes.is_for_guests(host, address)]
    for address in device_addresses:
        paths = _node_paths(host, address)
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
        expected += [_expected_node(path, None) for path in _node_paths(host, address)]
    devices = nodes.read_nodes(host, "intel", tuple(gpus), expected)
    return IntelDevices(devices, tuple(tiles), tuple(sorted(unusable)))


def _expected_node(path: str, gpu: Optional[int]) -> nodes.ExpectedNode:
    return nodes.ExpectedNode(path, (_MAJORS[path.rpartition("/")[0]],), None, gpu)


def _node_paths(host: Host, address: str) -> list[str]:
    """Return the paths of the nodes that the kernel lists for the device at *address* and that exist in /dev."""
    paths = list(nodes.drm_nodes(host, address))
    for kind, directory in _NODE_DIRECTORIES.items():
        names = host.lenient.dev.names(f"{nodes.PCI_DEVICES}/{address}/{kind}")
        paths += [f"{directory}/{name}" for name in names if _NODE.fullmatch(name)]
    return [path for path in paths if not isinstance(host.dev.lstat(path), Missing)]


def _node_number(host: Host, address: str) -> tuple[int, str]:
    """Return the sort key of an accelerator: its node number, which HABANA_VISIBLE_DEVICES uses."""
    numbers = [int(match[1]) for match in map(_COMPUTE_NODE.fullmatch, _node_paths(host, address)) if match]
    return (min(numbers, default=1 << 20), address)


def read_name(host: Host, address: str) -> str:
    """Return the name of the device at *address*, as in `Gpu.model`."""
    return _name_and_tiles(host, address)[0]


def platform(host: Host, address: str) -> Optional[str]:
    """Return the platform of the GPU at *address* by its name in the compute runtime, `bmg`; None if unknown."""
    row = _platform(_pci_id(host, address))
    return row["platform"] if row is not None else None


def platforms() -> tuple[str, ...]:
    """Return all platforms, the oldest first."""
    return tuple(dict.fromkeys(row["platform"] for row in table("intel_gpus")["platforms"]))


def release_for(host: Host, address: str, component: Literal["compute", "media"]) -> Optional[tuple[str, str]]:
    """Return the first release of *component* that supports the GPU at *address*, and its generation; None if unknown.

    For example `("25.2.6", "Battlemage")`: that release supports all GPUs of the generation.
    """
    row = _platform(_pci_id(host, address))
    return (row[component], row["name"]) if row is not None and component in row else None


def device_id(host: Host, address: str) -> Optional[str]:
    """Return the PCI device ID of the GPU at *address*, `e20b`; None if it cannot be read."""
    maker, _, device = _pci_id(host, address).partition(":")
    return device if maker == _PCI_CLASSES[0][0][2:] and "?" not in device else None


@lru_cache(maxsize=2)
def device_ids(before: Optional[str] = None) -> frozenset[str]:
    """Return the device IDs of all GPUs in the table, or only those older than the platform *before*."""
    names = platforms()
    counted = names[: names.index(before)] if before is not None else names
    rows = (row["devices"] for row in table("intel_gpus")["platforms"] if row["platform"] in counted)
    return frozenset(device for devices in rows for device in devices.split())


def platform_aliases(name: str) -> tuple[str, ...]:
    """Return the other names of the platform *name* in older releases of the compute runtime."""
    return ("mtl",) if name == "arl" else ()


def unsupported_platforms(build: int) -> tuple[str, ...]:
    """Return the platforms that the compute runtime of *build* does not support, with `xe` if it lacks that kernel
    driver.
    """
    rows = table("intel_gpus")["runtimes"]
    older = (row["older-lack"] for row in rows if "older-lack" in row and build <= row["build"])
    newer = (row["newer-lack"] for row in rows if "newer-lack" in row and build >= row["build"])
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
    """Return the name of the device at *address* and its number of tiles; its PCI IDs and 0 if unknown."""
    pci_id, gpu_table = _pci_id(host, address), table("intel_gpus")
    maker, row = pci_id.partition(":")[0], _platform(pci_id)
    kind = "Gaudi" if maker == _PCI_CLASSES[1][0][2:] else "integrated GPU" if address.startswith(INTEGRATED) else "GPU"
    unnamed = f"{row['name']} graphics" if row else f"{kind} {pci_id}"
    is_known = row is not None or pci_id in gpu_table["names"]
    return f"Intel {gpu_table['names'].get(pci_id, unnamed)}", gpu_table["tiles"].get(pci_id, int(is_known))
