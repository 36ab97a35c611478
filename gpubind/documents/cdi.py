"""`gpubind cdi list`: the CDI devices of a host as a table, or as `gpubind.cdi/1` (data/cdi.schema.json)."""

from __future__ import annotations

from gpubind.documents.gpus import UNKNOWN
from gpubind.documents.tables import Row, Table, always_shown, make_table
from gpubind.documents.text import printable, render_document
from gpubind.inventory.cdi.listing import CdiListing, ListedCdiDevice

_COLUMNS = always_shown("device", "file", "format", "version", "state")


def render_cdi_json(listing: CdiListing) -> str:
    """Return the document."""
    return render_document("gpubind.cdi/1", listing._asdict())


def cdi_table(listing: CdiListing) -> Table:
    """Return a row for each device, and for each file that cannot be used, in the order of the files."""
    files = {file.path: file for file in listing.files}
    rows: dict[str, list[Row]] = {path: [] for path in files}
    for path, file in files.items():
        if file.fault is not None:
            rows[path].append((UNKNOWN, path, UNKNOWN, UNKNOWN, f"invalid: {file.fault}"))
    for device in listing.devices:
        file = files[device.path]
        place = file.path if device.line is None else f"{file.path}:{device.line}"
        version_cells = (file.format or UNKNOWN, file.version or UNKNOWN)
        rows[file.path].append((device.name, place, *version_cells, _state(device, file.gone)))
    return make_table(_COLUMNS, [row for path in rows for row in rows[path]])


def _state(device: ListedCdiDevice, common: tuple[str, ...]) -> str:
    """Return the state of *device*: `stale: 27 paths do not exist`. *common*: the paths that every device of its
    file provides.
    """
    if device.by is not None:
        return f"{device.state} {'by' if device.state == 'shadowed' else 'with'} {device.by}"
    count = len(common) + len(device.gone)
    if not count:
        return device.state
    subject = f"{(*common[:1], *device.gone)[0]} does" if count == 1 else f"{count} paths do"
    return f"{device.state}: {subject} not exist"


def stale_lines(listing: CdiListing) -> str:
    """Return a line for each way in which a file is stale."""
    return "".join(f"stale: {printable(text)}\n" for file in listing.files for text in file.stale)
