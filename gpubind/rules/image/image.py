"""Rules about driver files of an image itself, and the search path of its loader."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Optional

from gpubind.formats.driver.names import DRIVER_SONAMES
from gpubind.formats.elf.elf import split_library_path
from gpubind.frozen import NamedTuple
from gpubind.image.environment import ENVIRONMENT_DIRECTORY, SEARCH_PATHS
from gpubind.image.facts import image_library
from gpubind.loader.search import ContainerFile
from gpubind.model import Finding, ImageLibrary, Severity, active_cases, finding, with_count
from gpubind.model.arch import architecture
from gpubind.rules.preflight import Preflight

_LIBCUDAS = ("libcuda.so.1", "libcuda.so")
"""The names by which programs open libcuda."""
CORE_LIBRARIES = (*_LIBCUDAS, "libnvidia-ml.so.1")
"""The libraries on which all others depend."""


class _ShadowingLibrary(NamedTuple):
    """A library that shadows the plan's library unless the program sets a search path."""

    file: ContainerFile
    directory: Optional[str]
    """The element of LD_LIBRARY_PATH that leads to it; None if the loader finds it without that."""
    is_users: bool
    """Whether the user set that element."""


def _shadowing_library(preflight: Preflight, soname: str) -> Optional[_ShadowingLibrary]:
    """Return the library that shadows *soname* of the plan; None if there is none, or the plan lacks *soname*.

    A libcuda of CUDA's forward compatibility is meant to come first: other rules check whether it fits.
    """
    mounts = [m for m in preflight.plan.mounts if m.kind == "library" and m.capability != "compat32"]
    planned = next((mount for mount in mounts if basename(mount.target) == soname), None)
    located = preflight.container.find(soname) if planned is not None else None
    if planned is None or located is None or located.mount is not None or "/compat/" in located.tree_path:
        return None
    if located.tree.real(located.tree_path) == planned.source:
        return None  # another path of the same file
    directory = dirname(located.path)
    in_path = directory if directory in preflight.container.library_path else None
    return _ShadowingLibrary(located, in_path, directory in preflight.container.user_library_path)


def image_architecture(preflight: Preflight) -> Iterator[Finding]:
    """Report an image of another architecture if the planner has not reported it.

    The planner reports it only if it leaves files out; device nodes fit any image.
    """
    host, image = architecture(preflight.host.uname.machine), preflight.image.facts.arch
    is_told = any(prior.code == "image-architecture" for prior in preflight.plan.findings)
    if not is_told and preflight.plan.drivers and image not in (None, host.name, host.compat32):
        yield finding(
            "image-architecture", case="programs", subject="image", severity="error", arch=image, machine=host.name
        )


def driver_in_image(preflight: Preflight) -> Iterator[Finding]:
    """Report a driver in the image. If the loader finds it first, its version must be that of the kernel module.

    Nothing is reported about the host's own root: its driver is that of the plan, or other rules report it.
    """
    if preflight.is_own_root:
        return
    planned = {basename(mount.target) for mount in preflight.plan.mounts}
    for library in _drivers(preflight):
        is_planned = library.soname in planned
        first = _shadowing_library(preflight, library.soname)
        if first is not None and (first.file.bind is not None or first.file.tree_path != library.path):
            first = None
        driver = preflight.driver
        same = library.version is not None and driver is not None and library.version == driver.version
        yield finding(
            "driver-in-image",
            subject=library.soname,
            case=active_cases(
                ("first", first),
                ("in-users-path" if first and first.is_users else "in-its-path", first and first.directory is not None),
                ("behind" if is_planned else "alone", first is None),
            ),
            severity="warning" if same or (is_planned and first is None) else "error",
            where=library.path,
            path=library.path,
            version=f" ({library.version})" if library.version else "",
            directory=first.directory if first is not None else None,
        )


