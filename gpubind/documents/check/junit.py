"""`check --format junit`: each rule that applied is a test case.

Source: the JUnit XML that Jenkins and GitLab read: testsuite, properties, testcase, failure, skipped, system-out.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from gpubind.documents.check.report import checked_with_driver, excluded_text
from gpubind.documents.text import render_finding, with_valid_unicode
from gpubind.model.findings import finding_texts
from gpubind.rules.outcome import Report


def render_junit(report: Report) -> str:
    """Return the report as XML. Each error is a failure; other findings are only text."""
    return _written(_suite(report))


def render_suites(reports: Sequence[Report]) -> str:
    """Return several reports as one document, each a test suite."""
    suites = ElementTree.Element("testsuites")
    suites.extend(map(_suite, reports))
    return _written(suites)


def _written(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(report: Report) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name="gpubind check")
    about = checked_with_driver(report)
    if "host" in about:
        suite.set("hostname", with_valid_unicode(about["host"]))
    if report.not_counted:
        about["not counted"] = excluded_text(report)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in about.items():
        ElementTree.SubElement(properties, "property", name=name, value=with_valid_unicode(value))
    tests = failures = skipped = 0
    for code, needs in _cases(report).items():
        case = ElementTree.SubElement(suite, "testcase", classname=f"gpubind.{needs}", name=code)
        tests += 1
        code_findings = [finding for finding in report.findings if finding.code == code]
        errors = [finding for finding in code_findings if finding.severity == "error"]
        reasons = [reason for finding, reason in report.ignored if finding.code == code]
        if errors:
            failures += 1
            failure = ElementTree.SubElement(case, "failure", message=with_valid_unicode(errors[0].what), type=code)
            failure.text = with_valid_unicode("".join(map(render_finding, errors)))
        elif reasons:
            skipped += 1
            ElementTree.SubElement(case, "skipped", message=with_valid_unicode(reasons[0]))
        others = [finding for finding in code_findings if finding.severity != "error"]
        if others:
            ElementTree.SubElement(case, "system-out").text = with_valid_unicode("".join(map(render_finding, others)))
    suite.attrib.update(tests=str(tests), failures=str(failures), errors="0", skipped=str(skipped))
    return suite


def _cases(report: Report) -> dict[str, str]:
    findings = (*report.findings, *(finding for finding, _ in report.ignored))
    cases = {finding.code: finding_texts().get(finding.code, {}).get("needs", "host") for finding in findings}
    cases.update(report.rules)
    return dict(sorted(cases.items()))
