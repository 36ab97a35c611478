"""AMD's GPUs and device nodes, from the KFD topology, /sys/class/drm and /dev.

Source: ROCr `core/driver/kfd`, libhsakmt `topology.c`. GPUs have the order of their topology nodes. Programs open
/dev/dri/renderD<drm_render_minor> of each GPU, and /dev/kfd for all.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.driver.kernel import amdgpu_name, gfx_of, parse_properties, pci_of, uuid_of
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory import nodes
from gpubind.model import Gpu, Missing, RootedPath
from gpubind.model.data import read_data

TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
KFD = "/dev/kfd"
DRIVER = "amdgpu"
Unusable = Literal["no-driver", "other-driver", "not-in-kfd"]
_PCI_VENDOR = "0x1002"
_DISPLAY_CLASSES = ("0x03", "0x12")
"""Display controllers, and processing accelerators, the class of the MI300 family."""
_FOUND_BY_DISCOVERY = "ip discovery"
"""KFD's name of any GPU whose parts amdgpu reads from the GPU itself; it does not identify the model.

Source: Linux `kfd_topology.c`, from `amdgpu_asic_name` in `amdgpu_device.c`.
"""
_IDS = ("/opt/amdgpu/share/libdrm/amdgpu.ids", "/usr/share/libdrm/amdgpu.ids")
"""The tables of names of AMD's own packages, and of the distribution."""


class HiddenNode(NamedTuple):
    """A node of the topology that cannot be read."""

    why: str
    """The path, and the reason."""
    is_forbidden: bool
    """Whether KFD hides it from this process because of a device cgroup; else its text is damaged."""


class Topology(NamedTuple):
    """The GPUs that KFD shows to this process, and the nodes that it hides."""

    gpus: tuple[Gpu, ...]
    """In the order of the topology, which is ROCr's index."""
    hidden: tuple[HiddenNode, ...]


def read_devices(host: Host, more: tuple[str, ...] = ()) -> nodes.Devices:
    """Return /dev/kfd, the render and card nodes of AMD's GPUs, and the GPUs. Order: KFD first, then by GPU.

    *more*: other nodes that all GPUs need.
    """
    topology = read_topology(host)
    gpus = topology.gpus if topology.gpus or topology.hidden else tuple(_pci_gpus(host))
    return nodes.read_nodes(host, "amd", gpus, _expected_nodes(host, gpus, more))


def read_topology(host: Host) -> Topology:
    """Return the GPUs of the KFD topology, by node number."""
    gpus: list[Gpu] = []
    chips: list[tuple[str, dict[str, int]]] = []
    hidden: list[HiddenNode] = []
    for base, properties in _gpu_properties(host):
        if isinstance(properties, HiddenNode):
            hidden.append(properties)
            continue
        minor = properties.get("drm_render_minor") or None
        render = RootedPath(f"/dev/dri/renderD{minor}") if minor else None
        gpus.append(Gpu("amd", len(gpus), uuid_of(properties), pci_of(properties), minor, None, render, True))
        chips.append((host.dev.text(f"{base}/name") or "", properties))
    described_gpus = (_described(host, gpu, *chip) for gpu, chip in zip(_with_addresses(gpus), chips))
    return Topology(tuple(described_gpus), tuple(hidden))


def _described(host: Host, gpu: Gpu, chip: str, properties: dict[str, int]) -> Gpu:
    """Return *gpu* with its model and partition mode; *chip* is KFD's name of it."""
    name = find_name(host, properties.get("device_id"), _pci_number(host, gpu.pci, "revision"))
    name = name or ("" if chip.strip() == _FOUND_BY_DISCOVERY else chip)
    gfx = gfx_of(properties)
    model = f"{name} ({gfx})" if name and gfx else name or gfx
    return gpu._replace(model=model, partition=_partition(host, gpu.pci))


def _pci_number(host: Host, address: Optional[str], name: str) -> Optional[int]:
    text = host.lenient.dev.text(f"{nodes.PCI_DEVICES}/{address}/{name}") or ""  # older records have no revision
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,4}", text) else None


