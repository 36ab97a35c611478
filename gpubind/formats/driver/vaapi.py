"""Intel's drivers for video: the GPUs that they support, according to their code and constants.

iHD, the VA-API driver, registers each PCI device ID by a call at load time, with the ID in a register. The runtimes of
oneVPL and the Media SDK have a table of device IDs. Intel's older VA-API driver, i965, has a `switch` instead.

Sources: intel/media-driver `media_driver/linux/*/ddi/media_sysinfo_*.cpp`, `mos_bufmgr_xe.c`; intel/vpl-gpu-rt
`_studio/shared/src/libmfx_core_vaapi.cpp`; intel/libva `va/drm/va_drm_utils.c`, `va/va.c`. Compared with Debian's iHD
23.1.1, 25.2.3 and 26.3.5, libmfx-gen 22.6.4, 25.1.4 and 26.3.3, libmfxhw64 22.5.4, libva 2.17, 2.22 and 2.24.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Set
from typing import Optional

IHD, I965 = "iHD", "i965"
"""The names of Intel's VA-API drivers, in the order in which libva tries them."""
OTHERS = ("nvidia", "radeonsi", "r600", "pvr", "d3d12")
"""The drivers of other vendors in libva's table; each fails on an Intel GPU."""
FIRST_UNKNOWN_TO_I965 = "icllp"
"""The first platform that i965 does not support, because its last release is from 2020."""
LEAST_DEVICES = 64
"""The least number of known device IDs that code or a table must contain. Other code contains a few of them by
chance.
"""
_REGISTERED = re.compile(rb"[\xbe\xbf](..)\0\0", re.DOTALL)
"""The instruction that loads an ID: `mov $0xe20b, %edi`, or `%esi`."""
_ROW = 12
"""Bytes of a row of the table, which has the ID, the platform and its size."""
_RELEASE = re.compile(rb"Intel iHD driver for Intel\(R\) Gen Graphics - ([0-9]{1,3}(?:\.[0-9]{1,3}){1,2})")
_BUFFERS_OF_XE = b"INTEL_XE_BUFMGR_DEBUG"
_XE = b"xe\0"


def parse_devices(code: bytes, known_ids: Set[str]) -> Optional[Set[str]]:
    """Return the device IDs in *code*, iHD's machine code, such as `e20b`; None if it cannot be parsed.

    *known_ids* are the IDs of all GPUs, by which the code is recognized.
    """
    device_ids = {f"{struct.unpack('<H', match.group(1))[0]:04x}" for match in _REGISTERED.finditer(code)}
    return device_ids if len(device_ids & known_ids) >= LEAST_DEVICES else None


def parse_device_table(constants: bytes, known_ids: Set[str]) -> Optional[Set[str]]:
    """Return the device IDs in the table in *constants*, those of a runtime; None if it cannot be parsed.

    *known_ids*: as for `parse_devices`.
    """
    numbers, step = {int(name, 16) for name in known_ids}, _ROW // 4
    values = struct.unpack_from(f"<{len(constants) // 4}I", constants)
    indexes = {at for at, value in enumerate(values) if value in numbers}
    rows = [at for at in indexes if at + step in indexes or at - step in indexes]
    device_ids = {f"{values[at]:04x}" for at in range(min(rows), max(rows) + 1, step)} if rows else set()
    return device_ids if len(device_ids & known_ids) >= LEAST_DEVICES else None


def parse_release(constants: bytes) -> Optional[str]:
    """Return the release of iHD with these *constants*: `25.2.3`; None if unknown."""
    match = _RELEASE.search(constants)
    return match.group(1).decode() if match else None


def lacks_xe(constants: bytes) -> bool:
    """Return whether iHD with these *constants* certainly does not support the kernel driver xe."""
    return _BUFFERS_OF_XE not in constants


def maps_xe(constants: bytes) -> bool:
    """Return whether `libva-drm.so.2` with these *constants* may know the driver for a GPU of xe."""
    return _XE in constants
