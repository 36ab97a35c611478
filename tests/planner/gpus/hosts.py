"""Hosts for choosing GPUs: what the readers make of trees with GPUs and little else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES
from gpubind.host.record import RecordedRun
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.amd.devices import TOPOLOGY
from gpubind.inventory.vendors import read_inventories
from gpubind.model import Inventory, Request
from tests.support.amd import BUSES, UNIQUE_IDS, amd_host, drm_device, kfd_node
from tests.support.amd import kernel as amd_kernel
from tests.support.driver import A100, cache, host, in_cgroup, kernel, libraries, mig_parts
from tests.support.driver import gpu as nvidia_gpu
from tests.support.intel import ARC, INTEGRATED, MAX_1550, intel_host
from tests.support.intel import gaudi as gaudi_device
from tests.support.intel import gpu as intel_gpu
from tests.support.trees import Hidden, Spec

T4 = "Tesla T4"
UNTOLD = "GPU-????????-????-????-????-????????????"
"""What the driver reports before the first use of a GPU."""
LIBCUDA = libraries("/usr/lib64", stems=("libcuda",))
DRIVER: Spec = {**LIBCUDA, "/etc/ld.so.cache": cache(LIBCUDA, ["/usr/lib64"])}
NO_DRIVER: Spec = {"/etc/ld.so.cache": cache({}, [])}
CLI = ("nvidia-container-cli", "list")


def hexid(number: int) -> str:
    """AMD's UUID of the GPU with this index on every host here."""
    return f"GPU-{UNIQUE_IDS[number]:016x}"


def read(on: RecordedHost) -> tuple[Inventory, ...]:
    return read_inventories(on, Request()).inventories


def nvidia(
    count: int,
    models: Optional[Mapping[int, str]] = None,
    untold: Sequence[int] = (),
    excluded: Sequence[int] = (),
    minors: Sequence[int] = range(16),
    mig: Optional[Mapping[int, Sequence[str]]] = None,
    names: Sequence[str] = (),
    render: bool = False,
    hidden: Sequence[int] = (),
    silent: Sequence[int] = (),
) -> Inventory:
    """*count* GPUs by position on the bus.

    *untold* have no UUID yet, *excluded* no index; a cgroup forbids the nodes of *hidden*; of *silent* only the address
    is known. The driver's program knows *names* for the part 2/0 of the first.
    """
    parts = [kernel(gpus=0), DRIVER, *(mig_parts(place, *each) for place, each in (mig or {}).items())]
    for place in range(count):
        told = UNTOLD if place in untold else None
        gpu = nvidia_gpu(place, minors[place], (models or {}).get(place, A100), told, is_excluded=place in excluded)
        parts.append({path: "" if place in silent and path.endswith("/information") else gpu[path] for path in gpu})
        if render:
            parts.append(drm_device(f"0000:{place + 1:02x}:00.0", place, 128 + place, "0x10de", "0x030200", 0o666))
    known = {f"--device={name}": mig_parts(0, "gi2/ci0") for name in names}
    runs = tuple(RecordedRun((*CLI, option), 0, "\n".join(paths)) for option, paths in known.items())
    listed = RecordedRun(CLI, 0, "\n".join(LIBCUDA))
    on = host(*parts, environ={CUDA_VISIBLE_DEVICES: ",".join(names)}, runs=(listed, *runs)) if names else host(*parts)
    (made,) = read(in_cgroup(on, *(f"/dev/nvidia{minors[place]}" for place in hidden)))
    return made


def amd(
    count: int, untold: Sequence[int] = (), hidden: Sequence[int] = (), uniques: Sequence[int] = UNIQUE_IDS
) -> Inventory:
    """*count* GPUs in KFD's order; it tells no ID of *untold*, and shows none of *hidden*."""
    parts = [amd_kernel(count, bmc=False, step=1, uniques=[0 if n in untold else uniques[n] for n in range(count)])]
    parts += [{f"{TOPOLOGY}/{2 + number}/properties": Hidden()} for number in hidden]
    (made,) = read(amd_host(NO_DRIVER, *parts))
    return made


