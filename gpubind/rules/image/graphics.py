"""Graphics and OpenCL: EGL, GBM, DRM's nodes, and the manifests by which vendor-neutral loaders find the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional, Union

from gpubind.errors import FormatError
from gpubind.files import Tree
from gpubind.formats.driver.icd import Icd, parse_icd
from gpubind.formats.driver.names import name_facts
from gpubind.frozen import NamedTuple
from gpubind.host.base import GLX_VENDOR, MANIFEST_VARIABLES, SOFTWARE
from gpubind.inventory.nodes import PCI_DEVICES
from gpubind.model import Capability, Finding, Missing, Mount, Severity, finding
from gpubind.model.findings import SEVERITIES
from gpubind.planner.placement import GBM_BACKEND
from gpubind.rules.missing import FROM_THE_HOST, soften, unseen_libraries
from gpubind.rules.preflight import Preflight, variable_of

EGL, GLX = "libEGL.so.1", "libGLX_nvidia.so.0"
_ALLOCATOR = "libnvidia-allocator.so.1"
MODESET = "/sys/module/nvidia_drm/parameters/modeset"


class NeutralLoader(NamedTuple):
    """A vendor-neutral loader, and how it finds the driver."""

    name: str
    """The case of the finding."""
    soname: str
    library: str
    """The driver's library that it opens."""
    capability: Capability
    directories: tuple[str, ...]
    """The directories of its manifests."""


LOADERS = (
    NeutralLoader(
        "EGL", EGL, "libEGL_nvidia.so.0", "graphics", ("/usr/share/glvnd/egl_vendor.d/", "/etc/glvnd/egl_vendor.d/")
    ),
    NeutralLoader(
        "Vulkan", "libvulkan.so.1", "libGLX_nvidia.so.0", "graphics", ("/usr/share/vulkan/icd.d/", "/etc/vulkan/icd.d/")
    ),
    NeutralLoader("OpenCL", "libOpenCL.so.1", "libnvidia-opencl.so.1", "compute", ("/etc/OpenCL/vendors/",)),
)
"""Sources: libglvnd icd_enumeration.md, Vulkan-Loader LoaderDriverInterface.md, cl_khr_icd."""


