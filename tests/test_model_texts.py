"""Texts and defaults of the values that stages pass on: whole, for each branch."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Optional

import pytest

from gpubind import open_host, plan
from gpubind.errors import Format, FormatError, HostReadError
from gpubind.frozen import NamedTuple
from gpubind.model import (
    CAPABILITIES,
    DEFAULT_CAPABILITIES,
    Driver,
    Finding,
    Gpu,
    HostPath,
    ImageFacts,
    Missing,
    Plan,
    PlannedDriver,
    Request,
    RootedPath,
    SourceUsed,
)
from gpubind.model.digest import replace_uuids
from gpubind.model.environ import Environ, changed
from gpubind.model.findings import as_finding, finding, support_of, worst
from gpubind.model.message import message_lines
from gpubind.model.notice import Notice, collecting, finding_of
from gpubind.model.plain import Decoder, dump_document, to_json_value
from gpubind.model.trial import Prediction, TrialOutcome
from tests.support.commands import HOST

FINDING = Finding("a-code", "warning", None, "s", "what\n", "where", "why", "hint", "one\ntwo\n")


def test_a_message_has_a_line_for_each_part_that_it_has() -> None:
    lines = message_lines("error", "a-code", "wh\x1bat", "where", None, "")
    assert lines == ["error: a-code: wh\\x1bat", "  where: where"]
    lines = message_lines("error", "a-code", "what", "", "w\ny", "hint")
    assert lines == ["error: a-code: what", "  why:   w\\x0ay", "  hint:  hint"]
    assert str(FINDING).split("\n") == [
        *("warning: a-code: what\\x0a", "  where: where", "  why:   why", "  hint:  hint"),
        *("         $ one", "         $ two"),
    ]
    assert str(Finding("c", "note", None, "s", "what")) == "note: c: what"
    assert Finding.from_dict(FINDING.to_dict()) == FINDING


def test_each_message_is_a_finding_but_a_detail() -> None:
    error = HostReadError("c", "what", where="where", why="why", hint="hint")
    expected = Finding("c", "warning", None, "c", "what", "where", "why", "hint")
    assert (finding_of(FINDING), finding_of(error)) == (FINDING, expected)
    assert finding_of(HostReadError("c", "what")) == Finding("c", "warning", None, "c", "what", None, None, None)
    for severity in ("error", "warning", "note"):
        assert finding_of(Notice(severity, "c", "text")) == Finding("c", severity, None, "c", "text")
    assert finding_of(Notice("detail", "c", "text")) is None
    assert Notice("note", "c", "t").is_detail is False
    assert as_finding("c", "note", "w", "a", "b", "d") == Finding("c", "note", None, "c", "w", "a", "b", "d")
    found: list[Finding] = []
    told: list[object] = []
    report = collecting(found, told.append)
    messages = (FINDING, Notice("detail", "c", "text"), error)
    for message in messages:
        report(message)
    assert (found, told) == ([FINDING, expected], [*messages])


def test_a_finding_is_made_of_its_code_and_its_case() -> None:
    with pytest.raises(KeyError):
        finding("no-such-code", subject="x")
    assert worst(["note", "error", "warning"]) == "error"
    assert worst(["note"]) == "note"
    assert support_of(Finding("no-such-code", "note", None, "s", "w")) is None


def test_variables_remember_which_were_changed() -> None:
    first = Environ({"A": "1", "B": "2"})
    assert (first.changed_names, [*first], len(first), first["B"]) == (frozenset(), ["A", "B"], 2, "2")
    second = changed(first, unset=("A", "C"), values={"D": "4"})
    third = changed(second, values={"B": "3"})
    assert isinstance(third, Environ)
    assert (dict(second), dict(third)) == ({"B": "2", "D": "4"}, {"B": "3", "D": "4"})
    assert ({*third.changed_names}, third.plain()) == ({"A", "B", "C", "D"}, {"B": "3", "D": "4"})
    assert dict(changed({"A": "1"})) == dict(changed({"A": "1", "B": "2"}, unset=["B"])) == {"A": "1"}
    assert dict(first) == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(), (DEFAULT_CAPABILITIES, False, False, False, False)),
        (Request(caps=("all",)), (CAPABILITIES, True, False, False, False)),
        (Request(caps=CAPABILITIES), (CAPABILITIES, True, False, False, False)),
        (Request(caps=("utility", "compute")), (("compute", "utility"), True, True, True, False)),
        (Request(caps=("utility",)), (("utility",), True, True, False, True)),
        (Request(caps=("utility",), userspace="host"), (("utility",), True, True, True, False)),
        (Request(userspace="host"), (DEFAULT_CAPABILITIES, False, False, True, False)),
        (Request(caps=()), ((), True, True, False, True)),
    ],
)
def test_what_a_request_asks_for_by_name(request_: Request, expected: tuple[object, ...]) -> None:
    one = request_
    assert (
        one.capabilities,
        one.caps_explicit,
        one.caps_named,
        one.computes_by_name,
        one.is_without_compute,
    ) == expected


def test_the_defaults_of_a_request() -> None:
    assert Request()._asdict() == {
        "vendors": (),
        "caps": None,
        "source": "auto",
        "completion": True,
        "library_path": (),
        "like": None,
        "libdir": None,
        "vendor_neutral": "auto",
        "gpus": None,
        "cdi_directories": (),
        "cdi_devices": (),
        "userspace": "auto",
        "cuda_compat": "auto",
        "libc": "image",
    }


def planned(vendor: Any, version: Optional[str], *, assumed: bool = False, **more: Any) -> PlannedDriver:
    fields = {"kernel_version": None, "kind": "linux", "cuda_max": None, "root": HostPath("/"), **more}
    detail = fields.pop("detail", "")
    driver = Driver(vendor=vendor, version=version, version_assumed=assumed, **fields)
    return PlannedDriver(driver, SourceUsed("driver", detail), ())


@pytest.mark.parametrize(
    ("driver", "title"),
    [
        (planned("nvidia", "550.1", cuda_max="12.4"), "nvidia 550.1, CUDA 12.4"),
        (planned("nvidia", "550.1", assumed=True), "nvidia 550.1 (assumed)"),
        (planned("nvidia", None, assumed=True), "nvidia of unknown version"),
        (planned("amd", "6.2"), "amd ROCm 6.2"),
        (planned("amd", None), "amd ROCm of unknown version"),
        (planned("intel", None, kernel_version="6.1"), "intel 6.1"),
        (planned("intel", "9"), "intel without its kernel driver"),
        (planned("other", "9", detail="acme.com/x"), "acme.com/x"),
        (planned("other", "9"), "other"),
    ],
)
def test_a_driver_is_called_by_its_vendor_and_version(driver: PlannedDriver, title: str) -> None:
    assert driver.title_with_cuda == title
    assert driver.title == title.partition(", CUDA")[0]


def test_a_plan_is_shown_in_one_line() -> None:
    made = plan(open_host(HOST), Request())
    digest = made.digest[:12]
    binds = f"{len(made.mounts)} binds of {len({m.source or m.target: 0 for m in made.mounts})} files"
    title, rest = made.summary.split("; ", 1)
    assert title == made.drivers[0].title_with_cuda
    assert rest.startswith(binds)
    assert rest.endswith(f"; digest {digest}")
    assert repr(made) == f"<Plan: {made.summary}>"
    empty = made._replace(mounts=(), gpus=(), devices=(), findings=(FINDING, FINDING._replace(severity="error")))
    assert empty.summary == f"{title}; 0 binds of 0 files (0 MiB); 0 device nodes; 1 error; 1 warning; digest {digest}"
    like = empty._replace(request=Request(like="apptainer-1.4"), findings=(), gpus=made.gpus[:1])
    assert like.summary == f"like apptainer-1.4; 0 binds of 0 files (0 MiB); 1 GPU; 0 device nodes; digest {digest}"
    assert like._replace(drivers=(), gpus=()).summary == f"0 binds of 0 files (0 MiB); 0 device nodes; digest {digest}"


@pytest.mark.parametrize(
    ("change", "what", "where", "why", "hint"),
    [
        ({"schema": "x"}, None, "schema", "`schema` is not `gpubind.plan/1`", ""),
        ({"schema": None}, None, "schema", "`schema` is not `gpubind.plan/1`", ""),
        (
            {"schema": "gpubind.plan/2"},
            "a later gpubind made this document",
            "schema",
            "it is of the schema `gpubind.plan/2`, and this one reads `gpubind.plan/1`",
            "update gpubind",
        ),
        ({"schema": "gpubind.plan/x"}, None, "schema", "`schema` is not `gpubind.plan/1`", ""),
        ({"request": []}, None, "request", "it is not there, or no object", ""),
        ({"drivers": {}}, None, "drivers", "it is not there, or no list of objects", ""),
        ({"drivers": [1]}, None, "drivers", "it is not there, or no list of objects", ""),
        (
            {"digest": "0"},
            None,
            "digest",
            "it is not that of these mounts, devices and variables: the document was changed",
            "",
        ),
        ({"image": 3}, None, "image", "it is not an object", ""),
        ({"image": {"libc": 3}}, None, "image.libc", "it is not an object", ""),
    ],
)
def test_a_damaged_plan_is_an_error_with_its_place(
    change: dict[str, Any], what: Optional[str], where: str, why: str, hint: str
) -> None:
    document = plan(open_host(HOST), Request()).to_dict()
    with pytest.raises(FormatError) as caught:
        Plan.from_dict({**document, **change})
    error = caught.value
    assert (error.code, error.what) == ("bad-plan", what or "gpubind did not make this document")
    assert (error.where, error.why, error.hint) == (where, why, hint)
    with pytest.raises(FormatError) as whole:
        Plan.from_dict([])  # type: ignore[arg-type]
    assert (whole.value.where, whole.value.why) == ("the whole document", "it is not an object")


def test_facts_of_an_image_come_back_with_defaults_for_what_no_document_holds() -> None:
    document: dict[str, Any] = {
        "kind": "sif",
        "arch": None,
        "libc": {"family": "musl", "version": None},
        "libstdcxx": None,
        "env": {},
        "undecided": [],
        "driver": [],
        "vendor_neutral": [],
        "cuda": None,
        "compat": [],
        "rocm": None,
    }
    facts = ImageFacts.from_dict(document)
    assert facts.to_dict() == document
    assert (facts.label, facts.loader_directories, facts.singularity) == ("", (), False)
    assert (facts.rocm_runtime, facts.own_libcuda, facts.every_cuda) == (None, None, ())
    assert (facts.has_root, facts.libc_fault) == (True, None)


class Inner(NamedTuple):
    """A list of two."""

    a: int
    b: str = "x"


class Outer(NamedTuple):
    """One field of each kind."""

    name: str
    level: Literal["low", "high"] = "low"
    port: Annotated[int, range(1, 10)] = 1
    shape: Annotated[str, ("round", "flat")] = "round"
    inner: Optional[Inner] = None
    rows: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (0, "")
    flag: bool = False
    table: dict[str, int] = {}  # noqa: RUF012 - only read


TOML = Decoder(Format("bad-x", "bad x", "see X"), is_toml=True, prefix="[x] ", allows_nul=False)
JSON = Decoder(Format("bad-x", "bad x"), list_types=(Inner,), members_limit=2)


@pytest.mark.parametrize(
    ("decoder", "value", "where", "why", "hint"),
    [
        (TOML, {"nmae": "a"}, "[x] nmae", "unknown key `[x] nmae`", None),
        (TOML, {"name": 3}, "[x] name", "a string is wanted, not a number", '[x] name = "3"'),
        (TOML, {"name": "a\0"}, "[x] name", "a NUL in a string", "see X"),
        (TOML, {"name": "a", "level": "hihg"}, "[x] level", "`hihg` is not one of low, high", "did you mean `high`? "),
        (TOML, {"name": "a", "port": 10}, "[x] port", "`10` is out of range", "see X"),
        (TOML, {"name": "a", "shape": "x" * 200}, "[x] shape", f"`{'x' * 100}` is not one of round, flat", "see X"),
        (TOML, {"name": "a", "rows": {"a": "x"}}, "[x] rows.a", "a number is wanted, not a string", "see X"),
        (TOML, {}, "[x] name", "it is not there", "see X"),
        (JSON, {"name": None}, "name", "a string is wanted, none is there", ""),
        (JSON, {"name": True}, "name", "a string is wanted, not a boolean", ""),
        (JSON, {"name": "a", "flag": 1}, "flag", "a boolean is wanted, not a number", ""),
        (JSON, {"name": "a", "port": 1.5}, "port", "a number is wanted, not a fraction", ""),
        (JSON, {"name": "a", "port": 0}, "port", "`0` is out of range", ""),
        (JSON, {"name": "a", "level": "x"}, "level", "`x` is not one of low, high", ""),
        (JSON, {"name": "a", "inner": {}}, "inner", "a list is wanted, not an object", ""),
        (JSON, {"name": "a", "inner": [1]}, "inner", "1 members, not 2", ""),
        (JSON, {"name": "a", "inner": [1, 2]}, "inner[1]", "a string is wanted, not a number", ""),
        (JSON, {"name": "a", "rows": [[1, "x"]] * 3}, "rows", "3 members; 2 at most", ""),
        (JSON, {"name": "a", "rows": "x"}, "rows", "a list is wanted, not a string", ""),
        (JSON, {"name": "a", "pair": [1, "x", 2]}, "pair", "3 members, not 2", ""),
        (JSON, {"name": "a", "table": {"k": "v"}}, "table.k", "a number is wanted, not a string", ""),
        (JSON, {"name": "a", "table": []}, "table", "an object is wanted, not a list", ""),
        (JSON, [], "the whole document", "an object is wanted, not a list", ""),
    ],
)
def test_what_is_not_of_a_type_is_an_error_with_its_place(
    decoder: Decoder, value: Any, where: str, why: str, hint: Optional[str]
) -> None:
    with pytest.raises(FormatError) as caught:
        decoder.decode(Outer, value)
    error = caught.value
    assert (error.code, error.what, error.where, error.why) == ("bad-x", "bad x", where, why)
    assert error.hint == (f"did you mean `name`? known: {', '.join(Outer._fields)}" if hint is None else hint)


def test_what_is_of_its_type_is_a_value() -> None:
    value = {
        "name": "a\0",
        "level": "high",
        "port": 9,
        "shape": "flat",
        "inner": [1, "y"],
        "rows": [[2, "z"]] * 2,
        "pair": [3, "p"],
        "flag": True,
        "table": {"k": 4},
        "unknown": 1,
    }
    rows = (Inner(2, "z"),) * 2
    assert JSON.decode(Outer, value) == Outer("a\0", "high", 9, "flat", Inner(1, "y"), rows, (3, "p"), True, {"k": 4})
    assert TOML.decode(Outer, {"name": "a", "rows": {"a": 1}}) == Outer("a", rows=(Inner(1),))
    assert to_json_value(Outer("a", rows=rows))["rows"] == [{"a": 2, "b": "z"}] * 2
    assert to_json_value({"a": [Inner(1)], "b": (1, (2,))}) == {"a": [{"a": 1, "b": "x"}], "b": [1, [2]]}


def test_a_document_has_one_member_of_a_list_a_line() -> None:
    text = dump_document({"a": [1, {"b": "\xe9"}], "c": [], "d": None})
    assert text == '{\n "a": [\n  1,\n  {"b": "\\u00e9"}\n ],\n "c": [],\n "d": null\n}\n'
    assert json.loads(text) == {"a": [1, {"b": "\xe9"}], "c": [], "d": None}


@pytest.mark.parametrize(
    ("succeeds", "succeeded", "reasons", "said", "expected"),
    [
        (True, True, (), "", (True, False, False)),
        (True, False, (), "x", (True, True, False)),
        (False, True, ("a",), "", (True, True, False)),
        (False, False, ("a", "b"), "lib b", (True, False, False)),
        (False, False, ("a",), "lib c", (True, True, True)),
        (False, False, (), "lib c", (True, False, False)),
        (False, False, ("a",), "", (True, False, False)),
        (None, False, ("a",), "c", (False, False, False)),
        (True, None, (), "", (False, False, False)),
    ],
)
def test_a_prediction_is_wrong_if_something_else_was_seen(
    succeeds: Optional[bool], succeeded: Optional[bool], reasons: tuple[str, ...], said: str, expected: tuple[bool, ...]
) -> None:
    outcome = TrialOutcome(Prediction("loads", "s", (), succeeds, "", reasons), succeeded, said)
    assert (outcome.is_compared, outcome.is_wrong, outcome.fails_differently) == expected


def test_the_node_of_a_gpu_and_its_uuid_in_a_value() -> None:
    gpu = Gpu("nvidia", 3, "GPU-0a1b", "0000:01:00.0", 0, "m", RootedPath("/dev/dri/renderD128"), chosen=True)
    assert (gpu.node, gpu._replace(minor=None).node) == ("/dev/nvidia0", None)
    amd = gpu._replace(vendor="amd", minor=None)
    assert (amd.node, amd.is_gaudi) == ("/dev/dri/renderD128", False)
    intel = gpu._replace(vendor="intel")
    assert (intel.is_gaudi, intel._replace(render=RootedPath("/dev/accel/accel0")).is_gaudi) == (False, True)
    assert intel._replace(render=None).is_gaudi
    assert replace_uuids("a,gpu-0A1B,MIG-1-2,GPU-x", [gpu]) == "a,3,UUID,GPU-x"
    assert (replace_uuids(None, [gpu]), replace_uuids("", []), replace_uuids("a-b", [])) == (None, "", "a-b")
    assert (str(Missing("absent")), str(Missing("loop", "x"))) == ("absent", "loop: x")
