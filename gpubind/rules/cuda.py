"""Rules about CUDA versions: what the image was built for, what the driver can do, and what stands between.

Sources: CUDA Compatibility guide (minor-version and forward compatibility, errors 803 and 804); libcuda's note
`.note.cuda.fwd_compatibility`; CUDA Toolkit release notes for the version table; nvidia-container-toolkit for the rule
by which a compat library is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from gpubind.errors import FormatError
from gpubind.formats.require import holds, parse_require, version_key
from gpubind.model import CudaNote, Finding, ImageLibrary, Missing
from gpubind.rules.looking import is_wanted, nvidia_driver
from gpubind.rules.preflight import Preflight
from gpubind.sources.cuda import minimum_driver

MINOR_COMPATIBLE = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""CUDA major version -> the oldest driver on which every toolkit of that major version runs."""

_CONSUMER = re.compile(r"\b(GeForce|TITAN)\b", re.IGNORECASE)
_FALSE = ("", "0", "false", "no", "f", "n")


class _Cuda(NamedTuple):
    driver: str
    """Version of the driver."""
    serves: str
    """The newest CUDA version that the driver serves by itself."""
    known_from: str


def cuda_too_new(preflight: Preflight) -> Iterator[Finding]:
    """The image's CUDA is newer than the driver serves, and no rule of compatibility bridges it."""
    wanted, cuda = _wanted(preflight), _cuda(preflight)
    if wanted is None or cuda is None or _serves(preflight, cuda, wanted) or _minor_compatible(cuda, wanted):
        return
    need = MINOR_COMPATIBLE.get(int(wanted.partition(".")[0])) or minimum_driver(wanted) or "a newer one"
    yield Finding(
        "cuda-too-new",
        "error",
        "nvidia",
        wanted,
        f"the image is for CUDA {wanted}, the driver {cuda.driver} serves up to {cuda.serves}",
        cuda.known_from,
        "CUDA driver version is insufficient for CUDA runtime version (cudaErrorInsufficientDriver, 35)",
        f"use an image for CUDA {cuda.serves} or older, a host with driver {need} or newer, or NVIDIA's cuda-compat "
        "package in the image, on data-centre GPUs",
    )


def cuda_minor_version(preflight: Preflight) -> Iterator[Finding]:
    """The image's CUDA is newer, but of a major version that this driver runs: all but some features work."""
    wanted, cuda = _wanted(preflight), _cuda(preflight)
    if wanted is None or cuda is None or _serves(preflight, cuda, wanted) or not _minor_compatible(cuda, wanted):
        return
    yield Finding(
        "cuda-minor-version",
        "note",
        "nvidia",
        wanted,
        f"the image is for CUDA {wanted}, the driver {cuda.driver} for {cuda.serves}: minor-version compatibility",
        cuda.known_from,
        "programs run, but PTX that is compiled at run time may be too new: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222), "
        "the provided PTX was compiled with an unsupported toolchain",
        f"build for the GPU's own architecture, or use driver {minimum_driver(wanted) or 'of that CUDA'} or newer",
    )


def require_unsatisfied(preflight: Preflight) -> Iterator[Finding]:
    """NVIDIA_REQUIRE_*: the image says itself that it will not run with this driver."""
    for name, value, answer, facts in _requirements(preflight):
        if answer is False:
            told = ", ".join(f"{key} {known}" for key, known in facts.items())
            yield Finding(
                "require-unsatisfied",
                "error",
                "nvidia",
                name,
                f"the image's {name} does not hold here: {told}",
                f"{name}={value[:400]}",
                "NVIDIA's container runtime would say: requirement error: unsatisfied condition, please update your "
                "driver to a newer version, or use an earlier cuda container",
                "use a host with a newer driver, or an older image; NVIDIA_DISABLE_REQUIRE=1 if you know better",
            )


