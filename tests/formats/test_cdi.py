"""CDI specs: each malformed or odd one has the outcome that the CDI project's own rules give (specification 1.1.0).

Before each group of cases stands where the project has the rule.

tests/data/cdi: what nvidia-ctk wrote with driver 550.163.01 on Debian 13, NVML answered by a stand-in with two GPUs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.cdi import CdiName, CdiSpec, parse_cdi, parse_cdi_name, required_version
from tests.support import answers, damaged
from tests.support.measure import is_less_work

DATA = Path(__file__).parent.parent / "data" / "cdi"
YAML = (DATA / "nvml" / "nvidia.yaml").read_bytes()

NODE: dict[str, Any] = {"deviceNodes": [{"path": "/dev/x0"}]}


def spec(version: str = "1.1.0", kind: str = "vendor.com/class", **fields: Any) -> dict[str, Any]:
    """A spec with one device, and other *fields*."""
    return {"cdiVersion": version, "kind": kind, "devices": [device()], **fields}


def device(name: str = "one", edits: Any = None, **fields: Any) -> dict[str, Any]:
    """A device of a spec."""
    return {"name": name, "containerEdits": NODE if edits is None else edits, **fields}


def edits(**fields: Any) -> dict[str, Any]:
    """A spec whose one device has these edits."""
    return spec(devices=[device(edits=fields)])


class Refused(NamedTuple):
    """A spec that counts for nothing."""

    text: Any
    """Text, bytes, or a value that is written as JSON."""
    why: str
    """Part of the message."""
    place: str = ""
    """Part of the place."""


REFUSED = {
    # The file: pkg/cdi/spec.go (ParseSpec); sigs.k8s.io/yaml (UnmarshalStrict), go-yaml v2.
    "empty": Refused("", "no spec"),
    "blank": Refused("\n \n", "no spec"),
    "comment alone": Refused("# nothing\n", "no spec"),
    "null": Refused("null", "no spec"),
    "a list": Refused("[]", "an object is wanted, not a list"),
    "a scalar": Refused("hello", "an object is wanted, not a string"),
    "not closed": Refused('{"cdiVersion": "1.1.0"', "", "line"),
    "not UTF-8": Refused(b'cdiVersion: "\xff"', ""),
    "a tab indents": Refused("kind:\n\t- a: b\n", "", "line 2"),
    "too large": Refused(b" " * (1 << 20) + b"{}", "bytes"),
    "too deep": Refused("[" * 100_000, "nested too deeply"),
    "too deep in YAML": Refused("a: " + "[" * 300, "nested too deeply", "line 1"),
    "aliases of aliases": Refused(
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
        "more than",
    ),
    "an alias of nothing": Refused("cdiVersion: *x\n", "stands for nothing", "line 1"),
    "an alias of itself": Refused("devices: &x\n- *x\n", "stands for nothing", "line 2"),
    "a tag that makes objects": Refused("kind: !!python/object/apply:os.system [id]\n", "the tag"),
    "a key twice in YAML": Refused("kind: a/b\nkind: a/b\n", "`kind` is there twice", "line 2"),
    "a key twice in JSON": Refused('{"kind": "a/b", "kind": "a/b"}', "`kind` is there twice"),
    "a key twice by merging": Refused("x: &x {kind: a/b}\n<<: *x\nkind: c/d\n", "`kind` is there twice"),
    "a field twice in two cases": Refused({**spec(), "KIND": "a/b"}, "written twice", "kind"),
    # Fields: specs-go/config.go; encoding/json, unknown fields refused.
    "an unknown field": Refused(spec(hostname="x"), "unknown field", "hostname"),
    "an unknown field of a device": Refused(spec(devices=[device(index=0)]), "unknown field", "devices[0].index"),
    "an unknown field of edits": Refused(edits(sysctl={}), "unknown field", "containerEdits.sysctl"),
    "an unknown field of a node": Refused(
        edits(deviceNodes=[{"path": "/dev/x", "containerPath": "/dev/y"}]), "unknown field", "deviceNodes[0]"
    ),
    "a field that 1.1.0 took away": Refused(edits(intelRdt={"enableCMT": True}), "unknown field", "enableCMT"),
    "devices no list": Refused(spec(devices={"name": "x"}), "a list is wanted, not an object", "devices"),
    "a string for a number": Refused(
        edits(deviceNodes=[{"path": "/dev/x", "major": "195"}]), "a number is wanted, not a string", "major"
    ),
    "a fraction": Refused(edits(deviceNodes=[{"path": "/dev/x", "minor": 1.5}]), "a number is wanted", "minor"),
    "a boolean for a number": Refused(edits(deviceNodes=[{"path": "/dev/x", "uid": True}]), "a boolean", "uid"),
    "a number of 65 bits": Refused(edits(deviceNodes=[{"path": "/dev/x", "major": 1 << 63}]), "out of range", "major"),
    "a negative group": Refused(edits(additionalGids=[-1]), "out of range", "additionalGids[0]"),
    "a group of 33 bits": Refused(edits(additionalGids=[1 << 32]), "out of range", "additionalGids[0]"),
    "a mode of 33 bits": Refused(
        edits(deviceNodes=[{"path": "/dev/x", "fileMode": 1 << 32}]), "out of range", "fileMode"
    ),
    "an object for a string": Refused({**spec(), "kind": {}}, "a string is wanted", "kind"),
    "env as an object": Refused(edits(env={"A": "b"}), "a list is wanted", "env"),
    "monitoring no boolean": Refused(edits(intelRdt={"enableMonitoring": "yes please"}), "a boolean is wanted"),
    "a null node": Refused(edits(deviceNodes=[None]), "none is there", "deviceNodes[0]"),
    "a null mount": Refused(edits(mounts=[None]), "none is there", "mounts[0]"),
    # Versions: specs-go/version.go (requiredVersionMap), pkg/cdi/spec.go (validate).
    "no version": Refused({"kind": "a.b/c", "devices": [device()]}, "invalid version ``", "cdiVersion"),
    "a version to come": Refused(spec("1.2.0"), "invalid version `1.2.0`"),
    "a version cut short": Refused(spec("1.0"), "invalid version `1.0`"),
    "a version with two v": Refused(spec("vv1.0.0"), "invalid version"),
    "the first version": Refused(spec("0.1.0"), "must be at least 0.3.0"),
    "the second version": Refused(spec("0.2.0"), "must be at least 0.3.0"),
    "a mount's type before 0.4.0": Refused(
        spec("0.3.0", devices=[device(edits={"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]})]),
        "at least 0.4.0",
    ),
    "a digit before 0.5.0": Refused(spec("0.4.0", devices=[device("0")]), "at least 0.5.0"),
    "hostPath before 0.5.0": Refused(
        spec("0.4.0", containerEdits={"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}), "at least 0.5.0"
    ),
    "annotations before 0.6.0": Refused(spec("0.5.0", annotations={"a": "b"}), "at least 0.6.0"),
    "a device's annotations before 0.6.0": Refused(
        spec("0.5.0", devices=[device(annotations={"a": "b"})]), "at least 0.6.0"
    ),
    "a dot in the class before 0.6.0": Refused(spec("0.5.0", "vendor.com/a.b"), "at least 0.6.0"),
    "groups before 0.7.0": Refused(spec("0.6.0", containerEdits={"additionalGids": [0]}), "at least 0.7.0"),
    "intelRdt before 0.7.0": Refused(spec("0.6.0", containerEdits={"intelRdt": {}}), "at least 0.7.0"),
    "schemata before 1.1.0": Refused(spec("1.0.0", containerEdits={"intelRdt": {"schemata": []}}), "at least 1.1.0"),
    "interfaces before 1.1.0": Refused(
        spec("1.0.0", containerEdits={"netDevices": [{"hostInterfaceName": "e0", "name": "e1"}]}), "at least 1.1.0"
    ),
    # Names: pkg/parser/parser.go (ValidateVendorName, ValidateClassName, ValidateDeviceName); pkg/cdi/device.go.
    "no kind": Refused(spec(kind=""), "vendor/class", "kind"),
    "no class": Refused(spec(kind="vendor.com/"), "vendor/class"),
    "no slash": Refused(spec(kind="vendor.com"), "vendor/class"),
    "two slashes": Refused(spec(kind="a/b/c"), "no name of a class"),
    "a vendor that starts with a digit": Refused(spec(kind="3com.com/net"), "no name of a vendor"),
    "a vendor that ends with a dot": Refused(spec(kind="a./net"), "no name of a vendor"),
    "a class with a colon": Refused(spec(kind="a.b/c:d"), "no name of a class"),
    "a letter that is not ASCII": Refused(spec(kind="v\u00e9ndor/c"), "no name of a vendor"),
    "no devices": Refused(spec(devices=[]), "no devices", "devices"),
    "no list of devices": Refused({"cdiVersion": "1.1.0", "kind": "a.b/c"}, "no devices", "devices"),
    "a device without a name": Refused(spec(devices=[device("")]), "not the name of a device", "devices[0].name"),
    "a null device": Refused(spec(devices=[None]), "none is there", "devices[0]"),
    "a device that starts with a dash": Refused(spec(devices=[device("-1")]), "not the name of a device"),
    "a device that ends with a colon": Refused(spec(devices=[device("0:")]), "not the name of a device"),
    "a device with a slash": Refused(spec(devices=[device("a/b")]), "not the name of a device"),
    "a device with a question mark": Refused(spec(devices=[device("GPU-????")]), "not the name of a device"),
    "a device twice": Refused(spec(devices=[device("x"), device("x")]), "multiple device `x`", "devices[1]"),
    # Edits: pkg/cdi/container-edits.go (Validate of each part).
    "empty edits": Refused(spec(devices=[device(edits={})]), "empty edits", "devices[0].containerEdits"),
    "no edits": Refused(spec(devices=[{"name": "x"}]), "empty edits"),
    "null edits": Refused(spec(devices=[{"name": "x", "containerEdits": None}]), "empty edits"),
    "edits of empty lists": Refused(edits(env=[], mounts=[]), "empty edits"),
    "a variable without a value": Refused(edits(env=["A"]), "not allowed", "env[0]"),
    "a variable without a name": Refused(edits(env=["=a"]), "not allowed"),
    "a node without a path": Refused(edits(deviceNodes=[{"major": 1}]), "not there", "deviceNodes[0].path"),
    "a node of an unknown type": Refused(
        edits(deviceNodes=[{"path": "/dev/x", "type": "f"}]), "not one of b, c, u, p", "type"
    ),
    "permissions of an unknown letter": Refused(
        edits(deviceNodes=[{"path": "/dev/x", "permissions": "rwx"}]), "not allowed"
    ),
    "a mount without a host path": Refused(edits(mounts=[{"containerPath": "/a"}]), "not there", "mounts[0].hostPath"),
    "a mount with an empty place": Refused(
        edits(mounts=[{"hostPath": "/a", "containerPath": ""}]), "not allowed", "mounts[0].containerPath"
    ),
    "a mount without a place": Refused(edits(mounts=[{"hostPath": "/a"}]), "not there", "mounts[0].containerPath"),
    "a hook of an unknown time": Refused(
        edits(hooks=[{"hookName": "start", "path": "/a"}]), "not one of prestart", "hookName"
    ),
    "a hook without a path": Refused(edits(hooks=[{"hookName": "poststop"}]), "not there", "hooks[0].path"),
    "a hook with a bad variable": Refused(
        edits(hooks=[{"hookName": "prestart", "path": "/a", "env": ["x"]}]), "not allowed", "hooks[0].env[0]"
    ),
    "a class of service with a slash": Refused(edits(intelRdt={"closID": "a/b"}), "not allowed", "closID"),
    "a class of service called ..": Refused(edits(intelRdt={"closID": ".."}), "not allowed"),
    "an interface twice": Refused(
        edits(netDevices=[{"hostInterfaceName": "e", "name": n} for n in ("a", "b")]), "same interface twice"
    ),
    "an interface without a name": Refused(edits(netDevices=[{"hostInterfaceName": "e"}]), "not there"),
    "wrong edits of the file": Refused(spec(containerEdits={"env": ["x"]}), "not allowed", "containerEdits.env[0]"),
}


def written(text: Any) -> bytes:
    """The bytes of a spec in a table."""
    if isinstance(text, bytes):
        return text
    return text.encode() if isinstance(text, str) else json.dumps(text).encode()


@pytest.mark.parametrize("name", REFUSED)
def test_a_spec_is_refused_as_the_cdi_project_does(name: str) -> None:
    case = REFUSED[name]
    with pytest.raises(FormatError) as caught:
        parse_cdi(written(case.text))
    assert caught.value.code == "bad-cdi"
    assert case.why in caught.value.why
    assert case.place in caught.value.place


def first(parsed: CdiSpec) -> Any:
    return parsed.devices[0]


ACCEPTED: dict[str, tuple[Any, Any, Any]] = {
    "a leading v": (spec("v0.5.0"), lambda s: s.version, "0.5.0"),
    "the oldest version": (spec("0.3.0"), lambda s: s.version, "0.3.0"),
    "a newer version than needed": (spec("1.0.0"), required_version, "0.3.0"),
    "a dot in the class": (spec("0.6.0", "a.b/c.d"), lambda s: s.kind, "a.b/c.d"),
    "a colon in a device": (spec(devices=[device("0:1")]), lambda s: first(s).name, "0:1"),
    "a MIG device without quotes": (
        "cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- name: 1:0\n  containerEdits: {env: [A=b]}\n",
        lambda s: first(s).name,
        "1:0",
    ),
    "a number with a leading zero that is not octal for a name": (
        "cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- name: 08\n  containerEdits: {env: [A=b]}\n",
        lambda s: first(s).name,
        "8",
    ),
    "null in a list and in a map": (
        spec(
            devices=[
                {
                    "name": "a",
                    "annotations": {"note": None},
                    "containerEdits": {
                        "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro", None]}],
                        "additionalGids": [None],
                    },
                }
            ]
        ),
        lambda s: (first(s).annotations, first(s).edits.mounts[0].options, first(s).edits.gids),
        ({"note": ""}, ("ro", ""), (0,)),
    ),
    "a negative number of a node": (
        edits(deviceNodes=[{"path": "/dev/x", "major": -1}]),
        lambda s: first(s).edits.nodes[0].major,
        -1,
    ),
    "a number for a name": (spec(devices=[device(0)]), lambda s: first(s).name, "0"),  # type: ignore[arg-type]
    "a boolean for a name": (
        "cdiVersion: 1.1.0\nkind: a.b/c\ndevices:\n- name: yes\n  containerEdits: {env: [A=b]}\n",
        lambda s: first(s).name,
        "true",
    ),
    "a whole fraction for a number": (
        edits(deviceNodes=[{"path": "/dev/x", "major": 195.0}]),
        lambda s: first(s).edits.nodes[0].major,
        195,
    ),
    "an octal mode in YAML": (
        "cdiVersion: 1.1.0\nkind: a.b/c\ndevices:\n- name: a\n  containerEdits:\n    deviceNodes:\n"
        "    - {path: /dev/x, fileMode: 0660, uid: 0o17, major: 0xC3}\n",
        lambda s: first(s).edits.nodes[0][3:8],
        (195, 0, 0o660, "", 0o17),
    ),
    "field names in another case": (
        {"CDIVersion": "1.1.0", "Kind": "a.b/c", "devices": [device()]},
        lambda s: s.kind,
        "a.b/c",
    ),
    "file edits that are empty": (spec(containerEdits={}), lambda s: s.edits.env, ()),
    "file edits that are null": (spec(containerEdits=None), lambda s: s.edits.env, ()),
    "null lists": (edits(env=None, additionalGids=[44]), lambda s: first(s).edits.gids, (44,)),
    "group 0": (edits(additionalGids=[0]), lambda s: first(s).edits.gids, (0,)),
    "permissions none": (
        edits(deviceNodes=[{"path": "/dev/x", "permissions": "none"}]),
        lambda s: first(s).edits.nodes[0].permissions,
        "none",
    ),
    "the root class of service": (edits(intelRdt={"closID": "/"}), lambda s: first(s).edits.rdt.clos_id, "/"),
    "an interface": (
        edits(netDevices=[{"hostInterfaceName": "e0", "name": "e1"}]),
        lambda s: first(s).edits.net_devices[0].name,
        "e1",
    ),
    "an empty value of a variable": (edits(env=["A="]), lambda s: first(s).edits.env, ("A=",)),
    "a relative host path": (
        edits(mounts=[{"hostPath": "a", "containerPath": "b"}]),
        lambda s: first(s).edits.mounts[0].host_path,
        "a",
    ),
    "aliases": (
        "cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- {name: a, containerEdits: &e {env: [A=b]}}\n"
        "- {name: b, containerEdits: *e}\n",
        lambda s: s.devices[1].edits.env,
        ("A=b",),
    ),
    "merging": (
        "cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- &d {containerEdits: {env: [A=b]}, name: a}\n"
        "- name: b\n  containerEdits: {<<: {env: [C=d]}}\n",
        lambda s: s.devices[1].edits.env,
        ("C=d",),
    ),
    "a second document": (json.dumps(spec()) + "\n---\nnonsense: [\n", lambda s: s.kind, "vendor.com/class"),
    "YAML in a file called JSON": (
        "{cdiVersion: 1.1.0, kind: a.b/c, devices: [{name: a, containerEdits: {env: [A=b]}},]}",
        lambda s: s.kind,
        "a.b/c",
    ),
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(spec()).encode(), lambda s: s.kind, "vendor.com/class"),
    "a qualified annotation": (
        spec(annotations={"vendor.com/Some_key.x": "y"}),
        lambda s: s.annotations["vendor.com/Some_key.x"],
        "y",
    ),
    "a number out of range": (
        json.dumps(spec()).replace('"one"', "1e400"),
        lambda s: s.devices[0].name,
        "1e400",
    ),
    "any key of an annotation": (
        spec(annotations={"a b/c/": "x", "": "y" * (256 << 10)}, devices=[device(annotations={"-\u00e9": "z"})]),
        lambda s: [*s.annotations, *s.devices[0].annotations],
        ["a b/c/", "", "-\u00e9"],
    ),
    "half of a character": (
        json.dumps(edits(env=["A=\ud800"])),
        lambda s: first(s).edits.env,
        ("A=\ufffd",),
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_odd_spec_is_read_as_the_cdi_project_does(name: str) -> None:
    text, look, wanted = ACCEPTED[name]
    assert look(parse_cdi(written(text))) == wanted


def test_there_are_cases_enough() -> None:
    assert len(REFUSED) + len(ACCEPTED) > 100


# Real specs.


def test_json_and_yaml_of_one_spec_are_the_same() -> None:
    parsed = parse_cdi(YAML)
    assert parsed == parse_cdi((DATA / "nvml-json" / "nvidia.json").read_bytes())
    assert (parsed.version, parsed.kind, required_version(parsed)) == ("0.5.0", "nvidia.com/gpu", "0.5.0")
    uuids = [f"GPU-0000000{n}-0000-0000-0000-000000000000" for n in (0, 1)]
    assert [device.name for device in parsed.devices] == ["0", "1", *uuids, "all"]
    assert (len(parsed.edits.mounts), len(parsed.edits.nodes), len(parsed.edits.hooks)) == (41, 4, 6)


def test_the_management_spec_has_one_device() -> None:
    parsed = parse_cdi((DATA / "management" / "nvidia.yaml").read_bytes())
    assert [(device.name, len(device.edits.nodes)) for device in parsed.devices] == [("all", 8)]
    assert len(parsed.edits.mounts) == 32


JSON = (DATA / "nvml-json" / "nvidia.json").read_bytes()


@settings(max_examples=50, deadline=None)
@given(st.one_of(damaged(YAML[:3000]), damaged(JSON)))
def test_a_damaged_spec_is_an_answer_or_a_clear_error(data: bytes) -> None:
    answers(parse_cdi, data)


@settings(max_examples=50, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet="{}[]:,-&*!|>'\"%@`#?<>=a0. \n\t", max_size=80)))
def test_any_text_is_an_answer_or_a_clear_error(data: Any) -> None:
    answers(parse_cdi, data if isinstance(data, bytes) else data.encode())


def test_no_text_takes_long() -> None:
    texts = [b"&a " * 50_000, b"- " * 100_000, b"[" * 200_000, b"? " * 50_000, b"{" * 100_000 + b"}" * 100_000]
    texts += [b'"' + b"\\" * 500_000, b"a: " + b"1" * 500_000, b"- !!int 1_\n" * 50_000]
    assert is_less_work(lambda: [answers(parse_cdi, text) for text in texts], 1000)


def test_json_needs_no_yaml_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    parse_cdi((DATA / "nvml-json" / "nvidia.json").read_bytes())


# Qualified names.


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nvidia.com/gpu=0", None),
        ("nvidia.com/gpu=0:1", None),
        ("nvidia.com/gpu=GPU-00000000-1111-2222-3333-444444444444", None),
        ("a/b=c", None),
        ("nvidia.com/gpu", "not the name of a device"),
        ("nvidia.com/gpu=", "not the name of a device"),
        ("nvidia.com=0", "vendor/class"),
        ("/dev/nvidia0", "vendor/class"),
        ("=0", "vendor/class"),
        ("", "vendor/class"),
        ("nvidia.com/gpu=a=b", "not the name of a device"),
        ("nvidia.com/gpu=0\n", "not the name of a device"),
    ],
)
def test_a_qualified_name_has_three_parts(text: str, why: Optional[str]) -> None:
    if why is None:
        kind, _, name = text.partition("=")
        assert parse_cdi_name(text) == CdiName(kind, name)
        assert str(parse_cdi_name(text)) == text
        return
    with pytest.raises(FormatError) as caught:
        parse_cdi_name(text)
    assert caught.value.code == "bad-cdi-name"
    assert why in caught.value.why
