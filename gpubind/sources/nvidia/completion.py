"""Completion from the driver itself: what belongs to it, whoever else names it or does not.

Files that carry V, the driver's own file list, and the shipped list where another source serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpubind.errors import FormatError
from gpubind.host import Host
from gpubind.model import Decision, Finding, Missing
from gpubind.sources import liblist
from gpubind.sources.claims import Claim, Serving
from gpubind.sources.layouts import HOST_ONLY
from gpubind.sources.libraries import Libraries, unmatched

FILE_LIST = "/usr/share/nvidia/files.d/sandboxutils-filelist.json"


def claims(
    host: Host, serving: Serving, lists: liblist.Lists, version: Optional[str], wanted: bool, exclusive: bool
) -> tuple[list[Claim], list[Finding]]:
    """What the driver itself says beside *serving*, and what is wrong with its file list.

    Without completion (*wanted*), and where the list in force is the law (*exclusive*), it is told and not taken.
    """
    by = "driver" if serving.name == "driver" else "completion"
    outside = exclusive or not (wanted or by == "driver")
    found: list[Claim] = []
    if version is not None:
        found.append(Claim("version", version, by, f"its name carries {version}", outside=outside))
    names, findings = _read_file_list(host)
    found += [Claim("library-name", name, by, "the driver's own file list", outside=outside) for name in sorted(names)]
    if serving.name != "liblist" or exclusive:
        found += liblist.claims(lists.shipped, "completion", outside=exclusive or not wanted)
    if wanted and not exclusive:
        found += [Claim("path", pattern, "completion", pattern, stays=why) for pattern, why in HOST_ONLY]
    return found, findings


def missing(claims: Iterable[Claim], found: Libraries) -> list[Decision]:
    """A Decision for each name in the driver's own file list that is not on this host."""
    listed = (claim._replace(by="driver", at=FILE_LIST) for claim in claims if claim.kind == "library-name")
    return unmatched(listed, found)


def _read_file_list(host: Host) -> tuple[frozenset[str], list[Finding]]:
    """Library names in the driver's own file list (drivers since 570 on x86-64)."""
    data = host.driver.read(FILE_LIST)
    if isinstance(data, Missing):
        return frozenset(), []
    from gpubind.formats.filelist import parse_filelist  # only newer drivers have one

    try:
        names = {f.name.rpartition("/")[2] for f in parse_filelist(data) if f.is_library}
    except FormatError as error:
        what = "the driver's own file list cannot be read; the shipped list serves alone"
        where = f"{FILE_LIST}: {error.place}" if error.place else FILE_LIST
        hint = "install the driver's package again, and report it if the file stays like that"
        finding = Finding(
            code=error.code,
            severity="warning",
            vendor="nvidia",
            subject=FILE_LIST,
            what=what,
            where=where,
            why=error.why,
            hint=hint,
        )
        return frozenset(), [finding]
    return frozenset(name for name in names if ".so" in name), []
