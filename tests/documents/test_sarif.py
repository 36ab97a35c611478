"""`check --format sarif`: a log that fits the public schema: a rule for each code, a result for each finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional

import jsonschema
import pytest

from gpubind.documents.check.sarif import render_sarif, render_sarif_of
from gpubind.model import Finding
from gpubind.model.findings import finding_texts
from gpubind.rules.outcome import Checked, Report, make_report
from tests.support.commands import HOST, gpubind, images
from tests.support.hostile_names import HOSTILE, UNSAYABLE

DATA = Path(__file__).parent.parent / "data" / "sarif"
VALIDATOR = jsonschema.Draft4Validator(json.loads((DATA / "sarif-schema-2.1.0.json").read_text()))
UVM = Finding("uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "a node is missing", why="why", hint="a hint")
LIBC = UVM._replace(code="image-without-glibc", severity="warning", subject="libc.so.6")


def run(report: Report) -> dict[str, Any]:
    log = json.loads(render_sarif(report))
    VALIDATOR.validate(log)
    (only,) = log["runs"]
    made: dict[str, Any] = only
    return made


def report(*findings: Finding, image: Optional[str] = None, **facts: Any) -> Report:
    return make_report(None, findings, {}, checked=Checked(image=image), **facts)


def test_every_code_makes_a_rule_that_fits_the_schema() -> None:
    every = [
        Finding(code, text["severity"][0], None, "subject", "what", None, "why", "hint", "command")
        for code, text in finding_texts().items()
    ]
    made = run(report(*every))
    rules = made["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(finding_texts())
    assert all(rule["shortDescription"]["text"].strip(".") and rule["help"]["text"].strip() for rule in rules)
    assert [rules[result["ruleIndex"]]["id"] for result in made["results"]] == [one.code for one in every]
    assert {result["level"] for result in made["results"]} == {"error", "warning", "note"}


def test_a_result_has_the_finding_and_names_its_image() -> None:
    (result,) = run(report(UVM, image="images/my app.sif"))["results"]
    assert (result["ruleId"], result["level"]) == (UVM.code, UVM.severity)
    assert result["message"]["text"].splitlines()[0] == UVM.what
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "images/my%20app.sif"
    assert location["logicalLocations"] == [{"name": "/dev/nvidia-uvm", "kind": "resource"}]


@pytest.mark.parametrize("image", ["podman:registry.example.org/app:1", "/srv/a:b.sif", "./c%20d"])
def test_an_image_is_named_by_a_uri(image: str) -> None:
    (result,) = run(report(UVM, image=image))["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == image.replace("%", "%25")


def test_a_finding_of_the_host_has_no_file() -> None:
    (result,) = run(report(UVM))["results"]
    assert "physicalLocation" not in result["locations"][0]


def test_an_ignored_finding_is_suppressed_with_its_reason() -> None:
    ignored = make_report(None, [UVM, LIBC], {("uvm-missing", None): "known, ticket 7"})
    first, second = run(ignored)["results"]
    assert "suppressions" not in first
    assert second["suppressions"] == [{"kind": "external", "justification": "known, ticket 7"}]


def test_a_fingerprint_is_that_of_code_and_subject() -> None:
    prints = [run(report(one))["results"][0]["partialFingerprints"] for one in (UVM, UVM._replace(what="other"), LIBC)]
    assert prints[0] == prints[1] != prints[2]
    assert [*prints[0]] == ["gpubind/1"]  # the name by which runs are compared


@pytest.mark.parametrize("name", [*HOSTILE, *UNSAYABLE])
def test_a_hostile_name_stays_a_string(name: str) -> None:
    made = run(report(UVM._replace(subject=name, what=name, where=name), image=name))
    assert made["results"][0]["properties"]["subject"].isprintable()


def test_several_checks_are_runs_of_one_log() -> None:
    reports = [report(UVM, image="a.sif"), report(image="b.sif")]
    log = json.loads(render_sarif_of(reports))
    VALIDATOR.validate(log)
    assert log == json.loads(render_sarif_of(reports))
    assert [len(one["results"]) for one in log["runs"]] == [1, 0]
    assert len({one["automationDetails"]["id"] for one in log["runs"]}) == 2


def test_the_command_prints_it_and_exits_as_always(tmp_path: Path) -> None:
    done = gpubind("check", "--nv", "--image", images(tmp_path), "--host", HOST, "--format", "sarif")
    assert done.returncode == 1
    log = json.loads(done.stdout)
    VALIDATOR.validate(log)
    assert "cuda-too-new" in {result["ruleId"] for result in log["runs"][0]["results"]}
