"""The forms in which a check is told: lines, JSON, workflow commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpubind import check, plan
from gpubind.documents.check.report import render_check_github, render_check_json, render_check_tsv
from gpubind.model import Finding, Request
from gpubind.rules.outcome import Report, make_report, verdict
from tests.support.driver import host, kernel, rhel
from tests.support.golden import assert_fits
from tests.support.images import glibc, image

PLAN = plan(host(rhel(), kernel()), Request(), image=image(glibc()))
ERROR = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", "/dev", "999", "load it", "a\nb")
HOSTILE = Finding("bad-icd", "warning", None, "a\nb", "100% of \x1b[31m <it>, it: is\nbad & ]]>", None, None, "mend")
NOTE = Finding("gpu-excluded", "note", "nvidia", "gpu", "one is excluded", hint="nothing")
REPORT = make_report(PLAN, (ERROR, HOSTILE, NOTE), {("gpu-excluded", None): "kept for the display"})


def test_what_is_ignored_keeps_its_reason_and_does_not_count() -> None:
    assert [finding.code for finding in REPORT.findings] == ["uvm-missing", "bad-icd"]
    assert [(finding.code, reason) for finding, reason in REPORT.ignored] == [("gpu-excluded", "kept for the display")]
    assert verdict(make_report(PLAN, (ERROR,), {("uvm-missing", None): "known"}).findings) == "ok"


def test_as_columns_a_finding_is_one_line_and_hostile_names_stay_in_it() -> None:
    lines = render_check_tsv(REPORT).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["error", "warning", "ignored", "# error"]
    assert all(line.isprintable() for line in (line.replace("\t", "") for line in lines))


@pytest.mark.parametrize("report", [REPORT, Report(PLAN, (), ())], ids=["findings", "nothing"])
def test_as_json_it_follows_its_schema(report: Report) -> None:
    document: Any = json.loads(render_check_json(report))
    assert_fits(document, "check")
    assert document["verdict"] == verdict(report.findings)
    assert document["plan"] == PLAN.digest


def test_as_workflow_commands_a_finding_is_one_line_with_its_level() -> None:
    lines = render_check_github(REPORT).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning", "ignored:", "gpubind:"]
    assert lines[0].count("::") == 2
    assert "%25 of" in lines[1]
    assert "\x1b" not in lines[1]


def test_the_library_says_what_the_command_says() -> None:
    findings = check(host(rhel(), kernel()), PLAN, image(glibc()), program="/usr/bin/absent")
    assert [finding.code for finding in findings if finding.severity == "error"] == ["program-missing"]
