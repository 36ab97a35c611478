"""NVIDIA's and AMD's drivers: kernel module, GPUs and libraries."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename

from gpubind.files.ldconfig import LD_CACHE_PATH
from gpubind.formats.driver.kernel import parse_modules
from gpubind.formats.driver.liblist import library_stem
from gpubind.formats.driver.names import COMPANIONS, RUN_DIRECTORY, STUB_PREFIXES
from gpubind.host import Host
from gpubind.image.environment import DEFAULT_PATH
from gpubind.inventory.nodes import (
    NVIDIA_MODULE,
    NVIDIA_PCI_CLASS,
    PCI_DEVICES,
    devices_without_driver,
    pci_devices,
    pci_driver,
)
from gpubind.inventory.nvidia import inventory as nvidia
from gpubind.inventory.nvidia.devices import GPU_NODE, PROC_GPUS
from gpubind.inventory.nvidia.inventory import NOUVEAU, unusable_library_facts
from gpubind.inventory.search import LD_CACHE, ldconfig_command
from gpubind.model import ContainerPath, Decision, Finding, Severity, active_cases, finding, with_count
from gpubind.model.capability import Chip, Refusal, chip_of
from gpubind.model.cuda import branch_of
from gpubind.model.files import ABSENT
from gpubind.model.layouts import STANDARD_PROGRAMS, program_directories_of
from gpubind.model.vendors import AMD_MODULE
from gpubind.rules.preflight import Preflight

NVML, SMI = "libnvidia-ml.so.1", "nvidia-smi"
DAMAGE_RULES = ("zero-byte", "truncated-elf", "not-elf", "unreadable")
"""The rules of Decisions that reject a damaged library. A linker script is not damaged."""


def nouveau(preflight: Preflight) -> Iterator[Finding]:
    """Report that nouveau took NVIDIA's GPUs at boot and NVIDIA's module is not loaded, unless the plan has that
    finding.
    """
    host = preflight.host
    if preflight.is_nvidias and host.dev.has(NOUVEAU) and not _module_is_loaded(host):
        finding = nvidia.nouveau_finding(host)
        yield from () if finding in preflight.plan.findings else (finding,)


def gpu_without_driver(preflight: Preflight) -> Iterator[Finding]:
    """Report the NVIDIA GPUs on the PCI bus if neither NVIDIA's kernel module nor nouveau is loaded."""
    host = preflight.host
    if not preflight.is_nvidias or _module_is_loaded(host) or host.dev.has(NOUVEAU):
        return
    addresses = pci_devices(host, *NVIDIA_PCI_CLASS)
    if addresses:
        from gpubind.formats.driver.mknod import load_command

        drivers = ((address, pci_driver(host, address)) for address in addresses)  # vfio-pci: a virtual machine has it
        bound = ((address, f" (bound to {driver})" if isinstance(driver, str) else "") for address, driver in drivers)
        where = ", ".join(f"{PCI_DEVICES}/{address}{driver}" for address, driver in bound)
        gpus, load = with_count(len(addresses), "NVIDIA GPU"), load_command(len(addresses))
        yield finding("gpu-without-driver", subject=addresses[0], where=where, gpus=gpus, load=load)


