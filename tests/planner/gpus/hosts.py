"""Hosts for choosing GPUs: inventories of nodes and GPUs alone, made by hand."""

from __future__ import annotations

from typing import Optional

from gpubind.model import (
    ContainerPath,
    DeviceNode,
    Driver,
    Gpu,
    HostPath,
    Inventory,
    MigDevice,
    MigName,
    MigNode,
    RootedPath,
    SourceUsed,
    Vendor,
)

A100 = "NVIDIA A100"
T4 = "Tesla T4"


def uuid(number: int) -> str:
    """NVIDIA's UUID of the GPU with this index on every host here."""
    return f"GPU-{number:08x}-1111-2222-3333-444444444444"


def hexid(number: int) -> str:
    """AMD's."""
    return f"GPU-{0xABC0 + number:016x}"


def node(vendor: Vendor, name: str, gpu: Optional[int] = None) -> DeviceNode:
    path = f"/dev/{name}"
    return DeviceNode(
        vendor, HostPath(path), ContainerPath(path), "c", 195, 0, 0o666, 0, 0, "root", "rw", gpu, None
    )  # fmt: skip


def inventory(vendor: Vendor, gpus: tuple[Gpu, ...], nodes: tuple[DeviceNode, ...]) -> Inventory:
    driver = Driver(vendor, "550.54.14", False, "550.54.14", "linux", None, HostPath("/"))
    return Inventory(driver, SourceUsed("liblist", ""), (), (), nodes, gpus, (), ())


def nvidia(
    count: int,
    models: Optional[dict[int, str]] = None,
    untold: tuple[int, ...] = (),
    excluded: tuple[int, ...] = (),
    minors: Optional[dict[int, int]] = None,
    mig: Optional[dict[int, tuple[tuple[int, int], ...]]] = None,
    names: tuple[MigName, ...] = (),
    render: bool = False,
    hidden: tuple[int, ...] = (),
    silent: tuple[int, ...] = (),
) -> Inventory:
    """*count* GPUs by position on the bus.

    *untold* have no UUID yet, *excluded* no index; *hidden* cannot be opened; of *silent* only the address is known.
    """
    gpus: list[Gpu] = []
    nodes: list[DeviceNode] = []
    guards: list[MigNode] = []
    index = 0
    for place in range(count):
        number = None if place in excluded else index
        index += place not in excluded
        minor = (minors or {}).get(place, place)
        is_silent = place in silent
        drm = RootedPath(f"/dev/dri/renderD{128 + place}") if render else None
        devices = tuple(MigDevice(gi, ci, None) for gi, ci in (mig or {}).get(place, ()))
        model = None if is_silent else (models or {}).get(place, A100)
        pci = f"0000:{place + 1:02x}:00.0"
        told = None if place in untold or is_silent else uuid(place)
        known = None if is_silent else minor
        gpus.append(Gpu("nvidia", number, told, pci, known, model, drm, number is not None, devices))
        nodes.append(node("nvidia", f"nvidia{minor}", None if is_silent else number))
        if drm:
            nodes += [
                node("nvidia", f"dri/card{place}", number),
                node("nvidia", f"dri/renderD{128 + place}", number),
            ]
        for device in devices:
            for ci in (None, device.ci):
                cap = 100 * (place + 1) + 10 * device.gi + (0 if ci is None else ci + 1)
                target = ContainerPath(f"/dev/nvidia-caps/nvidia-cap{cap}")
                if target not in [guard.target for guard in guards]:
                    guards.append(MigNode(target, minor, device.gi, ci))
                    nodes.append(node("nvidia", f"nvidia-caps/nvidia-cap{cap}"))
    if mig:
        nodes.append(node("nvidia", "nvidia-caps/nvidia-cap2"))
    nodes += [node("nvidia", "nvidiactl"), node("nvidia", "nvidia-uvm")]
    made = inventory("nvidia", tuple(gpus), tuple(nodes))
    forbidden = tuple(each.target for each in nodes if each.gpu in hidden)
    made = made._replace(confined=0 < len(hidden) < count, hidden=hidden, forbidden=forbidden)
    return made._replace(mig_nodes=tuple(guards), mig_names=names)


def amd(count: int, untold: tuple[int, ...] = (), first: int = 128, confined: bool = False) -> Inventory:
    """*count* GPUs in KFD's order, with render nodes from *first* on."""
    gpus = []
    nodes = [node("amd", "kfd")]
    for number in range(count):
        told = None if number in untold else hexid(number)
        render = RootedPath(f"/dev/dri/renderD{first + number}")
        gpus.append(Gpu("amd", number, told, f"0000:{0x80 + number:02x}:00.0", None, "gfx942", render, True))
        nodes += [node("amd", f"dri/renderD{first + number}", number)]
    return inventory("amd", tuple(gpus), tuple(nodes))._replace(confined=confined)


