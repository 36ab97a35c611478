"""The one table from a name to its capability and side, for every source: the shipped list file."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Optional

from gpubind.formats.liblist import VENDOR_NEUTRAL, LibList, ListEntry, library_stem
from gpubind.model import CAPABILITIES, Capability

_DRIVER_VERSION = re.compile(r"(?:\.so\.|-)([0-9]{3,5}\.[0-9]{1,5}(?:\.[0-9]{1,5}){0,2})(?:-rc)?$")


class NameTable:
    """The entries of a list file, found by the names that they stand for."""

    def __init__(self, liblist: LibList) -> None:
        self.liblist = liblist
        self.libraries: dict[str, list[ListEntry]] = {}
        """Library entries by stem: `libcuda.so` -> the entries that start so."""
        self.binaries: list[ListEntry] = []
        self.paths: list[ListEntry] = []
        for entry in liblist.entries:
            if entry.kind == "library":
                self.libraries.setdefault(library_stem(entry.text), []).append(entry)
            elif entry.kind == "binary":
                self.binaries.append(entry)
            else:
                self.paths.append(entry)

    def library(self, name: str) -> Optional[ListEntry]:
        """The entry that stands for library *name* (`libcuda.so.1`): the first that is a prefix of it."""
        if ".so" not in name:
            return None
        for entry in self.libraries.get(library_stem(name), ()):
            if name.startswith(entry.text):
                return entry
        return None

    def section(self, name: str, path: str) -> Optional[str]:
        """The section of the thing called *name* at *path*, by whichever entry stands for it; None if none does."""
        entry = self.library(name)
        if entry is None:
            entry = next((e for e in self.binaries if e.text == name), None)
        if entry is None:
            entry = next((e for e in self.paths if fnmatchcase(path, e.text)), None)
        return entry.section if entry else None


def capability_of(section: Optional[str], version: Optional[str]) -> Optional[Capability]:
    """The capability that a section stands for; a vendor-neutral name that carries V is NVIDIA's own OpenGL."""
    if section == VENDOR_NEUTRAL:
        return "graphics" if version else None
    return next((cap for cap in CAPABILITIES if cap == section), None)


def driver_version_of(name: str) -> Optional[str]:
    """The driver version that a file name carries: `libcuda.so.550.163.01` -> `550.163.01`.

    Other versions (`libnvidia-egl-gbm.so.1.1.2`) are no driver versions: branches have three digits.
    """
    match = _DRIVER_VERSION.search(name)
    return match.group(1) if match else None