def _partition(host: Host, address: Optional[str]) -> Optional[str]:
    """Return the partition modes of the GPU at *address* and its memory, `CPX/NPS4`; None if it cannot be divided.

    Source: Linux `amdgpu_gfx.c` (`current_compute_partition`), `amdgpu_gmc.c` (`current_memory_partition`).
    """
    base = f"{nodes.PCI_DEVICES}/{address}"
    modes = (host.lenient.dev.text(f"{base}/current_{kind}_partition") or "" for kind in ("compute", "memory"))
    return "/".join(mode for mode in modes if re.fullmatch(r"[A-Z]PX|NPS[0-9]", mode)) or None


def _gpu_properties(host: Host) -> Iterator[tuple[str, Union[dict[str, int], HiddenNode]]]:
    return ((base, properties) for base, properties in _topology_nodes(host) if properties is not None)


def _topology_nodes(host: Host) -> Iterator[tuple[str, Union[dict[str, int], HiddenNode, None]]]:
    """Yield all topology nodes as `_gpu_properties` does; None for processors, whose gpu_id is 0."""
    for number in sorted(host.dev.names(TOPOLOGY), key=nodes.natural_sort_key):
        base = f"{TOPOLOGY}/{number}"
        gpu_id = host.dev.read_text(f"{base}/gpu_id")
        if not re.fullmatch(r"[0-9]{1,6}", number):
            continue
        if isinstance(gpu_id, str) and gpu_id.strip() == "0":
            yield base, None
            continue
        text = gpu_id if isinstance(gpu_id, Missing) else host.dev.read_text(f"{base}/properties")
        if isinstance(text, Missing):
            yield base, HiddenNode(f"{base}: {text}", text.why == "forbidden")
            continue
        try:
            yield base, parse_properties(text)
        except FormatError as error:
            yield base, HiddenNode(f"{base}/properties: {error.place}: {error.why}", False)


