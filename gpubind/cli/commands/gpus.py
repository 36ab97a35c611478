"""gpus: the GPUs of a host."""

from __future__ import annotations

from gpubind.cli.declarations import EXIT_CODES, JSON, PlanOptions, Subcommand, plan_options
from gpubind.cli.options import open_host_of, query_of, report_unreadable


def gpus(options: PlanOptions, *, json: bool) -> None:
    """List the GPUs of this host, and which of them a job would get.

    Each GPU is listed with its model, UUID, PCI address, MIG devices and render node, and with what you may do with its
    device nodes. All is read from files. Only if no file names a GPU, as in WSL, nvidia-smi is asked.
    """
    from gpubind.api.gpus import gpus as list_gpus
    from gpubind.cli.output import report, tables_as_text, write_document
    from gpubind.documents.gpus import gpus_table, render_gpus_json

    host = open_host_of(options)
    with report_unreadable(host):
        listing = list_gpus(host, query_of(options))
    report(listing.findings, brief=True)
    if json:
        text = render_gpus_json(listing.listed)
    else:
        shared = listing.all_gpus_node
        nothing = f"no GPU is known: all are {shared}" if shared else "this host has no GPU with a loaded driver"
        text = tables_as_text([gpus_table(listing.listed)], None) or f"{nothing}\n"
    write_document(text, None)


GPUS = Subcommand(
    gpus,
    (JSON._replace(help="Print gpubind.gpus/1.", expands_to=""),),
    common=("--nv", "--rocm", "--gpus", "--host", "--json"),
    examples=(
        ("list them", "gpubind gpus"),
        ("see which GPUs a choice selects", "gpubind gpus --gpus 1 --host debian13-nvidia550"),
    ),
    exit_codes=(("0", "done"), *EXIT_CODES[:3]),
    shared=plan_options("--nv", "--rocm", "--intel", "--gpus", "--host", "--root", "--dev-root"),
)
