"""The compute runtime for Intel's GPUs in a container: how programs find it, and which GPUs and kernel drivers it
knows.

Sources: level-zero `source/loader/linux/driver_discovery_lin.cpp` (the loader opens drivers by name); cl_khr_icd.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Literal, Optional

from gpubind.files import Tree, glob
from gpubind.files.facts import CONSTANTS
from gpubind.formats.driver.neo import ComputeRuntime, build_of, parse_runtime
from gpubind.host import Host
from gpubind.image.needs import LEVEL_ZERO as BY_LEVEL_ZERO
from gpubind.image.needs import OPENCL as BY_OPENCL
from gpubind.image.needs import read_intel
from gpubind.inventory.intel.devices import (
    addresses,
    platform,
    platform_aliases,
    platforms,
    release_for,
    unsupported_platforms,
)
from gpubind.loader.fit import has_one, is_for_video
from gpubind.model import COMPUTE_RUNTIME, Finding, Gpu, Missing, finding
from gpubind.rules.preflight import Preflight

LEVEL_ZERO, OPENCL = COMPUTE_RUNTIME.runtime_libraries
_COMPUTES = (BY_LEVEL_ZERO, BY_OPENCL)
"""The ways in which an image's programs use the runtime. SYCL uses Level Zero."""
LOADER, VENDORS = "libze_loader.so.1", "/etc/OpenCL/vendors"


def level_zero_incomplete(preflight: Preflight) -> Iterator[Finding]:
    """Report that the image has a driver for Intel's GPUs, but not the loader or the manifest by which programs find
    it.
    """
    gpus = [gpu for gpu in preflight.plan.gpus if gpu.vendor == "intel"]
    if "intel" not in preflight.vendors or (gpus and not any(map(is_gpu, gpus))):  # Gaudi does not use Level Zero
        return
    image = preflight.image
    planned = {mount.target.rpartition("/")[2] for mount in preflight.plan.mounts}
    if image.loader.find(LEVEL_ZERO) and not image.loader.find(LOADER) and LOADER not in planned:
        yield finding("level-zero-incomplete", subject=LOADER, case="loader", driver=LEVEL_ZERO)
    has_opencl = any(glob(image.tree, f"{place}/{OPENCL}") for place in COMPUTE_RUNTIME.runtime_patterns)
    if has_opencl and not _has_manifest(image.tree) and "intel.icd" not in planned:
        yield finding("level-zero-incomplete", subject=VENDORS, case="manifest", driver=OPENCL)


