"""Bundles as engines write them, on a host with two GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpubind.host import Host
from gpubind.launch.oci.edit import edit_bundle
from gpubind.launch.target import StartRequest
from gpubind.model.notice import Message, ignore
from gpubind.planner.planning import PlanQuery
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc
from tests.support.trees import Spec, make_tree


def config(*env: str, **more: Any) -> dict[str, Any]:
    """A config.json, with the variables *env*, `NAME=VALUE`."""
    process = {"cwd": "/", "args": ["sh"], "env": ["PATH=/usr/bin:/bin", *env], "user": {"uid": 0, "gid": 0}}
    document = {"ociVersion": "1.2.0", "process": process, "root": {"path": "rootfs"}, "mounts": [], "linux": {}}
    return {**document, **more}


def bundle(tmp_path: Path, document: Mapping[str, Any], image: Spec = MappingProxyType({})) -> Path:
    """A bundle with the configuration *document* and a small Debian in it; return the path of its config.json."""
    make_tree(tmp_path / "rootfs", {**glibc(), "/usr/lib/x86_64-linux-gnu/libm.so.6": b"", **image})
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    return path


def machine(environ: Mapping[str, str] = MappingProxyType({})) -> Host:
    """A host with two GPUs, on which root starts containers for variables *environ*."""
    return host(rhel(), kernel(), environ=dict(environ), euid=0, groups=(0,))


def request(report: Callable[[Message], None] = ignore) -> StartRequest:
    return StartRequest(open_host=machine, query=PlanQuery(), environ={}, report=report)


def edit(path: Path) -> dict[str, Any]:
    """What `edit_bundle` makes of the configuration *path*."""
    edit_bundle(request(), str(path.parent), str(path), "/usr/sbin/runc", machine)
    document: dict[str, Any] = json.loads(path.read_text())
    return document
