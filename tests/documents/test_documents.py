"""The registry of documents: each name there is a document that can be made."""

from __future__ import annotations

import pytest

from gpubind import plan
from gpubind.documents import CHECK_DOCUMENTS, FORMATS, PLAN_DOCUMENTS
from gpubind.model import Finding, Request
from gpubind.rules.outcome import make_report
from tests.support.driver import host, kernel, rhel

PLAN = plan(host(rhel(), kernel()), Request())
FINDING = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", "/dev", "999", "load it")


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("name", PLAN_DOCUMENTS)
def test_every_document_of_a_plan_can_be_made_and_ends_with_a_line_end(name: str, verbose: bool) -> None:
    assert PLAN_DOCUMENTS[name].render(PLAN, verbose=verbose).endswith("\n")


@pytest.mark.parametrize("name", CHECK_DOCUMENTS)
def test_every_document_of_a_check_tells_each_finding(name: str) -> None:
    report = make_report(PLAN, (FINDING,), {}, (("uvm-missing", "host"),))
    text = CHECK_DOCUMENTS[name].render(report)
    assert "uvm-missing" in text
    assert text.endswith("\n")


def test_every_document_has_a_name_that_can_be_asked_for() -> None:
    assert {*PLAN_DOCUMENTS} < {*FORMATS}
