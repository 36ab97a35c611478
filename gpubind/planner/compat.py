"""Forward compatibility: whether a container uses the libcuda of CUDA's compat package in its image, or the host's.

A compat libcuda serves a newer CUDA on an older kernel module. It must be made for that module, and the GPU must
support forward compatibility: data-centre GPUs do, consumer GPUs do not, and for others it is unknown.

Sources: CUDA Compatibility guide (forward compatibility, errors 803 and 804); nvidia-container-toolkit 1.20, the hook
`enable-cuda-compat` (`cuda-elf-header.go`, `TestUseCompat`). The hook uses a compat libcuda if its note lists the
branch of the kernel module and its driver is newer; without a note, if its branch is newer. The hook ignores the GPU
and the image's own search path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import dirname
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.image.cuda import needed_cuda
from gpubind.loader.verdict import ImageFit
from gpubind.model import Decision, Driver, EnvVar, Gpu, ImageFacts, ImageLibrary, Request, Verdict
from gpubind.model.cuda import (
    branch_of,
    compat_branches,
    is_minor_compatible,
    is_newer,
    minor_compatible_driver,
    supported_cuda,
    version_key,
)
from gpubind.planner.placement import Layout

ENV_RULE = "cuda-compat"
COMPAT_RULE = "forward-compatibility"
"""The rule of the Decisions."""

_PLAIN_DIRECTORY = re.compile(r"/[A-Za-z0-9._+/-]+")
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


def cuda_compat(
    request: Request, node: Optional[CompatHost], fit: ImageFit, layout: Layout
) -> tuple[tuple[EnvVar, ...], tuple[Decision, ...]]:
    """Return the variable that puts a compat libcuda of the image first, if any, and a Decision about each compat
    libcuda.
    """
    if node is None:
        return (), ()
    if not fit.facts.compat and request.cuda_compat == "image":
        return (), (_decision(None, "absent", "the image has no compat libcuda"),)
    env: list[EnvVar] = []
    decisions = []
    for library, is_taken, why in _judge_all(request, node, fit):
        is_fixed = layout.searched and not layout.adds_variables
        if is_taken and is_fixed and not _puts_first(fit.facts, library):
            is_taken = False
            why = "this layout adds to no search path: set LD_LIBRARY_PATH when the container is started"
        elif is_taken and not is_fixed:
            env.append(EnvVar("LD_LIBRARY_PATH", "prepend", dirname(library.path), ":", ENV_RULE))
        decisions.append(_decision(library, "taken" if is_taken else "left-out", why))
    return tuple(env), tuple(decisions)


def _judge_all(request: Request, node: CompatHost, fit: ImageFit) -> Iterator[tuple[ImageLibrary, bool, str]]:
    """Yield each compat libcuda, the image's choice first, whether the container uses it (one at most), and why."""
    cuda = needed_cuda(fit.facts.every_cuda)

    def rank(library: ImageLibrary) -> tuple[bool, bool]:
        return not _puts_first(fit.facts, library), cuda is not None and is_newer(cuda, supported_cuda(library))

    any_taken = False
    for library in sorted(fit.facts.compat, key=rank):
        is_taken, why = _judge(library, request, node, fit)
        if is_taken and any_taken:
            is_taken, why = False, "another compat libcuda comes first"
        yield library, is_taken, why
        any_taken = any_taken or is_taken


def _judge(library: ImageLibrary, request: Request, node: CompatHost, fit: ImageFit) -> tuple[bool, str]:
    if request.cuda_compat == "host":
        return False, "the host's libcuda was asked for"
    if not _PLAIN_DIRECTORY.fullmatch(dirname(library.path)):
        return False, "its directory has a name that LD_LIBRARY_PATH cannot hold"
    if request.cuda_compat == "image":
        return True, "it was asked for"
    unfit = fit.unfit_compat.get(library.path)
    why = unfit.message if unfit is not None else predicted_error(library, node) or _no_gain(library, node)
    if why is not None:
        return False, why
    if _puts_first(fit.facts, library):
        return True, "the image's own LD_LIBRARY_PATH puts it first, and nothing tells that it does not fit"
    if library.note is None and library.version is None:
        return False, "neither its note nor its name tells which drivers it is for"
    return _helps(fit.facts, node)


def _no_gain(library: ImageLibrary, node: CompatHost) -> Optional[str]:
    if library.version == node.driver:
        return "it is of the host driver's own version"
    served = supported_cuda(library)
    if library.version is None and served is not None and not is_newer(served, node.serves):
        return f"it serves CUDA {served}, the host's libcuda {node.serves or 'an unknown one'}"
    return None


def _helps(facts: ImageFacts, node: CompatHost) -> tuple[bool, str]:
    """Return whether a compat libcuda that fits, and that the image does not put first, should come first.

    The host's libcuda runs CUDA of the driver's own major version on every GPU. A compat libcuda would fail on GPUs
    without forward compatibility, so it replaces the host's only for GPUs that are known to support it.
    """
    cuda = needed_cuda(facts.every_cuda)
    if cuda is None:
        return False, "the image does not say which CUDA it is for, and does not put it first"
    if not is_newer(cuda, node.serves):
        return False, f"the image is for CUDA {cuda}, the driver serves {node.serves or 'an unknown one'}"
    other_models = [model for model in node.models or ("unknown",) if not is_data_centre(model)]
    if other_models and is_minor_compatible(node.driver, cuda):
        return False, (
            f"the host's libcuda runs CUDA {cuda} by minor-version compatibility, and whether the GPU "
            f"({other_models[0]}) takes part in forward compatibility is not known"
        )
    return True, f"the image is for CUDA {cuda}, the driver serves {node.serves}"


def _puts_first(facts: ImageFacts, library: ImageLibrary) -> bool:
    return library.path == facts.own_libcuda and "LD_LIBRARY_PATH" not in facts.undecided


def _decision(library: Optional[ImageLibrary], verdict: Verdict, why: str) -> Decision:
    path = None if library is None else library.path
    return Decision("nvidia", "libcuda.so.1", verdict, COMPAT_RULE, "place", named_by="image", path=path, detail=why)
