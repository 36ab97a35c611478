"""List files: the claims of their lines, and the sections of names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Optional

from gpubind.formats.driver.liblist import VENDOR_NEUTRAL, EntryKind, LibList, ListEntry, library_stem, parse_liblist
from gpubind.host import ListFile
from gpubind.host.base import shipped_liblist
from gpubind.inventory.claims import Claim, ClaimKind
from gpubind.model import CAPABILITIES, Capability, FileGroup, Vendor

_KINDS: dict[EntryKind, ClaimKind] = {
    "library": "library",
    "library-path": "path",
    "file": "path",
    "binary": "program",
}


class NameTable:
    """The entries of a list file, by the names that they mean."""

    def __init__(self, liblist: LibList) -> None:
        self.label = liblist.label
        self._entries = liblist.entries
        self._libraries: dict[str, list[ListEntry]] = {}
        """The entries for libraries by their stem: `libcuda.so` -> the entries that start with it."""
        for entry in liblist.entries:
            if entry.kind == "library":
                self._libraries.setdefault(library_stem(entry.text), []).append(entry)
        others = (entry for entry in liblist.entries if entry.kind != "library")
        self._others = sorted(others, key=lambda entry: entry.kind != "binary")

    def section(self, name: str, path: str) -> Optional[str]:
        """Return the section of the list for the file *name* at *path*; None if no entry matches."""
        libraries = self._libraries.get(library_stem(name), ()) if ".so" in name else ()
        for entry in libraries:
            if name.startswith(entry.text):
                return entry.section
        for entry in self._others:
            if entry.text == name if entry.kind == "binary" else fnmatchcase(path, entry.text):
                return entry.section
        return None

    def capability(self, claim: Claim) -> Optional[Capability]:
        """Return the capability of a program or file, by the section of *claim*, else the section in this list."""
        section = self.section(claim.name.rpartition("/")[2], claim.name) if claim.section is None else claim.section
        return capability_of(section, None)

    def claims(
        self, source: str, vendor: Vendor = "nvidia", *, not_in_list: bool = False, group: Optional[FileGroup] = None
    ) -> tuple[Claim, ...]:
        """Return the claims of the entries, in the order of their lines."""
        return tuple(
            Claim(_KINDS[kind], text, source, f"{self.label}:{line}", vendor, section, not_in_list, group=group)
            for text, kind, section, line in self._entries
        )


@lru_cache(maxsize=8)
def read_table(listfile: ListFile) -> NameTable:
    """Return the names in *listfile*. Errors: `FormatError` (code `bad-liblist`)."""
    return NameTable(parse_liblist(listfile.data, listfile.label))


def read_tables(listfile: ListFile, name: str) -> tuple[NameTable, NameTable]:
    """Return the names in *listfile*, and those in the shipped list *name*. Errors: those of `read_table`."""
    return read_table(listfile), read_table(listfile if listfile.shipped else shipped_liblist(name))


def capability_of(section: Optional[str], version: Optional[str]) -> Optional[Capability]:
    """Return the capability of a section. A vendor-neutral name with a driver *version* is NVIDIA's own OpenGL."""
    if section == VENDOR_NEUTRAL:
        return "graphics" if version else None
    return next((cap for cap in CAPABILITIES if cap == section), None)
