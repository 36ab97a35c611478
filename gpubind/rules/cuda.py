"""Rules about CUDA versions: what the image was built for, what the driver can do, and what stands between.

Sources: CUDA Compatibility guide (minor-version and forward compatibility, errors 803 and 804); libcuda's note
`.note.cuda.fwd_compatibility`; CUDA Toolkit release notes for the version table; nvidia-container-toolkit for the rule
by which a compat library is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Optional

from gpubind.cuda import minimum_driver, minor_compatible, minor_floor
from gpubind.errors import FormatError
from gpubind.formats.require import holds, parse_require
from gpubind.model import CudaNote, Finding, ImageLibrary, Missing
from gpubind.planner.compat import RULE, is_newer, node_of, refusal, serves, wanted_cuda
from gpubind.rules.looking import is_wanted, nvidia_driver
from gpubind.rules.preflight import Preflight

_FALSE = ("", "0", "false", "no", "f", "n")


class _Cuda(NamedTuple):
    name: str
    """The libcuda in the words of a finding: `the driver 550.163.01`."""
    driver: str
    """Its version."""
    serves: str
    """The newest CUDA version that it serves by itself."""
    known_from: str


def cuda_too_new(preflight: Preflight) -> Iterator[Finding]:
    """The image's CUDA is newer than its libcuda serves, and no rule of compatibility bridges it."""
    wanted, cuda = _wanted(preflight), _in_use(preflight)
    if wanted is None or cuda is None or not is_newer(wanted, cuda.serves) or minor_compatible(cuda.driver, wanted):
        return
    need = minor_floor(wanted) or minimum_driver(wanted) or "a newer one"
    yield Finding(
        "cuda-too-new",
        "error",
        "nvidia",
        wanted,
        f"the image is for CUDA {wanted}, {cuda.name} serves up to {cuda.serves}",
        cuda.known_from,
        "CUDA driver version is insufficient for CUDA runtime version (cudaErrorInsufficientDriver, 35)",
        f"use an image for CUDA {cuda.serves} or older, a host with driver {need} or newer, or {_bridge(preflight)}",
    )


def cuda_minor_version(preflight: Preflight) -> Iterator[Finding]:
    """The image's CUDA is newer, but of a major version that this driver runs: all but some features work."""
    wanted, cuda = _wanted(preflight), _in_use(preflight)
    if wanted is None or cuda is None or not is_newer(wanted, cuda.serves) or not minor_compatible(cuda.driver, wanted):
        return
    yield Finding(
        "cuda-minor-version",
        "note",
        "nvidia",
        wanted,
        f"the image is for CUDA {wanted}, {cuda.name} for {cuda.serves}: minor-version compatibility",
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
    library = _used_compat(preflight)
    if library is None or _cuda(preflight) is None or _harm(preflight, library) is not None:
        return
    served = serves(library)
    yield Finding(
        "compat-used",
        "note",
        "nvidia",
        library.path,
        f"programs will use the image's forward-compatibility libcuda{f' (CUDA {served})' if served else ''} instead "
        "of the host's",
        library.path,
        "it works on data-centre GPUs and some RTX ones; elsewhere: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804), "
        "forward compatibility was attempted on non supported HW",
        f"nothing, if that is meant; else {_the_hosts_first(preflight)}",
    )


def compat_harmful(preflight: Preflight) -> Iterator[Finding]:
    """The image's forward-compatibility libcuda comes first, and cannot work with this kernel module or GPU."""
    library = _used_compat(preflight)
    why = None if library is None or _cuda(preflight) is None else _harm(preflight, library)
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
        _the_hosts_first(preflight),
    )


def compat_ignored(preflight: Preflight) -> Iterator[Finding]:
    """A forward-compatibility libcuda in the image would help, but comes after the host's."""
    assert preflight.image is not None
    wanted, cuda = _wanted(preflight), _in_use(preflight)
    if wanted is None or cuda is None or _used_compat(preflight) is not None or not is_newer(wanted, cuda.serves):
        return
    for library in preflight.image.facts.compat:
        if _would_help(preflight, library):
            yield Finding(
                "compat-ignored",
                "warning",
                "nvidia",
                library.path,
                f"the image brings a forward-compatibility libcuda for CUDA {wanted}, but the host's comes first",
                library.path,
                "the job runs with the host's libcuda: unsupported PTX (222), or insufficient driver (35)",
                f"on a data-centre GPU: {_the_images_first(preflight, library)}",
            )
            return


