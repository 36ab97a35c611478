"""The driver for video in an image: whether it knows Intel's GPU, and the kernel driver that has it.

libva loads the driver that LIBVA_DRIVER_NAME names; else iHD, and for a GPU of i915 then i965, from the directories of
LIBVA_DRIVERS_PATH, or from that with which it was built. A driver that does not know the GPU fails, and libva tries the
next one. Source: intel/libva `va/va.c`, `va/drm/va_drm_utils.c`.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Literal, Optional

from gpubind.files import Tree
from gpubind.formats.driver.vaapi import (
    FIRST_UNKNOWN_TO_I965,
    I965,
    IHD,
    lacks_xe,
    maps_xe,
    parse_device_table,
    parse_devices,
    parse_release,
)
from gpubind.host.base import VIDEO_VARIABLES
from gpubind.inventory.intel.devices import addresses, device_id, device_ids, platform, platforms
from gpubind.model import Finding, Gpu, Missing, finding
from gpubind.rules.image.level_zero import is_gpu, known_since, names_of
from gpubind.rules.missing import softened
from gpubind.rules.preflight import ImagePreflight, variable_of

NAME, PATH = VIDEO_VARIABLES
JELLYFIN = "/usr/lib/jellyfin-ffmpeg/lib"
"""The directory of the libva that Jellyfin's FFmpeg brings along; its driver is below."""
LIBVA = "libva-drm.so.2"
ONEVPL, MEDIA_SDK = "libmfx-gen.so.1.2", "libmfxhw64.so.1"
OLDEST_OF_ONEVPL = "tgllp"
"""The first platform that oneVPL's own runtime serves. Its table has the device IDs of older ones, too."""
Case = Literal["old", "unheard", "i965", "xe", "libva"]


def intel_video_unknown(preflight: ImagePreflight) -> Iterator[Finding]:
    """Yield the GPUs of Intel's that no driver of VA-API in the image knows, and those that none of oneVPL's does.

    Only what is certain: a driver whose devices cannot be read may know every GPU.
    """
    chosen = [gpu for gpu in preflight.plan.gpus if gpu.chosen and gpu.index is not None]
    gpus = [gpu for gpu in chosen if is_gpu(gpu)]
    drivers = _drivers(preflight) if gpus else {}
    if drivers:
        found = _Drivers(preflight, drivers)
        cases = {gpu: found.case(gpu) for gpu in gpus}
        is_all = len(chosen) == len([case for case in cases.values() if case is not None])
        for case in dict.fromkeys(case for case in cases.values() if case is not None):
            yield _of_vaapi(preflight, found, [gpu for gpu in gpus if cases[gpu] == case], case, is_all=is_all)
    yield from _of_onevpl(preflight, gpus)


def _of_vaapi(preflight: ImagePreflight, found: _Drivers, gpus: list[Gpu], case: Case, *, is_all: bool) -> Finding:
    request = preflight.plan.request
    is_for_video = request.caps_named and "video" in request.capabilities and "compute" not in request.capabilities
    made = finding(
        "intel-video-unknown",
        subject=names_of(gpus),
        case=case,
        severity="error" if is_all and is_for_video else "warning",
        where=", ".join(found.libva if case == "libva" else found.paths),
        release=found.release,
        since=known_since(preflight.host, gpus, "media"),
    )
    return softened(made, preflight.container.unseen)


def _of_onevpl(preflight: ImagePreflight, gpus: list[Gpu]) -> Iterator[Finding]:
    """Yield the GPUs that the image's runtimes of oneVPL and of the Media SDK do not know, if it has one."""
    tree, host = preflight.container.tree, preflight.host
    known: set[str] = set()
    paths = [(path, name) for name in (ONEVPL, MEDIA_SDK) if gpus for path in _copies(preflight, name)]
    for path, name in paths:
        constants = tree.constants(path)
        devices = None if isinstance(constants, Missing) else parse_device_table(constants, device_ids())
        if devices is None:
            return
        known |= devices if name == MEDIA_SDK else devices - device_ids(OLDEST_OF_ONEVPL)
    unknown = [gpu for gpu in gpus if (device := device_id(host, gpu.pci or "")) and device not in known]
    if paths and unknown:
        where = ", ".join(path for path, _ in paths)
        yield finding("intel-video-unknown", subject=names_of(unknown), case="onevpl", severity="note", where=where)


