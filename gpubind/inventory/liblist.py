"""List files: the claims of their lines, and the sections that the shipped one has for names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple, Optional

from gpubind.formats.driver.liblist import VENDOR_NEUTRAL, EntryKind, LibList, ListEntry, library_stem, parse_liblist
from gpubind.host import ListFile
from gpubind.host.base import shipped_liblist
from gpubind.inventory.claims import Claim, ClaimKind
from gpubind.model import CAPABILITIES, Capability, Group, Vendor

_KINDS: dict[EntryKind, ClaimKind] = {
    "library": "library",
    "library-path": "path",
    "file": "path",
    "binary": "program",
}


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
        """Return the entry for library *name* (`libcuda.so.1`): the first that is a prefix of it."""
        if ".so" not in name:
            return None
        for entry in self.libraries.get(library_stem(name), ()):
            if name.startswith(entry.text):
                return entry
        return None

    def section(self, name: str, path: str) -> Optional[str]:
        """Return the section of *name* at *path*; None if no entry stands for it."""
        entry = self.library(name)
        if entry is None:
            entry = next((e for e in self.binaries if e.text == name), None)
        if entry is None:
            entry = next((e for e in self.paths if fnmatchcase(path, e.text)), None)
        return entry.section if entry else None

    def section_of(self, claim: Claim) -> Optional[str]:
        """Return the section of a program or file: that of the claim, else that of this list."""
        if claim.section is not None:
            return claim.section
        return self.section(claim.name.rpartition("/")[2], claim.name)


class Lists(NamedTuple):
    """The list file in force, and the shipped one, which knows what belongs to which capability."""

    in_force: NameTable
    shipped: NameTable


@lru_cache(maxsize=8)
def read_table(listfile: ListFile) -> NameTable:
    """Return the names in *listfile*. Errors: `FormatError` (code `bad-liblist`)."""
    return NameTable(parse_liblist(listfile.data, listfile.label))


def read_lists(listfile: ListFile, name: str) -> Lists:
    """Return *listfile*, and the shipped list *name*. Errors: those of `read_table`."""
    shipped = listfile if listfile.shipped else shipped_liblist(name)
    return Lists(read_table(listfile), read_table(shipped))


def claims(
    table: NameTable, by: str, vendor: Vendor = "nvidia", *, outside: bool = False, group: Optional[Group] = None
) -> tuple[Claim, ...]:
    """Return what the entries of *table* claim, in the order of its lines."""
    return tuple(
        Claim(
            kind=_KINDS[entry.kind],
            name=entry.text,
            by=by,
            at=table.liblist.at(entry),
            vendor=vendor,
            section=entry.section,
            outside=outside,
            group=group,
        )
        for entry in table.liblist.entries
    )


def capability_of(section: Optional[str], version: Optional[str]) -> Optional[Capability]:
    """Return the capability of a section; a vendor-neutral name that carries V is NVIDIA's own OpenGL."""
    if section == VENDOR_NEUTRAL:
        return "graphics" if version else None
    return next((cap for cap in CAPABILITIES if cap == section), None)
