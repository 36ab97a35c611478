"""The parts of NVIDIA's driver for graphics and video that a program uses, and how certain that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpubind.frozen import NamedTuple
from gpubind.image.facts import Image
from gpubind.image.needs import find_driver_libraries, opened_by
from gpubind.loader.container import Container
from gpubind.loader.fit import GLVND_CORE
from gpubind.loader.search import ContainerFile
from gpubind.model import Capability, Severity
from gpubind.model.findings import SEVERITIES
from gpubind.planner.sides import DEFAULT_EXTRAS

OTHERS: Mapping[str, tuple[str, ...]] = {
    "libvulkan.so.1": ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"),
    "libEGL.so.1": ("/usr/share/glvnd/egl_vendor.d", "/etc/glvnd/egl_vendor.d"),
}
"""Directories with manifests of drivers, by the loader that reads them."""
CLIENTS = ("libOpenGL.so.0", "libGLESv2.so.2")
"""Libraries with functions for a context that another loader creates."""
_MESAS_GLX = "libGLX_mesa.so.0"
"""Mesa's library, which libGL opens."""


class DriverUse(NamedTuple):
    """A library that a program uses: one of the driver, or a loader that opens one."""

    library: str
    """Its name: `libvulkan.so.1`."""
    capability: Capability
    by: str
    """The path of the user: the program, or a library that it is linked with."""
    is_linked: bool
    """Whether the program is linked with it."""
    severity: Severity
    """An error if the program cannot do without the library: it uses no other capability of the driver, opens one
    loader itself, and the image has no other driver for that loader. Otherwise a warning.
    """


def uses_of(image: Image, container: Container, program: ContainerFile) -> tuple[DriverUse, ...]:
    """Return what *program* uses of the capabilities that most jobs do not need."""
    files = container.load(program.path).files
    linked = [file.path for file in files[1:] if file.mount is None]
    every = find_driver_libraries(image, container.tree, program.path, linked)
    libraries = [library for library in every if library.vendor != "amd"]
    direct_names = {opened_by(library.name)[0] for library in libraries if program.path in library.by}
    is_sole = len({library.capability for library in libraries}) == 1 and len(direct_names.difference(CLIENTS)) == 1
    needed = () if program.elf is None else program.elf.needed
    uses: dict[str, DriverUse] = {}
    for library in libraries:
        name = opened_by(library.name)[0]
        is_sure = is_sole and name in direct_names and not _has_other(container, name)
        by = program.path if name in direct_names else library.by[0]
        if library.capability in DEFAULT_EXTRAS:
            severity: Severity = "error" if is_sure else "warning"
            uses.setdefault(name, DriverUse(name, library.capability, by, library.name in needed, severity))
    return tuple(uses.values())


def used_names(uses: Iterable[DriverUse]) -> dict[str, Severity]:
    """Return each library that is loaded because of *uses*, with its worst severity."""
    severities: dict[str, Severity] = {}
    for use in sorted(uses, key=lambda use: SEVERITIES.index(use.severity), reverse=True):
        severities.update(dict.fromkeys(opened_by(use.library), use.severity))
    return severities


def _has_other(container: Container, name: str) -> bool:
    if name in ("libGL.so.1", "libGLX.so.0"):
        libgl = container.find("libGL.so.1")
        elf = None if libgl is None else libgl.elf
        is_other = elf is not None and not GLVND_CORE & set(elf.needed)
        return is_other or container.find(_MESAS_GLX) is not None
    manifests = (manifest for directory in OTHERS.get(name, ()) for manifest in container.tree.names(directory))
    return any("nvidia" not in manifest for manifest in manifests)
