"""`check --format junit`: a test suite of the rules."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from gpubind import plan
from gpubind.documents.check.junit import render_junit
from gpubind.model import Finding, Request
from gpubind.rules.outcome import make_report
from tests.support.commands import HOST, gpubind
from tests.support.driver import host, kernel, rhel

EXAMPLE = Path(__file__).parents[2] / "docs/examples/cuda13.sif"
RULES = (("bad-icd", "host"), ("gpu-excluded", "host"), ("stub-in-image", "image"), ("uvm-missing", "host"))
ERROR = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", "/dev", "999", "load it", "a\nb")
HOSTILE = Finding("bad-icd", "warning", None, "a\nb", "100% of \x1b[31m <it>, it: is\nbad & ]]>", None, None, "mend")
NOTE = Finding("gpu-excluded", "note", "nvidia", "gpu", "one is excluded", hint="nothing")
FINDINGS = (ERROR, HOSTILE, NOTE)
REPORT = make_report(
    plan(host(rhel(), kernel()), Request()), FINDINGS, {("gpu-excluded", None): "kept for the display"}, RULES
)


def test_as_junit_each_rule_is_a_case_and_an_error_a_failure() -> None:
    suite = ElementTree.fromstring(render_junit(REPORT))
    assert suite.attrib == {
        "name": "gpubind check",
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    failed = [case.attrib["name"] for case in suite if case.find("failure") is not None]
    assert failed == ["uvm-missing"]
    skipped = suite.find("testcase[@name='gpu-excluded']/skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "kept for the display"
    assert suite.findtext("testcase[@name='bad-icd']/system-out")


def test_a_finding_is_a_case_also_if_its_rule_is_not_among_those_that_apply() -> None:
    suite = ElementTree.fromstring(render_junit(REPORT._replace(rules=RULES[2:3])))
    names = [case.attrib["name"] for case in suite.findall("testcase")]
    assert names == ["bad-icd", "gpu-excluded", "stub-in-image", "uvm-missing"]
    assert suite.attrib["failures"] == "1"


def test_a_check_lists_no_rule_about_what_is_not_there() -> None:
    done = gpubind("check", "--nv", "--host", HOST, "--image", str(EXAMPLE), "--format", "junit")
    names = {str(case.get("name")) for case in ElementTree.fromstring(done.stdout).findall("testcase")}
    assert {"uvm-missing", "cuda-too-new"} <= names
    assert names & {"wsl", "tegra", "mig-mode", "cdi-edit", "compat-used", "mps-active", "docker-snap"} == set()
