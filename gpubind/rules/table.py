"""Every rule, and which of them a start lets be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, Optional

from gpubind.host.unseen import not_looked_at
from gpubind.model import Finding, Severity
from gpubind.model.findings import texts
from gpubind.planner import finding_order
from gpubind.rules.preflight import ImagePreflight, Needs, Preflight, ProgramPreflight

HOSTS = ("amd", "cdi", "driver", "graphics", "mig", "nodes", "platform", "services")
IMAGES = ("companions", "cuda", "frameworks", "image", "libc", "libraries", "manifests")
"""The modules of this room in which rules are, by what they are about."""


class Rule(NamedTuple):
    """One thing that can be wrong. data/findings.json has its texts, docs/findings.md a section about it."""

    code: str
    severities: tuple[Severity, ...]
    """What its findings may be, worst first."""
    needs: Needs
    """`host`: the host and the plan; `image`: also an open image; `runtime`, `program`: also the name of one."""
    find: Optional[Callable[[Any], Iterable[Finding]]]
    """What looks for it, with the `Preflight` that it needs. None: planning itself comes across it, or putting the plan
    into a runtime's words, and it is among their findings already."""


def _rules_of(module: ModuleType) -> dict[str, Callable[[Any], Iterable[Finding]]]:
    """Return the rules in *module* by code: a rule is a function that is called as its code, with `_` for `-`."""
    own = {name.replace("_", "-"): thing for name, thing in vars(module).items() if callable(thing)}
    return {code: thing for code, thing in own.items() if code in texts() and thing.__module__ == module.__name__}


TOPICS = (*(f"host.{topic}" for topic in HOSTS), *(f"image.{topic}" for topic in IMAGES), "program", "runtime")
_MODULES = [import_module(f"gpubind.rules.{topic}") for topic in TOPICS]
_FINDS = {code: find for module in _MODULES for code, find in _rules_of(module).items()}
RULES = tuple(Rule(code, tuple(text["severity"]), text["needs"], _FINDS.get(code)) for code, text in texts().items())
"""By code."""


def asked(preflight: Preflight) -> tuple[Rule, ...]:
    """The rules whose inputs are there: the host always; an image, a runtime, a program if they are known."""
    known = {
        "host": True,
        "image": isinstance(preflight, ImagePreflight),
        "runtime": preflight.backend is not None,
        "program": isinstance(preflight, ProgramPreflight),
    }
    return tuple(rule for rule in RULES if known[rule.needs])


def applying(preflight: Preflight) -> tuple[Rule, ...]:
    """Of the rules `asked`, those about the vendors of the plan, its runtime, and what it was made like."""
    request = preflight.plan.request
    vendors = {*request.vendors, *(planned.driver.vendor for planned in preflight.plan.drivers)} or {"nvidia", "amd"}
    plans_of = (None, preflight.backend, "like" if request.like is not None else None)
    return tuple(
        rule
        for rule in asked(preflight)
        if texts()[rule.code].get("vendor") in (None, *vendors) and texts()[rule.code].get("of") in plans_of
    )


def check(preflight: Preflight) -> tuple[Finding, ...]:
    """Everything to be said about a start: what planning found, then what the rules find; errors first, by code."""
    findings = [*preflight.plan.findings, *(preflight.words.findings if preflight.words else ())]
    for rule in asked(preflight):
        if rule.find is not None:
            findings += rule.find(preflight)
    image = preflight.image.tree if preflight.image is not None else None
    findings += (one for one in not_looked_at(preflight.host, image) if one not in findings)
    said = {(one.code, one.vendor) for one in findings}
    return tuple(sorted((one for one in findings if not _follows(one, said)), key=finding_order))


def _follows(finding: Finding, said: Iterable[tuple[str, Optional[str]]]) -> bool:
    """Return whether a finding of *said*, codes with vendors, about the same vendor is the cause of *finding*."""
    causes = texts()[finding.code].get("follows", ())
    return any(code in causes and finding.vendor in (None, vendor) for code, vendor in said)
