"""docker's and podman's own GPU set-up: what is wrong, in which file and line, and how much it matters to gpubind."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

from gpubind.formats.driver.engines import DaemonSettings, line_of, parse_daemon, redact_daemon_config, release_of
from gpubind.host.record import RecordedRun, dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.model import Finding
from tests.rules.cases_amd import amd
from tests.rules.cases_engines import (
    CASES,
    CONFIG,
    DAEMON,
    DOCKER,
    ENFORCING,
    PODMAN,
    PODMAN_HOOK,
    PROGRAM,
    ROOTLESS_DOCKER,
    TOOLKIT,
    config,
    daemon,
    on,
    spec,
    versions,
)
from tests.rules.cases_host import cdi, healthy
from tests.rules.situations import Situation, found, started
from tests.rules.test_host_rules import checked
from tests.support.driver import host
from tests.support.starts import start_by
from tests.support.surveys import survey
from tests.support.trees import Hidden, Item, Spec


def told(code: str, situation: Situation) -> list[Finding]:
    return [finding for finding in found(situation) if finding.code == code]


NVIDIA: dict[str, Any] = {"nvidia": {"path": "/opt/bin/nvidia-container-runtime"}}


@pytest.mark.parametrize(
    ("settings", "backend", "severity", "where"),
    [
        ({"runtimes": NVIDIA}, "docker", "note", "line 2"),
        ({"default_runtime": "nvidia", "runtimes": NVIDIA}, None, "warning", "line 3"),
        ({"default_runtime": "nvidia", "runtimes": NVIDIA}, "docker", "error", "line 3"),
        ({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}, "docker", "note", "line 2"),
        ({"data_root": "/x", "default_runtime": "nvidia"}, "docker", "error", "line 3"),
        ({"default_runtime": "runc"}, "docker", None, None),
        ({"runtimes": {"kata": {"path": "/gone"}}}, "docker", None, None),
        ({"runtimes": {"nvidia": {"runtimeType": "io.containerd.runc.v2"}}}, "docker", None, None),
        ({"runtimes": 7, "features": [], "cdi_spec_dirs": "x", "default_runtime": None}, "docker", None, None),
    ],
)
def test_a_runtime_without_program_stops_every_start_only_as_the_default(
    settings: dict[str, Any], backend: Optional[str], severity: Optional[str], where: Optional[str]
) -> None:
    findings = told("gpu-runtime-missing", on(DOCKER, daemon(**settings), backend=backend))
    assert [one.severity for one in findings] == ([] if severity is None else [severity])
    assert all((one.where or "") == f"{DAEMON}, {where}" for one in findings)


@pytest.mark.parametrize(
    ("situation", "case"),
    [
        (on(DOCKER, TOOLKIT, config("no-cgroups = true"), backend="docker"), "Unknown Error"),
        (on(DOCKER, TOOLKIT, config("no-cgroups = true"), backend="docker", start=ROOTLESS_DOCKER), None),
        (on(DOCKER, TOOLKIT, config(""), backend="docker", start=ROOTLESS_DOCKER), "failed to add device rules"),
        (on(PODMAN, TOOLKIT, PODMAN_HOOK, config(""), euid=1000), "failed to add device rules"),
        (on(PODMAN, TOOLKIT, PODMAN_HOOK, config("no-cgroups = true"), euid=1000), None),
        (on(PODMAN, TOOLKIT, PODMAN_HOOK, config("no-cgroups = true"), euid=0), "Unknown Error"),
        (on(PODMAN, TOOLKIT, cdi(), config("no-cgroups = true"), euid=0), None),
        (on(DOCKER, TOOLKIT, config("no-cgroups = tru")), None),
        (on(DOCKER, TOOLKIT, config("no-cgroups = true"), backend="apptainer"), None),
    ],
)
def test_no_cgroups_is_wrong_for_root_and_its_absence_for_others(situation: Situation, case: Optional[str]) -> None:
    findings = told("toolkit-cgroups", situation)
    assert [one.severity for one in findings] == ([] if case is None else ["note"])
    assert all((case or "") in (one.why or "") for one in findings)


def test_the_line_of_no_cgroups_is_not_that_of_a_comment() -> None:
    (finding,) = told("toolkit-cgroups", CASES["toolkit-cgroups"].fires)
    assert finding.where == "/etc/nvidia-container-runtime/config.toml, line 3"


@pytest.mark.parametrize(
    ("engine", "version", "reads"),
    [
        ("docker", (24, 0, 9), None),
        ("docker", (25, 0, 16), "0.6.0"),
        ("docker", (25, 0, 17), "0.8.0"),
        ("docker", (26, 0, 2), "0.6.0"),
        ("docker", (26, 1, 5), "0.7.0"),
        ("docker", (28, 2, 2), "1.0.0"),
        ("docker", (30, 0, 0), "1.1.0"),
        ("podman", (4, 0, 3), None),
        ("podman", (4, 3, 1), "0.5.0"),
        ("podman", (4, 9, 3), "0.6.0"),
        ("podman", (5, 4, 2), "0.8.0"),
        ("podman", None, None),
    ],
)
def test_the_newest_spec_that_a_release_reads(engine: str, version: Any, reads: Optional[str]) -> None:
    release = release_of(engine, version)
    assert (release and release.reads) == reads


@pytest.mark.parametrize(("version", "codes"), [("0.6.0", []), ("0.8.0", ["cdi-too-new"]), ("1.1.0", ["cdi-too-new"])])
def test_a_spec_is_too_new_by_its_version(version: str, codes: list[str]) -> None:
    situation = on(DOCKER, spec(version), daemon(features={"cdi": True}), **versions(docker="26.1.5"))
    assert [one.code for one in found(situation) if one.code == "cdi-too-new"] == codes


def test_a_release_that_is_not_known_says_nothing() -> None:
    silent = RecordedRun(("podman", "--version"), 1, "", "cannot\n")
    assert told("cdi-too-new", on(PODMAN, spec("1.0.0"), runs=(silent,))) == []
    assert told("cdi-too-new", on(PODMAN, spec("1.0.0"))) == []


@pytest.mark.parametrize(("podman", "is_read"), [("5.4.2", True), ("5.5.2", False), ("5.6.0", True)])
def test_podman_5_5_reads_only_etc(podman: str, is_read: bool) -> None:
    findings = told("cdi-not-read", on(PODMAN, spec("0.5.0", "/var/run/cdi/nvidia.json"), **versions(podman=podman)))
    assert [one.where for one in findings] == ([] if is_read else ["/var/run/cdi/nvidia.json"])


def test_docker_reads_the_directories_of_its_configuration() -> None:
    settings = daemon(features={"cdi": True}, cdi_spec_dirs=["/srv/cdi", "relative", 7])
    (finding,) = told("cdi-not-read", on(DOCKER, cdi(), settings))
    assert (finding.subject, finding.why) == (
        "/etc/cdi",
        "docker reads only /srv/cdi; a device of another file fails with `unresolvable CDI devices`",
    )
    assert told("cdi-not-read", on(DOCKER, cdi(), daemon(cdi_spec_dirs=[""]))) != []


@pytest.mark.parametrize(
    ("words", "severity"),
    [(("--security-opt=label=type:mine_t",), "warning"), (("--security-opt=label=disable",), "note"), ((), "note")],
)
def test_selinux_matters_to_gpubind_only_with_a_label_of_the_users(words: tuple[str, ...], severity: str) -> None:
    runtime = start_by("podman")
    start = start_by("podman", options=runtime.runtime.user_option_values(words, {}))
    findings = told("selinux-devices", on(PODMAN, ENFORCING, backend="podman", start=start))
    assert [one.severity for one in findings] == [severity]


def test_selinux_is_docker_s_only_where_it_is_told() -> None:
    assert told("selinux-devices", on(DOCKER, ENFORCING)) == []
    assert told("selinux-devices", on(DOCKER, ENFORCING, daemon(selinux_enabled=True))) != []
    assert told("selinux-devices", on(PODMAN, {**ENFORCING, "/sys/fs/selinux/enforce": "0"})) == []


CDI_HOOK = {"/usr/bin/nvidia-cdi-hook": PROGRAM, "/usr/bin/nvidia-container-runtime": PROGRAM}


@pytest.mark.parametrize(("docker", "whats"), [("29.1.0", ["only a part"]), ("29.2.0", [])])
def test_the_base_of_the_toolkit_is_enough_from_29_2_on(docker: str, whats: list[str]) -> None:
    findings = told("toolkit-missing", on(DOCKER, CDI_HOOK, **versions(docker=docker)))
    assert [any(what in one.what for one in findings) for what in whats] == [True] * len(findings)


@pytest.mark.parametrize(("programs", "is_told"), [(CDI_HOOK, False), ({}, True)], ids=["with-its-hook", "without"])
def test_a_docker_that_gives_gpus_by_cdi_still_needs_the_hook_for_cdi(programs: Spec, is_told: bool) -> None:
    findings = told("toolkit-missing", on(DOCKER, programs, **versions(docker="29.2.0")))
    assert bool(findings) is is_told


@pytest.mark.parametrize(
    ("path", "item", "severity", "why"),
    [
        (DAEMON, Hidden(), "note", "permission denied"),
        (DAEMON, "{\n 7", "warning", "line 2"),
        (DAEMON, b"\xff", "warning", "UTF-8"),
        (CONFIG, Hidden(), "note", "permission denied"),
        (CONFIG, "[nvidia-container-cli]\nno-cgroups =\n", "warning", "line 2"),
    ],
)
def test_a_configuration_that_cannot_be_looked_at_is_named_and_neither_there_nor_absent(
    path: str, item: Item, severity: str, why: str
) -> None:
    situation = on(DOCKER, TOOLKIT, cdi(), {path: item}, **versions())
    findings = {one.code: one for one in found(situation)}
    assert "toolkit-cgroups" not in findings
    assert {"gpu-runtime-missing", "cdi-disabled"}.isdisjoint(findings) == (path == DAEMON)
    told = findings["engine-config"]
    assert (told.subject, told.severity) == (path, severity)
    assert why in (told.why or "")
    assert "engine-config" not in [one.code for one in found(situation._replace(backend="apptainer"))]


def amds_spec(minor: int) -> Spec:
    edits = {"deviceNodes": [{"path": f"/dev/dri/renderD{minor}"}, {"path": "/dev/kfd"}]}
    devices = [{"name": "0", "containerEdits": edits}]
    return {"/etc/cdi/amd.json": json.dumps({"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": devices})}


AMDS_RUNTIME: Spec = {"/usr/bin/amd-container-runtime": PROGRAM}
AMD: dict[str, Any] = {"amd": {"path": "amd-container-runtime"}}


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ((DOCKER, AMDS_RUNTIME), ("gpu-runtime-missing", "`amd-ctk runtime configure` as root")),
        ((DOCKER, AMDS_RUNTIME, daemon(runtimes=AMD)), None),
        ((DOCKER, daemon(runtimes=AMD)), ("gpu-runtime-missing", "install AMD's container toolkit")),
        ((PODMAN,), ("cdi-missing", "`gpubind plan --rocm --format cdi -o /etc/cdi/amd.json`")),
        ((PODMAN, amds_spec(128)), None),
    ],
)
def test_the_set_up_for_amds_gpus_is_checked_where_there_are_some(
    parts: tuple[Spec, ...], told: Optional[tuple[str, str]]
) -> None:
    codes = {"gpu-runtime-missing", "cdi-missing", "toolkit-missing"}
    findings = [one for one in found(amd(*parts)) if one.code in codes]
    assert [one.code for one in findings] == ([told[0]] if told else [])
    assert all(told is not None and told[1] in (one.hint or "") for one in findings)
    assert codes.isdisjoint(one.code for one in found(amd(*parts, gpus="none")) if one.vendor == "amd")


def test_nothing_is_said_of_an_engine_that_will_not_start_the_container() -> None:
    parts = (DOCKER, PODMAN, ENFORCING, config("no-cgroups = true"), spec("1.1.0"))
    codes = {one.code for one in found(on(*parts, backend="bwrap", **versions()))}
    assert codes & {*CASES} == set()


def test_a_spec_that_was_written_before_the_driver_was_loaded_has_no_gpu() -> None:
    text = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu"}
    edits = {"deviceNodes": [{"path": "/dev/nvidiactl"}]}
    early = {"/etc/cdi/nvidia.json": json.dumps({**text, "devices": [{"name": "all", "containerEdits": edits}]})}
    (finding,) = told("stale-cdi", Situation(healthy(early)))
    assert (finding.subject, finding.severity) == ("all", "warning")
    assert finding.what == "the CDI spec /etc/cdi/nvidia.json has no GPU node, but this host has 2 GPUs"


SECRETS = b"""{
  "proxies": {"http-proxy": "http://user:password@proxy:3128"},
  "registry-mirrors": ["https://registry.example.org"],
  "runtimes": {
    "nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": ["--secret=1"]}
  },
  "log-driver": "json-file",
  "features": {
    "cdi": true
  }
}
"""


def test_what_a_record_keeps_of_dockers_configuration_names_nobody_and_has_its_lines() -> None:
    kept = redact_daemon_config(SECRETS)
    assert isinstance(kept, bytes)
    assert b"proxy" not in kept and b"registry" not in kept and b"secret" not in kept
    assert parse_daemon(kept) == parse_daemon(SECRETS)
    assert parse_daemon(kept).line_numbers == {"features": 8, "runtimes": 4}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"7", b'{"features": {"cdi": true}, "features": 1}'])
def test_an_odd_configuration_is_kept_as_what_it_means(text: bytes) -> None:
    machine = host(*healthy(DOCKER, TOOLKIT, cdi(), {DAEMON: text}), **versions())
    again = RecordedHost(parse_record(dump_record(survey(machine), "1").encode()), "test")
    assert checked(again, on()) == checked(machine, on())


@pytest.mark.parametrize("code", sorted(CASES))
def test_a_record_says_what_its_host_says(code: str) -> None:
    situation = CASES[code].fires
    machine = host(*situation.parts, **situation.facts)
    again = RecordedHost(parse_record(dump_record(survey(machine), "1").encode()), "test")
    assert code in [one.code for one in checked(again, situation)]
    assert checked(again, situation) == checked(machine, situation)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1,\n "no-cgroups": 2}', 2),
        ("# no-cgroups = true\n\nno-cgroups = true\n", 3),
        ("a = 1\nxno-cgroups = 1\n", 1),
        ("", 1),
    ],
)
def test_the_line_of_a_key(text: str, line: int) -> None:
    assert line_of(text, "no-cgroups") == line


def test_a_release_is_asked_once() -> None:
    preflight = started(on(PODMAN, spec("1.0.0"), **versions()))
    assert preflight.release("podman") is preflight.release("podman")
    assert preflight.registry(("/etc/cdi",)) is preflight.registry(("/etc/cdi",))
    assert preflight.daemon is preflight.daemon


def test_settings_that_nobody_sets_cannot_be_changed_for_all() -> None:
    for mapping in (DaemonSettings().runtimes, DaemonSettings().features, DaemonSettings().line_numbers):
        with pytest.raises(TypeError):
            mapping["x"] = "y"  # type: ignore[index]
