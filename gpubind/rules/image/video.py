"""The driver for video in an image: whether it knows Intel's GPU and the GPU's kernel driver.

libva loads the driver that LIBVA_DRIVER_NAME names. By default it loads iHD; for a GPU of the kernel driver i915, it
then tries i965. It searches the directories of LIBVA_DRIVERS_PATH, else the directory that was set when libva was
built. A driver that does not know the GPU fails, and libva tries the next one. Source: intel/libva `va/va.c`,
`va/drm/va_drm_utils.c`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, Optional

from gpubind.files.facts import CONSTANTS, FIRST_CODE
from gpubind.formats.driver.vaapi import (
    FIRST_UNKNOWN_TO_I965,
    I965,
    IHD,
    OTHERS,
    lacks_xe,
    maps_xe,
    parse_device_table,
    parse_devices,
    parse_release,
)
from gpubind.host.base import VIDEO_VARIABLES
from gpubind.inventory.intel.devices import addresses, device_id, device_ids, platform, platforms
from gpubind.loader.search import LoadFailure
from gpubind.model import Finding, Gpu, Missing, finding, shorten_list
from gpubind.rules.image.level_zero import is_gpu, known_since, names_of
from gpubind.rules.missing import soften
from gpubind.rules.preflight import Preflight, variable_of

NAME, PATH = VIDEO_VARIABLES
JELLYFIN = "/usr/lib/jellyfin-ffmpeg/lib"
"""The directory of the libva in Jellyfin's FFmpeg. Its driver is in a subdirectory."""
_LIBVA_DRM = "libva-drm.so.2"
ONEVPL, MEDIA_SDK = "libmfx-gen.so.1.2", "libmfxhw64.so.1"
_OLDEST_OF_ONEVPL = "tgllp"
"""The oldest platform that oneVPL's runtime serves, though its table has the device IDs of older ones."""
Case = Literal["old", "unheard", "i965", "xe", "libva", "broken", "variables", "none"]


def intel_video_unknown(preflight: Preflight) -> Iterator[Finding]:
    """Report Intel's GPUs that no VA-API driver in the image knows, and those that no runtime of oneVPL knows.

    Nothing is reported if the devices of a driver cannot be read: it may know every GPU.
    """
    chosen = preflight.chosen_gpus
    gpus = [gpu for gpu in chosen if is_gpu(gpu)]
    if gpus:
        drivers = _Drivers(preflight)
        cases = {gpu: drivers.case(gpu) for gpu in gpus}
        is_all = len(chosen) == len([case for case in cases.values() if case is not None])
        for case in dict.fromkeys(case for case in cases.values() if case is not None):
            if case in ("variables", "none") and len(chosen) > len(gpus):
                continue  # the other vendor's GPU may be the one for video
            yield _vaapi_findings(preflight, drivers, [gpu for gpu in gpus if cases[gpu] == case], case, is_all=is_all)
    yield from _onevpl_findings(preflight, gpus)


def _vaapi_findings(preflight: Preflight, drivers: _Drivers, gpus: list[Gpu], case: Case, *, is_all: bool) -> Finding:
    where = {"libva": drivers.libva, "variables": drivers.hidden, "none": drivers.searched}
    raw_finding = finding(
        "intel-video-unknown",
        subject=names_of(gpus),
        case=case,
        severity="error" if is_all and _is_for_video(preflight) and case != "none" else "warning",
        where=", ".join(where.get(case, (*drivers.paths, *drivers.broken))),
        release=drivers.release,
        variables=shorten_list([f"{name}={value[:80]}" for name, value in drivers.variables.items()]),
        message=next((failure.message for failure in drivers.broken.values()), None),
        since=known_since(preflight.host, gpus, "media"),
    )
    return soften(raw_finding, preflight.container.unreadable_mounts)


def _onevpl_findings(preflight: Preflight, gpus: list[Gpu]) -> Iterator[Finding]:
    tree, host = preflight.container.tree, preflight.host
    known_devices: set[str] = set()
    paths = [(path, name) for name in (ONEVPL, MEDIA_SDK) if gpus for path in _copies(preflight, name)]
    for path, name in paths:
        constants = tree.fact(path, CONSTANTS)
        devices = None if isinstance(constants, Missing) else parse_device_table(constants, device_ids())
        if devices is None:
            return
        known_devices |= devices if name == MEDIA_SDK else devices - device_ids(_OLDEST_OF_ONEVPL)
    unknown = [gpu for gpu in gpus if (device := device_id(host, gpu.pci or "")) and device not in known_devices]
    if paths and unknown:
        where = ", ".join(path for path, _ in paths)
        yield finding("intel-video-unknown", subject=names_of(unknown), case="onevpl", severity="note", where=where)


def _is_for_video(preflight: Preflight) -> bool:
    request = preflight.plan.request
    return request.is_without_compute and "video" in request.capabilities


