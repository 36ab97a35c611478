"""diff: how hosts differ."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Optional

from gpubind.cli.declarations import (
    EXIT_CODES,
    IMAGE,
    IMAGE_HELP,
    JSON,
    LIKE,
    OUTPUT,
    Argument,
    Option,
    PlanOptions,
    Subcommand,
    format_option,
    plan_options,
)
from gpubind.cli.options import query_of
from gpubind.documents import DIFF_DOCUMENTS
from gpubind.errors import EXIT_FINDING, UsageError
from gpubind.model.data import BUNDLED_HOSTS

Texts = Optional[Sequence[str]]


def diff(
    options: PlanOptions,
    *,
    compared: Sequence[str],
    image: Texts,
    like: Texts,
    snapshot: bool,
    format_: Optional[str],
    output: Optional[str],
) -> None:
    """Report the differences between hosts, plans or drivers.

    The largest group of equal hosts is the reference; among groups of one size, the one with the host that is named
    first. Driver, kernel, number and models of GPUs, files, device nodes, variables and findings are compared. UUIDs,
    serial numbers, PCI addresses, the names of machines and the variables of a job are not.
    """
    from gpubind.api.diff import STDIN, DiffRequest, snapshots
    from gpubind.cli.output import load_renderer, progress, write_document
    from gpubind.documents.diff.comparison import compare
    from gpubind.documents.diff.snapshot import render_snapshot
    from gpubind.fleet.nodes import fold_hosts

    if snapshot and format_ not in (None, "json"):
        raise UsageError("two-formats", "--snapshot and --format exclude each other")
    render = load_renderer(DIFF_DOCUMENTS[format_ or "text"])
    standard_input = _standard_input() if STDIN in compared else b""
    request = DiffRequest(tuple(compared), query_of(options), tuple(like or ()), tuple(image or ()), standard_input)
    with progress(quiet=False):
        host_snapshots = snapshots(request, is_compared=not snapshot)
    if snapshot:
        write_document("".join(map(render_snapshot, host_snapshots)), output)
        return
    comparison = compare(host_snapshots)
    write_document(render(comparison, fold_hosts), output)
    if not comparison.is_equal:
        raise SystemExit(EXIT_FINDING)


def _standard_input() -> bytes:
    from gpubind.host.record import SIZE_LIMIT
    from gpubind.machine.listener import mark_uncacheable

    mark_uncacheable("standard input is read")
    return b"" if sys.stdin is None else sys.stdin.buffer.read(SIZE_LIMIT + 1)


DIFF = Subcommand(
    diff,
    (
        LIKE._replace(
            help=f"{LIKE.help} Repeatable: each is compared; one of one host, with gpubind's own plan.",
            is_repeatable=True,
        ),
        IMAGE._replace(
            help=f"{IMAGE_HELP} Repeatable: only what `check` says, of the hosts and of these, is compared.",
            is_repeatable=True,
        ),
        Option(
            "--snapshot",
            "Print what is compared of each host, gpubind.snapshot/1, and compare nothing: `fleet diff` does so.",
            "Output",
        ),
        format_option(DIFF_DOCUMENTS),
        JSON._replace(help="Print gpubind.diff/1."),
        OUTPUT,
    ),
    (
        Argument(
            "compared",
            "HOST...",
            "A record, a document of plan --json, a bundled record, `live` for this machine, a directory with a "
            "driver, as for --root, or - for standard input.",
            takes_rest=True,
            choices=("live", *BUNDLED_HOSTS),
        ),
    ),
    common=("--nv", "--rocm", "--image", "--like", "--json"),
    examples=(
        ("which nodes are not as the others", "gpubind diff --nv records/*.json"),
        ("what another driver changes for images", "gpubind diff --nv --image app.sif old.json new.json"),
    ),
    exit_codes=(("0", "equal"), ("1", "different"), *EXIT_CODES[:4]),
    shared=plan_options("--nv", "--rocm", "--intel", "--caps"),
)