def require_undecided(preflight: Preflight) -> Iterator[Finding]:
    """NVIDIA_REQUIRE_* that depends on what no file tells: the GPU's brand or architecture."""
    for name, value, answer, _ in _requirements(preflight):
        if answer is None:
            yield Finding(
                "require-undecided",
                "note",
                "nvidia",
                name,
                f"whether the image's {name} holds depends on the GPU's brand or architecture, which no file tells",
                f"{name}={value[:400]}",
                "if it does not, NVIDIA's container runtime says: requirement error: unsatisfied condition",
                "compare with `nvidia-smi --query-gpu=name,compute_cap --format=csv` on the node",
            )


def bad_require(preflight: Preflight) -> Iterator[Finding]:
    """NVIDIA_REQUIRE_* that is no expression."""
    assert preflight.image is not None
    for name, value in _expressions(preflight):
        try:
            parse_require(value)
        except FormatError as error:
            what = f"the image's {name} is no expression: {error.why}"
            why = "NVIDIA's container runtime would say: requirement error: invalid expression"
            hint = "write it in the image as `property operator value`, with commas for and, spaces for or"
            yield Finding("bad-require", "warning", "nvidia", name, what, f"{name}={value[:400]}", why, hint)


def compat_used(preflight: Preflight) -> Iterator[Finding]:
    """The image's forward-compatibility libcuda comes first, and the driver allows it."""
    library, cuda = _used_compat(preflight), _cuda(preflight)
    if library is None or cuda is None or _harm(preflight, library, cuda) is not None:
        return
    serves = f" (CUDA {library.note.cuda})" if library.note else ""
    yield Finding(
        "compat-used",
        "note",
        "nvidia",
        library.path,
        f"programs will use the image's forward-compatibility libcuda{serves} instead of the host's",
        library.path,
        "it works on data-centre GPUs and some RTX ones; elsewhere: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804), "
        "forward compatibility was attempted on non supported HW",
        "nothing, if that is meant; else take the compat directory out of the image's LD_LIBRARY_PATH",
    )


def compat_harmful(preflight: Preflight) -> Iterator[Finding]:
    """The image's forward-compatibility libcuda comes first, and cannot work with this kernel module or GPU."""
    library, cuda = _used_compat(preflight), _cuda(preflight)
    why = None if library is None or cuda is None else _harm(preflight, library, cuda)
    if library is None or why is None:
        return
    yield Finding(
        "compat-harmful",
        "error",
        "nvidia",
        library.path,
        "programs will use the image's forward-compatibility libcuda, which does not work here",
        library.path,
        why,
        "take the compat directory out of the image's LD_LIBRARY_PATH, so that the host's libcuda is used",
    )


def compat_ignored(preflight: Preflight) -> Iterator[Finding]:
    """A forward-compatibility libcuda in the image would help, but comes after the host's."""
    assert preflight.image is not None
    wanted, cuda = _wanted(preflight), _cuda(preflight)
    if wanted is None or cuda is None or _serves(preflight, cuda, wanted):
        return
    for library in preflight.image.facts.compat:
        if _harm(preflight, library, cuda) is None:
            directory = library.path.rpartition("/")[0]
            yield Finding(
                "compat-ignored",
                "warning",
                "nvidia",
                library.path,
                f"the image brings a forward-compatibility libcuda for CUDA {wanted}, but the host's comes first",
                library.path,
                "the job runs with the host's libcuda: unsupported PTX (222), or insufficient driver (35)",
                f"on a data-centre GPU, put {directory} first in the container's LD_LIBRARY_PATH yourself",
            )


def _requirements(preflight: Preflight) -> Iterator[tuple[str, str, Optional[bool], dict[str, str]]]:
    cuda = _cuda(preflight)
    assert preflight.image is not None
    if cuda is None or preflight.image.facts.env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in _FALSE:
        return
    used = _used_compat(preflight)
    serves = used.note.cuda if used is not None and used.note is not None else cuda.serves
    facts = {"cuda": serves, "driver": cuda.driver}
    for name, value in _expressions(preflight):
        try:
            requirement = parse_require(value)
        except FormatError:
            continue
        yield name, value, holds(requirement, facts), facts


