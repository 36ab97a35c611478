"""What a node is to have, and what a site says of findings: --expect, record --expect, [require] and [severity]."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpubind import open_host, plan, record
from gpubind.documents.expectation import render_expectation
from gpubind.host.record import dump_record
from gpubind.model import Finding, Request
from gpubind.planner.expected import make_expectation
from gpubind.rules.outcome import make_report
from tests.rules.situations import without
from tests.support import amd
from tests.support.commands import gpubind
from tests.support.driver import V, host, kernel, rhel
from tests.support.surveys import survey
from tests.support.trees import Link, Spec

GOOD = (rhel(), kernel(gpus=3))
NVVM = ("/usr/lib64/libnvidia-nvvm.so.4", f"/usr/lib64/libnvidia-nvvm.so.{V}")


def node(path: Path, *parts: Spec, environ: Any = None) -> str:
    """A record of the node that has *parts*."""
    path.write_text(dump_record(survey(host(*parts, environ=environ)), "1"))
    return str(path)


@pytest.fixture
def good(tmp_path: Path) -> str:
    return node(tmp_path / "good.json", *GOOD)


@pytest.fixture
def lines(tmp_path: Path, good: str) -> str:
    """The file that a good node's administrator keeps."""
    plan = json.loads(gpubind("plan", "--nv", "--host", good, "--json").stdout)
    from gpubind.model import Plan

    path = tmp_path / "node.toml"
    path.write_text(render_expectation(make_expectation(Plan.from_dict(plan))))
    return str(path)


def told(*words: str, **more: Any) -> str:
    done = gpubind("check", "--nv", "--format", "slurm", *words, **more)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("form", ["record", "plan", "lines"])
