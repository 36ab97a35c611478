"""Intel's inventory of a host: its devices, and the user space of its GPUs.

The user space (Level Zero, the compute runtime, its compiler) is not tied to the kernel driver, i915 or xe. The list
claims the libraries that programs link or open by name; dependencies follow from DT_NEEDED.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.errors import NothingToBindError
from gpubind.host import Host, ListFile
from gpubind.inventory.claims import Claim
from gpubind.inventory.intel import devices as intel
from gpubind.inventory.intel.devices import GAUDI, GPU_DRIVERS, IntelDevices
from gpubind.inventory.liblist import NameTable, read_tables
from gpubind.inventory.locate import locate
from gpubind.inventory.needed import needed_files
from gpubind.inventory.nodes import driver_kind, inventory_fields
from gpubind.inventory.search import Search, existing_directories, read_cache
from gpubind.model import READ_ONLY_OPTIONS, Driver, HostFile, Inventory, Request, SourceUsed, architecture
from gpubind.model.files import ContainerPath, ResolvedFile
from gpubind.model.layouts import CONTAINER_LIBRARIES, DXG, library_directories
from gpubind.model.vendors import COMPUTE_RUNTIME, VENDOR_ROWS

NODES_ONLY = "not-asked"
"""The rule of Decisions that leave out the host's user space without a search."""
LIST_NAME = VENDOR_ROWS["intel"].list_name
BY_PATH = "/dev/dri/by-path"
"""Links to the nodes, with which oneCCL and MPICH find GPUs. Source: pmodels/mpich `src/mpl/src/gpu/mpl_gpu_ze.c`."""
_LINK_OPTIONS = (*READ_ONLY_OPTIONS, "noexec")
_DRIVER_SUBDIRECTORIES = ("", "intel-opencl")
"""Subdirectories of library directories with the OpenCL driver."""