def _copies(preflight: Preflight, name: str) -> Iterator[str]:
    located = preflight.container.find(name)
    if located is not None:
        yield located.path
    if preflight.container.tree.has(f"{JELLYFIN}/{name}"):
        yield f"{JELLYFIN}/{name}"


class _Drivers:
    def __init__(self, preflight: Preflight) -> None:
        self._preflight, self._tree = preflight, preflight.container.tree
        self.variables = {name: value for name in VIDEO_VARIABLES if (value := variable_of(preflight, name))}
        """The variables of libva that the container sets."""
        chosen, directories = (self.variables.get(name, "") for name in (NAME, PATH))
        installed = [f"{directory}/dri" for directory in (*preflight.image.loader.directories, JELLYFIN)]
        places = [directory for directory in directories.split(":") if directory] or installed
        names = () if chosen in OTHERS else (chosen,) if chosen else (IHD, I965)
        is_known = all(place.startswith("/") for place in places)  # else they depend on the program's working directory
        search = self._search(names, places) if is_known else None
        driver_names = search or {}
        self.broken = {path: failure for path in driver_names for failure in self._refused(path)}
        """The files that the loader refuses, with the failure."""
        self._names = {path: name for path, name in driver_names.items() if path not in self.broken}
        self.paths = tuple(self._names)
        is_empty = search is not None and not driver_names
        self.hidden = tuple(self._search((IHD, I965), installed) or ()) if is_empty and self.variables else ()
        """Intel's drivers that libva does not find because of its variables."""
        is_missed = is_empty and not self.hidden and _is_for_video(preflight) and any(_copies(preflight, _LIBVA_DRM))
        self.searched = tuple(places) if is_missed else ()
        """The directories without a driver, if the user requested video and the image has libva."""
        self._on_xe = addresses(preflight.host, ("xe",))
        codes = {path: self._tree.fact(path, FIRST_CODE) for path, name in self._names.items() if name != I965}
        self._devices = {
            path: None if isinstance(code, Missing) else parse_devices(code, device_ids())
            for path, code in codes.items()
        }

    def _search(self, names: Iterable[str], directories: Iterable[str]) -> Optional[dict[str, str]]:
        """Return each driver's first path in *directories*, with its name; None if a file is unreadable."""
        drivers: dict[str, tuple[str, str]] = {}
        for name in names:
            for directory in directories:
                path = f"{directory}/{name}_drv_video.so"
                resolved = self._tree.resolve(path)
                if not isinstance(resolved, Missing):
                    drivers.setdefault(resolved, (path, name))
                elif resolved.why != "absent":
                    return None
                elif not isinstance(self._tree.lstat(path), Missing):  # a dangling link
                    drivers.setdefault(path, (path, name))
        return dict(drivers.values())

    def _refused(self, path: str) -> Iterator[LoadFailure]:
        """Yield the failure if the loader certainly refuses the file at *path* itself, whatever it is linked with.

        Nothing is yielded for a file that gpubind could not read: the loader may be able to read it.
        """
        for failure in self._preflight.container.failures(path)[:1]:
            if failure.name == path and failure.why not in ("forbidden", "unreadable"):
                yield failure

    def case(self, gpu: Gpu) -> Optional[Case]:
        """Return why none of the drivers serves *gpu*; None if one does or may."""
        if not self._names:
            return "broken" if self.broken else "variables" if self.hidden else "none" if self.searched else None
        device = device_id(self._preflight.host, gpu.pci or "")
        is_on_xe = gpu.pci in self._on_xe
        if device is None or any(devices is None for devices in self._devices.values()):
            return None
        knowing = [path for path, devices in self._devices.items() if devices is not None and device in devices]
        if not knowing:
            name = platform(self._preflight.host, gpu.pci or "")
            is_too_new = name is not None and platforms().index(name) >= platforms().index(FIRST_UNKNOWN_TO_I965)
            if I965 in self._names.values() and not is_on_xe and not is_too_new:
                return None
            return "i965" if not self._devices else "unheard" if name is None else "old"
        if not is_on_xe:
            return None
        if all((constants := self._constants(path)) and lacks_xe(constants) for path in knowing):
            return "xe"
        return "libva" if self.libva and variable_of(self._preflight, NAME) is None else None

    @property
    def release(self) -> str:
        path = next(iter(self._devices), None)
        return (path and parse_release(self._constants(path))) or "of an unknown release"

    @property
    def libva(self) -> tuple[str, ...]:
        """Return the paths of the image's libva if no copy knows the kernel driver xe; else nothing."""
        paths = tuple(_copies(self._preflight, _LIBVA_DRM))
        facts = [self._tree.fact(path, CONSTANTS) for path in paths]
        is_unknown = all(not isinstance(constants, Missing) and not maps_xe(constants) for constants in facts)
        return paths if is_unknown else ()

    def _constants(self, path: str) -> bytes:
        constants = self._tree.fact(path, CONSTANTS)
        return b"" if isinstance(constants, Missing) else constants
