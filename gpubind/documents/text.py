"""A plan as lines or JSON; findings and errors as messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpubind import __version__
from gpubind.errors import GpubindError
from gpubind.model import Finding, Plan, Severity
from gpubind.model.findings import page_of
from gpubind.model.message import message_lines
from gpubind.model.message import printable as printable  # noqa: PLC0414 - every document imports it from here
from gpubind.model.plain import dump_document, to_json_value


def wrapped(text: str, width: int, indent: str = "", first: str = "") -> list[str]:
    """Return *text* in lines of *width* columns. The first line begins with *first*, each other line with *indent*.

    Lines end between words. A word that is longer than a line is not broken.
    """
    from textwrap import TextWrapper

    wrapper = TextWrapper(width, first, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)


def make_document(schema: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document *schema* of this version of gpubind with *members*."""
    document: dict[str, Any] = to_json_value({"schema": schema, "gpubind": __version__, **members})
    return document


def render_document(schema: str, members: Mapping[str, Any]) -> str:
    """Return the text of `make_document`."""
    return dump_document(make_document(schema, members))


def escape_for_quotes(text: str) -> str:
    """Return *text*, `printable` and escaped for double quotes in which a backslash escapes."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def with_valid_unicode(text: str) -> str:
    """Return *text* with `printable` lines and without lone surrogates, which XML and JSON parsers refuse."""
    return without_surrogates("\n".join(printable(line) for line in text.split("\n")))


def without_surrogates(text: str) -> str:
    """Return *text* with each byte that is not UTF-8 as `\\xff`."""
    return re.sub("[\ud800-\udfff\ufffe\uffff]", lambda match: f"\\x{ord(match.group()) & 0xFF:02x}", text)


def render_tsv(plan: Plan, *, verbose: bool = False) -> str:
    """Return a line for each mount, node and variable, columns separated by tabs; then `# ` and the summary.

    *verbose* adds the Decisions about everything that is not in the plan.
    """
    lines = []
    for mount in plan.mounts:
        source = mount.source if mount.content is None else "-"
        options = ",".join(mount.options)
        lines.append(["mount", mount.kind, mount.capability or "-", source or "-", mount.target, options])
    for node in plan.devices:
        numbers = f"{node.major}:{node.minor}"
        lines.append(["device", node.type, node.capability or "-", node.source, node.target, numbers])
    for variable in plan.env:
        lines.append(["env", variable.op, variable.name, variable.value or "-"])
    for decision in plan.decisions if verbose else ():
        if decision.verdict != "taken":
            lines.append(
                [decision.verdict, decision.subject, decision.rule, decision.path or "-", decision.detail or "-"]
            )
    text = "".join("\t".join(printable(field) for field in line) + "\n" for line in lines)
    return text + f"# {plan.summary}\n"


def render_json(plan: Plan, *, verbose: bool = False) -> str:
    """Return the plan document. It always has the files that are left out, so *verbose* changes nothing."""
    return plan.to_json()


def render_paths(plan: Plan, *, verbose: bool = False) -> str:
    """Return the host paths of the plan, sorted, one a line. *verbose* changes nothing."""
    paths = {mount.source for mount in plan.mounts if mount.source} | {node.source for node in plan.devices}
    return "".join(f"{printable(path)}\n" for path in sorted(paths))


def render_finding(finding: Finding) -> str:
    """Return the message of *finding*, with each of its commands on a line."""
    return f"{finding}\n"


def render_error(error: GpubindError, severity: Severity = "error") -> str:
    """Return the message of *error*, which is a warning if gpubind continues."""
    lines = message_lines(severity, error.code, error.what, error.where, error.why, error.hint)
    return "\n".join(lines) + "\n"


def render_error_json(error: GpubindError) -> str:
    """Return the document `gpubind.error/1` (data/error.schema.json), which replaces the JSON that was requested."""
    members = {name: getattr(error, name) or None for name in ("code", "what", "where", "why", "hint")}
    about = {"docs": page_of(error.code), "exit": error.exit_code}
    return render_document("gpubind.error/1", {**members, **about})


def render_line(finding: Finding) -> str:
    """Return a finding in one line: severity, code, what, and the remedy."""
    command = finding.command if finding.command and "\n" not in finding.command else None
    todo = "; command: ".join(part for part in (finding.hint, command) if part)
    hint = f" (hint: {todo})" if todo else ""
    return printable(f"{finding.severity}: {finding.code}: {finding.what}{hint}") + "\n"