def gpu_unsupported(preflight: Preflight) -> Iterator[Finding]:
    """Report GPUs that this driver does not support and to which no kernel driver, or only nouveau, is bound.

    The loaded driver takes precedence over the table of chips: it supports each GPU that it lists.
    """
    host, driver = preflight.host, preflight.driver
    if not preflight.is_nvidias or driver is None or driver.kind != "linux" or driver.version is None:
        return
    modules = parse_modules(host.dev.text("/proc/driver/nvidia/version") or "")
    addresses = pci_devices(host, *NVIDIA_PCI_CLASS)
    refused: dict[tuple[Chip, Refusal], list[str]] = {}
    for address in addresses:
        is_left = not host.dev.has(f"{PROC_GPUS}/{address}") and pci_driver(host, address) in (ABSENT, "nouveau")
        chip = chip_of(host.dev.text(f"{PCI_DEVICES}/{address}/device") or "") if is_left else None
        why = chip.refusal(driver.version, modules) if chip is not None else None
        if chip is not None and why is not None:
            refused.setdefault((chip, why), []).append(address)
    others = len(addresses) - sum(map(len, refused.values()))
    is_last = not others and not any(gpu.vendor == "nvidia" for gpu in preflight.plan.gpus)
    for (chip, why), ours in refused.items():
        yield finding(
            "gpu-unsupported",
            subject=", ".join(ours),
            case=why,
            severity="error" if is_last else "note",
            where=", ".join(f"{PCI_DEVICES}/{address}/device" for address in ours),
            version=driver.version,
            gpus=with_count(len(ours), "GPU"),
            chip=chip.title,
            branch=chip.last if why == "driver-too-new" else chip.first,
        )


def _module_is_loaded(host: Host) -> bool:
    """Return whether NVIDIA's module is loaded. A container may hide the module in /sys/module but show it in /proc."""
    return host.dev.has(NVIDIA_MODULE) or host.dev.has("/proc/driver/nvidia/version")


def gpu_unserved(preflight: Preflight) -> Iterator[Finding]:
    """Report each GPU to which no driver of its vendor is bound, and each AMD GPU that KFD does not list."""
    yield from _unserved_by_nvidia(preflight)
    if "amd" in preflight.vendors:
        yield from _unserved_by_amd(preflight)


def _unserved_by_nvidia(preflight: Preflight) -> Iterator[Finding]:
    """Report the NVIDIA GPUs that the driver has not taken. If it has taken none at all, another rule reports that."""
    if not preflight.has_linux_driver or not preflight.gpus:
        return
    reported = {address for unsupported in gpu_unsupported(preflight) for address in unsupported.subject.split(", ")}
    for address in devices_without_driver(preflight.host, *NVIDIA_PCI_CLASS):
        if address not in reported and not preflight.host.dev.has(f"{PROC_GPUS}/{address}"):
            where = f"{PCI_DEVICES}/{address}, {PROC_GPUS}"
            yield finding("gpu-unserved", subject=address, vendor="nvidia", severity="warning", where=where, name="GPU")


def _unserved_by_amd(preflight: Preflight) -> Iterator[Finding]:
    """Report each GPU of AMD that no ROCm program can use.

    It is an error if the plan has no other GPU. Otherwise it is a note if another driver has the GPU, or if KFD does
    not list it and it is not known to be made for computing; else a warning. KFD lists all GPUs that are made for
    computing, but not all graphics cards.
    """
    from gpubind.inventory.amd.devices import TOPOLOGY, read_unusable  # most hosts have no GPU of AMD's

    others = preflight.plan.gpus
    for address, name, why in read_unusable(preflight.host):
        usual: Severity = "note" if why == "other-driver" else "warning"
        beside = [gpu.model or "" for gpu in others if gpu.pci != address]
        is_supported = name is not None and ("Instinct" in name or any(model.startswith(name) for model in beside))
        if why == "not-in-kfd" and beside and not is_supported:
            usual = "note"
        yield finding(
            "gpu-unserved",
            subject=address,
            vendor="amd",
            case=("amd", why),
            severity=usual if others else "error",
            where=f"{PCI_DEVICES}/{address}, {TOPOLOGY}",
            name=name or "GPU",
            driver=pci_driver(preflight.host, address),
        )


def no_gpu(preflight: Preflight) -> Iterator[Finding]:
    """Report a loaded kernel module without a GPU. The GPU fell off the bus, is given away, or is not supported by the
    driver.
    """
    yield from _no_gpu_of_amd(preflight)
    if not preflight.has_linux_driver or not preflight.host.dev.has_nothing_in(PROC_GPUS):
        return
    if not any(GPU_NODE.fullmatch(node.target[len("/dev/") :]) for node in preflight.plan.devices):
        yield finding("no-gpu", vendor="nvidia", subject="nvidia", where=f"{PROC_GPUS} is empty, no /dev/nvidia0")


