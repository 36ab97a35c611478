"""The table of rules, and `check`, which applies the rules whose inputs are known."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, Optional, Union

from gpubind.errors import UsageError, did_you_mean
from gpubind.frozen import NamedTuple
from gpubind.host.base import unreadable_path_findings
from gpubind.model import VENDORS, Finding, Severity
from gpubind.model.findings import SEVERITIES, finding_texts
from gpubind.planner import finding_order
from gpubind.rules.preflight import Needs, Preflight

MODULES = {
    "host": (
        *("host.driver", "host.engines", "host.nodes", "host.platform", "host.services"),
        *("image.graphics", "image.libraries", "runtime"),
    ),
    "image": ("image.cuda", "image.frameworks", "image.gpucode", "image.image", "image.libc"),
    "amd": ("host.amd", "image.rocm"),
    "intel": ("host.intel", "image.level_zero", "image.synapse", "image.video"),
    "program": ("program",),
    "expectation": ("host.expected",),
    "trial": ("trial",),
}
"""The modules with rules, by the part that a start must have for their rules to apply. A check imports those it
needs.
"""


class Rule(NamedTuple):
    """A rule: a fault that a job can have. data/findings.json has its texts."""

    code: str
    severities: tuple[Severity, ...]
    """The severities of its findings, worst first."""
    needs: Needs
    """The inputs. `host`: host and plan; `image`: also an open image; `runtime`, `program`: also the name of one."""


RULES = tuple(Rule(code, tuple(text["severity"]), text["needs"]) for code, text in finding_texts().items())
"""The rules by code."""
CODES = tuple(sorted(rule.code for rule in RULES))


def functions_by_code(parts: Iterable[str] = MODULES) -> dict[str, Callable[[Preflight], Iterable[Finding]]]:
    """Return the functions of *parts* that yield the findings of a code: `uvm_missing` for `uvm-missing`.

    A code may have no function: the planner, a runtime, or the rule of another code then yields its findings.
    """
    names: dict[str, Any] = {}
    for module in (module for part in parts for module in MODULES[part]):
        names.update(vars(import_module(f"gpubind.rules.{module}")))
    return {code: names[name] for code in finding_texts() if (name := code.replace("-", "_")) in names}


def _parts_of(preflight: Preflight) -> Iterator[str]:
    plan = preflight.plan
    vendors = {gpu.vendor for gpu in plan.gpus}.union(planned.driver.vendor for planned in plan.drivers)
    yield from ("host", *sorted(vendors & MODULES.keys()))
    if preflight.has_image:
        yield "image"
    if preflight.has_program:
        yield "program"
    if preflight.expected:
        yield "expectation"
    if preflight.trial is not None:
        yield "trial"


def code_and_subject(key: str, where: str = "") -> tuple[str, Optional[str]]:
    """Parse *key*, CODE or CODE:SUBJECT. Errors: as `need_code`."""
    code, _, subject = key.partition(":")
    need_code(code, where)
    return code, subject or None


def known_codes(codes: Iterable[str]) -> tuple[str, ...]:
    """Return the codes in *codes*, whose items may be lists with commas. Errors: `UsageError` (`unknown-code`)."""
    split = tuple(part for code in codes for part in code.split(","))
    for code in split:
        need_code(code)
    return split


def need_code(code: str, where: str = "") -> None:
    """Raise `UsageError` (code `unknown-code`) if no finding has *code*. *where* is the source of *code*."""
    if code not in CODES:
        hint = did_you_mean(CODES, code) + "`gpubind explain` lists them all"
        what = f"no finding has the code `{code}`" if code else "empty finding code"
        raise UsageError("unknown-code", what, where=where, hint=hint)


def rules_with_inputs(preflight: Preflight) -> tuple[Rule, ...]:
    """Return the rules whose inputs are known."""
    has_runtime, has_program = preflight.backend is not None, preflight.has_program
    has_input = {"host": True, "image": preflight.has_image, "runtime": has_runtime, "program": has_program}
    rules = (rule for rule in RULES if has_input[rule.needs])
    if not preflight.is_without_container:
        return tuple(rules)
    from gpubind.rules import bare

    return tuple(rule for rule in rules if bare.applies_to_machine(rule.code, rule.needs))


def applicable_rules(preflight: Preflight) -> tuple[Rule, ...]:
    """Return the `rules_with_inputs` that concern this start: its vendors, runtime, options and subjects.

    A rule also counts as applied if the function of another rule yields its findings.
    """
    from gpubind.rules.subjects import SUBJECTS

    request = preflight.plan.request
    vendors = {*request.vendors, *preflight.vendors} or set(VENDORS)
    is_like, expected = request.like is not None, bool(preflight.expected)
    tried = "trial" if preflight.trial is not None else None
    plans_of = (None, preflight.backend, "like" if is_like else None, "expectation" if expected else None, tried)

    @cache
    def has(subject: Optional[str]) -> bool:
        return subject is None or SUBJECTS[subject](preflight)

    return tuple(
        rule
        for rule in rules_with_inputs(preflight)
        if _is_about(finding_texts()[rule.code].get("vendor"), vendors)
        and finding_texts()[rule.code].get("of") in plans_of
        and has(finding_texts()[rule.code].get("when"))
    )


def _is_about(vendor: Union[str, list[str], None], vendors: Container[str]) -> bool:
    return vendor is None or any(name in vendors for name in ([vendor] if isinstance(vendor, str) else vendor))


def _about(finding: Finding) -> tuple[str, Optional[str], str]:
    return finding.code, finding.vendor, finding.subject


def check(preflight: Preflight) -> tuple[Finding, ...]:
    """Return the findings of the planner, the runtime and the rules: errors first, then by code."""
    find = functions_by_code(_parts_of(preflight))
    codes = (rule.code for rule in rules_with_inputs(preflight) if rule.code in find)
    of_rules = [finding for code in codes for finding in find[code](preflight)]
    # A rule about the program or a framework may repeat a planner's finding with a worse severity: keep only that.
    worst_last = sorted(of_rules, key=finding_order, reverse=True)
    ranks = {_about(finding): SEVERITIES.index(finding.severity) for finding in worst_last}
    last = len(SEVERITIES)
    planned = (
        finding
        for finding in preflight.plan.findings
        if ranks.get(_about(finding), last) >= max(1, SEVERITIES.index(finding.severity))
    )
    findings = [*planned, *(preflight.arguments.findings if preflight.arguments else ()), *dict.fromkeys(of_rules)]
    image = preflight.image.tree if preflight.has_image else None
    findings += (finding for finding in unreadable_path_findings(preflight.host, image) if finding not in findings)
    causes = [finding for finding in findings if not _is_consequence(finding, findings)]
    if preflight.is_without_container:
        from gpubind.rules.bare import reworded

        causes = list(reworded(causes))
    return tuple(sorted(causes, key=finding_order))


def _is_consequence(finding: Finding, findings: Iterable[Finding]) -> bool:
    """Return whether another of *findings* about the same vendor is its cause. A note is not the cause of an error."""
    codes = finding_texts()[finding.code].get("follows", ())
    causes = (cause for cause in findings if cause.code in codes and finding.vendor in (None, cause.vendor))
    return any(cause.severity != "note" or finding.severity == "note" for cause in causes)