def order_findings(preflight: Preflight) -> tuple[Finding, ...]:
    """Return the findings about a libcuda or NVML that shadows the plan's; none without an image.

    This is cheap enough for every start: a few files are searched by name, and only their first bytes are read.
    """
    if not preflight.has_image:
        return ()
    shadowing = ((soname, _shadowing_library(preflight, soname)) for soname in CORE_LIBRARIES)
    paths = {soname: (first.file.tree_path, first.file.path) for soname, first in shadowing if first is not None}
    if not paths:
        return ()
    findings = (*stub_in_image(preflight), *driver_in_image(preflight), *_before_the_plans(preflight))
    return tuple(finding for finding in findings if finding.where in paths.get(finding.subject, ()))


def image_env_undecided(preflight: Preflight) -> Iterator[Finding]:
    """Report a search path of the image that only the image's shell can compute."""
    names = [name for name in preflight.image.facts.undecided if name in SEARCH_PATHS]
    if names:
        subject, shown, echoed = ", ".join(names), " and ".join(names), " ".join(f"${name}" for name in names)
        where = ENVIRONMENT_DIRECTORY
        yield finding("image-env-undecided", subject=subject, where=where, names=shown, echoed=echoed)


def stub_in_image(preflight: Preflight) -> Iterator[Finding]:
    """Report a stub of libcuda or NVML that programs load, or that comes after the host's library."""
    for name in CORE_LIBRARIES:
        located = preflight.container.find(name)
        if located is None:
            continue
        first, behind = ("libcuda", "libcuda-behind") if name in _LIBCUDAS else ("nvml", "nvml-behind")
        image_path, path = preflight.image.loader.find(name) or "", located.path
        if located.mount is None and located.tree.is_stub(located.tree_path):
            severity: Severity = "error" if name in _LIBCUDAS else "warning"
            yield finding("stub-in-image", subject=name, case=first, severity=severity, where=path, path=path)
        elif located.mount is not None and image_path and preflight.image.tree.is_stub(image_path):
            cases = ("behind", behind)
            yield finding("stub-in-image", subject=name, case=cases, severity="note", where=image_path, path=image_path)


def library_path_order(preflight: Preflight) -> Iterator[Finding]:
    """Report an LD_LIBRARY_PATH that leads to copies of the plan's libraries, or to the working directory."""
    yield from _before_the_plans(preflight)
    yield from _copies_in_the_images(preflight)


def _before_the_plans(preflight: Preflight) -> Iterator[Finding]:
    """Report a libcuda or NVML in the user's LD_LIBRARY_PATH, which precedes the plan's library."""
    for soname in CORE_LIBRARIES:
        first = _shadowing_library(preflight, soname)
        if first is not None and first.is_users:
            path, directory = first.file.path, first.directory
            yield finding(
                "library-path-order", subject=soname, case="of-user", where=path, path=path, directory=directory
            )


def _copies_in_the_images(preflight: Preflight) -> Iterator[Finding]:
    library_path = preflight.image.facts.env.get("LD_LIBRARY_PATH", "")
    planned = {basename(mount.target) for mount in preflight.plan.mounts if mount.kind == "library"}
    if not library_path or not planned:
        return
    order = ":".join(preflight.container.library_path)
    twice = []
    for directory in dict.fromkeys(split_library_path(library_path)):
        names = preflight.image.tree.names(directory) if directory.startswith("/") else ()
        twice += [f"{directory}/{name}" for name in names if name in planned]
    if twice:
        yield finding(
            "library-path-order",
            subject="LD_LIBRARY_PATH",
            case="copies",
            severity="note",
            where=", ".join(twice[:8]),
            files=with_count(len(twice), "file"),
            order=order,
        )
    if "" in split_library_path(library_path):
        yield finding("library-path-order", subject="LD_LIBRARY_PATH", case="empty", where=library_path)


def _drivers(preflight: Preflight) -> Iterator[ImageLibrary]:
    facts = preflight.image.facts
    seen = [library.path for library in (*facts.driver, *facts.compat)]
    yield from facts.driver
    for directory in dict.fromkeys(split_library_path(facts.env.get("LD_LIBRARY_PATH", ""))):
        for soname in DRIVER_SONAMES:
            library = image_library(preflight.image.tree, soname, f"{directory}/{soname}")
            if library is not None and library.path not in seen:
                seen.append(library.path)
                yield library
