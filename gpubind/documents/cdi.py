"""`gpubind cdi list`: the CDI devices of a host as a table, or as `gpubind.cdi/1` (data/cdi.schema.json)."""

from __future__ import annotations

from gpubind import __version__
from gpubind.documents.gpus import UNKNOWN
from gpubind.documents.tables import Column, Table, table_of
from gpubind.documents.text import printable
from gpubind.inventory.cdi.listing import ListedCdiDevice, Listing
from gpubind.model.plain import plain, text_of

SCHEMA = "gpubind.cdi/1"
_COLUMNS = (
    Column("device", kept=True),
    Column("file", kept=True),
    Column("format", kept=True),
    Column("version", kept=True),
    Column("state", kept=True),
)


def render_cdi_json(listing: Listing) -> str:
    """Return the document."""
    return text_of(plain({"schema": SCHEMA, "gpubind": __version__, **listing._asdict()}))


def cdi_table(listing: Listing) -> Table:
    """Return a row for each device, and for each file that cannot be used, in the order of the files."""
    rows = []
    for file in listing.files:
        if file.fault is not None:
            rows.append((UNKNOWN, file.path, UNKNOWN, UNKNOWN, f"invalid: {file.fault}"))
        for device in listing.devices:
            if device.path == file.path:
                place = file.path if device.line is None else f"{file.path}:{device.line}"
                rows.append((device.name, place, file.format or UNKNOWN, file.version or UNKNOWN, _state(device)))
    return table_of(_COLUMNS, rows)


def stale_lines(listing: Listing) -> str:
    """Return a line for each way in which a file is stale."""
    return "".join(f"stale: {printable(text)}\n" for file in listing.files for text in file.stale)


def _state(device: ListedCdiDevice) -> str:
    """`stale: 27 paths do not exist`."""
    if device.by is not None:
        return f"{device.state} {'by' if device.state == 'shadowed' else 'with'} {device.by}"
    if not device.gone:
        return device.state
    named = f"{device.gone[0]} does" if len(device.gone) == 1 else f"{len(device.gone)} paths do"
    return f"{device.state}: {named} not exist"
