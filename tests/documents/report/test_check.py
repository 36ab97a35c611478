"""The page of one check has all that the text has."""

from __future__ import annotations

from gpubind.documents.check.text import subject_line
from gpubind.documents.report.check import render_check_html
from gpubind.model import Finding
from gpubind.rules.outcome import Report, make_report
from tests.documents.report.pages import REPORT
from tests.support.html import Page

PAGE = Page(render_check_html(REPORT))


def test_the_verdict_comes_first_and_says_what_was_checked() -> None:
    (head,) = PAGE.all("h1")
    assert head.text == "error app.sif on gpu7"
    assert PAGE.all("title")[0].text == "error: app.sif on gpu7 - gpubind"
    assert PAGE.all("p", kind="what")[0].text == subject_line(REPORT)


def test_each_finding_is_there_with_its_code_and_its_hint() -> None:
    articles = [article.text for article in PAGE.all("article")]
    assert len(articles) == len(REPORT.findings)
    for finding in REPORT.findings:
        (told,) = [text for text in articles if finding.what in text]
        assert finding.code in told
        assert (finding.hint or "") in told


def test_ignored_findings_keep_their_reason_and_commands_their_lines() -> None:
    finding = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", command="one\ntwo")
    page = Page(render_check_html(make_report(REPORT.plan, (finding,), {("uvm-missing", None): "known"})))
    assert page.all("h1")[0].text.startswith("ok")
    assert "(known)" in page.all("p", kind="ignored")[0].text
    page = Page(render_check_html(make_report(REPORT.plan, (finding,), {})))
    (command,) = page.all("pre", kind="command")
    assert "".join(command.texts).split() == ["one", "two"]


def test_a_severity_that_the_site_has_changed_is_said() -> None:
    finding = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing")
    report = make_report(
        REPORT.plan, (finding,), {}, severities={("uvm-missing", None): ("warning", "/etc/gpubind/config.toml")}
    )
    page = Page(render_check_html(report))
    assert page.all("h1")[0].text.startswith("warning")
    assert "/dev/nvidia-uvm: warning, it was error (/etc/gpubind/config.toml)" in page.all("p", kind="ignored")[0].text


def test_gpus_nodes_and_variables_are_tables() -> None:
    cells = {cell.text for cell in PAGE.all("td")}
    assert {"NVIDIA A100", "/dev/nvidia0", "LD_LIBRARY_PATH"} <= cells


def test_a_check_that_could_not_be_made_is_a_page_without_a_plan() -> None:
    finding = Finding("not-checked", "error", None, "app.sif", "app.sif could not be checked")
    page = Page(render_check_html(Report(None, (finding,), ())))
    assert page.all("svg") == []
    assert page.data is None
