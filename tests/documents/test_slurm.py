"""`check --format slurm`: one line, the reason of a drained node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind import plan
from gpubind.documents.check.slurm import LIMIT, render_slurm, render_slurm_error
from gpubind.errors import HostReadError
from gpubind.model import Finding, Request, Severity
from gpubind.rules.outcome import Report, make_report
from tests.support.driver import host, kernel, rhel

PLAN = plan(host(rhel(), kernel()), Request())


def of(*named: tuple[str, str], severity: Severity = "error") -> Report:
    return make_report(PLAN, (Finding(code, severity, None, subject, "it is so") for code, subject in named), {})


def test_the_line_has_the_code_and_the_subject_of_each_error() -> None:
    report = of(("uvm-missing", "/dev/nvidia-uvm"), ("companion-missing", "libnvidia-ptxjitcompiler.so.1"))
    line = "gpubind: uvm-missing(/dev/nvidia-uvm) companion-missing(libnvidia-ptxjitcompiler.so.1)\n"
    assert render_slurm(report) == line


def test_what_is_wrong_twice_with_one_subject_is_named_once() -> None:
    spec = ("stale-cdi", "/etc/cdi/x.json")
    assert render_slurm(of(spec, spec)) == "gpubind: stale-cdi(/etc/cdi/x.json)\n"


def test_the_line_is_never_empty() -> None:
    assert render_slurm(of()) == "gpubind: ok\n"
    assert render_slurm(of(("gpu-excluded", "gpu"), severity="note")) == "gpubind: ok\n"


def test_warnings_are_called_so_and_errors_hide_them() -> None:
    warning = of(("other-driver-version", "535.261.03"), severity="warning")
    assert render_slurm(warning) == "gpubind: warning other-driver-version(535.261.03)\n"
    error = of(("uvm-missing", "/dev/nvidia-uvm"))
    both = error._replace(findings=(*error.findings, *warning.findings))
    assert render_slurm(both) == render_slurm(error)


def test_what_does_not_fit_is_counted_and_the_first_of_each_code_comes_first() -> None:
    nodes = [("gpu-node-missing", f"/dev/nvidia{number}") for number in range(8)]
    line = render_slurm(of(*nodes, ("uvm-missing", "/dev/nvidia-uvm")))
    assert line == "gpubind: gpu-node-missing(/dev/nvidia0) uvm-missing(/dev/nvidia-uvm) +7\n"


def test_a_code_that_is_new_is_named_where_its_subject_has_no_room() -> None:
    nodes = [("control-node-missing", "/dev/nvidiactl"), ("gpu-node-missing", "/dev/nvidia0")]
    line = render_slurm(of(*nodes, ("gpu-node-missing", "/dev/nvidia1"), ("uvm-missing", "/dev/nvidia-uvm")))
    assert line == "gpubind: control-node-missing(/dev/nvidiactl) gpu-node-missing(/dev/nvidia0) uvm-missing +1\n"


def test_a_long_path_is_named_by_its_end_and_a_longer_name_by_its_code() -> None:
    directory = "/usr/lib/x86_64-linux-gnu/nvidia/current-of-this-host"
    assert render_slurm(of(("bad-icd", f"{directory}/nvidia.json"))) == "gpubind: bad-icd(nvidia.json)\n"
    model = "7 of 8 NVIDIA RTX 6000 Ada Generation GPU"
    assert render_slurm(of(("expected-gpus", model))) == f"gpubind: expected-gpus({model})\n"
    assert render_slurm(of(("bad-icd", "n" * 200))) == "gpubind: bad-icd\n"


def test_what_only_leaves_out_is_counted() -> None:
    found = Finding("uvm-missing", "error", None, "/dev/nvidia-uvm", "it is so")
    assert render_slurm(make_report(PLAN, (found,), {}, only=("no-gpu",))) == "gpubind: ok (1 not counted)\n"


def test_an_error_that_is_no_answer_is_told_apart_from_one_of_the_node() -> None:
    error = HostReadError("unreadable-file", "it cannot be read", where="/proc/devices")
    assert render_slurm_error(error) == "gpubind: not checked unreadable-file(/proc/devices)\n"


CODES = st.sampled_from(["uvm-missing", "gpu-node-missing", "library-unreadable", "x" * 45])


@given(st.lists(st.tuples(CODES, st.text(max_size=130)), max_size=12), st.booleans())
def test_whatever_is_found_it_is_one_line_of_at_most_100_characters(named: list[tuple[str, str]], only: bool) -> None:
    report = of(*named)
    line = render_slurm(report._replace(not_counted=report.findings) if only else report)
    assert line.startswith("gpubind: ")
    assert line.endswith("\n")
    assert line[:-1].isprintable() or "\u2028" not in line
    assert len(line.splitlines()) == 1
    assert len(line) - 1 <= LIMIT


@pytest.mark.parametrize("number", range(1, 12))
def test_the_number_of_what_is_left_out_and_the_items_are_all_errors(number: int) -> None:
    line = render_slurm(of(*((f"code-{at}-of-many", f"/dev/subject{at}") for at in range(number))))
    shown = line.count("code-")
    left = int(line.rpartition(" +")[2]) if " +" in line else 0
    assert shown + left == number