def read_inventory(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Inventory:
    """Return Intel's devices on *host*, and everything of their user space that *request* may need.

    If *request* names no vendor, return only the devices: many processors have graphics, and most images do not use
    them. *listfile* overrides the list file in force. Errors: `NothingToBindError` without a usable device;
    `FormatError` for a malformed list file.
    """
    intel_devices = intel.read_devices(host)
    if not intel_devices.devices.nodes:
        raise _nothing_to_bind_error(host, intel_devices)
    listfile = listfile or host.liblist(LIST_NAME)
    in_force, shipped = read_tables(listfile, LIST_NAME)
    claims = in_force.claims("liblist", "intel", group=COMPUTE_RUNTIME.group)
    inventory = Inventory(
        driver=Driver("intel", None, False, _kernel(host), driver_kind(host), None, host.driver.root),
        source=SourceUsed("liblist", listfile.label),
        files=tuple(_by_path_directory(host)),
        **inventory_fields(intel_devices.devices, intel_devices.devices),
        decisions=intel_devices.devices.decisions,
        findings=intel_devices.devices.findings,
        devices_per_gpu=intel_devices.tiles,
    )
    if not request.vendors and request.userspace != "host":
        why = "the host's user space was not asked for: --intel, or --userspace host"
    elif request.userspace != "host" and _are_gaudis(intel_devices):
        why = "the host has no GPU that Level Zero lists: Gaudi has other software, which is the image's"
    else:
        why = ""
    if why:
        left_out = (claim.decision("left-out", NODES_ONLY, why, step="choice") for claim in claims)
        return inventory._replace(decisions=(*inventory.decisions, *left_out), devices_only=True)
    if not listfile.shipped:
        claims += shipped.claims("completion", "intel", not_in_list=True, group=COMPUTE_RUNTIME.group)
    return _with_userspace(inventory, host, request, shipped, claims)


def _are_gaudis(intel_devices: IntelDevices) -> bool:
    """Return whether all devices are Gaudi accelerators. Level Zero lists NPUs, but not these accelerators."""
    gpus, nodes = intel_devices.devices.gpus, intel_devices.devices.nodes
    return bool(gpus) and all(gpu.is_gaudi for gpu in gpus) and all(node.gpu is not None for node in nodes)


def _with_userspace(
    inventory: Inventory, host: Host, request: Request, shipped: NameTable, claims: tuple[Claim, ...]
) -> Inventory:
    """Return *inventory* with the files of the user space and their dependencies; none without a compute runtime."""
    cache, findings, decisions = read_cache(host.driver, "intel")
    places = (*CONTAINER_LIBRARIES, *library_directories(architecture(host.uname.machine).name), *request.library_path)
    first = existing_directories(host.driver, CONTAINER_LIBRARIES, below=("",))
    directories = existing_directories(host.driver, places, below=_DRIVER_SUBDIRECTORIES)
    search = Search(host, cache, directories, first=first)
    located = locate(search, shipped, claims)
    files = (*located.libraries, *located.files)
    if any(name in COMPUTE_RUNTIME.runtime_libraries for file in located.libraries for name in file.names):
        needed, more = needed_files(search, request, files, "intel", COMPUTE_RUNTIME.group)
        files = (*files, *needed)
    else:
        why = "this host has no Intel compute runtime that would need it"
        more = [file.decision(file.name, "left-out", "no-runtime", "search", detail=why) for file in files]
        files = ()
    return inventory._replace(
        searched=search.searched,
        files=(*files, *inventory.files),
        decisions=(*decisions, *located.decisions, *inventory.decisions, *more),
        findings=(*findings, *inventory.findings),
    )


def _nothing_to_bind_error(host: Host, intel_devices: IntelDevices) -> NothingToBindError:
    reasons = {"no-driver": "no kernel driver has it", "no-node": "/dev has no node of it"}
    unusable = "; ".join(
        f"{intel.read_name(host, address)} at {address}: {reasons[why]}" for address, why in intel_devices.unusable
    )
    names = [name for name in (*GPU_DRIVERS, *GAUDI) if not host.lenient.dev.has(f"/sys/module/{name}")]
    newer = "a newer kernel may know the device; " if intel_devices.unusable else ""
    load = f"load {' or '.join(names)}; " if names else ""
    hint = f"{load}{newer}the kernel log (`dmesg`) says why a driver does not take a device"
    if host.dev.has(DXG):
        hint = "in WSL, Intel's GPUs are not planned"
    return NothingToBindError(
        "nothing-to-bind",
        "no device of Intel's that a program could use",
        where=", ".join(f"{intel.DRIVERS}/{name}" for name in (*GPU_DRIVERS, *GAUDI)),
        why=unusable or "none of these drivers has a device",
        hint=hint,
    )


def _by_path_directory(host: Host) -> Iterator[HostFile]:
    # The links to nodes of other vendors dangle in a container with a minimal /dev.
    resolved = host.lenient.dev.find(BY_PATH)
    if isinstance(resolved, ResolvedFile) and resolved.stat.kind == "dir" and resolved.path.startswith("/dev/"):
        claim = Claim("file", BY_PATH, "devices", "/dev", "intel", target=ContainerPath(BY_PATH))
        yield claim.file(host.dev, resolved, kind="directory", found_by="/dev")._replace(options=_LINK_OPTIONS)


def _kernel(host: Host) -> Optional[str]:
    """Return the kernel drivers that are bound to a device: `xe, Linux 6.12`.

    Some have a version, such as Habana's own: `habanalabs 1.24.0-ee698fb`.
    """
    drivers = [name for name in (*GPU_DRIVERS, *GAUDI) if intel.addresses(host, (name,))]
    versions = [host.lenient.dev.text(f"/sys/module/{name}/version") for name in drivers]
    drivers = [f"{name} {version}" if version else name for name, version in zip(drivers, versions)]
    return ", ".join((*drivers, f"Linux {host.uname.release}")) if drivers else None