def _no_gpu_of_amd(preflight: Preflight) -> Iterator[Finding]:
    """Report that amdgpu has no GPU, if the plan has no other GPU. `gpu-unserved` reports a GPU that is on the bus."""
    plan, host = preflight.plan, preflight.host
    drivers = [(planned.driver.vendor, planned.driver.kind) for planned in plan.drivers]
    if ("amd", "linux") not in drivers or plan.gpus or not host.dev.has(AMD_MODULE):
        return
    from gpubind.inventory.amd.devices import TOPOLOGY, read_topology, read_unusable  # most hosts have no GPU of AMD's

    if not read_topology(host).hidden and not any(read_unusable(host)):
        yield finding("no-gpu", case="amd", vendor="amd", subject="amdgpu", where=f"{TOPOLOGY}, {PCI_DEVICES}")


def no_nvml(preflight: Preflight) -> Iterator[Finding]:
    """Report that CUDA's driver library is there without NVML, which distributions package separately.

    Without NVML, nvidia-smi and every monitor fail.
    """
    names = preflight.libraries
    about = [decision for decision in preflight.plan.decisions if decision.subject == NVML]
    # Another finding reports a library that was left out.
    left_out = any(decision.verdict == "left-out" for decision in about)
    is_jetson = preflight.driver is not None and preflight.driver.kind == "tegra"  # Jetson has no NVML before JetPack 6
    if preflight.wants("utility") and not is_jetson and "libcuda.so.1" in names and NVML not in names and not left_out:
        refused = unusable_library_facts(preflight.host, preflight.plan.decisions, NVML)
        is_damaged = refused is not None and any(decision.rule in DAMAGE_RULES for decision in about)
        severity: Severity = "error" if is_damaged or preflight.wants_by_name("utility") else "warning"
        facts = refused or {"case": "absent", "where": names["libcuda.so.1"]}
        yield finding("no-nvml", subject=NVML, severity=severity, **facts)