def amd_parts(gpus: int, parts: int, *, same_ids: bool = True, backwards: bool = False) -> Inventory:
    """GPUs in *parts* (CPX, DPX): a KFD node each, at the GPU's address. *backwards*: the last address comes first."""
    buses = BUSES[:gpus][::-1] if backwards else BUSES
    spec = amd_kernel(gpus, bmc=False, step=parts, parts=parts, buses=buses)
    own = [
        kfd_node(2 + n, 128 + n, bus=BUSES[n // parts], unique=UNIQUE_IDS[n], part=n % parts)
        for n in range(0 if same_ids else gpus * parts)
    ]
    (made,) = read(amd_host(NO_DRIVER, spec, *own))
    return made


def both(*parts: Spec) -> tuple[Inventory, ...]:
    """Two GPUs of NVIDIA's and two of AMD's, where *parts* have no others."""
    majors = {"/proc/devices": "Character devices:\n195 nvidia\n226 drm\n235 nvidia-uvm\n511 kfd\n"}
    return read(amd_host(DRIVER, kernel(), amd_kernel(2, bmc=False, step=1), majors, *parts))


def intel(*devices: str) -> Inventory:
    """A GPU of each of *devices*, by PCI address; the first may be a processor's."""
    (made,) = read(intel_host(*(intel_gpu(f"0000:{n:02x}:02.0", n, 128 + n, one) for n, one in enumerate(devices))))
    return made


def gaudi(count: int) -> Inventory:
    """Gaudi accelerators, by the numbers of their nodes."""
    (made,) = read(intel_host(*(gaudi_device(f"0000:{0x90 + number:02x}:00.0", number) for number in range(count))))
    return made


MIG = {0: ("gi1/ci0", "gi2/ci0"), 1: ("gi5/ci0", "gi5/ci1")}

HOSTS: dict[str, tuple[Inventory, ...]] = {
    "none": (nvidia(0),),
    "one": (nvidia(1),),
    "two": (nvidia(2),),
    "two-drm": (nvidia(2, render=True),),
    "mixed-models": (nvidia(2, models={0: T4}),),
    "untold": (nvidia(3, untold=(1,)),),
    "all-untold": (nvidia(4, untold=range(4)),),
    "untold-models": (nvidia(3, untold=range(3), models={0: T4}),),
    "excluded": (nvidia(3, excluded=(1,), render=True),),
    "minors": (nvidia(4, minors=(3, 2, 1, 0)),),
    "eight": (nvidia(8),),
    "eight-mixed": (nvidia(8, models={7: T4}),),
    "cgroup": (nvidia(4, hidden=(0, 1)),),
    "cgroup-mixed": (nvidia(4, models={3: T4}, hidden=(0, 2)),),
    "closed": (nvidia(2, hidden=(0, 1)),),
    "silent": (nvidia(4, silent=(1, 3)),),
    "cgroup-untold": (nvidia(4, untold=range(4), hidden=(0, 1)),),
    "sixteen": (nvidia(16),),
    "sixteen-untold": (nvidia(16, untold=range(16)),),
    "mig": (nvidia(3, mig=MIG),),
    "mig-known": (nvidia(3, mig=MIG, names=("MIG-aaaa", "0:1")),),
    "mig-one": (nvidia(1, mig={0: MIG[0][:1]}),),
    "mig-untold": (nvidia(1, mig={0: MIG[0]}, untold=(0,)),),
    "amd": (amd(4),),
    "amd-untold": (amd(3, untold=range(3)),),
    "amd-cgroup": (amd(5, hidden=(0, 4)),),
    "amd-parts": (amd_parts(2, 2),),
    "amd-parts-ids": (amd_parts(2, 2, same_ids=False),),
    "amd-backwards": (amd_parts(3, 1, backwards=True),),
    "both": both(),
    "intel": (intel(ARC, ARC, ARC),),
    "intel-models": (intel(INTEGRATED, ARC),),
    "gaudi": (gaudi(2),),
    "intel-tiles": (intel(MAX_1550, MAX_1550),),
}
