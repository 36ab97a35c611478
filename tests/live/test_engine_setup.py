"""docker's and podman's own GPU set-up, set wrong: what the real engine says, and what check says of it.

The configuration, the specs and the programs are in mounts of the test's own: other tests use the same machine.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Union

import pytest

from gpubind.formats.driver.engines import DAEMON_FILE
from tests.live.containers import CONTAINERS
from tests.live.engine_starts import LIMITS
from tests.live.machine import PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

SCRIPT = """
out=/srv/setup place=/run/setup
mkdir -p $place && mount -t tmpfs tmpfs $place
mount -t tmpfs tmpfs /usr/local/sbin
[ ! -d $out/sbin ] || cp $out/sbin/* /usr/local/sbin/
export DOCKER_HOST=unix://$place/.docker/desktop/docker.sock HOME=$place PODMAN_IGNORE_CGROUPSV1_WARNING=1
mkdir -p $place/.docker/desktop
here=unix://$place/docker.sock
cat > $place/busybox << END
tar -C /srv/ct/busybox -c . | docker import - bb
END
if [ -e /etc/docker/daemon.json ]; then
  dockerd --iptables=false --bridge=none --data-root=$place/data --exec-root=$place/exec --pidfile=$place/pid \
    -H $DOCKER_HOST -H $here > $out/log 2>&1 &
  for i in $(seq 100); do [ -S $place/docker.sock ] && break; kill -0 $! 2> /dev/null || break; sleep 0.1; done
  sh $place/busybox > /dev/null 2>&1
fi
for file in $out/commands/*; do
  DOCKER_HOST=$here bash $file > $out/said/${file##*/} 2>&1
  echo "exit $?" >> $out/said/${file##*/}
done
[ ! -e $out/desktop ] || bash $out/desktop > $out/said/desktop 2>&1
DOCKER_HOST=$here python3 -m gpubind check --nv --backend $ENGINE --json > $out/check.json
[ -z "$!" ] || { kill $! 2> /dev/null; wait; }
umount -R $place
"""
DOCKER = "docker run --rm --network=none"
PODMAN = f"podman run --rm --network=none {' '.join(f'--ulimit={word}' for word in LIMITS)}"
BUSYBOX = "--rootfs /srv/ct/busybox:O"
OPENED = "sh -c ': < /dev/nvidiactl'"
"""The node of the made-up driver: ENXIO where the kernel lets the container open it."""
SHOWN = "sh -c 'echo $NVIDIA_VISIBLE_DEVICES; ls -d /dev/nvidia* /usr/bin/nvidia* 2>/dev/null | wc -l'"
EXEC = "python3 -m gpubind exec -q --backend docker bb true"
CDI_ON: Mapping[str, Any] = {"features": {"cdi": True}}


class Setup(NamedTuple):
    """An engine that is set wrong."""

    engine: str
    daemon: Union[Mapping[str, Any], str, None] = None
    """dockerd's configuration, or its text; None: no dockerd."""
    specs: Mapping[str, str] = {}
    """The CDI version of the specs, by their directory; `none`: what --allow-none writes on a node without a GPU."""
    toolkit: bool = False
    """Whether NVIDIA's runtime is installed."""
    commands: Mapping[str, str] = {}
    before: str = ""
    """Done before podman is started."""


SETUPS = {
    "plain": Setup(
        "docker",
        {},
        {"/etc/cdi": "0.5.0"},
        toolkit=True,
        commands={
            "gpus": f"{DOCKER} --gpus all bb true",
            "cdi": f"{DOCKER} --device nvidia.com/gpu=all bb true",
            "runtime": f"{DOCKER} --runtime=nvidia bb true",
            "no-rule": f"{DOCKER} -v /dev/nvidiactl:/dev/nvidiactl bb {OPENED}",
            "rule": f"{DOCKER} --device /dev/nvidiactl bb {OPENED}",
            "exec": EXEC,
            "record": "cd /srv/setup && python3 -m gpubind record -o record.json && "
            "python3 -m gpubind check --nv --backend docker --json --host record.json > again.json",
        },
    ),
    "new-spec": Setup(
        "docker",
        CDI_ON,
        {"/etc/cdi": "0.8.0"},
        commands={"cdi": f"{DOCKER} --device nvidia.com/gpu=all bb true", "exec": EXEC},
    ),
    "elsewhere": Setup(
        "docker",
        {**CDI_ON, "cdi-spec-dirs": ["/srv/cdi"], "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}},
        {"/etc/cdi": "0.5.0"},
        commands={
            "cdi": f"{DOCKER} --device nvidia.com/gpu=all bb true",
            "runtime": f"{DOCKER} --runtime=nvidia bb true",
            "exec": EXEC,
        },
    ),
    "default-gone": Setup(
        "docker",
        {"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}},
        commands={"run": f"{DOCKER} bb true", "exec": EXEC},
    ),
    "default-unknown": Setup("docker", {"default-runtime": "nvidia"}, commands={"run": f"{DOCKER} bb true"}),
    "malformed": Setup("docker", '{\n "features": {"cdi": true},\n}\n'),
    "no-spec": Setup("podman", commands={"cdi": f"{PODMAN} --device nvidia.com/gpu=all {BUSYBOX} true"}),
    "podman-new-spec": Setup(
        "podman",
        specs={"/etc/cdi": "1.0.0"},
        commands={"cdi": f"{PODMAN} --device nvidia.com/gpu=all {BUSYBOX} true"},
    ),
    "run-apart": Setup(
        "podman",
        specs={"/run/cdi": "0.5.0"},
        commands={"cdi": f"{PODMAN} --root $HOME/root --device nvidia.com/gpu=all {BUSYBOX} true"},
        before="mkdir -p $HOME/u $HOME/w && mount -t overlay o -o lowerdir=/var,upperdir=$HOME/u,workdir=$HOME/w /var "
        "&& rm /var/run && mkdir /var/run",
    ),
    "docker-none": Setup(
        "docker",
        CDI_ON,
        {"/etc/cdi": "none"},
        commands={name: f"{DOCKER} --device nvidia.com/gpu={name} bb {SHOWN}" for name in ("all", "none")},
    ),
    "podman-none": Setup(
        "podman",
        specs={"/etc/cdi": "none"},
        commands={name: f"{PODMAN} --device nvidia.com/gpu={name} {BUSYBOX} {SHOWN}" for name in ("all", "none")},
    ),
    "early": Setup(
        "podman",
        specs={"/etc/cdi": "0.5.0"},
        commands={"cdi": f"{PODMAN} --device nvidia.com/gpu=all {BUSYBOX} ls /dev/nvidiactl /dev/nvidia0"},
    ),
}


class Seen(NamedTuple):
    """What the engine says, by command, and what check finds, by code."""

    said: Mapping[str, str]
    found: Mapping[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("setup")


@functools.cache
def seen(machine: Machine, place: Path, name: str) -> Seen:
    """What comes of a setup; each is started once."""
    setup, out = SETUPS[name], place / name
    for directory in ("said", "commands", "docker", "cdi", "run-cdi"):
        (out / directory).mkdir(parents=True)
    binds = [Bind(str(out), "/srv/setup", readonly=False), CONTAINERS, *machine.modules]
    if setup.daemon is not None:
        text = setup.daemon if isinstance(setup.daemon, str) else json.dumps(setup.daemon, indent=1)
        (out / "docker" / "daemon.json").write_text(text)
        binds.append(Bind(str(out / "docker"), "/etc/docker"))
    for directory, version in setup.specs.items():
        (out / "cdi" / "nvidia.json").write_text(without_gpu(machine) if version == "none" else spec(version))
        binds.append(Bind(str(out / "cdi"), directory))
    if setup.toolkit:
        (out / "sbin").mkdir()
        (out / "sbin" / "nvidia-container-runtime").write_text('#!/bin/sh\nexec runc "$@"\n')
        (out / "sbin" / "nvidia-container-runtime").chmod(0o755)
    for command, words in setup.commands.items():
        (out / "commands" / command).write_text(words)
    if name == "plain":
        (out / "desktop").write_text("python3 -m gpubind wrap -- docker run --rm --gpus all bb true\necho exit $?\n")
    script = SCRIPT.replace("for file in", f"{setup.before}\nfor file in", 1)
    machine.run(["bash", "-c", script], driver=True, binds=binds, env={**PYTHON_ENV, "ENGINE": setup.engine})
    findings = json.loads((out / "check.json").read_text())["findings"]
    said = {path.name: path.read_text() for path in (out / "said").iterdir()}
    log = (out / "log").read_text() if setup.daemon is not None else ""
    return Seen({**said, "log": log}, {one["code"]: one for one in findings})


def spec(version: str) -> str:
    """A spec with a node that all GPUs share, and no GPU."""
    edits = {"deviceNodes": [{"path": "/dev/nvidiactl"}]}
    devices = [{"name": "all", "containerEdits": edits}]
    return json.dumps({"cdiVersion": version, "kind": "nvidia.com/gpu", "devices": devices})


def without_gpu(machine: Machine) -> str:
    """What --allow-none writes for a root that has no driver."""
    nowhere = ("--root", "/srv/ct/busybox", "--dev-root", "/srv/ct/busybox")
    return machine.gpubind("plan", "--nv", "--format", "cdi", "--allow-none", *nowhere, binds=[CONTAINERS])


UNRESOLVED = "unresolvable CDI devices nvidia.com/gpu=all"


@pytest.mark.parametrize(
    ("setup", "command", "message", "code", "severity", "where"),
    [
        (
            "plain",
            "gpus",
            'could not select device driver "" with capabilities: [[gpu]]',
            "toolkit-missing",
            "note",
            "",
        ),
        ("plain", "cdi", 'could not select device driver "cdi" with capabilities: []', "cdi-disabled", "note", ""),
        ("plain", "runtime", "unknown or invalid runtime name: nvidia", "gpu-runtime-missing", "note", ""),
        ("new-spec", "cdi", UNRESOLVED, "cdi-too-new", "warning", "/etc/cdi/nvidia.json: cdiVersion 0.8.0"),
        ("elsewhere", "cdi", UNRESOLVED, "cdi-not-read", "warning", "/etc/cdi/nvidia.json"),
        ("elsewhere", "runtime", "executable file not found", "gpu-runtime-missing", "note", "daemon.json, line 8"),
        ("default-gone", "run", "no such file or directory", "gpu-runtime-missing", "error", "daemon.json, line 3"),
        (
            *("default-unknown", "log", "specified default runtime 'nvidia' does not exist", "gpu-runtime-missing"),
            *("error", "daemon.json, line 2"),
        ),
        (
            "malformed",
            "log",
            "unable to configure the Docker daemon with file",
            "engine-config",
            "warning",
            DAEMON_FILE,
        ),
        ("no-spec", "cdi", UNRESOLVED, "cdi-missing", "note", "/etc/cdi, /var/run/cdi"),
        ("podman-new-spec", "cdi", UNRESOLVED, "cdi-too-new", "warning", "cdiVersion 1.0.0"),
        ("run-apart", "cdi", UNRESOLVED, "cdi-not-read", "warning", "/run/cdi/nvidia.json"),
        (
            "early",
            "cdi",
            "/dev/nvidia0: No such file or directory",
            "stale-cdi",
            "warning",
            "/etc/cdi/nvidia.json: all",
        ),
    ],
)
def test_the_engines_own_message_and_the_finding_that_names_its_cause(
    trixie: Machine, place: Path, setup: str, command: str, message: str, code: str, severity: str, where: str
) -> None:
    found = seen(trixie, place, setup)
    assert message in found.said[command]
    assert found.found[code]["severity"] == severity
    assert where in found.found[code]["where"]


@pytest.mark.parametrize("setup", [name for name, setup in SETUPS.items() if "exec" in setup.commands])
def test_only_what_stops_gpubinds_own_start_is_an_error(trixie: Machine, place: Path, setup: str) -> None:
    found = seen(trixie, place, setup)
    is_error = any(one["severity"] == "error" for one in found.found.values())
    assert found.said["exec"].endswith("exit 0\n") is not is_error


@pytest.mark.parametrize("device", ["all", "none"])
@pytest.mark.parametrize("setup", ["docker-none", "podman-none"])
def test_the_spec_of_a_node_without_a_gpu_brings_nothing(trixie: Machine, place: Path, setup: str, device: str) -> None:
    assert seen(trixie, place, setup).said[device] == "void\n0\nexit 0\n"


def test_a_record_says_what_the_live_host_says_of_its_engine(trixie: Machine, place: Path) -> None:
    found = seen(trixie, place, "plain").found
    again = {one["code"]: one for one in json.loads((place / "plain" / "again.json").read_text())["findings"]}
    codes = {"toolkit-missing", "cdi-disabled", "gpu-runtime-missing", "stale-cdi"}
    assert {code: again.get(code) for code in codes} == {code: found[code] for code in codes}


def test_what_no_cgroups_leaves_out_is_a_rule_without_which_a_node_does_not_open(trixie: Machine, place: Path) -> None:
    said = seen(trixie, place, "plain").said
    assert "Operation not permitted" in said["no-rule"]
    assert "No such device or address" in said["rule"]


def test_a_daemon_behind_docker_desktops_socket_is_refused(trixie: Machine, place: Path) -> None:
    said = seen(trixie, place, "plain").said["desktop"]
    assert "error: remote-engine: docker would start the container on another machine" in said
    assert ".docker/desktop/docker.sock" in said
    assert said.endswith("exit 125\n")


@pytest.mark.parametrize(("version", "codes"), [("0.5.0", []), ("0.6.0", ["cdi-too-new"])])
def test_an_older_podman_reads_older_specs(bookworm: Machine, tmp_path: Path, version: str, codes: list[str]) -> None:
    (tmp_path / "nvidia.json").write_text(spec(version))
    binds = [Bind(str(tmp_path), "/etc/cdi"), CONTAINERS, *bookworm.modules]
    line = f"{PODMAN} --device nvidia.com/gpu=all {BUSYBOX} true 2>&1; python3 -m gpubind check --nv --json"
    said = bookworm.run(["sh", "-c", line], driver=True, binds=binds, env=PYTHON_ENV).stdout
    message, _, report = said.partition("{")
    assert (UNRESOLVED in message) is bool(codes)
    assert [one["code"] for one in json.loads("{" + report)["findings"] if one["code"] == "cdi-too-new"] == codes
