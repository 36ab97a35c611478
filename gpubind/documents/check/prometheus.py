"""`check --format prometheus`: a file for the textfile collector of node_exporter.

It contains no time, so that equal outcomes have equal files. node_exporter itself reports the time of the file
(`node_textfile_mtime_seconds`). Source: Prometheus documentation, "Exposition formats"; node_exporter, "Textfile
Collector".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import starmap

from gpubind import __version__
from gpubind.documents.text import escape_for_quotes
from gpubind.errors import GpubindError
from gpubind.model import Plan
from gpubind.model.findings import SEVERITIES
from gpubind.rules.outcome import Report, verdict

STATUS = ("ok", "warning", "error", "unanswered")
"""The verdicts, and a check without an answer; the status is the index of one."""


_Sample = tuple[int, dict[str, str]]
"""A value, and its labels."""
_FamilyParts = tuple[str, str, Iterable[_Sample]]
"""The name of a metric without `gpubind_`, its help and its samples."""


def render_prometheus(report: Report) -> str:
    """Return the report in the text format of Prometheus. Of notes, only the number is reported."""
    return "".join(starmap(_family, (*_status(verdict(report.findings)), *_families(report))))


def render_unanswered(error: GpubindError) -> str:
    """Return the document of a check that *error* ended."""
    family = ("error", "Why gpubind check gave no answer.", [(1, {"code": error.code})])
    return "".join(starmap(_family, (*_status("unanswered"), family)))


def _status(status: str) -> Iterator[_FamilyParts]:
    help_text = "The verdict of gpubind check: 0 ok, 1 warning, 2 error; 3: it gave no answer."
    yield "check_status", help_text, [(STATUS.index(status), {})]
    yield "build_info", "The version of gpubind.", [(1, {"version": __version__})]


def _families(report: Report) -> Iterator[_FamilyParts]:
    severities = [finding.severity for finding in report.findings]
    counts: dict[str, int] = {severity: severities.count(severity) for severity in SEVERITIES}
    counts["ignored"] = len(report.ignored)
    numbers = [(number, {"severity": severity}) for severity, number in counts.items()]
    yield "findings", "Findings by severity, and those that the site ignores.", numbers
    serious = [finding for finding in report.findings if finding.severity != "note"]
    samples = [(1, {"code": f.code, "severity": f.severity, "subject": f.subject}) for f in serious]
    yield "finding", "A finding: an error or a warning.", samples
    drivers = [planned.driver for planned in report.drivers]
    info = [(1, {"vendor": d.vendor, "version": d.version or "", "cuda_max": d.cuda_max or ""}) for d in drivers]
    yield "driver_info", "A driver of the host, and the newest CUDA that it serves.", info
    plans = [report.plan] if report.plan is not None and report.plan.drivers else []
    digests = [(1, {"digest": plan.digest, "node_digest": plan.node_digest or ""}) for plan in plans]
    yield "plan_info", "The plan that was checked, and what the node has: equal for equal nodes.", digests
    states = _states(report.plan) if report.plan is not None else {}
    expected = [sum(number for _, number in expectation.gpus) for expectation in report.expected if expectation.gpus]
    states.update({"expected": max(expected)} if expected else {})
    help_text = (
        "GPUs: that the kernel driver lists, that a container gets, of these with a device node, and that are expected."
    )
    yield "gpus", help_text, [(number, {"state": state}) for state, number in states.items()]


def _states(plan: Plan) -> dict[str, int]:
    """Return the number of GPUs in each state. A GPU is usable if the container gets the node through which
    programs use it.
    """
    chosen = [gpu for gpu in plan.gpus if gpu.chosen]
    minors = {str(node.target): node.minor for node in plan.devices}
    usable = [gpu for gpu in chosen if gpu.node in minors and (gpu.vendor != "nvidia" or minors[gpu.node] == gpu.minor)]
    return {"listed": len(plan.gpus), "chosen": len(chosen), "usable": len(usable)}


def _family(name: str, help_text: str, samples: Iterable[_Sample]) -> str:
    lines = [f"# HELP gpubind_{name} {help_text}", f"# TYPE gpubind_{name} gauge"]
    values: dict[str, int] = {}
    for value, labels in samples:
        inside = ",".join(f'{label}="{escape_for_quotes(text)}"' for label, text in labels.items())
        values[f"gpubind_{name}{{{inside}}}" if inside else f"gpubind_{name}"] = value
    lines += [f"{series} {value}" for series, value in values.items()]
    return "".join(f"{line}\n" for line in lines)