def _with_addresses(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return *gpus*, with partitions of one GPU (CPX, DPX) at the GPU's address, without the number that KFD adds to
    it.

    Source: Linux `kfd_topology.c`: `location_id |= node_id` where a device has several nodes.
    """
    devices = Counter(gpu.pci.partition(".")[0] for gpu in gpus if gpu.pci is not None)
    return tuple(
        gpu._replace(pci=f"{device}.0") if gpu.pci and devices[(device := gpu.pci.partition(".")[0])] > 1 else gpu
        for gpu in gpus
    )


def read_unusable(host: Host) -> Iterator[tuple[str, Optional[str], Unusable]]:
    """Yield PCI address, name and reason for each AMD GPU that no ROCm program can use."""
    topology = read_topology(host)
    unserved = nodes.devices_without_driver(host, _PCI_VENDOR, _DISPLAY_CLASSES)
    listed = {gpu.pci for gpu in topology.gpus}
    is_whole = not topology.hidden and None not in listed and not isinstance(host.lenient.dev.list(TOPOLOGY), Missing)
    for address in nodes.pci_devices(host, _PCI_VENDOR, _DISPLAY_CLASSES):
        driver = nodes.pci_driver(host, address)
        why: Optional[Unusable] = None
        if address in unserved:
            why = "no-driver"
        elif isinstance(driver, str) and driver != DRIVER:
            why = "other-driver"
        elif driver == DRIVER and is_whole and address not in listed:
            why = "not-in-kfd"
        if why is not None:
            yield address, _name_at(host, address), why


def _name_at(host: Host, address: str) -> Optional[str]:
    return find_name(host, *(_pci_number(host, address, text) for text in ("device", "revision")))


def read_processors(host: Host) -> dict[Optional[int], str]:
    """Return the compiler's name of each GPU in the KFD topology, `gfx942`, by the minor number of its render node."""
    return {
        properties.get("drm_render_minor") or None: gfx
        for _, properties in _gpu_properties(host)
        if not isinstance(properties, HiddenNode) and (gfx := gfx_of(properties)) is not None
    }


def read_render_minors(host: Host) -> tuple[Optional[int], ...]:
    """Return the minor numbers of the GPUs' render nodes, None for processors, in libhsakmt's order of nodes."""
    all_properties = (properties for _, properties in _topology_nodes(host) if not isinstance(properties, HiddenNode))
    return tuple(None if each is None else each.get("drm_render_minor", 0) for each in all_properties)


def _pci_gpus(host: Host) -> Iterator[Gpu]:
    """Yield the GPUs of amdgpu by PCI address, for a host without a topology."""
    displays = nodes.pci_devices(host, _PCI_VENDOR, _DISPLAY_CLASSES)
    # Without this directory no driver is bound to the GPU.
    addresses = [address for address in displays if host.dev.has(f"{nodes.PCI_DEVICES}/{address}/drm")]
    for index, address in enumerate(addresses):
        render = nodes.render_node(host, address)
        minor = int(render.rpartition("renderD")[2]) if render else None
        yield Gpu("amd", index, None, address, minor, _name_at(host, address), render, True)


def _expected_nodes(host: Host, gpus: tuple[Gpu, ...], more: tuple[str, ...]) -> Iterable[nodes.ExpectedNode]:
    expected = {KFD: nodes.ExpectedNode(KFD, ("kfd",), None, None)}
    expected.update((path, nodes.ExpectedNode(path, (), None, None)) for path in more)
    for gpu in gpus:
        for path in _gpu_nodes(host, gpu):
            expected.setdefault(path, nodes.ExpectedNode(path, nodes.DRM, None, gpu.index))
    return [node for path, node in expected.items() if not isinstance(host.dev.lstat(path), Missing)]


def _gpu_nodes(host: Host, gpu: Gpu) -> tuple[str, ...]:
    """Return the render node and the card nodes of *gpu*.

    Their numbers are independent: a BMC's display has a card, and so has each partition of a GPU.
    """
    if gpu.render is None:
        return nodes.drm_nodes(host, gpu.pci)
    names = host.dev.list(f"/sys/class/drm/{gpu.render.rpartition('/')[2]}/device/drm")
    if isinstance(names, Missing):
        return (gpu.render, *(path for path in nodes.drm_nodes(host, gpu.pci) if "/card" in path))
    return (gpu.render, *(f"/dev/dri/{name}" for name in names if re.fullmatch(r"card[0-9]+", name)))


def find_name(host: Host, device: Optional[int], revision: Optional[int]) -> Optional[str]:
    """Return the name of the GPU with these IDs, `AMD Instinct MI300X`; None if no table has it.

    With an unknown *revision* a device has its name without a revision, or the name that all its revisions have.
    gpubind's table takes precedence over the host's `amdgpu.ids`: libdrm has changed names between releases, and equal
    nodes must have equal names.
    """
    if device is None:
        return None
    by_revision = _names_by_id().get(device, {})
    name = by_revision.get(revision)
    if name is None and revision is not None:
        texts = (host.driver.lenient.text(path) or "" for path in _IDS)  # older records do not have it
        name = next(filter(None, (amdgpu_name(text, device, revision) for text in texts)), None)
    names = set(by_revision.values())
    return name or by_revision.get(None) or (names.pop() if len(names) == 1 else None)


@lru_cache(maxsize=1)
def _names_by_id() -> dict[int, dict[Optional[int], str]]:
    """Return the names by device and revision; revision None is for all that are not listed."""
    table: dict[int, dict[Optional[int], str]] = {}
    for name, devices in json.loads(read_data("model/data/amd_gpus.json"))["names"].items():
        for entry in devices.split():
            device, _, revisions = entry.partition(":")
            each = [int(text, 16) for text in revisions.split(",")] if revisions else [None]
            table.setdefault(int(device, 16), {}).update(dict.fromkeys(each, name))
    return table
