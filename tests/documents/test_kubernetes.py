"""A plan as a pod: its structure, by our own assertions after the API reference; names that Kubernetes would change."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

import gpubind
from gpubind import plan
from gpubind.documents.mounts.kubernetes import render_kubernetes
from gpubind.errors import RuntimeLimitError
from gpubind.model import ContainerPath, EnvVar, HostPath, Plan, Request
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.planner.placement import cdi_layout
from tests.support.driver import debian, host, kernel, rhel, run_directory, ubuntu
from tests.support.hostile_names import HOSTILE, UNSAYABLE
from tests.support.trees import Socket, Spec

X86 = cdi_layout("x86_64")
PLAN = plan(gpubind.open_host("debian13-nvidia550"), Request(), layout=X86)


def spec_of(made: Plan) -> dict[str, Any]:
    """The pod's spec, once it is known that each mount has a volume, and each volume a mount."""
    staged = {target: HostPath(f"/staged{target}") for target in made.generated}
    text = render_kubernetes(made, staged)
    assert render_kubernetes(made, staged) == text
    assert text.isascii()
    pod: dict[str, Any] = yaml.safe_load(text)
    assert (pod["apiVersion"], pod["kind"], set(pod)) == ("v1", "Pod", {"apiVersion", "kind", "metadata", "spec"})
    spec: dict[str, Any] = pod["spec"]
    (container,) = spec["containers"]
    names = [volume["name"] for volume in spec["volumes"]]
    places = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(set(names)) == len(names)
    assert len(set(places)) == len(places)
    assert {mount["name"] for mount in container["volumeMounts"]} == set(names)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names)  # a DNS label
    assert all(set(volume["hostPath"]) == {"path", "type"} for volume in spec["volumes"])
    return spec


def mounts_of(spec: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """Of each place in the container: the host's path, its type, and whether it is read-only."""
    volumes = {volume["name"]: volume["hostPath"] for volume in spec["volumes"]}
    return {
        mount["mountPath"]: (volumes[mount["name"]]["path"], volumes[mount["name"]]["type"], mount["readOnly"])
        for mount in spec["containers"][0]["volumeMounts"]
    }


@pytest.mark.parametrize("layout", [ubuntu, rhel, debian, run_directory], ids=lambda layout: str(layout.__name__))
def test_any_host_has_a_pod(layout: Any) -> None:
    made = plan(host(layout(), kernel()), Request(), layout=X86)
    assert {*mounts_of(spec_of(made))} == {mount.target for mount in made.mounts} | {n.target for n in made.devices}


@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_a_recorded_host_has_one(name: str) -> None:
    spec_of(plan(gpubind.open_host(name), Request(vendors=()), layout=X86))


def test_files_are_read_only_and_sockets_and_nodes_are_not() -> None:
    socket: Spec = {"/run/nvidia-persistenced/socket": Socket()}
    at = mounts_of(spec_of(plan(host(rhel(), kernel(), socket), Request(), layout=X86)))
    assert at["/usr/lib64/libcuda.so.1"][1:] == ("File", True)
    assert at["/run/nvidia-persistenced/socket"][1:] == ("Socket", False)
    assert at["/dev/nvidia0"] == ("/dev/nvidia0", "CharDevice", False)


def test_a_container_with_nodes_is_privileged_and_the_document_says_why_and_what_is_better() -> None:
    assert spec_of(PLAN)["containers"][0]["securityContext"] == {"privileged": True}
    assert "securityContext" not in spec_of(PLAN._replace(devices=()))["containers"][0]
    text = render_kubernetes(PLAN, {target: HostPath("/x") for target in PLAN.generated})
    assert "device plugin" in text


def test_a_node_that_is_for_a_group_brings_the_group() -> None:
    assert spec_of(PLAN)["securityContext"] == {"supplementalGroups": [44, 105]}


@pytest.mark.parametrize("name", [*HOSTILE, "$(HOME)"])
def test_a_hostile_name_arrives(name: str) -> None:
    mounts = (PLAN.mounts[0]._replace(source=HostPath(f"/{name}"), content=None), *PLAN.mounts[1:])
    spec = spec_of(PLAN._replace(mounts=mounts, env=(EnvVar("A", "set", name, None, "cdi"),)))
    assert mounts_of(spec)[PLAN.mounts[0].target][0] == f"/{name}"
    (variable,) = spec["containers"][0]["env"]
    assert variable == {"name": "A", "value": name.replace("$", "$$")}


@pytest.mark.parametrize("name", UNSAYABLE)
def test_a_name_that_cannot_be_said_is_refused_by_name(name: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        spec_of(PLAN._replace(mounts=(PLAN.mounts[0]._replace(source=HostPath(f"/{name}"), content=None),)))
    assert (caught.value.code, caught.value.where) == ("unsupported-path", f"/{name}")


def test_a_place_with_a_colon_is_refused() -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        spec_of(PLAN._replace(mounts=(PLAN.mounts[0]._replace(target=ContainerPath("/a:b")),)))
    assert (caught.value.code, caught.value.where) == ("unsupported-path", "/a:b")
