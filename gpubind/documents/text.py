"""A plan and an explanation as plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional

from gpubind.model import Decision, Finding, Plan, PlannedDriver

if TYPE_CHECKING:
    from gpubind.documents.explanation import Explanation

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udc9f\udd00-\udfff]")
"""What steers a terminal: control characters, those for the direction of text, and bytes that are not UTF-8 and that
terminals of eight bits take for control characters."""


_NAMED_BY = {
    "cdi": "a CDI spec",
    "closure": "a library that loads it",
    "completion": "the driver's own files",
    "devices": "the GPUs of the host",
    "driver": "the driver's own files",
    "image": "the image",
    "libc": "--libc",
    "liblist": "the list of driver files",
}
"""Who names a file, in the words of a reader; any other name is that of a program, or the line of a list."""


def printable(text: str) -> str:
    """Return *text* without characters that could break a line or steer a terminal: file names are input, too."""
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code:02x}"


def render_tsv(plan: Plan, *, verbose: bool = False) -> str:
    """One line an item, columns separated by a tab: mount, device, env; then a summary line that starts with `#`.

    *verbose* adds the Decisions about what is not in the plan.
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


def render_paths(plan: Plan, *, verbose: bool = False) -> str:
    """The host paths that a container would get, sorted, one a line. *verbose* adds nothing to them."""
    paths = {mount.source for mount in plan.mounts if mount.source} | {node.source for node in plan.devices}
    return "".join(f"{printable(path)}\n" for path in sorted(paths))


def summary(plan: Plan) -> str:
    """Return the plan in one line."""
    told = plan.drivers[:1] if plan.request.like else plan.drivers
    parts = [driver_name(planned, plan.request.like) for planned in told]
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
    assumed = " (assumed)" if driver.version_assumed and driver.version else ""
    return f"{driver.vendor} {version}{assumed}"


def render_finding(finding: Finding) -> str:
    """A finding as an error message is written: severity, code and what, then the details."""
    lines = [f"{finding.severity}: {finding.code}: {printable(finding.what)}"]
    for label, value in (("where", finding.where), ("why", finding.why), ("hint", finding.hint)):
        if value:
            lines.append(f"  {label + ':':<7}{printable(value)}")
    lines += [f"         $ {printable(line)}" for line in (finding.command or "").split("\n") if line]
    return "\n".join(lines) + "\n"


def render_line(finding: Finding) -> str:
    """Return a finding in one line: severity, code, what, and what to do."""
    command = finding.command if finding.command and "\n" not in finding.command else None
    todo = "; command: ".join(part for part in (finding.hint, command) if part)
    hint = f" (hint: {todo})" if todo else ""
    return printable(f"{finding.severity}: {finding.code}: {finding.what}{hint}") + "\n"


def render_explanation(explanation: Explanation) -> str:
    """Return the Decisions as a tree, each subject a root."""
    lines: list[str] = []
    for subject, decisions in explanation.subjects:
        lines.append(printable(subject))
        for number, decision in enumerate(decisions):
            last = number == len(decisions) - 1
            lines += _branch(decision, last)
    if not explanation.subjects:
        lines.append(f"{printable(explanation.name)}: no source names it, and no file of the driver is called so")
    if explanation.searched:
        lines.append("looked in, in this order:")
        lines += [f"  {number}. {printable(place)}" for number, place in enumerate(explanation.searched, 1)]
    return "\n".join(lines) + "\n"


def _branch(decision: Decision, last: bool) -> Iterator[str]:
    stem, bar = ("`-- ", "    ") if last else ("|-- ", "|   ")
    if decision.verdict == "taken":
        head = f"taken: it lands at {decision.target}" if decision.target else f"taken: {decision.rule}"
    else:
        detail = (decision.detail or "").removeprefix(f"{decision.rule}: ")
        head = f"{decision.verdict}: {decision.rule}" + (f": {detail}" if detail else "")
    yield stem + printable(head)
    named_by = " ".join(
        part
        for part in (
            _NAMED_BY.get(decision.named_by or "", decision.named_by),
            f"({decision.named_at})" if decision.named_at else "",
        )
        if part
    )
    facts = [("named by", named_by), ("found in", decision.found_by), ("file", decision.path)]
    if decision.verdict == "taken" and decision.detail:
        facts.append(("note", decision.detail))
    for label, value in facts:
        if value:
            yield f"{bar}{label + ':':<10}{printable(value)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
