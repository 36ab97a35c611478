"""Forward compatibility: does a container use the libcuda of CUDA's compat package in its image, or the host's?

A compat libcuda serves a newer CUDA on an older kernel module. It must be made for that module, and the GPU must take
part: data-centre GPUs do, consumer GPUs do not, and of others no file tells.

Sources: CUDA Compatibility guide (forward compatibility, errors 803 and 804); nvidia-container-toolkit 1.20, the hook
`enable-cuda-compat` (`cuda-elf-header.go`, `TestUseCompat`): with a note, the note lists the branch of the kernel
module and the compat driver is newer; without one, its branch is newer. That hook looks at no GPU and not at what the
image itself puts first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from gpubind.cuda import cuda_max, minor_compatible
from gpubind.formats.require import version_key
from gpubind.ldso.verdict import ImageFit
from gpubind.model import Decision, Driver, EnvVar, Gpu, ImageFacts, ImageLibrary, Request, Verdict
from gpubind.planner.placement import Layout
from gpubind.planner.reasons import unfit_text

RULE = "cuda-compat"
"""Of the variable."""
DECIDED = "forward-compatibility"
"""Of the Decisions."""

_CONSUMER = re.compile(r"\b(GeForce|TITAN)\b", re.IGNORECASE)
_WORKSTATION = re.compile(r"\b(Quadro|RTX|NVS|GTX)\b", re.IGNORECASE)
_DATA_CENTRE = re.compile(r"\b(Tesla|DGX|Server Edition|[ABHLPV][0-9]{1,3}[A-Z]{0,2}|T[0-9]{1,2}|G[BH][0-9]{2,3})\b")
_PLAIN_DIRECTORY = re.compile(r"/[A-Za-z0-9._+/-]+")

_MISMATCH = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver / cuda driver combination"
_NOT_ON_DEVICE = (
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804): forward compatibility was attempted on non supported HW"
)


class Node(NamedTuple):
    """What forward compatibility meets on a host."""

    driver: str
    """Version of the kernel module."""
    serves: Optional[str]
    """The newest CUDA version that the host's libcuda serves by itself; None if that is not known."""
    models: tuple[str, ...]
    """The models of NVIDIA's GPUs, as far as they are known."""


def node_of(driver: Driver, gpus: Iterable[Gpu], serves: Optional[str]) -> Optional[Node]:
    """What forward compatibility meets with *driver* and those of *gpus* that the container gets.

    *serves* is what the host's libcuda says of itself, None if it says nothing. The result is None where there is no
    driver for Linux of a known version: WSL and Tegra have ways of their own.
    """
    version = driver.kernel_version or driver.version
    if driver.vendor != "nvidia" or driver.kind != "linux" or version is None:
        return None
    models = tuple(gpu.model for gpu in gpus if gpu.vendor == "nvidia" and gpu.chosen and gpu.model)
    return Node(version, serves or driver.cuda_max, models)


def cuda_compat(
    request: Request, node: Optional[Node], fit: ImageFit, layout: Layout
) -> tuple[tuple[EnvVar, ...], tuple[Decision, ...]]:
    """Which compat libcuda of the image comes before the host's libcuda, if any, and a Decision about each."""
    if node is None:
        return (), ()
    if not fit.facts.compat and request.cuda_compat == "image":
        return (), (_decision(None, "absent", "the image has no compat libcuda"),)
    env: list[EnvVar] = []
    decisions = []
    for library, taken, why in _judged(request, node, fit):
        if taken and layout.searched and not _puts_first(fit.facts, library):
            taken, why = False, "this layout adds to no search path: set LD_LIBRARY_PATH when the container is started"
        elif taken and not layout.searched:
            env.append(EnvVar("LD_LIBRARY_PATH", "prepend", _directory(library), ":", RULE))
        decisions.append(_decision(library, "taken" if taken else "left-out", why))
    return tuple(env), tuple(decisions)


def refusal(library: ImageLibrary, node: Node) -> Optional[str]:
    """The error that CUDA would give with *library* on *node*; None if files tell of none."""
    if library.version == node.driver:
        return None  # the driver's own libcuda, wherever it lies
    branch = int(node.driver.partition(".")[0])
    if library.note is not None and library.note.drivers:
        if branch not in library.note.drivers:
            drivers = ", ".join(map(str, library.note.drivers))
            return f"{_MISMATCH}; it is made for the drivers {drivers}, here is {branch}"
        if library.version is not None and version_key(library.version) < version_key(node.driver):
            return f"{_MISMATCH}; it is {library.version}, older than the host's {node.driver}"
    elif library.version is not None and int(library.version.partition(".")[0]) <= branch:
        return f"{_MISMATCH}; it is {library.version}, and the host's branch is {branch}"
    consumer = next((model for model in node.models if _CONSUMER.search(model)), None)
    return None if consumer is None else f"{_NOT_ON_DEVICE}; the GPU is a {consumer}"


