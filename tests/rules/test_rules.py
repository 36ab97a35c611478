"""Each rule fires where it should, and not where it almost should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from build.driver import kernel, rhel
from build.elf import elf
from build.images import glibc, image

from gpubind.rules import RULES
from rules import cases_amd, cases_host, cases_image
from rules.situations import Situation, found, without

CASES = {**cases_host.CASES, **cases_image.CASES, **cases_amd.CASES}
PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()
CODES = [rule.code for rule in RULES]


def test_every_rule_has_a_case_where_it_fires_and_one_where_it_is_almost_so() -> None:
    assert sorted(CASES) == sorted(CODES)


def test_every_rule_has_its_section_in_the_docs_and_no_other_has() -> None:
    assert sorted(re.findall(r"^## (.*)$", PAGE, re.MULTILINE)) == sorted(CODES)


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_rule_fires_where_it_is_so_and_not_where_it_is_almost_so(code: str) -> None:
    findings = [finding for finding in found(CASES[code].fires) if finding.code == code]
    assert findings
    assert all(finding.hint for finding in findings)
    rule = next(rule for rule in RULES if rule.code == code)
    assert {finding.severity for finding in findings} <= {*rule.severities}
    assert code not in [finding.code for finding in found(CASES[code].almost)]


def test_a_healthy_host_has_no_error() -> None:
    assert [f.code for f in found(Situation((rhel(), kernel()))) if f.severity != "note"] == []


def test_a_driver_in_the_image_is_an_error_if_the_plan_brings_none() -> None:
    opened = image(glibc(), {cases_image.LIBCUDA: elf("libcuda.so.1")})
    severities = [f.severity for f in found(Situation((kernel(),), opened)) if f.code == "driver-in-image"]
    assert severities == ["error"]


def test_errors_come_first() -> None:
    findings = found(Situation((rhel("535.54.03"), without(kernel(), "/dev/nvidia-uvm"))))
    ranks = [("error", "warning", "note").index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
