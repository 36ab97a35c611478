"""config.json of an OCI bundle: read, edited, and made what it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpubind.errors import FormatError
from gpubind.formats.archive.bundle import (
    ANNOTATION,
    Bundle,
    BundleEdits,
    BundleMount,
    apply_edits,
    parse_bundle,
    relocated_config,
)
from gpubind.model import ContainerPath, DeviceNode, HostPath

PLAIN: dict[str, Any] = {
    "ociVersion": "1.2.0",
    "x-unknown": [1, 2.5, None, {"é": "<&>"}],
    "process": {"terminal": True, "cwd": "/", "args": ["sh"], "env": ["PATH=/bin", "A=1", "A=2"]},
    "root": {"path": "rootfs", "readonly": True},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "linux": {"namespaces": [{"type": "pid"}]},
}
NODE = DeviceNode(
    vendor="nvidia",
    source=HostPath("/dev/nvidia0"),
    target=ContainerPath("/dev/nvidia0"),
    type="c",
    major=195,
    minor=0,
    mode=0o666,
    uid=0,
    gid=44,
    group="video",
    access="rw",
    gpu=0,
    capability=None,
)
MOUNT = BundleMount("/.gpubind/libs/libcuda.so.1", "bind", "/usr/lib/libcuda.so.550", ("bind", "ro"))
EDITS = BundleEdits((MOUNT,), (NODE,), (NODE,), (("A", "3"), ("PATH", None), ("NEW", "x=y")))


def text(document: Any, **more: Any) -> bytes:
    return json.dumps({**document, **more}, ensure_ascii=False, indent="\t").encode()


def bundle(document: Any = PLAIN, **more: Any) -> Bundle:
    return parse_bundle(text(document, **more))


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in PLAIN.items() if name != key}


def test_what_a_plan_must_know_is_read() -> None:
    found = bundle()
    assert (found.root, found.args, found.working_directory) == ("rootfs", ("sh",), "/")
    assert found.variables == {"PATH": "/bin", "A": "2"}
    assert [mount.is_bind for mount in found.mounts] == [False]
    assert not found.has_user_namespace
    assert not found.rules


@pytest.mark.parametrize(
    "linux", [{"namespaces": [{"type": "user"}]}, {"uidMappings": [{"containerID": 0, "hostID": 1000, "size": 1}]}]
)
def test_a_user_namespace_is_told_by_its_name_or_its_mappings(linux: dict[str, Any]) -> None:
    assert bundle(linux=linux).has_user_namespace


def test_edits_stand_behind_what_is_there() -> None:
    made = json.loads(apply_edits(bundle(), EDITS))
    assert [mount["destination"] for mount in made["mounts"]] == ["/proc", MOUNT.destination]
    node = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 0o666, "uid": 0, "gid": 44}
    assert made["linux"]["devices"] == [node]
    rule = {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}
    assert made["linux"]["resources"] == {"devices": [rule]}
    assert made["process"]["env"] == ["A=1", "A=3", "NEW=x=y"]


def test_everything_else_stays_as_it_was() -> None:
    made = json.loads(apply_edits(bundle(), EDITS))
    assert [*made] == [*PLAIN, "annotations"]
    assert {key: made[key] for key in ("ociVersion", "x-unknown", "root")} == {
        key: PLAIN[key] for key in ("ociVersion", "x-unknown", "root")
    }
    assert made["process"] == {**PLAIN["process"], "env": ["A=1", "A=3", "NEW=x=y"]}


DOCUMENTS = [
    PLAIN,
    without("mounts"),
    without("linux"),
    {**PLAIN, "mounts": None},
    {**PLAIN, "annotations": {}},
    {**PLAIN, "annotations": {"other": "kept"}},
    {**PLAIN, "linux": {"devices": [], "resources": None}},
    {**PLAIN, "process": {}},
    {**PLAIN, "process": {"env": ["PATH=/x", "PATH=/y", "no equals sign"]}},
]


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_to_edit_twice_is_to_edit_once(document: dict[str, Any], indent: Any) -> None:
    data = (json.dumps(document, ensure_ascii=False, indent=indent) + "\n").encode()
    once = apply_edits(parse_bundle(data), EDITS)
    assert apply_edits(parse_bundle(once.encode()), EDITS) == once


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("document", DOCUMENTS)
def test_edits_are_taken_back_up_to_empty_members(document: dict[str, Any], indent: Any) -> None:
    data = (json.dumps(document, ensure_ascii=False, indent=indent) + "\n").encode()
    once = apply_edits(parse_bundle(data), EDITS)
    back = apply_edits(parse_bundle(once.encode()), BundleEdits())
    assert parse_bundle(once.encode()).text == back
    assert json.dumps(without_empty(json.loads(back))) == json.dumps(without_empty(document))


def without_empty(value: Any) -> Any:
    """*value* without members that are empty."""
    if not isinstance(value, dict):
        return value
    members = ((key, without_empty(member)) for key, member in value.items())
    return {key: member for key, member in members if member not in (None, [], {})}


def test_other_edits_take_the_place_of_older_ones() -> None:
    older = apply_edits(
        bundle(), BundleEdits((MOUNT._replace(source="/usr/lib/libcuda.so.535"),), (), (), (("A", "9"),))
    )
    assert apply_edits(parse_bundle(older.encode()), EDITS) == apply_edits(bundle(), EDITS)


def test_what_the_user_changes_after_an_edit_stays() -> None:
    made = json.loads(apply_edits(bundle(), EDITS))
    made["mounts"].append({"destination": "/data", "type": "bind", "source": "/data"})
    made["process"]["env"] = ["A=mine"]
    found = parse_bundle(text(made))
    assert [mount.destination for mount in found.mounts] == ["/proc", "/data"]
    assert "A=mine" in found.env


def test_a_bundle_elsewhere_finds_what_its_paths_named() -> None:
    mounts = [{"destination": "/a", "type": "bind", "source": "data"}, {"destination": "/t", "source": "tmpfs"}]
    found = bundle(mounts=mounts)._replace(directory="/srv/b")
    made = json.loads(relocated_config(found.text, found, ("ls", "-l"), False))
    assert made["root"]["path"] == "/srv/b/rootfs"
    assert [mount["source"] for mount in made["mounts"]] == ["/srv/b/data", "tmpfs"]
    assert (made["process"]["args"], made["process"]["terminal"]) == (["ls", "-l"], False)


MALFORMED = [
    (b"", "byte 0"),
    (b"[]", "the whole document"),
    (b"\xff", "byte 0"),
    (b'{"a": 1, "a": 2}', "key a"),
    (b'{"a": NaN}', "the whole document"),
    (b'{"a": 1e999}', "the whole document"),
    (b'{"a": "\\ud800"}', "the whole document"),
    (b"[" * 100_000, "the whole document"),
    (text(PLAIN, Process={}), "key Process"),
    (text({**PLAIN, "hoo\N{KELVIN SIGN}s": {}}), "key hoo\N{KELVIN SIGN}s"),
    (text(PLAIN, process={"env": [], "Env": ["NVIDIA_VISIBLE_DEVICES=all"]}), "key process.Env"),
    (text(PLAIN, process={"user": {"additionalGIDs": [0]}}), "key process.user.additionalGIDs"),
    (text(PLAIN, linux={"resources": {"Devices": []}}), "key linux.resources.Devices"),
    (text(PLAIN, mounts=[{"destination": "/a"}, {"destination": "/b", "Source": "/"}]), "key mounts[1].Source"),
    (text(PLAIN, mounts=[{"destination": "/a", "Options": ["bind"]}]), "key mounts[0].Options"),
    (text(PLAIN, linux={"devices": [{"path": "/dev/a", "Path": "/dev/b"}]}), "key linux.devices[0].Path"),
    (text(PLAIN, linux={"namespaces": [{"Type": "user"}]}), "key linux.namespaces[0].Type"),
    (text(PLAIN, hooks={"prestart": [{"path": "/a", "PATH": "/b"}]}), "key hooks.prestart[0].PATH"),
    (text(without("ociVersion")), "key ociVersion"),
    (text(without("root")), "key root"),
    (text(PLAIN, root={"path": ""}), "key root.path"),
    (text(PLAIN, root={"path": "a\0b"}), "key root.path"),
    (text(without("process")), "key process"),
    (text(PLAIN, process={"env": [1]}), "key process.env[0]"),
    (text(PLAIN, process={"env": "A=1"}), "key process.env"),
    (text(PLAIN, mounts={}), "key mounts"),
    (text(PLAIN, mounts=[{}]), "key mounts[0].destination"),
    (text(PLAIN, linux=[]), "key linux"),
    (text(PLAIN, linux={"devices": [{"type": "c"}]}), "key linux.devices[0].path"),
    (text(PLAIN, annotations={ANNOTATION: 1}), f"key annotations.{ANNOTATION}"),
    (text(PLAIN, annotations={ANNOTATION: "{}"}), f"key annotations.{ANNOTATION}.added"),
    (text(PLAIN, annotations={ANNOTATION: "{"}), f"key annotations.{ANNOTATION}"),
    (
        text(PLAIN, annotations={ANNOTATION: '{"added":[[["mounts"],1]],"env":[]}'}),
        f"key annotations.{ANNOTATION}.added[0][1]",
    ),
    (
        text(PLAIN, annotations={ANNOTATION: '{"added":[[["root","path","x"],[]]],"env":[]}'}),
        f"key annotations.{ANNOTATION}",
    ),
    (
        text(PLAIN, annotations={ANNOTATION: '{"added":[],"env":[[1e3,"A",null]]}'}),
        f"key annotations.{ANNOTATION}.env[0][0]",
    ),
]


def test_names_that_the_user_chooses_may_differ_only_in_case() -> None:
    assert bundle(annotations={"A": "1", "a": "2"}, x={"Env": 1, "env": 2}).annotations == {"A": "1", "a": "2"}


@pytest.mark.parametrize(("data", "place"), MALFORMED)
def test_a_malformed_one_is_refused_with_the_place(data: bytes, place: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_bundle(data)
    assert caught.value.code == "bad-bundle"
    assert caught.value.place == place
