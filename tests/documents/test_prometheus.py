"""`check --format prometheus`: what the parser of Prometheus' own client reads of it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import gpubind
from gpubind import check, plan
from gpubind.documents.check.prometheus import render_prometheus
from gpubind.documents.text import printable
from gpubind.model import Finding, Request
from gpubind.model.requirements import Expectation
from gpubind.rules.outcome import Report, make_report
from tests.rules.situations import without
from tests.support.commands import gpubind as gpubind_command
from tests.support.driver import V, host, kernel, rhel
from tests.support.trees import Spec

Samples = dict[str, list[tuple[dict[str, str], float]]]


def checked(*parts: Spec) -> Report:
    machine = host(*parts)
    made = plan(machine, Request(vendors=("nvidia",)))
    return make_report(made, check(machine, made), {})


def read(report: Report) -> Samples:
    """The samples of each metric; each has its help, its type, and no labels twice."""
    found: Samples = {}
    for family in text_string_to_metric_families(render_prometheus(report)):
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        found[family.name] = [(sample.labels, sample.value) for sample in family.samples]
        series = [str(sorted(sample.labels.items())) for sample in family.samples]
        assert len(series) == len(set(series))
    return found


def test_a_good_host_is_0_and_has_its_driver_its_plan_and_its_gpus() -> None:
    report = checked(rhel(), kernel())
    assert report.plan is not None
    samples = read(report)
    assert samples["gpubind_check_status"] == [({}, 0)]
    assert samples["gpubind_finding"] == []
    assert samples["gpubind_driver_info"] == [({"vendor": "nvidia", "version": V, "cuda_max": "12.4"}, 1)]
    assert samples["gpubind_plan_info"] == [({"digest": report.plan.digest, "node_digest": report.plan.node_digest}, 1)]
    assert samples["gpubind_gpus"] == [({"state": "listed"}, 2), ({"state": "chosen"}, 2), ({"state": "usable"}, 2)]


def test_the_version_is_a_sample() -> None:
    assert read(checked(rhel(), kernel()))["gpubind_build_info"] == [({"version": gpubind.__version__}, 1)]


def test_a_check_without_an_answer_is_3_with_the_code_of_its_error(tmp_path: Path) -> None:
    output = tmp_path / "gpubind.prom"
    image = tmp_path / "image.sif"
    image.write_text("no image")
    done = gpubind_command(
        "check", "--host", "debian13-nvidia550", "--image", str(image), "--format", "prometheus", "-o", str(output)
    )
    assert done.returncode == 5
    families = {family.name: family.samples for family in text_string_to_metric_families(output.read_text())}
    assert [sample.value for sample in families["gpubind_check_status"]] == [3]
    assert [sample.labels for sample in families["gpubind_error"]] == [{"code": "unknown-image"}]
    assert {*families} == {"gpubind_check_status", "gpubind_build_info", "gpubind_error"}


def test_wrong_use_writes_no_metrics(tmp_path: Path) -> None:
    output = tmp_path / "gpubind.prom"
    done = gpubind_command("check", "--host", "nowhere", "--format", "prometheus", "-o", str(output))
    assert (done.returncode, output.exists()) == (2, False)


def test_an_error_is_2_and_a_series_with_its_code_and_subject() -> None:
    samples = read(checked(rhel(), without(kernel(), "/dev/nvidia-uvm")))
    assert samples["gpubind_check_status"] == [({}, 2)]
    labels = {"code": "uvm-missing", "severity": "error", "subject": "/dev/nvidia-uvm"}
    assert samples["gpubind_finding"] == [(labels, 1)]
    counts = {labels["severity"]: value for labels, value in samples["gpubind_findings"]}
    assert (counts["error"], counts["warning"], counts["ignored"]) == (1, 0, 0)


def test_a_gpu_without_its_node_is_not_usable() -> None:
    states = {
        labels["state"]: n for labels, n in read(checked(rhel(), without(kernel(), "/dev/nvidia1")))["gpubind_gpus"]
    }
    assert (states["listed"], states["usable"]) == (2, 1)


def test_the_gpus_that_a_node_is_to_have_are_a_state() -> None:
    expected = Expectation("node.toml", gpus=(("NVIDIA A100", 3), ("NVIDIA T4", 1)))
    report = checked(rhel(), kernel())._replace(expected=(expected, Expectation("site")))
    assert ({"state": "expected"}, 4) in read(report)["gpubind_gpus"]


def test_a_check_that_an_error_prevented_has_a_status_and_neither_driver_nor_plan() -> None:
    found = Finding("not-checked", "error", None, "n3", "it was not checked")
    samples = read(make_report(None, (found,), {}))
    assert samples["gpubind_check_status"] == [({}, 2)]
    assert (samples["gpubind_driver_info"], samples["gpubind_plan_info"]) == ([], [])


def test_the_same_outcome_is_the_same_file_and_has_no_time() -> None:
    assert render_prometheus(checked(rhel(), kernel())) == render_prometheus(checked(rhel(), kernel()))
    assert all("time" not in line for line in render_prometheus(checked(rhel(), kernel())).splitlines())


@given(st.lists(st.text(max_size=40), max_size=4))
def test_any_subject_is_read_back(subjects: list[str]) -> None:
    found = [Finding("bad-icd", "warning", None, subject, "it is so") for subject in subjects]
    told = read(make_report(None, found, {}))["gpubind_finding"]
    assert [labels["subject"] for labels, _ in told] == list(dict.fromkeys(map(printable, subjects)))