def test_a_good_node_has_what_it_is_to_have_whatever_form_says_so(
    form: str, good: str, lines: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(gpubind("plan", "--nv", "--host", good, "--json").stdout)
    path = {"record": good, "plan": str(plan), "lines": lines}[form]
    assert told("--host", good, "--expect", path) == "gpubind: ok"
    assert told("--host", good, "--expect", path, "--gpus", "1", "--caps", "utility") == "gpubind: ok"
    short = node(tmp_path / "short.json", rhel(), kernel(gpus=2))
    assert told("--host", short, "--expect", path) == "gpubind: expected-gpus(2 of 3 NVIDIA A100)"


def test_the_uuids_of_a_node_and_the_choice_of_a_job_are_not_compared(good: str, tmp_path: Path) -> None:
    text = Path(good).read_text().replace("GPU-0000000", "GPU-1000000")
    (tmp_path / "other.json").write_text(text)
    chosen = node(tmp_path / "job.json", *GOOD, environ={"SLURM_JOB_GPUS": "1"})
    for other in (str(tmp_path / "other.json"), chosen):
        assert told("--host", good, "--expect", other) == "gpubind: ok"
        assert told("--host", other, "--expect", good) == "gpubind: ok"


def test_a_gpu_without_its_node_is_not_there(lines: str, tmp_path: Path) -> None:
    broken = node(tmp_path / "broken.json", rhel(), without(kernel(gpus=3), "/dev/nvidia2"))
    assert "expected-gpus(2 of 3 NVIDIA A100)" in told("--host", broken, "--expect", lines)


def test_more_gpus_than_expected_are_a_warning(lines: str, tmp_path: Path) -> None:
    more = node(tmp_path / "more.json", rhel(), kernel(gpus=4))
    assert told("--host", more, "--expect", lines) == "gpubind: warning expected-gpus(4 of 3 NVIDIA A100)"


def test_another_driver_is_one_error_and_its_libraries_are_not_compared(good: str, tmp_path: Path) -> None:
    older = node(tmp_path / "older.json", rhel("535.54.03"), kernel("535.54.03", gpus=3))
    assert told("--host", older, "--expect", good) == f"gpubind: expected-driver({V})"


def test_a_library_that_a_good_node_has_is_expected_with_its_name(good: str, tmp_path: Path) -> None:
    lacking = node(tmp_path / "lacking.json", without(rhel(), *NVVM), kernel(gpus=3))
    done = gpubind("check", "--nv", "--host", lacking, "--expect", good, "--only", "expected-library", "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["subject"], finding["severity"]) == ("libnvidia-nvvm.so", "error")
    assert json.loads(done.stdout)["checked"]["expected"] == good


def test_another_mode_of_amds_gpus_is_one_error_and_their_number_is_not_compared(tmp_path: Path) -> None:
    divided = [amd.partition(f"0000:{bus:02x}:00.0", "CPX", "NPS4") for bus in amd.BUSES]
    whole, parts = (tmp_path / name for name in ("whole.json", "parts.json"))
    whole.write_text(record(amd.amd_host(amd.opt(), amd.kernel())))
    parts.write_text(record(amd.amd_host(amd.opt(), amd.kernel(gpus=4), *divided)))
    path = tmp_path / "node.toml"
    path.write_text(render_expectation(make_expectation(plan(open_host(str(whole)), Request()))))
    assert 'partition = "SPX/NPS1"\ngpus = { "AMD Instinct MI300X (gfx942)" = 8 }\n' in path.read_text()
    words = ("check", "--rocm", "--format", "slurm", "--ignore", "userspace-unknown", "--host")
    assert gpubind(*words, str(whole), "--expect", str(path)).stdout == "gpubind: ok\n"
    for expected in (path, whole):
        done = gpubind(*words, str(parts), "--expect", str(expected))
        assert done.stdout == "gpubind: expected-partition(SPX/NPS1)\n"


def test_what_a_node_without_a_driver_lacks_is_told_once(good: str, tmp_path: Path) -> None:
    empty = node(tmp_path / "empty.json", {"/usr/lib64": Link("lib")})
    assert told("--host", empty, "--expect", good) == "gpubind: nothing-to-bind(host)"


@pytest.mark.parametrize(
    ("text", "code", "exit_code"),
    [
        ("gpus = 'many'", "bad-expectation", 5),
        ("cpus = 4", "bad-expectation", 5),
        ("partition = 'spx'", "bad-expectation", 5),
        ('{"schema": "gpubind.plan/1"}', "bad-plan", 5),
        ('{"schema": "gpubind.host/1"', "bad-record", 5),
        ('{"schema": 1}', "bad-record", 5),
        (None, "unreadable-file", 4),
    ],
)
def test_a_file_that_is_no_expectation_is_refused_by_name(
    text: Any, code: str, exit_code: int, good: str, tmp_path: Path
) -> None:
    path = tmp_path / "expected"
    if text is not None:
        path.write_text(text)
    done = gpubind("check", "--nv", "--host", good, "--expect", str(path))
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert done.stderr.startswith(f"error: {code}: ")
    assert str(path) in done.stderr


def test_junit_has_what_is_expected_only_where_something_is(good: str, lines: str) -> None:
    words = ("check", "--nv", "--host", good, "--format", "junit")
    assert "expected-gpus" not in gpubind(*words).stdout
    assert 'name="expected-gpus"' in gpubind(*words, "--expect", lines).stdout


def test_expect_and_like_exclude_each_other(good: str, lines: str) -> None:
    done = gpubind("check", "--nv", "--host", good, "--expect", lines, "--like", "apptainer")
    assert (done.returncode, done.stderr.splitlines()[0].split(":")[1]) == (2, " expect-with-like")


def at(root: str) -> tuple[str, ...]:
    return "--root", root, "--dev-root", root


# record --expect, of a root: there are no nodes in one that any user can make.


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    from tests.support.trees import Node, make_tree

    spec = {path: item for path, item in {**rhel(), **kernel()}.items() if not isinstance(item, Node)}
    make_tree(tmp_path / "root", spec)
    yield str(tmp_path / "root")


def test_a_node_with_an_error_is_no_example_for_others(root: str, tmp_path: Path) -> None:
    out = tmp_path / "node.toml"
    done = gpubind("record", "--expect", *at(root), "-o", str(out))
    assert done.returncode == 1
    assert "uvm-missing" in done.stderr
    assert not out.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes")
def test_a_good_node_writes_what_others_are_to_have(root: str, tmp_path: Path) -> None:
    import stat

    from tests.support.trees import Node

    for path, item in kernel().items():
        if isinstance(item, Node):
            os.mknod(root + path, stat.S_IFCHR | 0o666, os.makedev(item.major, item.minor))
            os.chmod(root + path, 0o666)
    out = tmp_path / "node.toml"
    done = gpubind("record", "--expect", *at(root), "-o", str(out), "--description", "two A100")
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_text() == (
        "# two A100\n# gpubind check --expect FILE: what such a node is to have\n"
        f'driver = "{V}"\ncapabilities = ["compute", "utility", "video", "graphics"]\ngpus = {{ "NVIDIA A100" = 2 }}\n'
    )
    assert told(*at(root), "--expect", str(out)) == "gpubind: ok"
    config = site(tmp_path, f"[require]\n{out.read_text()}[severity]\nstale-cdi = 'error'\n")
    assert told(*at(root), **config) == "gpubind: ok"
    os.remove(f"{root}/proc/driver/nvidia/gpus/0000:02:00.0/information")
    os.rmdir(f"{root}/proc/driver/nvidia/gpus/0000:02:00.0")
    os.remove(f"{root}/dev/nvidia1")
    assert told(*at(root), "--expect", str(out)) == "gpubind: expected-gpus(1 of 2 NVIDIA A100)"
    assert told(*at(root), **config) == "gpubind: expected-gpus(1 of 2 NVIDIA A100)"


# The site's configuration.


def site(tmp_path: Path, text: str) -> dict[str, Any]:
    (tmp_path / "gpubind").mkdir(exist_ok=True)
    (tmp_path / "gpubind/config.toml").write_text(text)
    return {"env": {"XDG_CONFIG_HOME": str(tmp_path)}}


def test_a_site_requires_what_a_file_may_expect_of_this_machine_alone(root: str, good: str, tmp_path: Path) -> None:
    config = site(tmp_path, '[require]\ndriver = "535"\n[require.gpus]\n"NVIDIA A100" = 9\n')
    line = told(*at(root), "--only", "expected-driver,expected-gpus", **config)
    assert line.startswith("gpubind: expected-driver(535) expected-gpus(0 of 9 NVIDIA A100)")
    assert told("--host", good, **config) == "gpubind: ok"


def test_a_wrong_key_of_what_is_required_names_the_file_and_the_key(good: str, tmp_path: Path) -> None:
    done = gpubind("check", "--nv", **site(tmp_path, "[require]\ngpu = 8\n"))
    assert done.returncode == 5
    assert done.stderr.startswith("error: bad-expectation: ")
    assert f"where: {tmp_path}/gpubind/config.toml" in done.stderr
    assert "unknown key `require.gpu`" in done.stderr
    assert "gpus" in done.stderr.partition("hint:")[2]


@pytest.mark.parametrize("text", ["gpus = 8\n", '[gpus]\n"NVIDIA A100" = 8\n'])
def test_a_number_of_gpus_outside_of_what_is_required_is_refused_with_a_hint(text: str, tmp_path: Path) -> None:
    done = gpubind("check", "--nv", **site(tmp_path, text))
    assert done.returncode == 5
    assert "hint:  what a node is to have stands below `[require]`" in " ".join(done.stderr.splitlines())


@pytest.fixture
def lost(tmp_path: Path) -> str:
    return node(tmp_path / "lost.json", rhel(), without(kernel(gpus=3), "/dev/nvidia1"))


def test_a_site_raises_and_lowers_findings_and_the_report_says_so(lost: str, tmp_path: Path) -> None:
    assert told("--host", lost) == "gpubind: warning gpu-node-missing(/dev/nvidia1)"
    config = site(tmp_path, '[severity]\ngpu-node-missing = "error"\n')
    assert told("--host", lost, **config) == "gpubind: gpu-node-missing(/dev/nvidia1)"
    words = ("check", "--nv", "--host", lost)
    assert gpubind(*words, "-q", **config).returncode == 1
    path = f"{tmp_path}/gpubind/config.toml"
    (changed,) = json.loads(gpubind(*words, "--json", **config).stdout)["changed"]
    assert changed == {
        "code": "gpu-node-missing",
        "subject": "/dev/nvidia1",
        "severity": "error",
        "was": "warning",
        "by": path,
    }
    said = f"changed: gpu-node-missing: /dev/nvidia1: error, it was warning ({path})"
    assert said in " ".join(gpubind(*words, "-v", **config).stdout.split())
    assert "changed:" not in gpubind(*words, **config).stdout


def test_one_finding_is_lowered_by_its_subject(lost: str, tmp_path: Path) -> None:
    config = site(tmp_path, '[severity]\n"gpu-node-missing:/dev/nvidia1" = "note"\n')
    assert told("--host", lost, "--gpus", "all", **config) == "gpubind: ok"
    config = site(tmp_path, '[severity]\n"gpu-node-missing:/dev/nvidia2" = "note"\n')
    assert told("--host", lost, "--gpus", "all", **config) == "gpubind: gpu-node-missing(/dev/nvidia1)"


@pytest.mark.parametrize(
    ("table", "exit_code", "said"),
    [
        ('gpu-node-mising = "error"', 2, "did you mean `gpu-node-missing`"),
        ('gpu-node-missing = "fatal"', 5, "`severity.gpu-node-missing` is `fatal`"),
        ("gpu-node-missing = 1", 5, "`severity` is not a table of codes and severities"),
    ],
)
def test_a_wrong_severity_is_refused_with_a_hint(
    table: str, exit_code: int, said: str, lost: str, tmp_path: Path
) -> None:
    done = gpubind("check", "--nv", "--host", lost, **site(tmp_path, f"[severity]\n{table}\n"))
    assert done.returncode == exit_code
    assert said in done.stderr
    assert f"{tmp_path}/gpubind/config.toml" in done.stderr


def test_what_is_ignored_is_ignored_whatever_its_severity() -> None:
    found = Finding("gpu-excluded", "note", "nvidia", "gpu", "one is excluded")
    severities = {("gpu-excluded", None): ("error", "/etc/gpubind/config.toml")}
    report = make_report(None, [found], {("gpu-excluded", None): "known"}, severities=severities)  # type: ignore[arg-type]
    assert (report.findings, report.changed) == ((), ())


# plan --strict


@pytest.mark.parametrize("form", ["cdi", "compose", "kubernetes", "tsv", "json", "paths", "apptainer", "docker"])
def test_a_strict_plan_of_a_host_with_an_error_fails_and_writes_no_file(form: str, root: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["plan", "--nv", *at(root), "--format", form, "-o", str(out)]
    words += ["--stage-dir", str(tmp_path)] if form in ("cdi", "compose", "kubernetes") else []
    done = gpubind(*words, "--strict")
    assert (done.returncode, out.exists()) == (1, False), done.stderr
    assert "uvm-missing" in done.stderr
    assert gpubind(*words).returncode == 0
    assert out.exists()


def test_a_strict_plan_counts_errors_as_the_site_does(root: str, tmp_path: Path) -> None:
    words = ("plan", "--nv", *at(root), "--format", "tsv", "--strict")
    assert gpubind(*words).returncode == 1
    codes = ("uvm-missing", "control-node-missing", "gpu-node-missing")
    lowered = "".join(f'{code} = "warning"\n' for code in codes)
    assert gpubind(*words, **site(tmp_path, f"[severity]\n{lowered}")).returncode == 0
    required = f"[require]\ngpus = 9\n[severity]\n{lowered}"
    assert gpubind(*words, **site(tmp_path, required)).returncode == 1
