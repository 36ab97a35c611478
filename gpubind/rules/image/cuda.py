"""Rules about CUDA versions: what the image needs, what the driver serves, and compat libraries.

Sources: CUDA Compatibility guide (minor-version and forward compatibility, errors 803 and 804); libcuda's note
`.note.cuda.fwd_compatibility`; CUDA Toolkit release notes for the version table; nvidia-container-toolkit for the rule
by which a compat library is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname
from typing import Optional

from gpubind.errors import FormatError
from gpubind.formats.driver.require import evaluate, requirements_of
from gpubind.frozen import NamedTuple
from gpubind.image.cuda import needed_cuda
from gpubind.image.needs import OPENCL, SYNAPSE, read_intel
from gpubind.image.synapse import HOME
from gpubind.inventory.nodes import PCI_DEVICES
from gpubind.model import CudaNote, Finding, ImageCuda, ImageLibrary, active_cases, finding
from gpubind.model.cuda import (
    branch_of,
    first_native_driver,
    is_minor_compatible,
    is_newer,
    minor_compatible_driver,
    supported_cuda,
)
from gpubind.rules.preflight import Preflight


class Libcuda(NamedTuple):
    """A libcuda that programs may use."""

    name: str
    """Its name in findings: `the driver 550.163.01`."""
    driver: str
    """The version of its driver."""
    serves: str
    """The newest CUDA version that it serves without a compat library."""
    known_from: str


def cuda_too_new(preflight: Preflight) -> Iterator[Finding]:
    """Report a CUDA version, of the program's packages or of the image, that is too new for the libcuda in use."""
    cuda = libcuda_in_use(preflight)
    for every in (preflight.imported_cuda, preflight.every_cuda):
        required = needed_cuda(every)
        if required is not None and cuda is not None and not _is_served(required, cuda):
            yield _too_new(preflight, cuda, required, every)
            return


def _is_served(required: str, cuda: Libcuda) -> bool:
    return not is_newer(required, cuda.serves) or is_minor_compatible(cuda.driver, required)


def _too_new(preflight: Preflight, cuda: Libcuda, required: str, every: tuple[ImageCuda, ...]) -> Finding:
    from gpubind.planner.compat import compat_host, has_package

    compat = preflight.image.facts.compat
    helpful = [library for library in compat if _would_help(preflight, library) and not _plan_uses_compat(preflight)]
    harm = _compat_error(preflight, compat[0]) if compat else None
    by_hand = preflight.plan.layout == "cdi"
    driver = preflight.driver
    node = compat_host(driver, preflight.plan.gpus, None) if driver else None
    is_offered = node is not None and has_package(required, node, _last_branch(preflight))
    served = [image_cuda for image_cuda in every if _is_served(image_cuda.version, cuda)]
    is_imported = preflight.imports is not None and every is preflight.imported_cuda
    oldest = minor_compatible_driver(required) or first_native_driver(required)
    return finding(
        "cuda-too-new",
        subject=required,
        case=active_cases(
            ("package", is_offered),
            ("of-program-package" if is_offered else "of-program", is_imported),
            ("own-by-hand" if by_hand else "own", helpful),
            ("own-refused-package" if is_offered else "own-refused", compat and not helpful),
            ("of-package", every[0].origin not in ("toolkit", "variable")),
            ("among-others", served),
            ("imported", is_imported and not served),
        ),
        severity="warning" if served else "error",
        where=cuda.known_from,
        place=every[0].where,
        program=preflight.imports.interpreter if preflight.imports is not None else None,
        other=served[0].version if served else None,
        libcuda=cuda.name,
        serves=cuda.serves,
        driver=_driver_for(oldest, _last_branch(preflight)),
        directory=dirname(helpful[0].path) if helpful else "",
        compat=compat[0].path if compat else "",
        harm=harm or "it is too old",
    )


def _driver_for(oldest: Optional[str], last: Optional[int]) -> str:
    if oldest is None:
        return "a newer driver"
    of_gpu = "" if last is None or branch_of(oldest) <= last else ", and a GPU that it supports"
    return f"driver {oldest} or newer{of_gpu}"


