"""Forward compatibility: on which kernel modules and GPUs the libcuda of CUDA's compat package works.

A compat libcuda serves a newer CUDA on an older kernel module. It must be made for that module, and the GPU must
support forward compatibility: data-centre GPUs do, consumer GPUs do not, and for others it is unknown.

Sources: CUDA Compatibility guide (forward compatibility, errors 803 and 804); nvidia-container-toolkit 1.20, the hook
`enable-cuda-compat` (`cuda-elf-header.go`, `TestUseCompat`): with a note, the note lists the branch of the kernel
module and the compat driver is newer; without one, its branch is newer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.model import Driver, Gpu, ImageLibrary
from gpubind.model.cuda import branch_of, compat_branches, cuda_max, minor_compatible_driver, version_key

_CONSUMER = re.compile(r"\b(GeForce|TITAN)\b", re.IGNORECASE)
_WORKSTATION = re.compile(r"\b(Quadro|RTX|NVS|GTX)\b", re.IGNORECASE)
_DATA_CENTRE = re.compile(r"\b(Tesla|DGX|Server Edition|[ABHLPV][0-9]{1,3}[A-Z]{0,2}|T[0-9]{1,2}|G[BH][0-9]{2,3})\b")

_MISMATCH = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver / cuda driver combination"
_NOT_ON_DEVICE = (
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804): forward compatibility was attempted on non supported HW"
)


class CompatHost(NamedTuple):
    """The facts of a host on which forward compatibility depends."""

    driver: str
    """The version of the kernel module."""
    serves: Optional[str]
    """The newest CUDA version that the host's libcuda serves by itself; None if unknown."""
    models: tuple[str, ...]
    """The known models of NVIDIA's GPUs."""


def compat_host(driver: Driver, gpus: Iterable[Gpu], serves: Optional[str]) -> Optional[CompatHost]:
    """Return the facts of *driver* and of those *gpus* that the container gets.

    *serves* is the CUDA version that the host's libcuda reports, if any. Return None without a Linux driver of a known
    version: WSL and Tegra work differently.
    """
    version = driver.kernel_version or driver.version
    if driver.vendor != "nvidia" or driver.kind != "linux" or version is None:
        return None
    models = tuple(gpu.model for gpu in gpus if gpu.vendor == "nvidia" and gpu.chosen and gpu.model)
    return CompatHost(version, serves or driver.cuda_max, models)


def predicted_error(library: ImageLibrary, node: CompatHost) -> Optional[str]:
    """Return the error that CUDA would report with *library* on *node*; None if none is known."""
    if library.version == node.driver:
        return None  # the driver's own libcuda, at whatever path
    branch = branch_of(node.driver)
    if library.note is not None and library.note.drivers:
        if branch not in library.note.drivers:
            drivers = ", ".join(map(str, library.note.drivers))
            return f"{_MISMATCH}; it is made for the drivers {drivers}, here is {branch}"
        if library.version is not None and version_key(library.version) < version_key(node.driver):
            return f"{_MISMATCH}; it is {library.version}, older than the host's {node.driver}"
    elif library.version is not None and branch_of(library.version) <= branch:
        return f"{_MISMATCH}; it is {library.version}, and the host's branch is {branch}"
    consumer = next((model for model in node.models if _CONSUMER.search(model)), None)
    return None if consumer is None else f"{_NOT_ON_DEVICE}; the GPU is a {consumer}"


def supported_cuda(library: ImageLibrary) -> Optional[str]:
    """Return the newest CUDA version that *library* serves, by its note, else by its version; None if unknown."""
    return library.note.cuda if library.note is not None else cuda_max(library.version)


def is_newer(version: str, served: Optional[str]) -> bool:
    """Return whether CUDA *version* is known to be newer than *served*."""
    return served is not None and version_key(version) > version_key(served)


def has_package(version: str, node: CompatHost, last: Optional[int] = None) -> bool:
    """Return whether NVIDIA provides a compat package for CUDA *version* for the driver and the known GPUs of *node*.

    *last* is the last driver branch that supports the GPUs, if there is one.
    """
    first = minor_compatible_driver(version)
    is_served = last is None or (first is not None and branch_of(first) <= last)
    in_time = branch_of(node.driver) in compat_branches(version)
    return is_served and in_time and not any(map(_is_of_desktop, node.models))


def is_data_centre(model: str) -> bool:
    """Return whether *model* is known to support forward compatibility."""
    return bool(_DATA_CENTRE.search(model)) and not _is_of_desktop(model)


def _is_of_desktop(model: str) -> bool:
    """Return whether *model* is for consumers or workstations; RTX for servers is not."""
    is_workstations = bool(_WORKSTATION.search(model)) and "Server Edition" not in model
    return is_workstations or bool(_CONSUMER.search(model))
