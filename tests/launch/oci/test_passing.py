"""Calls of an engine that are passed through: which, as what, and at which price."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Union

import pytest

from gpubind.cli.commands.oci_runtime import _open_host, _report
from gpubind.cli.declarations import PlanOptions
from gpubind.launch.oci import passing
from gpubind.launch.oci.passing import (
    MARKS,
    SWITCHES,
    VALUED,
    bundle_of,
    config_of,
    find_runtime,
    hand_over,
    may_request,
    read,
    split,
    with_dashes,
)
from gpubind.model import Finding
from gpubind.model.notice import Notice
from gpubind.runtimes import PROGRAMS
from tests.launch.oci.bundles import bundle, config

ENGINE = ("--root", "/run/create", "--log", "/run/log.json", "--log-format", "json", "--systemd-cgroup")
CPU_MS = 25
FOUND = Finding("uvm-missing", "warning", None, "/dev/nvidia-uvm", "gone")


def test_the_glance_knows_the_options_of_runc_and_crun() -> None:
    programs = [PROGRAMS[name] for name in ("runc", "crun")]
    options = [
        table.option_table
        for program in programs
        for table in (program, program.subcommands[("create",)], program.subcommands[("run",)])
    ]
    known = {**options[0].names}
    for table in options:
        known.update({**table.names, **table.letters})
    assert {name for name, option in known.items() if option.argument_count} == VALUED
    before = {**options[0].names, **options[0].letters, **options[3].names, **options[3].letters}
    assert {name for name, option in before.items() if not option.argument_count} == SWITCHES


@pytest.mark.parametrize(
    ("words", "subcommand", "path"),
    [
        ((*ENGINE, "create", "--bundle", "/run/b", "--pid-file", "/p", "ID"), "create", "/run/b/config.json"),
        ((*ENGINE, "create", "--bundle=/run/b/", "ID"), "create", "/run/b/config.json"),
        (("run", "-b", "/run/b", "create"), "run", "/run/b/config.json"),
        (("run", "-b/run/b", "ID"), "run", "/run/b/config.json"),
        (("create", "-bundle", "/run/b", "ID"), "create", "/run/b/config.json"),
        (("run", "ID"), "run", "./config.json"),
        (("run", "ID", "-f", "other.json"), "run", "./other.json"),
        (("--unknown", "value", "create", "-b", "/b", "ID"), "create", "/b/config.json"),
        (("--unknown=value", "create", "-b", "/b", "ID"), "create", "/b/config.json"),
        (("create", "-b", "/", "ID"), "create", "/config.json"),
        (("run", "-b", "/b", "-f", "/etc/other.json", "ID"), "run", "/etc/other.json"),
    ],
)
def test_a_container_that_is_created(words: tuple[str, ...], subcommand: str, path: str) -> None:
    found, values = read(words)
    assert (found, config_of(values)) == (subcommand, path)


@pytest.mark.parametrize(
    "words", [("start", "create"), ("delete", "--force", "run"), ("--version",), ("exec", "run", "create")]
)
def test_a_container_may_be_called_as_a_subcommand_is(words: tuple[str, ...]) -> None:
    assert read((*ENGINE, *words))[0] not in ("create", "run")


def test_own_options_end_at_dashes() -> None:
    assert split(["--runtime", "crun", "--", "--root", "x"]) == (["--runtime", "crun"], ["--root", "x"])
    assert split(["--runtime", "crun", "state", "x"]) == (["--runtime", "crun"], ["state", "x"])
    assert split(["--root", "/r", "state", "x"]) == ((), ["--root", "/r", "state", "x"])
    assert split(["--help"]) == (["--help"], ())
    assert split(["-h"]) == (["-h"], ())
    assert split(["-h", "create"]) == ((), ["-h", "create"])
    assert split(["--runtime"]) == (["--runtime"], [])
    assert split([]) == ((), [])
    assert with_dashes(["--runtime", "crun", "state", "x"]) == ["--runtime", "crun", "--", "state", "x"]
    assert with_dashes(["state", "x"]) == ["--", "state", "x"]
    assert with_dashes(["--help"]) == ["--help"]


@pytest.mark.parametrize(
    ("words", "read_as"),
    [
        (("-b", "/a", "run", "c"), ("run", {"b": "/a"})),
        (("-b",), ("", {"b": ""})),
        (("create", "--bundle"), ("create", {"bundle": ""})),
        (("--log=", "create"), ("create", {"log": ""})),
        (("--debug", "state", "run"), ("state", {})),
        (("--own", "run", "state"), ("run", {})),
        (("--own=", "state", "run"), ("state", {})),
        (("state", "--own", "run"), ("state", {})),
        (("--own", "list", "state"), ("list", {})),
        (("run", "-bundle=/a", "-b=/b"), ("run", {"bundle": "/a", "b": "/b"})),
    ],
)
def test_options_with_a_value_are_read_before_the_subcommand_and_after_it(
    words: tuple[str, ...], read_as: tuple[str, dict[str, str]]
) -> None:
    assert read(words) == read_as


def test_the_bundle_is_the_working_directory_unless_an_option_names_it() -> None:
    assert [bundle_of(values) for values in ({}, {"b": ""}, {"b": "/a"}, {"bundle": "/c", "b": "/a"})] == [
        *(".", ".", "/a", "/c"),
    ]
    assert config_of({"config": "a.json", "f": "b.json", "b": "/x//"}) == "/x/a.json"
    assert config_of({"f": ""}) == "./config.json"


def test_runc_is_found_before_crun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_runtime("") is None
    for name in ("other", "crun", "runc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert find_runtime("") == (None if name == "other" else f"{tmp_path}/{name}")
    assert find_runtime("other") == f"{tmp_path}/other"
    assert find_runtime("missing") is None


@pytest.mark.parametrize(
    "args", [[], ["--help"], ["-h"], ["--runtime"], ["--runtime", "/none/runc"], ["--own", "--", "x"]]
)
def test_a_call_that_gpubind_must_answer_is_not_handed_over(args: list[str]) -> None:
    hand_over(args)  # it returns


@pytest.mark.parametrize(
    ("message", "logged", "said"),
    [
        (FOUND._replace(severity="error"), ["error: uvm-missing: gone"], "error: uvm-missing: gone\n"),
        (FOUND, ["warning: uvm-missing: gone"], ""),
        (FOUND._replace(severity="note"), [], ""),
        (Notice("warning", "no-image", "an image is not read"), [], ""),
    ],
    ids=["error", "warning", "note", "notice"],
)
def test_a_warning_is_in_the_log_and_an_error_on_standard_error_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: Union[Finding, Notice], logged: list[str], said: str
) -> None:
    log = tmp_path / "log"
    log.touch()
    _report(("--log", str(log), "--log-format", "json", "create", "ID"), message)
    assert [json.loads(line)["msg"] for line in log.read_text().splitlines()] == logged
    assert capsys.readouterr().err == said


def test_the_names_of_requests() -> None:
    assert (
        *(b"NVIDIA_VISIBLE_DEVICES", b"AMD_VISIBLE_DEVICES", b"DOCKER_RESOURCE_"),
        *(b"CUDA_VERSION", b"cdi.k8s.io/", b"/nvidia-container-devices"),
    ) == MARKS


def test_a_configuration_that_is_longer_than_the_limit_may_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert passing.READ_LIMIT == 64 << 20
    monkeypatch.setattr(passing, "READ_LIMIT", 100)
    for size, may in ((99, False), (100, True), (101, True)):
        (tmp_path / "config.json").write_bytes(b" " * size)
        assert may_request(str(tmp_path / "config.json")) is may


@pytest.mark.parametrize("mark", MARKS)
def test_every_name_of_a_request_has_the_configuration_read(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"x": "' + mark + b'"}')
    assert may_request(str(path))


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ('{"x": "\\u003cb\\u003e \\u0026"}', False),
        *((f'{{"x": "\\u{escape}"}}', False) for escape in ("003c", "003e", "0026", "2028", "2029")),
        *((f'{{"x": "\\u{escape}"}}', True) for escape in ("0000", "0027", "00ff")),
        ('{"x": "NVIDIA_VISIBLE\\u005fDEVICES=all"}', True),
        ('{"cdi.k8s.io\\/x": "nvidia.com/gpu=0"}', True),
        ('{"x": "\\u4e2d"}', False),
    ],
)
def test_escapes_hide_no_request(tmp_path: Path, text: str, may: bool) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert may_request(str(path)) is may


def test_what_cannot_be_read_may_request(tmp_path: Path) -> None:
    assert not may_request(str(tmp_path / "none" / "config.json"))
    assert may_request(str(tmp_path))  # a directory
    (tmp_path / "config.json").symlink_to("config.json")
    assert may_request(str(tmp_path / "config.json"))


FAKE = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done > {place}/words
env > {place}/env
cp {place}/config.json {place}/seen.json 2> /dev/null
exit 7
"""


