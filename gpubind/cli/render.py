"""Tables for people. The only module that imports rich."""

from __future__ import annotations

import io
import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubind.documents.text import printable, summary
from gpubind.model import CAPABILITIES, Kind, Mount, Plan
from gpubind.sources.nodes import natural

PLURALS: dict[Kind, str] = {
    "library": "libraries",
    "binary": "programs",
    "file": "files",
    "manifest": "manifests",
    "socket": "sockets",
    "directory": "directories",
}
KINDS = tuple(PLURALS)
PIPE_WIDTH = 200


def render_table(plan: Plan, *, verbose: bool, colour: bool) -> str:
    """The plan as tables: binds by kind and capability, devices, environment; then the summary line."""
    stream, console = _console(colour)
    tables = [_binds(plan), _devices(plan), _environment(plan)] + ([_left_out(plan)] if verbose else [])
    for table in tables:
        if table.row_count:
            console.print(table)
            console.print()
    console.print(Text(summary(plan), style="bold"))
    return _lines(stream)


def _console(colour: bool) -> tuple[io.StringIO, Console]:
    stream = io.StringIO()
    styled = colour or bool(os.environ.get("FORCE_COLOR") and "NO_COLOR" not in os.environ)
    console = Console(
        file=stream,
        force_terminal=styled,
        no_color="NO_COLOR" in os.environ or not styled,
        width=None if colour else PIPE_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
    )
    return stream, console


def _lines(stream: io.StringIO) -> str:
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        last = number == len(columns) - 1
        table.add_column(
            column, justify="right" if column == "size" else "left", overflow="fold", no_wrap=number > 0 and not last
        )
    return table


def _binds(plan: Plan) -> Table:
    """One row a host file, below a heading for its kind and capability: names in the container, size, why, source."""
    table = _table("name in the container", "size", "named by", "file on the host")
    groups: dict[tuple[int, int], dict[str, list[Mount]]] = {}
    for mount in plan.mounts:
        capability = CAPABILITIES.index(mount.capability) if mount.capability else -1
        group = groups.setdefault((KINDS.index(mount.kind), capability), {})
        group.setdefault(mount.source or f"({mount.target}, rewritten)", []).append(mount)
    for (kind, capability), files in sorted(groups.items()):
        for_what = f" for {CAPABILITIES[capability]}" if capability >= 0 else ""
        table.add_row(Text(f"{PLURALS[KINDS[kind]]}{for_what}", style="cyan"))
        for source, mounts in sorted(files.items(), key=lambda item: item[1][0].target):
            first = mounts[0]
            flat = first.kind in ("library", "binary")
            names = [mount.target.rpartition("/")[2] if flat else mount.target for mount in mounts]
            row = (", ".join(names), _size(first.size), first.rule, source)
            table.add_row(Text("  " + printable(row[0])), *(Text(printable(cell)) for cell in row[1:]))
    return table


def _devices(plan: Plan) -> Table:
    table = _table("device node", "number", "mode", "group", "access", "GPU", "for")
    for node in sorted(plan.devices, key=lambda node: natural(node.target)):
        gpu = "" if node.gpu is None else str(node.gpu)
        access = Text(node.access, style="" if node.access == "rw" else "red")
        group = Text(printable(node.group or str(node.gid)))
        number = f"{node.major}:{node.minor}"
        target = Text("  " + printable(node.target))
        table.add_row(target, number, f"{node.mode:04o}", group, access, gpu, node.capability or "all")
    return table


def _environment(plan: Plan) -> Table:
    table = _table("variable", "operation", "value", "for")
    for variable in plan.env:
        table.add_row(f"  {variable.name}", variable.op, Text(printable(variable.value or "")), variable.rule)
    return table


def _left_out(plan: Plan) -> Table:
    table = _table("not in the plan", "verdict", "rule", "why")
    for decision in plan.decisions:
        if decision.verdict != "taken":
            row = (f"  {decision.subject}", decision.verdict, decision.rule, decision.detail or "")
            table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _size(size: int) -> str:
    """Bytes with a binary unit: `28.7 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