def serves(library: ImageLibrary) -> Optional[str]:
    """The newest CUDA version that *library* serves, by its note or by its version; None if neither tells."""
    return library.note.cuda if library.note is not None else cuda_max(library.version)


def wanted_cuda(facts: ImageFacts) -> Optional[str]:
    """`12.6`: the CUDA that an image is for; None if nothing in it says so."""
    match = re.match(r"([0-9]{1,3}\.[0-9]{1,3})(\.|$)", facts.cuda or "")
    return match.group(1) if match else None


def is_newer(wanted: str, served: Optional[str]) -> bool:
    """Whether CUDA *wanted* is known to be newer than *served*."""
    return served is not None and version_key(wanted) > version_key(served)


def _judged(request: Request, node: Node, fit: ImageFit) -> Iterator[tuple[ImageLibrary, bool, str]]:
    """Each compat libcuda, whether the container uses it, and why: one at most. The image's own choice comes first."""
    wanted = wanted_cuda(fit.facts)

    def rank(library: ImageLibrary) -> tuple[bool, bool]:
        return not _puts_first(fit.facts, library), wanted is not None and is_newer(wanted, serves(library))

    found = False
    for library in sorted(fit.facts.compat, key=rank):
        taken, why = _judge(library, request, node, fit)
        yield (library, False, "another compat libcuda comes first") if taken and found else (library, taken, why)
        found = found or taken


def _judge(library: ImageLibrary, request: Request, node: Node, fit: ImageFit) -> tuple[bool, str]:
    if request.cuda_compat == "host":
        return False, "the host's libcuda was asked for"
    if not _PLAIN_DIRECTORY.fullmatch(_directory(library)):
        return False, "its directory has a name that LD_LIBRARY_PATH cannot hold"
    if request.cuda_compat == "image":
        return True, "it was asked for"
    unfit = fit.unfit_compat.get(library.path)
    why = unfit_text(unfit) if unfit is not None else refusal(library, node) or _no_gain(library, node)
    if why is not None:
        return False, why
    if _puts_first(fit.facts, library):
        return True, "the image's own LD_LIBRARY_PATH puts it first, and nothing tells that it does not fit"
    if library.note is None and library.version is None:
        return False, "neither its note nor its name tells which drivers it is for"
    return _helps(fit.facts, node)


def _no_gain(library: ImageLibrary, node: Node) -> Optional[str]:
    """Why *library* has nothing that the host's libcuda has not; None if it may have."""
    if library.version == node.driver:
        return "it is of the host driver's own version"
    served = serves(library)
    if library.version is None and served is not None and not is_newer(served, node.serves):
        return f"it serves CUDA {served}, the host's libcuda {node.serves or 'an unknown one'}"
    return None


def _helps(facts: ImageFacts, node: Node) -> tuple[bool, str]:
    """Whether a compat libcuda that fits, and that the image does not put first, should come first.

    With a CUDA of the driver's own major version the host's libcuda runs the image. On a GPU that takes no part in
    forward compatibility that would be lost: so the GPU must be known to take part.
    """
    wanted = wanted_cuda(facts)
    if wanted is None:
        return False, "the image does not say which CUDA it is for, and does not put it first"
    if not is_newer(wanted, node.serves):
        return False, f"the image is for CUDA {wanted}, the driver serves {node.serves or 'an unknown one'}"
    other = [model for model in node.models or ("unknown",) if not _is_data_centre(model)]
    if other and minor_compatible(node.driver, wanted):
        return False, (
            f"the host's libcuda runs CUDA {wanted} by minor-version compatibility, and whether the GPU ({other[0]}) "
            "takes part in forward compatibility is not known"
        )
    return True, f"the image is for CUDA {wanted}, the driver serves {node.serves}"


def _is_data_centre(model: str) -> bool:
    return bool(_DATA_CENTRE.search(model)) and ("Server Edition" in model or not _WORKSTATION.search(model))


def _puts_first(facts: ImageFacts, library: ImageLibrary) -> bool:
    """Whether the image's own LD_LIBRARY_PATH leads to *library*, as far as that is known."""
    return library.path == facts.own_libcuda and "LD_LIBRARY_PATH" not in facts.undecided


def _directory(library: ImageLibrary) -> str:
    return library.path.rpartition("/")[0]


def _decision(library: Optional[ImageLibrary], verdict: Verdict, why: str) -> Decision:
    path = None if library is None else library.path
    return Decision(
        vendor="nvidia",
        subject="libcuda.so.1",
        verdict=verdict,
        rule=DECIDED,
        step="place",
        named_by="image",
        path=path,
        detail=why,
    )
