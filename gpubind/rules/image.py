"""Rules about what an image has of a driver itself, and where its loader would find it."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename

from gpubind.image.facts import DRIVER_SONAMES, ENVIRONMENT, SEARCH_PATHS, image_library
from gpubind.model import Finding, ImageLibrary, Missing
from gpubind.rules.looking import counted, nvidia_driver
from gpubind.rules.preflight import Preflight

LIBCUDAS = ("libcuda.so.1", "libcuda.so")
"""The names by which programs open libcuda."""


def driver_in_image(preflight: Preflight) -> Iterator[Finding]:
    """A driver baked into the image: it wins where it is found first, and fails if it is not the kernel module's."""
    assert preflight.image is not None
    assert preflight.container is not None
    planned = {basename(mount.target) for mount in preflight.plan.mounts}
    driver = nvidia_driver(preflight.plan)
    for library in _drivers(preflight):
        brought = library.soname in planned
        found = preflight.container.find(library.soname)
        wins = found is not None and found.mount is None
        same = library.version is not None and driver is not None and library.version == driver.version
        version = f" ({library.version})" if library.version else ""
        if brought and not wins:
            why = "it waits for programs that do not follow LD_LIBRARY_PATH: `Driver/library version mismatch`"
        elif brought:
            why = "it comes before the host's in the loader's order: `Driver/library version mismatch`"
        else:
            why = "the plan brings none, so programs will use it: `Driver/library version mismatch`"
        yield Finding(
            "driver-in-image",
            "warning" if same or (brought and not wins) else "error",
            "nvidia",
            library.soname,
            f"the image has a driver library of its own, {library.path}{version}",
            library.path,
            why,
            "take the driver out of the image; the host's comes first only through LD_LIBRARY_PATH",
        )


def image_env_undecided(preflight: Preflight) -> Iterator[Finding]:
    """The image sets a search path in a way that only its shell can tell: what is found there is not known."""
    assert preflight.image is not None
    names = [name for name in preflight.image.facts.undecided if name in SEARCH_PATHS]
    if names:
        what = (
            f"the image may set {' and '.join(names)} in ways that only a shell could tell; what it adds is not known"
        )
        why = "programs or libraries may be found there that check says are missing, or others than it names"
        echoed = " ".join(f"${name}" for name in names)
        hint = f"look with `gpubind exec IMAGE sh -c 'echo {echoed}'`; plain assignments and exports are understood"
        yield Finding("image-env-undecided", "warning", None, ", ".join(names), what, ENVIRONMENT, why, hint)


def stub_in_image(preflight: Preflight) -> Iterator[Finding]:
    """A link-time stand-in for libcuda that programs would open: it answers every call with an error."""
    assert preflight.container is not None
    for name in LIBCUDAS:
        found = preflight.container.find(name)
        if found is not None and found.mount is None and "/stubs/" in f"{found.at}{found.path}":
            yield Finding(
                "stub-in-image",
                "error",
                "nvidia",
                name,
                f"programs in the container will open a stub as {name}: {found.path}",
                found.path,
                "CUDA_ERROR_STUB_LIBRARY (34): CUDA driver is a stub library",
                "take /usr/local/cuda/lib64/stubs out of the image's LD_LIBRARY_PATH; it is for linking only",
            )


def library_path_order(preflight: Preflight) -> Iterator[Finding]:
    """The image's own LD_LIBRARY_PATH holds copies of what the plan brings, or names the working directory."""
    assert preflight.image is not None
    assert preflight.container is not None
    own = preflight.image.facts.env.get("LD_LIBRARY_PATH", "")
    if not own:
        return
    planned = {basename(mount.target) for mount in preflight.plan.mounts if mount.kind == "library"}
    if not planned:
        return
    order = ":".join(preflight.container.library_path)
    twice = []
    for directory in dict.fromkeys(own.split(":")):
        names = preflight.image.tree.list(directory) if directory.startswith("/") else ()
        twice += [f"{directory}/{name}" for name in (() if isinstance(names, Missing) else names) if name in planned]
    if twice:
        yield Finding(
            "library-path-order",
            "note",
            "nvidia",
            "LD_LIBRARY_PATH",
            f"the image's own LD_LIBRARY_PATH leads to copies of what the plan brings: {counted(len(twice), 'file')}",
            ", ".join(twice[:8]),
            f"the first in this order counts: {order}",
            "take the copies out of the image, or their directory out of its LD_LIBRARY_PATH",
        )
    if "" in own.split(":"):
        yield Finding(
            "library-path-order",
            "warning",
            "nvidia",
            "LD_LIBRARY_PATH",
            "the image's LD_LIBRARY_PATH has an empty element, which means the current directory",
            own,
            "a library in whatever directory the job starts in would be loaded before the system's",
            "write it in the image without leading, trailing or doubled colons",
        )


def _drivers(preflight: Preflight) -> Iterator[ImageLibrary]:
    """The image's libraries of a driver: where its loader finds them by itself, and in its own LD_LIBRARY_PATH."""
    assert preflight.image is not None
    seen = [library.path for library in preflight.image.facts.driver]
    yield from preflight.image.facts.driver
    compat = [library.path for library in preflight.image.facts.compat]
    for directory in dict.fromkeys(preflight.image.facts.env.get("LD_LIBRARY_PATH", "").split(":")):
        for soname in DRIVER_SONAMES:
            library = image_library(preflight.image.tree, soname, f"{directory}/{soname}")
            if library is not None and library.path not in (*seen, *compat):
                seen.append(library.path)
                yield library
