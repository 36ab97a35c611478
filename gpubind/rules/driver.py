"""The driver itself: its kernel module, its GPUs, its libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

from gpubind.findings import finding
from gpubind.formats.stub import STUBBED
from gpubind.model import ContainerPath, Decision, Finding
from gpubind.rules.looking import (
    PCI_DEVICES,
    ask,
    counted,
    gpus_in_use,
    is_linux_driver,
    is_there,
    is_wanted,
    is_wanted_by_name,
    library_mounts,
    module_is_loaded,
    pci_gpus,
    surely_empty,
)
from gpubind.rules.preflight import Preflight
from gpubind.sources.nvidia.gpus import PROC_GPUS
from gpubind.sources.search import LD_CACHE
from gpubind.tree.ldcache import LD_CACHE_PATH

NOUVEAU = "/sys/module/nouveau"
NVML = "libnvidia-ml.so.1"
_GPU_NODE = re.compile(r"/dev/nvidia[0-9]+")


def nouveau(preflight: Preflight) -> Iterator[Finding]:
    """The kernel's own driver took the GPU at boot; only one of the two can have it."""
    if is_there(preflight.host.dev, NOUVEAU) and not module_is_loaded(preflight.host):
        yield finding("nouveau", subject="nouveau", where=", ".join((NOUVEAU, *pci_gpus(preflight.host))))


def gpu_without_driver(preflight: Preflight) -> Iterator[Finding]:
    """A GPU on the PCI bus that NVIDIA's driver does not serve: the driver is missing, not the hardware."""
    host = preflight.host
    if module_is_loaded(host) or is_there(host.dev, NOUVEAU):
        return
    addresses = pci_gpus(host)
    if addresses:
        where = ", ".join(f"{PCI_DEVICES}/{address}{_bound_to(preflight, address)}" for address in addresses)
        gpus = counted(len(addresses), "NVIDIA GPU")
        yield finding("gpu-without-driver", subject=addresses[0], where=where, gpus=gpus)


def _bound_to(preflight: Preflight, address: str) -> str:
    """The kernel driver that has a PCI device, such as vfio-pci where it is given to a virtual machine."""
    link = ask(preflight.host.dev.readlink, f"{PCI_DEVICES}/{address}/driver")
    return f" (bound to {link.rpartition('/')[2]})" if isinstance(link, str) else ""


def no_gpu(preflight: Preflight) -> Iterator[Finding]:
    """The module is loaded and has no GPU: it fell off the bus, is given away, or is too new or old for the driver."""
    plan = preflight.plan
    if not is_linux_driver(plan) or not surely_empty(preflight.host.dev, PROC_GPUS):
        return
    if not any(_GPU_NODE.fullmatch(node.target) for node in plan.devices):
        yield Finding(
            "no-gpu",
            "error",
            "nvidia",
            "nvidia",
            "the NVIDIA driver is loaded, but it has no GPU",
            f"{PROC_GPUS} is empty, no /dev/nvidia0",
            "nvidia-smi will say `No devices were found`, CUDA answers 100 (CUDA_ERROR_NO_DEVICE)",
            "look into the kernel's log for NVRM messages: the GPU fell off the bus, is another's, or is not supported "
            "by this driver; on a login node this is expected",
            "dmesg | grep -e NVRM -e Xid",
        )


def no_nvml(preflight: Preflight) -> Iterator[Finding]:
    """CUDA without NVML: nvidia-smi and every monitor fail; distributions put it into a package of its own."""
    plan = preflight.plan
    names = library_mounts(plan)
    # A library that was found and left out has its own finding, which says why.
    left_out = any(decision.subject == NVML and decision.verdict == "left-out" for decision in plan.decisions)
    if is_wanted(plan, "utility") and "libcuda.so.1" in names and NVML not in names and not left_out:
        yield Finding(
            "no-nvml",
            "error" if is_wanted_by_name(plan, "utility") else "warning",
            "nvidia",
            NVML,
            f"the driver's libraries are here, but {NVML} is not",
            names["libcuda.so.1"],
            "nvidia-smi will say `NVIDIA-SMI couldn't find libnvidia-ml.so library in your system`, others "
            "NVML_ERROR_LIBRARY_NOT_FOUND (12)",
            "install the driver's package with NVML (libnvidia-ml1, nvidia-driver-NVML, nvidia-driver-cuda-libs)",
        )


_STAND_INS = {
    "stub": "a program that finds it gets CUDA_ERROR_STUB_LIBRARY (34), `CUDA driver is a stub library`, or from NVML "
    "NVML_ERROR_DRIVER_NOT_LOADED (9)",
    "cuda-compat": "beside another kernel module it gives CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803), or on a GPU that "
    "it is not for CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)",
}


