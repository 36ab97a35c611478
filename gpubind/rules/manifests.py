"""Rules about loader manifests: OpenCL, EGL, Vulkan. Without one a loader does not know that the driver is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpubind.errors import FormatError
from gpubind.formats.icd import Icd, parse_icd
from gpubind.model import Capability, Finding, Missing, Mount
from gpubind.rules.preflight import Preflight


class Loader(NamedTuple):
    """A vendor-neutral loader, and how it learns of the driver."""

    what: str
    library: str
    """The driver's library that it opens."""
    capability: Capability
    pattern: tuple[str, ...]
    """Directories of its manifests."""
    consequence: str


LOADERS = (
    Loader(
        "EGL",
        "libEGL_nvidia.so.0",
        "graphics",
        ("/usr/share/glvnd/egl_vendor.d/", "/etc/glvnd/egl_vendor.d/"),
        "eglGetDisplay finds Mesa or nothing: EGL_NOT_INITIALIZED, libEGL warning",
    ),
    Loader(
        "Vulkan",
        "libGLX_nvidia.so.0",
        "graphics",
        ("/usr/share/vulkan/icd.d/", "/etc/vulkan/icd.d/"),
        "vkCreateInstance: Found no drivers! VK_ERROR_INCOMPATIBLE_DRIVER (-9)",
    ),
    Loader(
        "OpenCL",
        "libnvidia-opencl.so.1",
        "compute",
        ("/etc/OpenCL/vendors/",),
        "clGetPlatformIDs: CL_PLATFORM_NOT_FOUND_KHR (-1001)",
    ),
)
"""Sources: libglvnd icd_enumeration.md, Vulkan-Loader LoaderDriverInterface.md, cl_khr_icd."""


def manifest_missing(preflight: Preflight) -> Iterator[Finding]:
    """A library of the driver is in the plan, but nothing tells the loader of it, nor does the image."""
    targets = [mount.target for mount in preflight.plan.mounts if mount.kind == "manifest" or "/" in mount.target]
    libraries = {target.rpartition("/")[2] for target in targets}
    request = preflight.plan.request
    for loader in LOADERS:
        if loader.library not in libraries or any(target.startswith(loader.pattern) for target in targets):
            continue
        if preflight.image is not None and _in_image(preflight, loader):
            continue
        named = request.caps_explicit and loader.capability in request.caps
        yield Finding(
            "manifest-missing",
            "error" if named and loader.capability == "graphics" else "note",
            "nvidia",
            loader.what,
            f"{loader.library} is in the plan, but no manifest tells the {loader.what} loader of it",
            ", ".join(loader.pattern),
            loader.consequence,
            "install the driver's package that has the manifest on the host, or write one in the image",
        )


def manifest_dangling(preflight: Preflight) -> Iterator[Finding]:
    """A manifest of the plan names a library that the container does not have."""
    assert preflight.container is not None
    assert preflight.image is not None
    if preflight.image.facts.libc_family != "glibc":
        return  # nothing of the driver loads there, which another finding says
    left = {d.subject for d in preflight.plan.decisions if d.verdict == "left-out" and d.step == "side"}
    for mount, icd in _manifests(preflight):
        for library in dict.fromkeys(icd.libraries):
            found = (
                preflight.container.locate(library) if library.startswith("/") else preflight.container.find(library)
            )
            if found is None:
                name = library.rpartition("/")[2]
                yield Finding(
                    "manifest-dangling",
                    "note" if name in left else "warning",
                    "nvidia",
                    mount.target,
                    f"{mount.target} names {library}, which the container does not have",
                    f"{mount.source or 'generated'}: library_path",
                    f"{library}: cannot open shared object file: No such file or directory",
                    "add the library to the list, or leave the manifest out",
                    f"gpubind explain {name}",
                )


def _manifests(preflight: Preflight) -> Iterator[tuple[Mount, Icd]]:
    tree = preflight.host.driver
    for mount in preflight.plan.mounts:
        if not mount.target.endswith((".json", ".icd")):
            continue
        if mount.content is not None:
            data = mount.content.encode("utf-8", "surrogateescape")
        else:
            inside = tree.rooted(mount.source or "")
            read = Missing("absent") if inside is None else tree.read(inside)
            if isinstance(read, Missing):
                continue
            data = read
        try:
            yield mount, parse_icd(data)
        except FormatError:
            continue  # planning says so already


def _in_image(preflight: Preflight, loader: Loader) -> bool:
    assert preflight.image is not None
    tree = preflight.image.tree
    for directory in loader.pattern:
        names = tree.list(directory)
        for name in () if isinstance(names, Missing) else names:
            data = tree.read(f"{directory}{name}")
            try:
                if isinstance(data, bytes) and loader.library in " ".join(parse_icd(data).libraries):
                    return True
            except FormatError:
                continue
    return False