def run(tmp_path: Path, *words: str, own: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
    """`gpubind oci-runtime` with a runtime that keeps its arguments and ends with 7."""
    fake = tmp_path / "runc"
    fake.write_text(FAKE.format(place=tmp_path))
    fake.chmod(0o755)
    line = ["-m", "gpubind", "oci-runtime", "--runtime", str(fake), *own, "--", *words]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **env}
    return subprocess.run(
        [sys.executable, *line], capture_output=True, text=True, env=environ, cwd=tmp_path, check=False
    )


def test_the_runtime_gets_the_same_arguments_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    bundle(tmp_path, config())
    words = [*ENGINE, "create", "--bundle", str(tmp_path), "--pid-file", "a b", "", "ID"]
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    assert (tmp_path / "words").read_text().splitlines() == words
    assert "LC_CTYPE" not in (tmp_path / "env").read_text()


def test_a_value_that_requests_nothing_leaves_the_configuration_as_it_is(tmp_path: Path) -> None:
    path = bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=void"))
    before = path.read_bytes()
    done = run(tmp_path, "create", "--bundle", str(tmp_path), "ID")
    assert (done.returncode, done.stderr) == (7, "")
    assert path.read_bytes() == before


def test_a_container_without_its_gpu_is_not_started_and_the_log_says_why(tmp_path: Path) -> None:
    path = bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=all"))
    before = path.read_bytes()
    log = tmp_path / "log.json"
    words = ("--log", str(log), "--log-format", "json", "create", "--bundle", str(tmp_path), "ID")
    (tmp_path / "root").mkdir()
    root = str(tmp_path / "root")
    done = run(tmp_path, *words, own=("--root", root, "--dev-root", root))
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("error: nothing-to-bind: ")
    entry: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    assert (entry["level"], entry["msg"].startswith("gpubind: error: nothing-to-bind: ")) == ("error", True)
    assert not (tmp_path / "words").exists()
    assert path.read_bytes() == before


