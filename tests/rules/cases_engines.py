"""Where each rule about docker's and podman's own GPU set-up fires, and where it is almost so."""

from __future__ import annotations

import json
from typing import Any

from gpubind.host.record import RecordedRun
from tests.rules.cases_host import cdi, healthy
from tests.rules.situations import Case, Situation
from tests.support.starts import start_by
from tests.support.trees import File, Item, Link, Spec

DAEMON = "/etc/docker/daemon.json"
CONFIG = "/etc/nvidia-container-runtime/config.toml"
PROGRAM = File(b"#!/bin/sh\n", 0o755)
DOCKER: Spec = {"/usr/sbin/dockerd": PROGRAM}
PODMAN: Spec = {"/usr/bin/podman": PROGRAM}
TOOLKIT: Spec = {f"/usr/bin/nvidia-{name}": PROGRAM for name in ("container-runtime-hook", "container-runtime")}
PODMAN_HOOK: Spec = {"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json": "{}"}
SNAP: Spec = {"/snap/bin/docker": Link("/usr/bin/snap"), "/usr/bin/snap": PROGRAM}
ENFORCING: Spec = {
    "/sys/fs/selinux/enforce": "1",
    "/sys/fs/selinux/booleans/container_use_devices": "0 0",
    "/sys/fs/selinux/booleans/container_use_xserver_devices": "0 0",
}


def daemon(**settings: Any) -> dict[str, Item]:
    """dockerd's configuration; `_` stands for `-` in the names of settings."""
    return {DAEMON: json.dumps({name.replace("_", "-"): value for name, value in settings.items()}, indent=2)}


def config(no_cgroups: str) -> dict[str, Item]:
    """The toolkit's configuration."""
    return {CONFIG: f"[nvidia-container-cli]\n#no-cgroups = false\n{no_cgroups}\n"}


def versions(docker: str = "26.1.5+dfsg1", podman: str = "5.4.2") -> dict[str, Any]:
    """What the programs say."""
    said = (("dockerd", f"Docker version {docker}, build a72d7cd\n"), ("podman", f"podman version {podman}\n"))
    return {"runs": tuple(RecordedRun((name, "--version"), 0, text, "") for name, text in said)}


def spec(version: str, path: str = "/etc/cdi/nvidia.json") -> dict[str, Item]:
    """A whole spec of that version of CDI."""
    (text,) = cdi().values()
    return {path: json.dumps({**json.loads(str(text)), "cdiVersion": version})}


def on(*parts: Spec, **facts: Any) -> Situation:
    """A GPU node with *parts*, asked about no runtime unless one is given."""
    backend, start = facts.pop("backend", None), facts.pop("start", None)
    return Situation(healthy(*parts), facts=facts, backend=backend, start=start)


CASES: dict[str, Case] = {
    "cdi-disabled": Case(
        on(DOCKER, cdi(), **versions()),
        on(DOCKER, cdi(), **versions(docker="28.2.0")),
    ),
    "cdi-missing": Case(
        on(PODMAN),
        on(PODMAN, cdi()),
    ),
    "cdi-not-read": Case(
        on(PODMAN, spec("0.5.0", "/run/cdi/nvidia.json")),
        on(PODMAN, spec("0.5.0", "/run/cdi/nvidia.json"), {"/var/run": Link("/run")}),
    ),
    "cdi-too-new": Case(
        on(PODMAN, spec("0.7.0"), **versions(podman="4.9.3")),
        on(PODMAN, spec("0.7.0"), **versions(podman="5.1.0")),
    ),
    "docker-snap": Case(
        on(SNAP, backend="docker"),
        on(SNAP, DOCKER, TOOLKIT, backend="docker"),
    ),
    "engine-config": Case(
        on(DOCKER, TOOLKIT, {DAEMON: '{"features":'}),
        on(DOCKER, TOOLKIT, {DAEMON: '{"features": 1}'}),
    ),
    "gpu-runtime-missing": Case(
        on(DOCKER, TOOLKIT, daemon(features={"cdi": True})),
        on(DOCKER, TOOLKIT, daemon(runtimes={"nvidia": {"path": "nvidia-container-runtime"}})),
    ),
    "selinux-devices": Case(
        on(PODMAN, ENFORCING),
        on(PODMAN, ENFORCING, {"/sys/fs/selinux/booleans/container_use_xserver_devices": "1 1"}),
    ),
    "toolkit-cgroups": Case(
        on(DOCKER, TOOLKIT, config("no-cgroups = true")),
        on(DOCKER, TOOLKIT, config("no-cgroups = false")),
    ),
    "toolkit-missing": Case(
        on(DOCKER),
        on(DOCKER, TOOLKIT),
    ),
}
ROOTLESS_DOCKER = start_by("docker", environ={"DOCKER_HOST": "unix:///run/user/1000/docker.sock"})