def stub_libcuda(preflight: Preflight) -> Iterator[Finding]:
    """A libcuda or NVML that is not the driver's: passed over here, but other programs take what the cache offers."""
    rejected: dict[str, Decision] = {}
    for decision in preflight.plan.decisions:
        is_stand_in = decision.rule in _STAND_INS and decision.subject.startswith(STUBBED)
        if is_stand_in and decision.path and (decision.found_by == LD_CACHE or decision.path not in rejected):
            rejected[decision.path] = decision
    for path, decision in rejected.items():
        cached = decision.found_by == LD_CACHE
        yield Finding(
            "stub-libcuda",
            "warning" if cached else "note",
            "nvidia",
            path,
            f"{decision.found_by} offers a {decision.subject} that is not the driver's; it is passed over",
            f"{path} ({decision.rule})",
            _STAND_INS[decision.rule],
            "remove it, or take its directory out of /etc/ld.so.conf.d, and run `ldconfig` as root"
            if cached
            else "keep its directory out of LD_LIBRARY_PATH; gpubind does not use it",
        )


def stale_ldcache(preflight: Preflight) -> Iterator[Finding]:
    """Entries of the ld cache that lead nowhere: the driver was changed, and ldconfig has not run since."""
    gone = [d for d in preflight.plan.decisions if d.rule == "dangling" and d.found_by == LD_CACHE]
    if gone:
        root = preflight.host.driver.root
        yield Finding(
            "stale-ldcache",
            "warning",
            "nvidia",
            LD_CACHE_PATH,
            f"the ld cache leads nowhere for {counted(len(gone), 'driver file')}",
            f"{root.rstrip('/')}{LD_CACHE_PATH}: " + ", ".join(str(decision.path) for decision in gone[:5]),
            "programs on the host, and tools that go by the cache alone, will say `cannot open shared object file: No "
            "such file or directory`; gpubind looks into the driver's directories, too",
            "make the cache anew, as root",
            "ldconfig" if root == "/" else f"ldconfig -r {quote(root)}",
        )


def name_collision(preflight: Preflight) -> Iterator[Finding]:
    """Two files of the host for one place in the container: the first is bound, the other is lost."""
    if preflight.plan.request.like is not None:
        return  # what the imitated program does then is a finding of its own
    there = {mount.target: mount.source or "" for mount in preflight.plan.mounts}
    lost = [
        decision
        for decision in preflight.plan.decisions
        if decision.rule == "collision"
        and decision.vendor == "nvidia"
        # A file that two sources name is there once, and nothing is lost.
        and not there.get(ContainerPath(decision.target or ""), "").endswith(decision.path or decision.subject)
    ]
    if lost:
        yield Finding(
            "name-collision",
            "error" if any(decision.subject == "libcuda.so.1" for decision in lost) else "warning",
            "nvidia",
            lost[0].target or lost[0].subject,
            f"{counted(len(lost), 'file')} of the host are left out: their places in the container are taken",
            ", ".join(f"{decision.path} ({decision.target}: {decision.detail})" for decision in lost[:5]),
            "a container has one file of a name; which of the two a program needs cannot be told from here",
            "take one of the two out of the list, or give --libdir another directory than that of the 32-bit libraries",
        )


def gpu_uninitialised(preflight: Preflight) -> Iterator[Finding]:
    """`GPU UUID: GPU-????????`: nothing has used the GPU since its driver was loaded (nv-procfs.c)."""
    # One without a model has told nothing at all: `gpu-unreadable`.
    gpus = [gpu for gpu in gpus_in_use(preflight.plan) if gpu.uuid is None and gpu.pci and gpu.model]
    if gpus and is_linux_driver(preflight.plan):
        yield Finding(
            "gpu-uninitialised",
            "note",
            "nvidia",
            ", ".join(str(gpu.pci) for gpu in gpus),
            f"the driver does not know the UUID of {counted(len(gpus), 'GPU')} yet: unused since it was loaded",
            f"{PROC_GPUS}/{gpus[0].pci}/information (GPU UUID)",
            "the first use takes seconds for each GPU, and until then no GPU can be named by its UUID",
            "use the GPUs once on the host, or let nvidia-persistenced keep them ready",
            "nvidia-smi -L",
        )


def gpu_excluded(preflight: Preflight) -> Iterator[Finding]:
    """`GPU Excluded: Yes`: the administrator keeps the driver from using it (NVreg_ExcludedGpus)."""
    gpus = [gpu for gpu in preflight.plan.gpus if gpu.vendor == "nvidia"]
    for gpu in gpus:
        if gpu.index is None:
            last = all(other.index is None for other in gpus)
            yield Finding(
                "gpu-excluded",
                "error" if last else "note",
                "nvidia",
                gpu.uuid or gpu.pci or "GPU",
                f"the GPU at {gpu.pci} is excluded from use" + (", and there is no other" if last else ""),
                f"{PROC_GPUS}/{gpu.pci}/information (GPU Excluded: Yes)",
                "CUDA and NVML do not list it; alone, CUDA answers 100 (CUDA_ERROR_NO_DEVICE)",
                "if it should be used: take it out of NVreg_ExcludedGpus and load the driver again",
                "grep -r NVreg_ExcludedGpus /etc/modprobe.d",
            )