def cuda_minor_version(preflight: Preflight) -> Iterator[Finding]:
    """Report a CUDA version that is newer than the driver's, but within a major version that the driver serves.

    All but some features work.
    """
    required, cuda = _required_cuda(preflight), libcuda_in_use(preflight)
    if required and cuda and is_newer(required, cuda.serves) and is_minor_compatible(cuda.driver, required):
        yield finding(
            "cuda-minor-version",
            subject=required,
            where=cuda.known_from,
            libcuda=cuda.name,
            serves=cuda.serves,
            driver=f"driver {minimum}" if (minimum := first_native_driver(required)) else "a driver for that CUDA",
        )


def image_of_other_vendor(preflight: Preflight) -> Iterator[Finding]:
    """Report an image for CUDA, ROCm or Intel's GPUs if the container gets only drivers of other vendors.

    An image for Intel's GPUs is also reported if the container gets only Gaudi accelerators. `gpu-code-missing` reports
    images with GPU code.
    """
    facts, vendors = preflight.image.facts, preflight.vendors
    platforms = {"nvidia": preflight.every_cuda and "CUDA", "amd": (facts.rocm or facts.rocm_runtime) and "ROCm"}
    used_platforms = {vendor: str(name) for vendor, name in platforms.items() if name}
    is_silent = not vendors or bool(preflight.gpu_code)
    ways = () if is_silent or used_platforms else read_intel(preflight.image, ())
    openvino = next((way.by for way in ways if way.name == OPENCL and way.by != way.driver), None)
    if openvino is not None:
        used_platforms = {"intel": "Intel's GPUs"}
    if used_platforms and not is_silent and vendors.isdisjoint(used_platforms):
        yield finding(
            "image-of-other-vendor",
            subject=" and ".join(used_platforms.values()),
            case=active_cases(("openvino", openvino)),
            where=openvino,
            has=" and ".join(planned.title for planned in preflight.plan.drivers),
        )
    yield from _for_gaudi_alone(preflight)


def _for_gaudi_alone(preflight: Preflight) -> Iterator[Finding]:
    gpus = preflight.chosen_gpus
    if not gpus or not all(gpu.is_gaudi for gpu in gpus) or preflight.container.tree.has(HOME):
        return
    ways = read_intel(preflight.image, preflight.gpu_code)
    if ways and not any(way.name == SYNAPSE for way in ways):
        names, where = " and ".join(way.name for way in ways), ", ".join(way.by for way in ways)
        yield finding(
            "image-of-other-vendor", subject="Intel's GPUs", case="gaudi", vendor="intel", where=where, names=names
        )


def _required_cuda(preflight: Preflight) -> Optional[str]:
    return needed_cuda(preflight.imported_cuda or preflight.every_cuda)


def require_unsatisfied(preflight: Preflight) -> Iterator[Finding]:
    """Report each NVIDIA_REQUIRE_* of the image that this driver does not satisfy.

    It is reported as `require-undecided` if the value depends on the GPU's brand or architecture, which is in no file,
    and as `bad-require` if the value is malformed.
    """
    host = _host_libcuda(preflight)
    facts = {"cuda": (libcuda_in_use(preflight) or host).serves, "driver": host.driver} if host else {}
    for name, value in requirements_of(preflight.image.facts.env).items():
        where = f"{name}={value[:400]}"
        try:
            answer = evaluate(value, facts)
        except FormatError as error:
            yield finding("bad-require", subject=name, where=where, fault=error.why)
            continue
        if answer is False:
            fact_text = ", ".join(f"{key} {fact_text}" for key, fact_text in facts.items())
            yield finding("require-unsatisfied", subject=name, where=where, known=fact_text)
        elif answer is None and facts:
            yield finding("require-undecided", subject=name, where=where)


def compat_used(preflight: Preflight) -> Iterator[Finding]:
    """Report the image's forward-compatibility libcuda if programs load it; as `compat-harmful` if it cannot work
    here.
    """
    library = _used_compat(preflight)
    if library is None or _host_libcuda(preflight) is None:
        return
    path, cuda, harm = library.path, supported_cuda(library), _compat_error(preflight, library)
    if harm is not None:
        case = "by-the-plan" if _plan_uses_compat(preflight) else None
        yield finding("compat-harmful", subject=path, case=case, where=path, harm=harm)
        return
    cases = active_cases(("of-known-version", cuda), ("by-the-plan", _plan_uses_compat(preflight)))
    yield finding("compat-used", subject=path, case=cases, where=path, cuda=cuda)


