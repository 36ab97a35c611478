"""A plan as a service of a Compose file: its structure, and names that Compose would change."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

import gpubind
from gpubind import plan
from gpubind.documents.mounts.compose import render_compose
from gpubind.errors import RuntimeLimitError
from gpubind.model import EnvVar, HostPath, Plan, Request
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.planner import empty_plan
from gpubind.planner.placement import cdi_layout
from tests.support.driver import debian, host, kernel, rhel, run_directory, ubuntu
from tests.support.hostile_names import HOSTILE, UNSAYABLE

TEXT = {"type": "string"}
BIND = {"type": "object", "properties": {"create_host_path": {"type": "boolean"}}, "additionalProperties": False}
VOLUME = {
    "type": "object",
    "properties": {
        "type": {"const": "bind"},
        "source": TEXT,
        "target": TEXT,
        "read_only": {"type": "boolean"},
        "bind": BIND,
    },
    "required": ["type", "source", "target"],
    "additionalProperties": False,
}
SERVICE = {
    "type": "object",
    "properties": {
        "devices": {"type": "array", "items": TEXT},
        "environment": {"type": "object", "additionalProperties": TEXT},
        "group_add": {"type": "array", "items": TEXT, "uniqueItems": True},
        "volumes": {"type": "array", "items": VOLUME, "uniqueItems": True},
    },
    "additionalProperties": False,
}
SCHEMA = jsonschema.Draft7Validator(
    {
        "type": "object",
        "properties": {
            "services": {"type": "object", "properties": {"gpubind": SERVICE}, "additionalProperties": False}
        },
        "required": ["services"],
        "additionalProperties": False,
    }
)
"""What our fragment may hold; each field is as the Compose specification's own schema has it, but narrower.

No package brings a present one: that of docker-compose 1.29.2 has no `create_host_path`. So these keys were read beside
`schema/compose-spec.json` of the specification, `definitions/service/properties`: `group_add` (text or number), and of
`volumes` the object with `type`, `source`, `target`, `read_only` and `bind.create_host_path`; and beside that of
docker-compose 1.29.2 `devices` (texts) and `environment` (`list_or_dict`).
"""
PLAN = plan(gpubind.open_host("debian13-nvidia550"), Request(), layout=cdi_layout("x86_64"))


def service_of(made: Plan) -> dict[str, Any]:
    staged = {target: HostPath(f"/staged{target}") for target in made.generated}
    text = render_compose(made, staged)
    document = yaml.safe_load(text)
    SCHEMA.validate(document)
    assert render_compose(made, staged) == text
    assert text.isascii()
    service: dict[str, Any] = document["services"]["gpubind"]
    return service


def plain(text: str) -> str:
    """What Compose makes of a text that names no variable."""
    assert "$" not in text.replace("$$", "")
    return text.replace("$$", "$")


@pytest.mark.parametrize("layout", [ubuntu, rhel, debian, run_directory], ids=lambda layout: str(layout.__name__))
def test_any_host_has_a_valid_service(layout: Any) -> None:
    made = plan(host(layout(), kernel()), Request(), layout=cdi_layout("x86_64"))
    assert {volume["target"] for volume in service_of(made)["volumes"]} == {mount.target for mount in made.mounts}


@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_a_recorded_host_has_one(name: str) -> None:
    assert service_of(plan(gpubind.open_host(name), Request(vendors=()), layout=cdi_layout("x86_64")))["devices"]


def test_each_mount_and_node_of_the_plan_is_there_as_the_plan_has_it() -> None:
    service = service_of(PLAN)
    volumes = {(v["source"], v["target"], v["read_only"]) for v in service["volumes"]}
    assert volumes == {(m.source or f"/staged{m.target}", m.target, "ro" in m.options) for m in PLAN.mounts}
    assert service["devices"] == [f"{node.source}:{node.target}:rw" for node in PLAN.devices]


def test_no_search_path_is_set_and_nothing_that_is_missing_is_made() -> None:
    service = service_of(PLAN)
    assert "environment" not in service
    assert all(volume["bind"] == {"create_host_path": False} for volume in service["volumes"])


def test_a_node_that_is_for_a_group_brings_the_group() -> None:
    assert service_of(PLAN)["group_add"] == ["44", "105"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_arrives(name: str) -> None:
    mounts = (PLAN.mounts[0]._replace(source=HostPath(f"/{name}"), content=None), *PLAN.mounts[1:])
    env = (EnvVar("A", "set", name, None, "cdi"),)
    service = service_of(PLAN._replace(mounts=mounts, env=env))
    assert plain(service["volumes"][0]["source"]) == f"/{name}"
    assert plain(service["environment"]["A"]) == name


@pytest.mark.parametrize("name", UNSAYABLE)
def test_a_name_that_cannot_be_said_is_refused_by_name(name: str) -> None:
    mounts = (PLAN.mounts[0]._replace(source=HostPath(f"/{name}"), content=None),)
    with pytest.raises(RuntimeLimitError) as caught:
        service_of(PLAN._replace(mounts=mounts))
    assert (caught.value.code, caught.value.where) == ("unsupported-path", f"/{name}")
    with pytest.raises(RuntimeLimitError) as caught:
        service_of(PLAN._replace(env=(EnvVar("A", "set", name, None, "cdi"),)))
    assert (caught.value.code, caught.value.where) == ("unsupported-value", "A")


def test_a_node_with_a_colon_is_refused() -> None:
    node = PLAN.devices[0]._replace(source=HostPath("/dev/a:b"))
    with pytest.raises(RuntimeLimitError) as caught:
        service_of(PLAN._replace(devices=(node,)))
    assert (caught.value.code, caught.value.where) == ("unsupported-path", "/dev/a:b")


def test_of_a_host_without_a_gpu_the_service_brings_nothing_and_is_no_null() -> None:
    document = yaml.safe_load(render_compose(empty_plan(vendors=("nvidia",)), {}))
    assert document == {"services": {"gpubind": {"environment": {"NVIDIA_VISIBLE_DEVICES": "void"}}}}