def test_without_a_form_the_log_is_text(tmp_path: Path) -> None:
    bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=gpu0"))
    log = tmp_path / "log"
    run(tmp_path, f"--log={log}", "create", "--bundle", str(tmp_path), "ID")
    assert 'level=error msg="gpubind: error: wrap-gpus: ' in log.read_text()


def test_a_runtime_that_is_not_there_is_an_error_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = ["-m", "gpubind", "oci-runtime", "--runtime", "no-such-runtime", "--", f"--log={log}", "state", "x"]
    environ = {"PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, *line], capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, "error: no-runtime" in done.stderr) == (125, True)
    assert "no-runtime" in log.read_text()


def test_a_container_without_a_request_costs_less_than_25_ms_of_processor_time(tmp_path: Path) -> None:
    """The least of ten starts, after one that writes byte code; the interpreter itself is about 10 ms of each."""
    bundle(tmp_path, config())
    launcher = tmp_path / "launcher"
    launcher.write_text(
        f"#!{sys.executable} -I\nimport sys\nsys.path[:0] = {[p for p in sys.path if p]!r}\n"
        "from gpubind.__main__ import main\n"
        'raise SystemExit(main(["oci-runtime", "--runtime", "/bin/true", "--", *sys.argv[1:]]))\n'
    )
    launcher.chmod(0o755)
    words = [str(launcher), *ENGINE, "create", "--bundle", str(tmp_path), "ID"]
    subprocess.run(words, check=True)
    costs = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) * 1000 < CPU_MS  # other work on the machine only adds to it


def test_variables_of_the_engines_own_process_choose_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "0")
    with _open_host(PlanOptions(), {"NVIDIA_IMEX_CHANNELS": "0"}) as host:
        assert set(host.environ) <= {"PATH", "NVIDIA_IMEX_CHANNELS"}
