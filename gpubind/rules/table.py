"""The table of rules. To add one: write a function, add its row, its section in docs/findings.md, and its two cases in
tests/rules: one where it is so, one where it is almost so.
"""

from __future__ import annotations

from gpubind.errors import NothingToBindError
from gpubind.model import Finding
from gpubind.planner import finding_order
from gpubind.rules import host, image
from gpubind.rules.preflight import Preflight, Rule

FOUND_WHILE_PLANNING = (
    Rule("bad-filelist", ("warning",), "host"),
    Rule("bad-icd", ("warning",), "host"),
    Rule("bad-ldcache", ("warning",), "host"),
    Rule("bad-procfs", ("warning",), "host"),
    Rule("device-number", ("error",), "host"),
    Rule("device-permission", ("error", "warning", "note"), "host"),
    Rule("devices-not-isolated", ("note",), "runtime"),
    Rule("driver-mismatch", ("error",), "host"),
    Rule("driver-not-loaded", ("error",), "host"),
    Rule("image-architecture", ("error", "warning"), "image"),
    Rule("image-libc", ("error", "warning"), "image"),
    Rule("image-without-glibc", ("error", "warning"), "image"),
    Rule("library-path-lost", ("warning",), "runtime"),
    Rule("like-collision", ("error",), "host"),
    Rule("like-entry", ("error",), "host"),
    Rule("like-ldcache", ("error",), "host"),
    Rule("no-ldcache", ("note",), "host"),
    Rule("no-libcuda", ("error",), "host"),
    Rule("not-in-list", ("error", "warning"), "host"),
    Rule("nothing-to-bind", ("error",), "host"),
    Rule("other-driver-version", ("warning",), "host"),
    Rule("source-failed", ("warning",), "host"),
    Rule("vendor-neutral-left-out", ("note",), "host"),
    Rule("vendor-neutral-missing", ("error", "note"), "image"),
)

HOST_RULES = (
    Rule("uvm-missing", ("error",), "host", host.uvm_missing),
    Rule("control-node-missing", ("error",), "host", host.control_node_missing),
)

IMAGE_RULES = (Rule("driver-in-image", ("error", "warning"), "image", image.driver_in_image),)

RULES = (*FOUND_WHILE_PLANNING, *HOST_RULES, *IMAGE_RULES)


def check(preflight: Preflight) -> tuple[Finding, ...]:
    """Everything to be said about a start: what planning found, then what the rules find; errors first, by code."""
    findings = list(preflight.plan.findings)
    for rule in RULES:
        asked = rule.needs == "host" or (preflight.image if rule.needs == "image" else preflight.backend) is not None
        if rule.find is not None and asked:
            findings += rule.find(preflight)
    return tuple(sorted(findings, key=finding_order))


def nothing_to_bind(error: NothingToBindError) -> Finding:
    """The finding about a host that has no driver and no device."""
    return Finding(error.code, "error", None, "host", error.what, error.where, error.why, error.hint)