def compat_ignored(preflight: Preflight) -> Iterator[Finding]:
    """Report a forward-compatibility libcuda that would help, but that programs do not load: the host's libcuda
    precedes it.
    """
    required, cuda = _required_cuda(preflight), libcuda_in_use(preflight)
    if required is None or cuda is None or _used_compat(preflight) is not None or not is_newer(required, cuda.serves):
        return
    library = next((library for library in preflight.image.facts.compat if _would_help(preflight, library)), None)
    if library is not None:
        yield finding(
            "compat-ignored",
            subject=library.path,
            case="by-hand" if preflight.plan.layout == "cdi" else None,
            where=library.path,
            cuda=required,
            directory=dirname(library.path),
        )


def _would_help(preflight: Preflight, library: ImageLibrary) -> bool:
    cuda, served = _host_libcuda(preflight), supported_cuda(library)
    newer = cuda is None or served is None or is_newer(served, cuda.serves)
    return newer and _compat_error(preflight, library) is None


def _plan_uses_compat(preflight: Preflight) -> bool:
    from gpubind.planner.compat import ENV_RULE

    return any(variable.rule == ENV_RULE for variable in preflight.plan.env)


def libcuda_in_use(preflight: Preflight) -> Optional[Libcuda]:
    """Return the libcuda that programs use; None if unknown.

    It is the compat libcuda of the image if programs load that and it works; else it is the host's.
    """
    cuda, used = _host_libcuda(preflight), _used_compat(preflight)
    if cuda is None or used is None or _compat_error(preflight, used) is not None:
        return cuda
    served = supported_cuda(used)
    if served is None:
        return None
    owner = "this machine's" if preflight.is_without_container else "the image's"
    return Libcuda(f"{owner} compat libcuda", used.version or cuda.driver, served, used.path)


def _host_libcuda(preflight: Preflight) -> Optional[Libcuda]:
    """Return the host's libcuda. The note in the file takes precedence over the table of versions."""
    driver = preflight.driver
    if driver is None or driver.version is None or driver.kind != "linux" or not preflight.wants("compute"):
        return None
    name = f"the driver {driver.version}"
    note = _host_note(preflight)
    if note is not None:
        return Libcuda(name, driver.version, note.cuda, "the note in the host's libcuda")
    if driver.cuda_max is None:
        return None
    return Libcuda(name, driver.version, driver.cuda_max, f"CUDA's release notes for driver {driver.version}")


def _host_note(preflight: Preflight) -> Optional[CudaNote]:
    for mount in preflight.plan.mounts:
        if mount.soname == "libcuda.so.1" and mount.capability != "compat32":
            located = preflight.container.locate(mount.target)
            elf = None if located is None else located.elf
            return None if elf is None else elf.cuda_note
    return None


def _used_compat(preflight: Preflight) -> Optional[ImageLibrary]:
    """Return the compat libcuda that a program in the container loads; None if it loads another libcuda."""
    located = preflight.container.find("libcuda.so.1")
    if located is None or located.mount is not None:
        return None
    return next((library for library in preflight.image.facts.compat if library.path == located.tree_path), None)


def _last_branch(preflight: Preflight) -> Optional[int]:
    """Return the last driver branch that supports all GPUs of the container; None if the newest branch does."""
    from gpubind.model.capability import chip_of

    texts = (preflight.host.dev.text(f"{PCI_DEVICES}/{gpu.pci}/device") for gpu in preflight.gpus)
    chips = (chip_of(text or "") for text in texts)
    return min((chip.last for chip in chips if chip is not None and chip.last is not None), default=None)


def _compat_error(preflight: Preflight, library: ImageLibrary) -> Optional[str]:
    """Return the error that the loader or CUDA reports about the compat libcuda *library*; None if none is known."""
    failures = preflight.container.failures(library.path)
    if failures:
        return failures[0].message
    from gpubind.planner.compat import compat_host, predicted_error

    driver, cuda = preflight.driver, _host_libcuda(preflight)
    node = compat_host(driver, preflight.plan.gpus, cuda.serves if cuda else None) if driver else None
    why = None if node is None else predicted_error(library, node)
    last = _last_branch(preflight)
    if why is None and last is not None and library.version is not None and branch_of(library.version) > last:
        return f"it is {library.version}, and NVIDIA's drivers of branch {last} are the last for the GPU"
    return why
