"""cdi: the CDI devices of a host."""

from __future__ import annotations

from gpubind.cli.declarations import EXIT_CODES, JSON, Argument, PlanOptions, Subcommand, plan_options
from gpubind.cli.options import open_host_of, query_of, report_unreadable

ACTIONS = ("list",)


def cdi(options: PlanOptions, *, action: str, json: bool) -> None:
    """List the CDI devices of this host, and which can be used.

    Each device is listed with the file and line that define it, and the file's version. A device of a later directory
    takes precedence (the other is shadowed), two of one directory exclude each other (conflict), and a device is stale
    if it needs files or nodes that do not exist. Ignored files are listed with the reason.
    """
    from gpubind.api.cdi import cdi as list_cdi
    from gpubind.cli.output import tables_as_text, write_document
    from gpubind.documents.cdi import cdi_table, render_cdi_json, stale_lines

    host, query = open_host_of(options), query_of(options)
    with report_unreadable(host, query.validated_request()):
        listing = list_cdi(host, query)
    if json:
        text = render_cdi_json(listing)
    elif listing.files:
        text = tables_as_text([cdi_table(listing)], None) + stale_lines(listing)
    else:
        text = f"no CDI spec is in {' or '.join(listing.directories)}\n"
    write_document(text, None)


CDI = Subcommand(
    cdi,
    (JSON._replace(help="Print gpubind.cdi/1.", expands_to=""),),
    (Argument("action", "|".join(ACTIONS), "What to do with them.", choices=ACTIONS, unknown="wrong-use"),),
    common=("--host", "--root", "--json"),
    examples=(
        ("list them", "gpubind cdi list"),
        ("those of other directories", "gpubind cdi list --cdi-dir /srv/cdi"),
    ),
    exit_codes=(("0", "done"), EXIT_CODES[0], EXIT_CODES[2]),
    shared=plan_options("--cdi-dir", "--host", "--root", "--dev-root"),
)