def nvidia_smi_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report that nvidia-smi was found neither on the host nor in the image."""
    is_absent = any(decision.subject == SMI and decision.verdict == "absent" for decision in preflight.plan.decisions)
    image = preflight.image if preflight.has_image else None
    if is_absent and preflight.wants("utility") and NVML in preflight.libraries:
        if image is not None and any(image.tree.has(f"{place}/{SMI}") for place in DEFAULT_PATH.split(":")):
            return
        beside = (place for directory in preflight.driver_directories for place in program_directories_of(directory))
        places = dict.fromkeys((*STANDARD_PROGRAMS, *beside, "PATH"))
        severity: Severity = "warning" if preflight.wants_by_name("utility") else "note"
        yield finding("nvidia-smi-missing", subject=SMI, severity=severity, where=", ".join(places))


def stub_libcuda(preflight: Preflight) -> Iterator[Finding]:
    """Report a libcuda or NVML that is not the driver's: a stub or a compat library.

    gpubind ignores it, but other programs load it if it is in the ld cache.
    """
    rejected: dict[str, Decision] = {}
    for decision in preflight.plan.decisions:
        is_replacement = decision.rule in ("stub", "cuda-compat") and decision.subject.startswith(STUB_PREFIXES)
        if is_replacement and decision.path and (decision.found_by == LD_CACHE or decision.path not in rejected):
            rejected[decision.path] = decision
    for path, decision in rejected.items():
        cached = decision.found_by == LD_CACHE
        yield finding(
            "stub-libcuda",
            subject=path,
            case=active_cases((decision.rule, True), ("cached", cached)),
            severity="warning" if cached else "note",
            where=f"{path} ({decision.rule})",
            offered_by=decision.found_by,
            library=decision.subject,
        )


def stale_ldcache(preflight: Preflight) -> Iterator[Finding]:
    """Report dangling entries of the ld cache: the driver was changed, and ldconfig was not run after that."""
    gone = [d for d in preflight.plan.decisions if d.rule == "dangling" and d.found_by == LD_CACHE]
    if gone:
        root = preflight.host.driver.root
        where = f"{root.rstrip('/')}{LD_CACHE_PATH}: " + ", ".join(str(decision.path) for decision in gone[:5])
        files = with_count(len(gone), "driver file")
        yield finding("stale-ldcache", subject=LD_CACHE_PATH, where=where, files=files, ldconfig=ldconfig_command(root))


def name_collision(preflight: Preflight) -> Iterator[Finding]:
    """Report two files of the host that have the same path in the container: gpubind binds the first and leaves out the
    other.
    """
    if preflight.plan.request.like is not None:
        return  # like-collision reports it
    sources = {mount.target: mount.source or "" for mount in preflight.plan.mounts}
    lost = [
        decision
        for decision in preflight.plan.decisions
        if decision.rule == "collision"
        and decision.vendor == "nvidia"
        # A file that two sources name is in the plan once, and nothing is lost.
        and not sources.get(ContainerPath(decision.target or ""), "").endswith(decision.path or decision.subject)
    ]
    if lost:
        yield finding(
            "name-collision",
            subject=lost[0].target or lost[0].subject,
            severity="error" if any(decision.subject == "libcuda.so.1" for decision in lost) else "warning",
            where=", ".join(f"{decision.path} ({decision.target}: {decision.detail})" for decision in lost[:5]),
            files=with_count(len(lost), "file"),
        )


def gpu_uninitialised(preflight: Preflight) -> Iterator[Finding]:
    """Report GPUs whose UUID is shown as `GPU-????????`: nothing has used them since their driver was loaded
    (nv-procfs.c).
    """
    # `gpu-unreadable` reports a GPU without a model.
    gpus = [gpu for gpu in preflight.gpus if gpu.uuid is None and gpu.pci and gpu.model]
    if gpus and preflight.has_linux_driver:
        subject = ", ".join(str(gpu.pci) for gpu in gpus)
        where = f"{PROC_GPUS}/{gpus[0].pci}/information (GPU UUID)"
        yield finding("gpu-uninitialised", subject=subject, where=where, gpus=with_count(len(gpus), "GPU"))


def gpu_excluded(preflight: Preflight) -> Iterator[Finding]:
    """Report each GPU with `GPU Excluded: Yes`: the administrator keeps the driver from using it
    (NVreg_ExcludedGpus).
    """
    gpus = [gpu for gpu in preflight.plan.gpus if gpu.vendor == "nvidia"]
    last = all(gpu.index is None for gpu in gpus)
    for gpu in gpus:
        if gpu.index is None:
            yield finding(
                "gpu-excluded",
                subject=gpu.uuid or gpu.pci or "GPU",
                case="last" if last else None,
                severity="error" if last else "note",
                where=f"{PROC_GPUS}/{gpu.pci}/information (GPU Excluded: Yes)",
                pci=gpu.pci,
            )


def companion_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report that the plan has a library but not the library that it opens by name at run time."""
    names = {basename(mount.target) for mount in preflight.plan.mounts}
    version = preflight.driver.version if preflight.driver is not None else None
    if version is None:
        return
    branch = branch_of(version)
    rejected = (decision for decision in preflight.plan.decisions if decision.verdict == "rejected")
    # Another finding reports damaged libraries.
    damaged = {library_stem(decision.subject) for decision in rejected if decision.rule in DAMAGE_RULES}
    for companion in COMPANIONS:
        due = companion.since <= branch <= (companion.until or branch)
        is_there = library_stem(companion.name) in damaged or any(name.startswith(companion.name) for name in names)
        if due and companion.library in names and not is_there:
            yield finding(
                "companion-missing",
                subject=companion.name + (version if companion.name.endswith(".so.") else ""),
                case=companion.name,
                severity=companion.severity,
                where=preflight.looked_in(RUN_DIRECTORY[companion.name]) if companion.name in RUN_DIRECTORY else None,
                library=companion.library,
            )