def _expressions(preflight: Preflight) -> Iterator[tuple[str, str]]:
    assert preflight.image is not None
    for name, value in preflight.image.facts.env.items():
        if name.startswith("NVIDIA_REQUIRE_") and name != "NVIDIA_REQUIRE_JETPACK":
            yield name, value


def _wanted(preflight: Preflight) -> Optional[str]:
    """`12.6`: what the image is for; None if nothing in it says so."""
    assert preflight.image is not None
    match = re.match(r"([0-9]{1,3}\.[0-9]{1,3})(\.|$)", preflight.image.facts.cuda or "")
    return match.group(1) if match else None


def _cuda(preflight: Preflight) -> Optional[_Cuda]:
    """What the driver serves: by its libcuda's own note, else by the table of versions."""
    driver = nvidia_driver(preflight.plan)
    if driver is None or driver.version is None or driver.kind != "linux" or not is_wanted(preflight.plan, "compute"):
        return None
    note = _host_note(preflight)
    if note is not None:
        return _Cuda(driver.version, note.cuda, "the note in the host's libcuda")
    if driver.cuda_max is None:
        return None
    return _Cuda(driver.version, driver.cuda_max, f"CUDA's release notes for driver {driver.version}")


def _host_note(preflight: Preflight) -> Optional[CudaNote]:
    assert preflight.container is not None
    for mount in preflight.plan.mounts:
        if mount.soname == "libcuda.so.1" and mount.capability != "compat32":
            located = preflight.container.locate(mount.target)
            elf = Missing("absent") if located is None else located.tree.elf(located.at)
            return None if isinstance(elf, Missing) else elf.cuda_note
    return None


def _serves(preflight: Preflight, cuda: _Cuda, wanted: str) -> bool:
    """Whether the libcuda that programs will use serves *wanted*."""
    used = _used_compat(preflight)
    if used is not None and _harm(preflight, used, cuda) is None:
        return used.note is None or version_key(wanted) <= version_key(used.note.cuda)
    return version_key(wanted) <= version_key(cuda.serves)


def _minor_compatible(cuda: _Cuda, wanted: str) -> bool:
    floor = MINOR_COMPATIBLE.get(int(wanted.partition(".")[0]))
    return floor is not None and version_key(cuda.driver) >= version_key(floor)


def _used_compat(preflight: Preflight) -> Optional[ImageLibrary]:
    """The compat libcuda that a program in the container would open; None if it is another libcuda."""
    assert preflight.container is not None
    assert preflight.image is not None
    found = preflight.container.find("libcuda.so.1")
    if found is None or found.mount is not None:
        return None
    return next((library for library in preflight.image.facts.compat if library.path == found.at), None)


def _harm(preflight: Preflight, library: ImageLibrary, cuda: _Cuda) -> Optional[str]:
    """The error that a compat libcuda would meet here; None if it would work as far as files tell."""
    branch = int(cuda.driver.partition(".")[0])
    mismatch = (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver / cuda driver combination"
    )
    if library.note is not None:
        if branch not in library.note.drivers:
            drivers = ", ".join(map(str, library.note.drivers))
            return f"{mismatch}; it is made for the drivers {drivers}, here is {branch}"
        if version_key(library.note.cuda) <= version_key(cuda.serves):
            return f"{mismatch}; it serves CUDA {library.note.cuda}, no more than the host's {cuda.serves}"
    elif library.version is not None and int(library.version.partition(".")[0]) <= branch:
        return f"{mismatch}; it is {library.version}, no newer than the host's {cuda.driver}"
    consumer = [gpu.model for gpu in preflight.plan.gpus if gpu.model and _CONSUMER.search(gpu.model)]
    if consumer:
        return (
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804): forward compatibility was attempted on non supported HW; "
            f"the GPU is a {consumer[0]}"
        )
    return None
