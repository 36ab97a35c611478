"""Rules about what an image has of a driver itself, and where its loader would find it."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename

from gpubind.image.environment import ENVIRONMENT, SEARCH_PATHS
from gpubind.image.facts import DRIVER_SONAMES, image_library
from gpubind.model import Finding, ImageLibrary, Missing, Severity
from gpubind.rules.looking import counted, nvidia_driver
from gpubind.rules.order import FIRST, LIBCUDAS, Winner, winner
from gpubind.rules.preflight import Preflight

MISMATCH = "`Driver/library version mismatch`"
_STUBS = {
    **dict.fromkeys(LIBCUDAS, "CUDA_ERROR_STUB_LIBRARY (34): CUDA driver is a stub library"),
    "libnvidia-ml.so.1": "it says that it is a stub library, and nvmlInit answers NVML_ERROR_DRIVER_NOT_LOADED (9)",
}
"""What stubs are for, by the names that programs open, and what calling one comes to."""


def driver_in_image(preflight: Preflight) -> Iterator[Finding]:
    """A driver baked into the image: it wins where it is found first, and fails if it is not the kernel module's."""
    assert preflight.image is not None
    assert preflight.container is not None
    planned = {basename(mount.target) for mount in preflight.plan.mounts}
    driver = nvidia_driver(preflight.plan)
    for library in _drivers(preflight):
        brought = library.soname in planned
        first = winner(preflight, library.soname)
        wins = first is not None and first.file.bind is None and first.file.at == library.path
        same = library.version is not None and driver is not None and library.version == driver.version
        version = f" ({library.version})" if library.version else ""
        what = f"the image has a driver library of its own, {library.path}{version}"
        hint = "take the driver out of the image"
        if first is not None and wins:
            what = (
                f"programs in the container get the image's {library.soname}, {library.path}{version}, not the host's"
            )
            why = f"it comes before the host's in the loader's order: {MISMATCH}"
            hint = f"{hint}{_or_its_directory(first)}"
        elif brought:
            why = f"it waits for programs that do not follow LD_LIBRARY_PATH: {MISMATCH}"
            hint = f"{hint}; the host's comes first only through LD_LIBRARY_PATH"
        else:
            why = f"the plan brings none, so programs will use it: {MISMATCH}"
        severity: Severity = "warning" if same or (brought and not wins) else "error"
        yield Finding("driver-in-image", severity, "nvidia", library.soname, what, library.path, why, hint)


def _or_its_directory(first: Winner) -> str:
    if first.directory is None:
        return ""
    return f", or {first.directory} out of {'your' if first.is_users else 'its'} LD_LIBRARY_PATH"


def order_findings(preflight: Preflight) -> tuple[Finding, ...]:
    """The findings about a libcuda or NVML that programs will get in place of the plan's, with the file that wins.

    A few files are looked for by name, and none is read but for its first bytes: each start can afford that.
    """
    winners = {soname: first for soname in FIRST if (first := winner(preflight, soname)) is not None}
    if not winners:
        return ()
    found = (*stub_in_image(preflight), *driver_in_image(preflight), *_before_the_plans(preflight))
    named = {soname: (first.file.at, first.file.path) for soname, first in winners.items()}
    return tuple(finding for finding in found if finding.where in named.get(finding.subject, ()))


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
    """A stub of libcuda or NVML that programs would open, or that waits behind the host's library."""
    assert preflight.image is not None
    assert preflight.container is not None
    for name, answer in _STUBS.items():
        found = preflight.container.find(name)
        if found is None:
            continue
        own = preflight.image.loader.find(name) or ""
        if found.mount is None and found.tree.is_stub(found.at):
            yield Finding(
                "stub-in-image",
                "error" if name in LIBCUDAS else "warning",
                "nvidia",
                name,
                f"programs in the container will open a stub as {name}: {found.path}",
                found.path,
                answer,
                "remove it from the image, or take its directory out of the image's LD_LIBRARY_PATH and ld.so.conf; it "
                "is for linking only",
            )
        elif found.mount is not None and own and preflight.image.tree.is_stub(own):
            yield Finding(
                "stub-in-image",
                "note",
                "nvidia",
                name,
                f"the image has a stub as {name}, {own}; the host's comes before it",
                own,
                f"programs that do not follow LD_LIBRARY_PATH will open it: {answer}",
                "remove it from the image; it is for linking only",
            )


def library_path_order(preflight: Preflight) -> Iterator[Finding]:
    """LD_LIBRARY_PATH holds copies of what the plan brings, or names the working directory."""
    yield from _before_the_plans(preflight)
    yield from _copies_in_the_images(preflight)


def _before_the_plans(preflight: Preflight) -> Iterator[Finding]:
    """What the user puts in front in LD_LIBRARY_PATH has a libcuda or NVML: it is used, for the user's word counts."""
    for soname in FIRST:
        first = winner(preflight, soname)
        if first is not None and first.is_users:
            yield Finding(
                "library-path-order",
                "warning",
                "nvidia",
                soname,
                f"programs in the container get {first.file.path} as {soname}, not the driver's",
                first.file.path,
                f"you put {first.directory} before it in LD_LIBRARY_PATH; if it is not the kernel module's: {MISMATCH}",
                f"take {first.directory} out of the LD_LIBRARY_PATH that you set for the container",
            )


def _copies_in_the_images(preflight: Preflight) -> Iterator[Finding]:
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
