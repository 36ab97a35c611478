"""gpus: the GPUs of a host. No `from __future__ import annotations`: see options.py."""

from typing import Annotated

import typer

from gpubind.cli.command import OwnCommand
from gpubind.cli.options import PlanOptions, open_host_of, request_of, takes_plan_options

TAKEN = ("nv", "rocm", "gpus", "host", "root", "dev_root")


def add_to(app: typer.Typer) -> None:
    """Give *app* the command gpus."""
    app.command(cls=OwnCommand)(takes_plan_options(gpus, TAKEN))


def gpus(
    options: PlanOptions,
    json: Annotated[bool, typer.Option("--json", help="Print gpubind.gpus/1.")] = False,
) -> None:
    """List the GPUs of this host, and which of them a job would get.

    Each with its model, UUID, PCI address, MIG devices and render node, and what you may do with its device nodes. All
    is read from files: no driver library and no program of the driver's is asked.
    """
    from gpubind.cli.output import has_colour, table_width, write_document
    from gpubind.documents.gpus import list_gpus, render_gpus_json, render_gpus_table
    from gpubind.sources.vendors import read_inventories

    host = open_host_of(options)
    found = read_inventories(host, request_of(options))
    listed = list_gpus(found.inventories, options.gpus, host.environ)
    if json:
        write_document(render_gpus_json(listed), None)
    else:
        write_document(render_gpus_table(listed, table_width(None), colour=has_colour(None)), None)