def _copies(preflight: ImagePreflight, name: str) -> Iterator[str]:
    """Yield the paths of the copies of library *name* in the container: the loader's, and that of Jellyfin's FFmpeg."""
    located = preflight.container.find(name)
    if located is not None:
        yield located.path
    if preflight.container.tree.has(f"{JELLYFIN}/{name}"):
        yield f"{JELLYFIN}/{name}"


class _Drivers:
    """The drivers of VA-API that libva may load in a container."""

    def __init__(self, preflight: ImagePreflight, paths: dict[str, str]) -> None:
        self._preflight, self._tree = preflight, preflight.container.tree
        self.paths = tuple(paths)
        self._names = paths
        self._on_xe = addresses(preflight.host, ("xe",))
        self._devices = {path: self._devices_of(path) for path, name in paths.items() if name == IHD}

    def case(self, gpu: Gpu) -> Optional[Case]:
        """Return why none of the drivers serves *gpu*; None if one does, or may."""
        device = device_id(self._preflight.host, gpu.pci or "")
        is_on_xe = gpu.pci in self._on_xe
        if device is None or any(devices is None for devices in self._devices.values()):
            return None
        knowing = [path for path, devices in self._devices.items() if devices is not None and device in devices]
        if not knowing:
            name = platform(self._preflight.host, gpu.pci or "")
            if I965 in self._names.values() and not is_on_xe and not _is_too_new_for_i965(name):
                return None
            return "i965" if not self._devices else "unheard" if name is None else "old"
        if not is_on_xe:
            return None
        if all(lacks_xe(constants) for path in knowing if (constants := self._constants(path))):
            return "xe"
        return "libva" if self.libva and variable_of(self._preflight, NAME) is None else None

    @property
    def release(self) -> str:
        """Return the release of iHD, for people."""
        path = next(iter(self._devices), None)
        return (path and parse_release(self._constants(path))) or "of an unknown release"

    @property
    def libva(self) -> tuple[str, ...]:
        """Return the image's copies of libva for nodes, if none of them may know the kernel driver xe; else nothing."""
        paths = tuple(_copies(self._preflight, LIBVA))
        found = [self._tree.constants(path) for path in paths]
        is_unknown = all(not isinstance(constants, Missing) and not maps_xe(constants) for constants in found)
        return paths if is_unknown else ()

    def _devices_of(self, path: str) -> Optional[Set[str]]:
        code = self._tree.first_code(path)
        return None if isinstance(code, Missing) else parse_devices(code, device_ids())

    def _constants(self, path: str) -> bytes:
        found = self._tree.constants(path)
        return b"" if isinstance(found, Missing) else found


def _is_too_new_for_i965(name: Optional[str]) -> bool:
    every = platforms()
    return name is not None and every.index(name) >= every.index(FIRST_UNKNOWN_TO_I965)


def _drivers(preflight: ImagePreflight) -> dict[str, str]:
    """Return the names of Intel's drivers that libva may load in the container, by path: of each file the first one.

    Nothing, if a variable has it load another one, or one of the files cannot be looked at.
    """
    tree: Tree = preflight.container.tree
    chosen, places = variable_of(preflight, NAME), variable_of(preflight, PATH)
    directories = [f"{one}/dri" for one in (*preflight.image.loader.directories, JELLYFIN)]
    if places:
        directories = [place for place in places.split(":") if place.startswith("/")]
    found: dict[str, tuple[str, str]] = {}
    for name in (IHD, I965) if not chosen else (chosen,) if chosen in (IHD, I965) else ():
        for directory in directories:
            path = f"{directory}/{name}_drv_video.so"
            real = tree.resolve(path)
            if not isinstance(real, Missing):
                found.setdefault(real, (path, name))
            elif real.why != "absent":
                return {}
    return dict(found.values())
