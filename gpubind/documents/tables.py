"""Tables as values: their columns and rows, which `cli/tables.py` lays out; and a plan as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Union

from gpubind.documents.text import printable
from gpubind.frozen import NamedTuple
from gpubind.inventory.nodes import natural_sort_key
from gpubind.model import CAPABILITIES, FileRole, Mount, Plan


class Column(NamedTuple):
    """A column of a table."""

    title: str
    align_right: bool = False
    always_shown: bool = False
    """Whether it is shown even if all rows have the same value, as the first column always is."""


def always_shown(*titles: str) -> tuple[Column, ...]:
    """Return columns that are shown even if all rows have the same value."""
    return tuple(Column(title, always_shown=True) for title in titles)


class RowHeading(NamedTuple):
    """A line between rows, about those below it."""

    text: str


Row = tuple[str, ...]


class Table(NamedTuple):
    """The content of a table; every text in it is printable."""

    columns: tuple[Column, ...]
    rows: tuple[Union[Row, RowHeading], ...]
    common_values: tuple[str, ...] = ()
    """The values that all rows share: `mode 0666`."""


def make_table(columns: Sequence[Column], rows: Sequence[Union[Row, RowHeading]]) -> Table:
    """Return the table of *rows*. A column with one value in all rows is left out, and listed in `common_values`."""
    cells = [row for row in rows if not isinstance(row, RowHeading)]
    equal = [
        at
        for at, column in enumerate(columns)
        if len(cells) > 1 and at > 0 and not column.always_shown and len({row[at] for row in cells}) == 1
    ]
    shown = [at for at in range(len(columns)) if at not in equal]
    return Table(
        tuple(columns[at]._replace(title=printable(columns[at].title)) for at in shown),
        tuple(
            RowHeading(printable(row.text))
            if isinstance(row, RowHeading)
            else tuple(printable(row[at]) for at in shown)
            for row in rows
        ),
        tuple(printable(f"{columns[at].title} {cells[0][at]}") for at in equal if cells[0][at]),
    )


_PLURALS: dict[FileRole, str] = {
    "library": "libraries",
    "binary": "programs",
    "file": "files",
    "manifest": "manifests",
    "socket": "sockets",
    "directory": "directories",
}
KINDS = tuple(_PLURALS)
_GROUPED_KINDS = ("library", "binary")
"""Kinds of files that are in one directory of the container, although they come from several directories of the
host.
"""
_BINDS = (Column("name in the container"), Column("size", align_right=True), Column("listed by"), Column("host"))
_NODES = (*always_shown("device node", "number"), *map(Column, ("mode", "group", "access", "GPU", "for")))
_VARIABLES = (Column("variable"), Column("operation"), Column("value", always_shown=True), Column("for"))
_LEFT_OUT = tuple(map(Column, ("not in the plan", "verdict", "rule", "why")))


def plan_tables(plan: Plan, *, verbose: bool = False) -> list[Table]:
    """Return the plan as tables: binds, devices, environment; with *verbose*, also everything that is left out."""
    bundled = [mount for mount in plan.mounts if mount.kind in _GROUPED_KINDS]
    others = [mount for mount in plan.mounts if mount.kind not in _GROUPED_KINDS]
    variables = [(variable.name, variable.op, variable.value or "", variable.rule) for variable in plan.env]
    tables = [
        make_table(_BINDS, _binds(bundled)),
        make_table(_BINDS, _binds(others)),
        make_table(_NODES, _node_rows(plan)),
        make_table(_VARIABLES, variables),
    ]
    left_out = (decision for decision in plan.decisions if decision.verdict != "taken")
    rows = [(each.subject, each.verdict, each.rule, each.detail or "") for each in left_out]
    return [*tables, make_table(_LEFT_OUT, rows)] if verbose else tables


class BindGroup(NamedTuple):
    """The binds of one kind and capability. Libraries and programs are also grouped by their directory on the host."""

    title: str
    directory: str
    """The directory on the host, with a slash at its end; empty for files that have the same path in the container."""
    files: tuple[tuple[str, tuple[Mount, ...]], ...]
    """Each file of the host, relative to *directory*, with its binds. A generated file is named by its target."""


def bind_groups(mounts: Iterable[Mount]) -> list[BindGroup]:
    """Group *mounts*, in the order in which people read them."""
    groups: dict[tuple[int, int, str], dict[str, list[Mount]]] = {}
    for mount in mounts:
        capability = CAPABILITIES.index(mount.capability) if mount.capability else -1
        place = mount.source or f"({mount.target}, rewritten)"
        directory = place.rpartition("/")[0] + "/" if mount.kind in _GROUPED_KINDS else ""
        group = groups.setdefault((KINDS.index(mount.kind), capability, directory), {})
        group.setdefault(place[len(directory) :], []).append(mount)
    sorted_groups = []
    for (kind, capability, directory), files in sorted(groups.items()):
        for_what = f" for {CAPABILITIES[capability]}" if capability >= 0 else ""
        ordered = sorted(files.items(), key=lambda item: item[1][0].target)
        title = f"{_PLURALS[KINDS[kind]]}{for_what}"
        sorted_groups.append(BindGroup(title, directory, tuple((place, tuple(same)) for place, same in ordered)))
    return sorted_groups


def _binds(mounts: list[Mount]) -> list[Union[Row, RowHeading]]:
    rows: list[Union[Row, RowHeading]] = []
    for title, directory, files in bind_groups(mounts):
        rows.append(RowHeading(f"{title}{', from ' + directory if directory else ''}"))
        for place, same in files:
            names = [mount.target.rpartition("/")[2] if directory else mount.target for mount in same]
            shown = "rewritten" if same[0].source is None else "the same" if names == [place] else place
            rows.append((", ".join(names), size_text(same[0].size), same[0].rule, shown))
    return rows


def _node_rows(plan: Plan) -> list[Union[Row, RowHeading]]:
    rows: list[Union[Row, RowHeading]] = []
    for node in sorted(plan.devices, key=lambda node: natural_sort_key(node.target)):
        gpu = "" if node.gpu is None else str(node.gpu)
        group, number = node.group or str(node.gid), f"{node.major}:{node.minor}"
        rows.append((node.target, number, f"{node.mode:04o}", group, node.access, gpu, node.capability or "all"))
    return rows


def size_text(size: int) -> str:
    """Return bytes with a binary unit: `28.7 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
