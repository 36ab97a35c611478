"""explain: codes, messages and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gpubind.cli.declarations import EXIT_CODES, IMAGE, JSON, LIKE, Argument, Option, PlanOptions, Subcommand
from gpubind.cli.options import open_host_of, open_image_of, query_of
from gpubind.errors import NothingToBindError, UsageError

if TYPE_CHECKING:
    from gpubind.documents.explanation import Explanation


def explain(
    options: PlanOptions,
    *,
    asked: Optional[Sequence[str]],
    like: Optional[str],
    image: Optional[str],
    tree: bool,
    format_: Optional[str],
    json: bool,
) -> None:
    """Say what a code or a message means, or why a file is in the plan."""
    from gpubind.cli.output import progress, table_width, width, write_document
    from gpubind.documents import explanation
    from gpubind.documents.explanation import codes, explain_code, explain_message

    what = " ".join(asked or ())
    if tree or format_ is not None:
        _tree(options, what, like, image, _form(format_, tree=tree, json=json))
        return
    if not what.strip():
        answer = explanation.Answer(None, codes=codes())
    elif (page := explain_code(what)) is not None:
        answer = explanation.Answer(what, page=page)
    else:
        message, about = explain_message(what)
        if message is not None or about:
            known = dict(codes())
            answer = explanation.Answer(what, message, tuple((code, known[code]) for code in about))
        else:
            with progress(quiet=False):
                answer = explanation.Answer(what, explanation=_of_plan(options, what, like, image))
    columns = table_width(None) if answer.explanation is not None else width()
    write_document(explanation.render_json(answer) if json else explanation.render_text(answer, columns), None)


def _tree(options: PlanOptions, program: str, like: Optional[str], image: Optional[str], form: str) -> None:
    """Write what *program* is linked with."""
    from gpubind.cli.linking import render_tree
    from gpubind.cli.output import progress, write_document

    with progress(quiet=False):
        text = render_tree(options, program, like, image, form)
    write_document(text, None)


def _form(asked: Optional[str], *, tree: bool, json: bool) -> str:
    """Return the requested format of a tree. Errors: `UsageError`."""
    if not tree:
        raise UsageError("unknown-format", f"--format {asked} is a form of --tree", hint="add --tree")
    if json and asked not in (None, "json"):
        raise UsageError("two-formats", "--json and another --format exclude each other")
    return "json" if json else asked or "text"


_ABOUT_THE_HOST = ("not-looked-at", "writable-by-others")
"""Findings about the files that the answer depends on."""
_LONGEST = 200
"""Characters of a name or message that an error repeats."""


def _of_plan(options: PlanOptions, name: str, like: Optional[str], image: Optional[str]) -> Explanation:
    """Return what the plan decided about *name*.

    Errors: `UsageError` (code `unknown-code`) where nothing has that name; `NothingToBindError` for a file's name on a
    host without a driver.
    """
    from gpubind.cli.output import report
    from gpubind.documents.explanation import explain as explain_name
    from gpubind.documents.explanation import near_names
    from gpubind.formats.driver.names import driver_section
    from gpubind.planner.planning import plan_host

    host = open_host_of(options)
    try:
        plan = plan_host(host, query_of(options, like), open_image_of(image, host))
        report((one for one in plan.findings if one.code in _ABOUT_THE_HOST), brief=True)
    except NothingToBindError:
        is_line = " " in name.strip()
        if not is_line and ("/" in name or ".so" in name or driver_section(name) is not None):
            raise  # a file's name: no plan, no answer
        plan = None
    explanation = None if plan is None else explain_name(plan, name)
    if explanation is not None and explanation.subjects:
        return explanation
    near = near_names(name, () if plan is None else [decision.subject for decision in plan.decisions])
    files = "no file of the plan has this name" if plan is not None else "this host has no driver that could name it"
    raise UsageError(
        "unknown-code",
        f"`{_short(name)}` is neither a code nor a message that gpubind knows, and {files}",
        where="" if explanation is None else "looked in " + ", ".join(explanation.searched),
        hint="did you mean " + " or ".join(f"`{one}`" for one in near) + "?" if near else _next_step(name),
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."


def _next_step(seen: str) -> str:
    from gpubind.documents.explanation import nearest_message

    near = nearest_message(seen)
    asked = f"did you mean `{near}`? " if near is not None else ""
    return f"{asked}`gpubind check --nv --image IMAGE`, on the node of the job, looks for the cause"


def _every_code() -> Sequence[str]:
    from gpubind.documents.explanation import codes

    return [code for code, _ in codes()]


COMMANDS = {
    "explain": Subcommand(
        "explain",
        explain,
        explain.__doc__ or "",
        (
            LIKE,
            IMAGE,
            Option(
                "--tree",
                "Show what the program or library NAME is linked with: whose copy, which rule of the loader finds it, "
                "and what is missing; on the host, or in --image with the plan in place.",
                "Output",
            ),
            Option(
                "--format FORMAT",
                "Of --tree: text, json, or dot for Graphviz. [text]",
                "Output",
                choices=("text", "json", "dot"),
            ),
            JSON._replace(help="Print gpubind.explain/1, with --tree gpubind.tree/1.", stands_for=""),
        ),
        (
            Argument(
                "asked",
                "[NAME|CODE|MESSAGE]",
                "A soname, file name, path, device node or pattern; a code; or a message that a program printed, "
                "with quotes or without. [every code]",
                many=True,
                required=False,
                choices=_every_code,
            ),
        ),
        common=("--nv", "--image", "--tree", "--host", "--json"),
        examples=(
            ("what a program is linked with", "gpubind explain /usr/bin/nvidia-smi --tree"),
            ("why a file is in the plan", "gpubind explain libcuda.so.1"),
            ("what a message means", 'gpubind explain "version GLIBC_2.34 not found"'),
        ),
        exit_codes=(("0", "done"), *EXIT_CODES[:3]),
    )
}