def userspace_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report an image that computes on Intel's GPUs but has no driver for them, if the plan has only device nodes.

    If the request names a vendor, the plan has the host's user space, and the planner reports what is missing.
    """
    plan, chosen = preflight.plan, preflight.chosen_gpus
    if plan.request.is_without_compute or not any(map(is_gpu, chosen)):
        return
    from gpubind.inventory.intel.inventory import NODES_ONLY  # loaded where there is such a GPU

    if not any(decision.rule == NODES_ONLY and decision.vendor == "intel" for decision in plan.decisions):
        return
    if not all(gpu.vendor == "intel" for gpu in chosen):
        return  # the image may be for the GPU of the other vendor
    ways = [way for way in read_intel(preflight.image, preflight.gpu_code) if way.name in _COMPUTES]
    if ways and not any(way.driver for way in ways) and not dict(_runtimes(preflight)):
        yield finding(
            "userspace-missing",
            subject="userspace",
            case="unnamed" if plan.request.userspace == "auto" else "asked",
            severity="warning",
            vendor="intel",
            where=", ".join(way.by for way in ways),
            name=COMPUTE_RUNTIME.name,
            fails=COMPUTE_RUNTIME.symptom_without_any,
            ways=" and ".join(way.name for way in ways),
        )


def is_gpu(gpu: Gpu) -> bool:
    """Return whether *gpu* is a GPU of Intel. A Gaudi accelerator is not one: it has no render node."""
    return gpu.vendor == "intel" and not gpu.is_gaudi


def _has_manifest(image: Tree) -> bool:
    names = (name for name in image.names(VENDORS) if name.endswith(".icd"))
    return any("igdrcl" in (image.text(f"{VENDORS}/{name}") or "") for name in names)


def intel_gpu_unknown(preflight: Preflight) -> Iterator[Finding]:
    """Report the GPUs that no driver of Level Zero or OpenCL in the container knows, and those whose kernel driver none
    knows.

    Nothing is reported if the platforms of a library are unreadable: it may know every GPU.
    """
    chosen = preflight.chosen_gpus
    gpus = [gpu for gpu in chosen if is_gpu(gpu)]
    runtimes_by_path = dict(_runtimes(preflight)) if gpus else {}
    runtimes = [runtime for runtime in runtimes_by_path.values() if runtime is not None]
    if not runtimes or len(runtimes) < len(runtimes_by_path) or _is_for_video(preflight, runtimes_by_path):
        return
    on_xe = addresses(preflight.host, ("xe",))
    unknown = [(gpu, case) for gpu in gpus if (case := _unknown(preflight, gpu, runtimes, gpu.pci in on_xe))]
    is_all = "intel" in preflight.plan.request.vendors and len(unknown) == len(chosen)
    # Programs of an image with VA-API may use the GPU for video only.
    is_fatal = is_all and not has_one(preflight.image.loader, COMPUTE_RUNTIME.video_users)
    for case in dict.fromkeys(case for _, case in unknown):
        of_case = [gpu for gpu, gpu_case in unknown if gpu_case == case]
        yield finding(
            "intel-gpu-unknown",
            subject=names_of(of_case),
            case=case,
            severity="error" if is_fatal else "warning",
            where=", ".join(runtimes_by_path),
            release=runtimes[0].release or "of an unknown release",
            since=known_since(preflight.host, of_case, "compute"),
        )


def names_of(gpus: Iterable[Gpu]) -> str:
    """Return the names of *gpus*, each once."""
    return ", ".join(dict.fromkeys(gpu.model or "" for gpu in gpus))


def known_since(host: Host, gpus: Iterable[Gpu], driver_kind: Literal["compute", "media"]) -> str:
    """Return the first release of *driver_kind* that knows each generation of *gpus*: `; 25.31 knows Battlemage`."""
    releases = (release_for(host, gpu.pci or "", driver_kind) for gpu in gpus)
    return "".join(f"; {release} knows {name}" for release, name in dict.fromkeys(filter(None, releases)))


def _is_for_video(preflight: Preflight, driver_paths: Iterable[str]) -> bool:
    """Return whether *driver_paths* are files of the host and the image is for video, which works without these
    files.
    """
    is_hosts = {mount.target for mount in preflight.plan.mounts}.issuperset(driver_paths)
    by_name = preflight.plan.request.computes_by_name
    return is_hosts and not by_name and is_for_video(preflight.image.loader, COMPUTE_RUNTIME)


def _unknown(preflight: Preflight, gpu: Gpu, runtimes: list[ComputeRuntime], is_on_xe: bool) -> Optional[str]:
    """Return why none of *runtimes* knows *gpu*, as a case of the finding; None if one of them knows it or may know
    it.
    """
    name = platform(preflight.host, gpu.pci or "")
    if name is not None and all({name, *platform_aliases(name)} <= {*runtime.lacks} for runtime in runtimes):
        return "too-old" if platforms().index(name) >= platforms().index("tgllp") else "too-new"
    return "xe" if is_on_xe and all(runtime.lacks_xe for runtime in runtimes) else None


def _runtimes(preflight: Preflight) -> Iterator[tuple[str, Optional[ComputeRuntime]]]:
    """Yield the path of each driver of Level Zero and OpenCL in the container, and its facts; None if unknown.

    All files of a host have one release, so for a recorded host the build in the name of one file stands for all.
    """
    located = preflight.container.find(LEVEL_ZERO)
    paths = [located.path] if located is not None else []
    tree, image = preflight.container.tree, preflight.image.tree
    of_host = {mount.target: mount for mount in preflight.plan.mounts if basename(mount.target) in (LEVEL_ZERO, OPENCL)}
    names = (basename(mount.source or "") for mount in of_host.values())
    build_of_host = next((build for name in names if (build := build_of(name)) is not None), None)
    paths += [path for path in of_host if basename(path) == OPENCL]
    paths += [path for place in COMPUTE_RUNTIME.runtime_patterns for path in glob(image, f"{place}/{OPENCL}")]
    for path in dict.fromkeys(paths):
        constants = tree.fact(path, CONSTANTS)
        if not isinstance(constants, Missing):
            yield path, parse_runtime(constants, platforms())
            continue
        resolved = tree.resolve(path)
        file_name = "" if isinstance(resolved, Missing) else basename(resolved)
        build = build_of_host if path in of_host else build_of(file_name)
        lacks = unsupported_platforms(build) if build is not None else ()
        yield path, ComputeRuntime(None, lacks, "xe" in lacks) if lacks else None
