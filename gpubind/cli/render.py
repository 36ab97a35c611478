"""Tables for people. The only module that imports rich."""

from __future__ import annotations

import io
import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpubind.documents.text import printable, summary
from gpubind.model import CAPABILITIES, Mount, Plan

KINDS = ("library", "binary", "file", "manifest", "socket", "directory")
PIPE_WIDTH = 160


def render_table(plan: Plan, *, verbose: bool, colour: bool) -> str:
    """The plan as tables: binds by kind and capability, devices, environment; then the summary line."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        force_terminal=colour,
        no_color="NO_COLOR" in os.environ or not colour,
        width=None if colour else PIPE_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
    )
    console.print(_binds(plan))
    if plan.devices:
        console.print(_devices(plan))
    if plan.env:
        console.print(_environment(plan))
    if verbose:
        console.print(_left_out(plan))
    console.print(Text(summary(plan), style="bold"))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column == "size" else "left", overflow="fold")
    return table


def _binds(plan: Plan) -> Table:
    """One row a host file: the names under which a container gets it, where it comes from, why."""
    table = _table("Binds", "capability", "in the container", "on the host", "size", "named by")
    groups: dict[tuple[int, int, str, str], list[Mount]] = {}
    for mount in plan.mounts:
        capability = CAPABILITIES.index(mount.capability) if mount.capability else -1
        key = (KINDS.index(mount.kind), capability, mount.source or "", "" if mount.source else mount.target)
        groups.setdefault(key, []).append(mount)
    kind = -1
    for key, mounts in sorted(groups.items()):
        if key[0] != kind:
            kind = key[0]
            table.add_row(Text(f"{KINDS[kind]}", style="cyan"))
        first = mounts[0]
        names = [mount.target for mount in mounts[:1]] + [mount.target.rpartition("/")[2] for mount in mounts[1:]]
        table.add_row(
            f"  {first.capability or 'all'}",
            Text(printable(", ".join(names))),
            Text(printable(first.source or "(rewritten)")),
            _size(first.size),
            first.rule,
        )
    return table


def _devices(plan: Plan) -> Table:
    table = _table("Device nodes", "capability", "node", "number", "mode", "group", "access", "GPU")
    for node in plan.devices:
        gpu = "" if node.gpu is None else str(node.gpu)
        number = f"{node.major}:{node.minor}"
        group = node.group or str(node.gid)
        access = Text(node.access, style="" if node.access == "rw" else "red")
        table.add_row(
            f"  {node.capability or 'all'}",
            Text(printable(node.target)),
            number,
            f"{node.mode:04o}",
            group,
            access,
            gpu,
        )
    return table


def _environment(plan: Plan) -> Table:
    table = _table("Environment", "operation", "variable", "value", "for")
    for variable in plan.env:
        table.add_row(f"  {variable.op}", variable.name, Text(printable(variable.value or "")), variable.rule)
    return table


def _left_out(plan: Plan) -> Table:
    table = _table("Not in the plan", "verdict", "name", "rule", "why")
    for decision in plan.decisions:
        if decision.verdict != "taken":
            row = (f"  {decision.verdict}", decision.subject, decision.rule, decision.detail or "")
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