def manifest_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a library of the driver for which neither the plan nor the image has a manifest."""
    targets = [mount.target for mount in preflight.plan.mounts]
    libraries = {target.rpartition("/")[2] for target in targets}
    request = preflight.plan.request
    for loader in LOADERS:
        if loader.library not in libraries or any(target.startswith(loader.directories) for target in targets):
            continue
        if preflight.has_image and _has_manifest(preflight.image.tree, loader):
            continue
        is_named = loader.capability == "graphics" and request.caps_named and "graphics" in request.capabilities
        yield finding(
            "manifest-missing",
            subject=loader.name,
            case=loader.name,
            severity="error" if is_named else preflight.used.get(loader.soname, "note"),
            where=preflight.looked_in(*loader.directories),
            library=loader.library,
        )


def _has_manifest(tree: Tree, loader: NeutralLoader) -> bool:
    paths = [f"{directory}{name}" for directory in loader.directories for name in tree.names(directory)]
    icds = (_parsed(tree.read(path)) for path in paths)
    return any(icd is not None and loader.library in " ".join(icd.libraries) for icd in icds)


def manifest_dangling(preflight: Preflight) -> Iterator[Finding]:
    """Report a manifest of the plan that names a library which the container lacks."""
    if preflight.image.facts.libc_family != "glibc":
        return  # nothing of the driver loads there: image-without-glibc
    container = preflight.container
    left_out = {d.subject for d in preflight.plan.decisions if d.verdict == "left-out" and d.step == "side"}
    for mount, icd in _manifests(preflight):
        for library in dict.fromkeys(icd.libraries):
            located = container.locate(library) if library.startswith("/") else container.find(library)
            if located is None:
                name = library.rpartition("/")[2]
                yield finding(
                    "manifest-dangling",
                    subject=mount.target,
                    severity="note" if name in left_out else "warning",
                    where=f"{mount.source or 'generated'}: library_path",
                    library=library,
                    name=name,
                )


def _manifests(preflight: Preflight) -> Iterator[tuple[Mount, Icd]]:
    """Yield the manifests of the plan that can be parsed. The planner reports damaged ones."""
    for mount in preflight.plan.mounts:
        if mount.target.endswith((".json", ".icd")):
            driver = preflight.host.driver
            inside = driver.rooted(mount.source or "")
            data = Missing("absent") if inside is None else driver.read(inside)
            icd = _parsed(data if mount.content is None else mount.content.encode("utf-8", "surrogateescape"))
            if icd is not None:
                yield mount, icd


def _parsed(data: Union[bytes, Missing]) -> Optional[Icd]:
    try:
        return None if isinstance(data, Missing) else parse_icd(data)
    except FormatError:
        return None


_LISTS = {"libvulkan.so.1": MANIFEST_VARIABLES[:2], EGL: MANIFEST_VARIABLES[2:]}
"""The variables with manifests of each loader; Vulkan before 1.3.207 knows only the second."""


def loader_variable(preflight: Preflight) -> Iterator[Finding]:
    """Yield a variable by which a loader finds no driver, or finds a driver other than NVIDIA's.

    Nothing is reported about relative paths, directories and unreadable manifests. Sources: Vulkan-Loader
    `LoaderInterfaceArchitecture.md`, libglvnd `src/EGL/libeglvendor.c` and `src/GLX/libglxmapping.c`, Mesa
    `src/util/u_debug.c`.
    """
    if not preflight.wants("graphics"):
        return
    tree, is_nvidias = preflight.container.tree, GLX in preflight.libraries
    for loader, names in _LISTS.items():
        values = {name: value for name in names if (value := variable_of(preflight, name))}
        paths = [path for value in values.values() for path in value.split(":") if path]
        if not paths or not all(path.startswith("/") for path in paths):
            continue
        present = [path for path in paths if not tree.lacks(path)]
        if not present:
            yield _of_variable(preflight, values, loader, "absent")
        elif is_nvidias and all(_is_others(tree, path) for path in present):
            yield _of_variable(preflight, values, loader, "others")
    vendor = variable_of(preflight, GLX_VENDOR)
    if is_nvidias and vendor and vendor != "nvidia":
        has_other = preflight.container.find(f"libGLX_{vendor}.so.0") is not None
        yield _of_variable(preflight, {GLX_VENDOR: vendor}, "libGLX.so.0", "others" if has_other else "vendor")
    value = (variable_of(preflight, SOFTWARE) or "").lower()
    if value in ("1", "y", "yes", "t", "true") and preflight.vendors & {"amd", "intel"}:
        yield _of_variable(preflight, {SOFTWARE: value}, "Mesa", "software")


def _is_others(tree: Tree, path: str) -> bool:
    data = tree.read(path)
    return not isinstance(data, Missing) and b"nvidia" not in data


def _of_variable(preflight: Preflight, values: dict[str, str], loader: str, case: str) -> Finding:
    by_name: Severity = "warning" if preflight.wants_by_name("graphics") else "note"
    used = preflight.used.get(loader, by_name)
    is_images = all(name in preflight.image.facts.env for name in values)
    is_known = preflight.backend is not None and preflight.own_mounts is not None
    is_sure = case == "absent" and (is_known or (is_images and not " ".join(values.values()).startswith(FROM_THE_HOST)))
    raw_finding = finding(
        "loader-variable",
        subject=next(iter(values)),
        case=(case, *((loader,) if case == "absent" else ())),
        severity="warning" if used == "error" and not is_sure else used,
        where=", ".join(f"{name}={value[:200]}" for name, value in values.items()),
        loader=loader,
    )
    return soften(raw_finding, preflight.container.unreadable_mounts)


def vendor_neutral_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report the missing loaders that the program needs to find the driver. The severity is that of the program's use.

    libEGL is also required if the image has another part of libglvnd: without a display, the driver's Vulkan opens it.
    With driver 550.163.01, Vulkan opens no GPU if libEGL is missing, or if Mesa's is the only EGL driver.
    """
    code = "vendor-neutral-missing"
    reported = {prior.subject: prior for prior in preflight.plan.findings if prior.code == code}
    for name, severity in preflight.used.items():
        if name in reported and SEVERITIES.index(severity) < SEVERITIES.index(reported[name].severity):
            yield soften(reported[name]._replace(severity=severity), unseen_libraries(preflight))
    has_driver = GLX in preflight.libraries and preflight.image.facts.libc_family == "glibc"
    if not has_driver or not preflight.wants("graphics") or EGL in reported or preflight.container.find(EGL):
        return
    by_name: Severity = "warning" if preflight.wants_by_name("graphics") else "note"
    draws = any(use.capability == "graphics" for use in preflight.uses)
    severity = preflight.used.get(EGL, "note" if draws else by_name)
    environ = preflight.host.environ if preflight.start is None else preflight.start.caller.environ
    # Vulkan's driver may connect to the caller's X server.
    if environ.get("DISPLAY") and not any(use.library == EGL for use in preflight.uses):
        severity = "note" if severity == "note" else "warning"
    packages = name_facts(EGL).packages
    raw_finding = finding(
        code, subject=EGL, case="alone", severity=severity, vendor="nvidia", where=GLX, packages=packages
    )
    yield soften(raw_finding, unseen_libraries(preflight))


def gbm_backend_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report that the plan lacks `nvidia-drm_gbm.so`, the name by which libgbm opens libnvidia-allocator since driver
    495.

    Source: NVIDIA driver README, chapter "Installed Components" and "GBM".
    """
    if preflight.plan.request.like is not None:
        return  # the imitated program leaves it out on every host
    names = preflight.libraries
    if preflight.wants("graphics") and "libEGL_nvidia.so.0" in names and GBM_BACKEND not in names:
        where = f"no {GBM_BACKEND} and no {_ALLOCATOR} beside {names['libEGL_nvidia.so.0']}"
        severity: Severity = "warning" if preflight.wants_by_name("graphics") else "note"
        yield finding("gbm-backend-missing", subject=GBM_BACKEND, severity=severity, where=where)


def render_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a GPU without /dev/dri/renderD*: nvidia-drm is not loaded, or its node is missing."""
    if not preflight.has_linux_driver or not preflight.wants_by_name("graphics"):
        return
    for gpu in preflight.gpus:
        directory = f"{PCI_DEVICES}/{gpu.pci}/drm"
        # If the directory is unreadable or has entries, only the node may be hidden.
        if gpu.pci and gpu.render is None and preflight.host.dev.has_nothing_in(directory):
            yield finding("render-node-missing", subject=gpu.pci, where=f"{directory}, /dev/dri", pci=gpu.pci)


def drm_modeset_off(preflight: Preflight) -> Iterator[Finding]:
    """Report that modesetting of nvidia-drm is off: it then registers no buffers for GBM. Only root can read the
    parameter.

    Source: open-gpu-kernel-modules kernel-open/nvidia-drm/nvidia-drm-os-interface.c.
    """
    off = preflight.host.dev.text(MODESET) == "N"
    if off and preflight.has_linux_driver and preflight.wants_by_name("graphics"):
        yield finding("drm-modeset-off", subject="nvidia_drm", where=f"{MODESET} = N")