def _the_hosts_first(preflight: Preflight) -> str:
    if _is_ours(preflight):
        return "let the host's be used: --cuda-compat host"
    return "take the compat directory out of the image's LD_LIBRARY_PATH, so that the host's libcuda is used"


def _the_images_first(preflight: Preflight, library: ImageLibrary) -> str:
    by_hand = f"give the container LD_LIBRARY_PATH={library.path.rpartition('/')[0]} yourself"
    if preflight.plan.layout == "cdi":
        return by_hand
    return f"--cuda-compat image (GPUBIND_CUDA_COMPAT=image), or {by_hand}"


def _would_help(preflight: Preflight, library: ImageLibrary) -> bool:
    """Whether *library* works here, and serves a newer CUDA than the host's libcuda."""
    cuda, served = _cuda(preflight), serves(library)
    newer = cuda is None or served is None or is_newer(served, cuda.serves)
    return newer and _harm(preflight, library) is None


def _is_ours(preflight: Preflight) -> bool:
    """Whether the plan itself puts a compat libcuda first."""
    return any(variable.rule == RULE for variable in preflight.plan.env)


def _bridge(preflight: Preflight) -> str:
    """What to say of CUDA's forward compatibility where it would help."""
    assert preflight.image is not None
    why = ""
    for library in preflight.image.facts.compat:
        if _would_help(preflight, library) and not _is_ours(preflight):
            return f"the image's own compat libcuda: {_the_images_first(preflight, library)}"
        why = why or f"; {library.path} does not do here: {_harm(preflight, library) or 'it is too old'}"
    return f"NVIDIA's cuda-compat package in the image, on data-centre GPUs{why}"


def _requirements(preflight: Preflight) -> Iterator[tuple[str, str, Optional[bool], dict[str, str]]]:
    cuda = _cuda(preflight)
    assert preflight.image is not None
    if cuda is None or preflight.image.facts.env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in _FALSE:
        return
    in_use = _in_use(preflight) or cuda
    facts = {"cuda": in_use.serves, "driver": cuda.driver}
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
    assert preflight.image is not None
    return wanted_cuda(preflight.image.facts)


def _in_use(preflight: Preflight) -> Optional[_Cuda]:
    """The libcuda that programs will use: the image's compat one where that works, else the host's."""
    cuda, used = _cuda(preflight), _used_compat(preflight)
    if cuda is None or used is None or _harm(preflight, used) is not None:
        return cuda
    served = serves(used)
    if served is None:
        return None  # nothing tells what it serves
    return _Cuda("the image's compat libcuda", used.version or cuda.driver, served, used.path)


def _cuda(preflight: Preflight) -> Optional[_Cuda]:
    """What the driver serves: by its libcuda's own note, else by the table of versions."""
    driver = nvidia_driver(preflight.plan)
    if driver is None or driver.version is None or driver.kind != "linux" or not is_wanted(preflight.plan, "compute"):
        return None
    name = f"the driver {driver.version}"
    note = _host_note(preflight)
    if note is not None:
        return _Cuda(name, driver.version, note.cuda, "the note in the host's libcuda")
    if driver.cuda_max is None:
        return None
    return _Cuda(name, driver.version, driver.cuda_max, f"CUDA's release notes for driver {driver.version}")


def _host_note(preflight: Preflight) -> Optional[CudaNote]:
    assert preflight.container is not None
    for mount in preflight.plan.mounts:
        if mount.soname == "libcuda.so.1" and mount.capability != "compat32":
            located = preflight.container.locate(mount.target)
            elf = Missing("absent") if located is None else located.tree.elf(located.at)
            return None if isinstance(elf, Missing) else elf.cuda_note
    return None


def _used_compat(preflight: Preflight) -> Optional[ImageLibrary]:
    """The compat libcuda that a program in the container would open; None if it is another libcuda."""
    assert preflight.container is not None
    assert preflight.image is not None
    found = preflight.container.find("libcuda.so.1")
    if found is None or found.mount is not None:
        return None
    return next((library for library in preflight.image.facts.compat if library.path == found.at), None)


def _harm(preflight: Preflight, library: ImageLibrary) -> Optional[str]:
    """What the loader or CUDA would say of a compat libcuda here; None if it would work as far as files tell."""
    assert preflight.container is not None
    failures = preflight.container.failures(library.path)
    if failures:
        return failures[0].message
    driver, cuda = nvidia_driver(preflight.plan), _cuda(preflight)
    node = node_of(driver, preflight.plan.gpus, cuda.serves if cuda else None) if driver else None
    return None if node is None else refusal(library, node)
