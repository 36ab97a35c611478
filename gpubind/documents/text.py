"""A plan as lines or JSON; findings and errors as messages."""

from __future__ import annotations

import re
from typing import Optional, Union

from gpubind import __version__
from gpubind.errors import GpubindError
from gpubind.model import VENDOR_ROWS, Finding, Plan, PlannedDriver, Severity
from gpubind.model.findings import page_of
from gpubind.model.plain import text_of

_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udc9f\udd00-\udfff]"
"""Characters that control a terminal or the direction of text, and bytes that an 8-bit terminal takes for such."""


def printable(text: str) -> str:
    """Return *text* without characters that could break a line or steer a terminal: file names are input, too."""
    return text if text.isprintable() and text.isascii() else re.sub(_UNPRINTABLE, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code:02x}"


def quotable(text: str) -> str:
    """Return *text*, `printable`, for a place in double quotes where a backslash escapes."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def unicode_lines(text: str) -> str:
    """Return *text*, whose lines are `printable`, as XML and every JSON reader take it: without lone surrogates."""
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
    return text + f"# {summary(plan)}\n"


def render_json(plan: Plan, *, verbose: bool = False) -> str:
    """Return the plan document, which always has the files that are left out: *verbose* changes nothing."""
    return plan.to_json()


def render_paths(plan: Plan, *, verbose: bool = False) -> str:
    """Return the host paths of the plan, sorted, one a line. *verbose* changes nothing."""
    paths = {mount.source for mount in plan.mounts if mount.source} | {node.source for node in plan.devices}
    return "".join(f"{printable(path)}\n" for path in sorted(paths))


def summary(plan: Plan) -> str:
    """Return the plan in one line."""
    drivers = plan.drivers[:1] if plan.request.like else plan.drivers
    parts = [driver_name(planned, plan.request.like) for planned in drivers]
    sizes = {mount.source or mount.target: mount.size for mount in plan.mounts}
    total = sum(sizes.values()) / 2**20
    parts.append(f"{_count(len(plan.mounts), 'bind')} of {_count(len(sizes), 'file')} ({total:.0f} MiB)")
    if plan.gpus:
        parts.append(_count(len([gpu for gpu in plan.gpus if gpu.chosen]), "GPU"))
    parts.append(_count(len(plan.devices), "device node"))
    severities = [finding.severity for finding in plan.findings]
    parts += [_count(severities.count(s), s) for s in ("error", "warning", "note") if s in severities]
    return f"{'; '.join(parts)}; digest {plan.digest[:12]}"


def driver_name(planned: PlannedDriver, like: Optional[str] = None) -> str:
    """Return a driver, with the newest CUDA that it serves: `nvidia 550.163.01, CUDA 12.4`."""
    cuda = planned.driver.cuda_max
    return f"like {like}" if like else driver_version(planned) + (f", CUDA {cuda}" if cuda else "")


def driver_version(planned: PlannedDriver) -> str:
    """Return a driver and its version: `nvidia 550.163.01`."""
    driver = planned.driver
    if driver.vendor == "other":
        return planned.source.detail or driver.vendor
    version = driver.version or "of unknown version"
    if driver.vendor == "amd":
        version = f"ROCm {version}"
    elif not VENDOR_ROWS[driver.vendor].has_version:
        version = driver.kernel_version or "without its kernel driver"
    assumed = " (assumed)" if driver.version_assumed and driver.version else ""
    return f"{driver.vendor} {version}{assumed}"


def render_finding(finding: Finding) -> str:
    """Return the message of *finding*, with each of its commands on a line."""
    lines = [f"         $ {printable(line)}" for line in (finding.command or "").split("\n") if line]
    return _message(finding, finding.severity) + "".join(f"{line}\n" for line in lines)


def render_error(error: GpubindError, severity: Severity = "error") -> str:
    """Return the message of *error*, which is a warning if gpubind goes on."""
    return _message(error, severity)


def _message(told: Union[Finding, GpubindError], severity: Severity) -> str:
    """Return `SEVERITY: CODE: what`, then where, why and hint, each on a line."""
    lines = [f"{severity}: {told.code}: {printable(told.what)}"]
    for label, value in (("where", told.where), ("why", told.why), ("hint", told.hint)):
        if value:
            lines.append(f"  {label + ':':<7}{printable(value)}")
    return "\n".join(lines) + "\n"


def render_error_json(error: GpubindError) -> str:
    """Return the document `gpubind.error/1` (data/error.schema.json), which replaces the JSON that was requested."""
    members = {name: getattr(error, name) or None for name in ("code", "what", "where", "why", "hint")}
    about = {"docs": page_of(error.code), "exit": error.exit_code}
    return text_of({"schema": "gpubind.error/1", "gpubind": __version__, **members, **about})


def render_line(finding: Finding) -> str:
    """Return a finding in one line: severity, code, what, and the remedy."""
    command = finding.command if finding.command and "\n" not in finding.command else None
    todo = "; command: ".join(part for part in (finding.hint, command) if part)
    hint = f" (hint: {todo})" if todo else ""
    return printable(f"{finding.severity}: {finding.code}: {finding.what}{hint}") + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