def amd_parts(gpus: int, parts: int, *, same_ids: bool = True, backwards: bool = False) -> Inventory:
    """GPUs in *parts* (CPX, DPX): a KFD node each, at the GPU's address. *backwards*: the last address comes first."""
    whole = amd(gpus * parts)
    order = reversed(range(gpus)) if backwards else range(gpus)
    places = [place for place in order for _ in range(parts)]
    made = tuple(
        gpu._replace(
            pci=f"0000:{0x80 + place:02x}:00.0", minor=128 + number, uuid=hexid(place) if same_ids else gpu.uuid
        )
        for number, (gpu, place) in enumerate(zip(whole.gpus, places))
    )
    return whole._replace(gpus=made)


def intel(*models: str, tiles: int = 1) -> Inventory:
    """A GPU of each of *models*, by PCI address."""
    gpus = tuple(
        Gpu("intel", number, None, f"0000:{number:02x}:02.0", 128 + number, model, RootedPath(node_of(number)), True)
        for number, model in enumerate(models)
    )
    nodes = tuple(node("intel", node_of(number)[5:], number) for number in range(len(models)))
    return inventory("intel", gpus, nodes)._replace(tiles=(tiles,) * len(models))


def gaudi(count: int) -> Inventory:
    """Gaudi accelerators, by the numbers of their nodes."""
    gpus = tuple(
        Gpu("intel", n, None, f"0000:{n:02x}:00.0", n, "Gaudi", RootedPath(f"/dev/accel/accel{n}"), True)
        for n in range(count)
    )
    nodes = tuple(node("intel", f"accel/accel{number}", number) for number in range(count))
    return inventory("intel", gpus, nodes)._replace(tiles=(1,) * count)


def node_of(number: int) -> str:
    return f"/dev/dri/renderD{128 + number}"


MIG: dict[int, tuple[tuple[int, int], ...]] = {0: ((1, 0), (2, 0)), 1: ((5, 0), (5, 1))}
KNOWN = (MigName("MIG-aaaa", 0, 2, 0), MigName("0:1", 0, 2, 0))

HOSTS: dict[str, tuple[Inventory, ...]] = {
    "none": (nvidia(0),),
    "one": (nvidia(1),),
    "two": (nvidia(2),),
    "two-drm": (nvidia(2, render=True),),
    "mixed-models": (nvidia(2, models={0: T4}),),
    "untold": (nvidia(3, untold=(1,)),),
    "all-untold": (nvidia(4, untold=(0, 1, 2, 3)),),
    "untold-models": (nvidia(3, untold=(0, 1, 2), models={0: T4}),),
    "excluded": (nvidia(3, excluded=(1,), render=True),),
    "minors": (nvidia(4, minors={0: 3, 1: 2, 2: 1, 3: 0}),),
    "eight": (nvidia(8),),
    "eight-mixed": (nvidia(8, models={7: T4}),),
    "cgroup": (nvidia(4, hidden=(0, 1)),),
    "cgroup-mixed": (nvidia(4, models={3: T4}, hidden=(0, 2)),),
    "closed": (nvidia(2, hidden=(0, 1)),),
    "silent": (nvidia(4, silent=(1, 3)),),
    "cgroup-untold": (nvidia(4, untold=(0, 1, 2, 3), hidden=(0, 1)),),
    "sixteen": (nvidia(16),),
    "sixteen-untold": (nvidia(16, untold=tuple(range(16))),),
    "mig": (nvidia(3, mig=MIG),),
    "mig-known": (nvidia(3, mig=MIG, names=KNOWN),),
    "mig-one": (nvidia(1, mig={0: ((1, 0),)}),),
    "mig-untold": (nvidia(1, mig={0: ((1, 0), (2, 0))}, untold=(0,)),),
    "amd": (amd(4),),
    "amd-untold": (amd(3, untold=(0, 1, 2)),),
    "amd-cgroup": (amd(3, confined=True),),
    "amd-parts": (amd_parts(2, 2),),
    "amd-parts-ids": (amd_parts(2, 2, same_ids=False),),
    "amd-backwards": (amd_parts(3, 1, backwards=True),),
    "both": (nvidia(2), amd(2)),
    "intel": (intel("Arc", "Arc", "Arc"),),
    "intel-models": (intel("UHD", "Arc"),),
    "gaudi": (gaudi(2),),
    "intel-tiles": (intel("Max", "Max", tiles=2),),
}
