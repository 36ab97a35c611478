"""Records: round trip, what is left out and ignored, and what damage does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf, VersionNeed
from gpubind.host.base import LIST_FILES
from gpubind.host.record import (
    SCHEMA,
    Record,
    RecordedDirectory,
    RecordedEntry,
    RecordedList,
    RecordedRoot,
    RecordedRun,
    dump_record,
    parse_record,
)
from gpubind.host.recorded import RecordedHost
from gpubind.model import CudaNote, FileKind, HostPath, Missing, Stat
from gpubind.model.data import read_data
from tests.support import answers, damaged
from tests.support.elf import elf
from tests.support.trees import Dir, Fifo, File, Hidden, Item, Link, Node, Socket, record

HOST: dict[str, Item] = {
    "/dev/nvidia0": Node("char", 195, 0, gid=44, mode=0o660),
    "/dev/sda": Node("block", 8, 0),
    "/etc/nvidia": Dir(0o750),
    "/run/fifo": Fifo(),
    "/run/socket": Socket(),
    "/root": Hidden(directory=True),
    "/secret": Hidden(),
    "/usr/bin/nvidia-smi": File(elf(kind=2), 0o4755),
    "/usr/lib64/libcuda.so": b"/* GNU ld script */",
    "/usr/lib64/libcuda.so.1": Link("libcuda.so.550.54.14"),
    "/usr/lib64/libcuda.so.550.54.14": elf(
        "libcuda.so.1", needed=["libc.so.6"], runpath="", needs={"libc.so.6": ["GLIBC_2.17"]}, defines=["libcuda.so.1"]
    ),
    "/usr/lib64/odd\udcff": b"\xff\xfe",
    "/usr/share/text": "two\nlines\n",
}
RECORD = record(
    HOST,
    {"/proc/devices": "Character devices:\n195 nvidia\n"},
    environ={"PATH": "/usr/bin"},
    groups=(44, 1000),
    lists=(RecordedList("nvliblist.conf", "/etc/gpubind/nvliblist.conf", "libcuda.so\n"),),
    runs=(RecordedRun(("nvidia-container-cli", "list"), 0, "/dev/nvidiactl\n", ""),),
)
TEXT = dump_record(RECORD, "1.0")


def parse(document: Any) -> Record:
    return parse_record(json.dumps(document).encode())


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        parse_record(data)
    return caught.value


def changed(path: str, value: Any) -> dict[str, Any]:
    """The document of `RECORD` with the member at *path* (keys joined by `|`) replaced; deleted if `...`."""
    document: dict[str, Any] = json.loads(TEXT)
    *parents, last = path.split("|")
    holder: Any = document
    for key in parents:
        holder = holder[key]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return document


def entry(item: Any) -> dict[str, Any]:
    return changed("trees|driver|directories|/usr/lib64|entries|libcuda.so.1", item)


# Round trip.


def test_a_record_comes_back_as_it_was() -> None:
    assert parse_record(TEXT.encode()) == RECORD


def test_equal_records_have_equal_texts() -> None:
    assert dump_record(parse_record(TEXT.encode()), "1.0") == TEXT
    backwards = record(dict(reversed(HOST.items())), RECORD.dev and {"/proc/devices": "x"})
    assert dump_record(backwards, "1.0") == dump_record(record(HOST, {"/proc/devices": "x"}), "1.0")


def test_a_record_is_ascii_json_with_one_entry_a_line() -> None:
    TEXT.encode("ascii")
    assert json.loads(TEXT)["schema"] == SCHEMA
    assert sum('"libcuda.so.1": "libcuda.so.550.54.14"' in line for line in TEXT.split("\n")) == 1


def test_what_has_the_default_owner_and_mode_says_neither() -> None:
    text = dump_record(record({"/a/b": Dir(), "/c": Fifo()}), "1")
    directories = json.loads(text)["trees"]["driver"]["directories"]
    assert directories["/a"]["entries"] == {"b": {"type": "dir"}}
    assert directories["/"]["entries"] == {"a": {"type": "dir"}, "c": {"type": "fifo", "mode": "0644"}}


_NAMES = (
    st.binary(min_size=1, max_size=8)
    .map(lambda name: name.translate(None, b"/\0").decode("utf-8", "surrogateescape"))
    .filter(bool)
)
"""As a file system has them: not all is UTF-8."""
_TEXTS = st.text(max_size=8)
_MISSING = st.builds(Missing, st.sampled_from(["absent", "forbidden", "loop", "unreadable"]), _TEXTS)
_IDENTS = st.builds(
    ElfIdent,
    st.sampled_from([32, 64]),
    st.sampled_from(["little", "big"]),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFF),
)
_NOT_ELF = st.builds(NotElf, st.sampled_from(["zero-byte", "linker-script", "truncated-elf", "not-elf"]), _TEXTS)
_STRINGS = st.lists(_TEXTS, max_size=3).map(tuple)
_NOTES = st.builds(CudaNote, _TEXTS, st.lists(st.integers(0, 999), max_size=3).map(tuple))
_NEEDS = st.lists(st.builds(VersionNeed, _TEXTS, _STRINGS), max_size=2, unique_by=lambda need: need.library).map(tuple)
_SMALL = st.integers(0, 0xFFFFFFFF)


@st.composite
def _entries(draw: st.DrawFn) -> RecordedEntry:
    if draw(st.booleans()):
        simple: list[st.SearchStrategy[RecordedEntry]] = [
            st.just(RecordedEntry(Missing("absent"))),
            _MISSING.filter(lambda missing: missing.why != "absent").map(RecordedEntry),
            _TEXTS.map(lambda target: RecordedEntry(Stat("link", 0o777, 0, 0, 0), target)),
        ]
        return draw(st.one_of(simple))
    kinds: list[FileKind] = ["file", "dir", "char", "block", "socket", "fifo"]
    kind = draw(st.sampled_from(kinds))
    rdev = draw(st.tuples(_SMALL, _SMALL)) if kind in ("char", "block") else (0, 0)
    acl = draw(st.sampled_from(("", "user::rw-,user:1000:rw-,group::---,mask::rw-,other::---")))
    found = Stat(kind, draw(st.integers(0, 0o7777)), draw(_SMALL), draw(_SMALL), draw(_SMALL), *rdev, acl)
    body = draw(st.none() | _MISSING | st.binary(max_size=8))
    ident = draw(st.none() | _MISSING | _IDENTS | _NOT_ELF)
    optional = st.none() | _TEXTS
    facts: Any = _MISSING
    if isinstance(ident, ElfIdent):
        texts = (optional, _STRINGS, optional, optional, optional, _NEEDS, _STRINGS)
        facts |= st.builds(ElfFacts, st.just(ident), *texts, st.none() | _NOTES)
    return RecordedEntry(found, None, body, ident, draw(st.none() | facts))


_DIRECTORIES = st.builds(
    RecordedDirectory,
    st.dictionaries(_NAMES, _entries(), max_size=4),
    st.lists(_NAMES, max_size=2, unique=True).map(lambda names: tuple(sorted(names))),
    st.booleans() | _MISSING,
)
_PATHS = _NAMES.map("/{}".format)
_ROOTS = st.builds(RecordedRoot, _TEXTS.map(HostPath), st.dictionaries(_PATHS, _DIRECTORIES, max_size=3))
_RUNS = st.one_of(
    st.tuples(_STRINGS, st.integers(-1, 255), _TEXTS, _TEXTS).map(lambda run: RecordedRun(*run)),
    st.tuples(_STRINGS, _MISSING).map(lambda run: RecordedRun(run[0], missing=run[1])),
)
_RECORDS = st.builds(
    Record,
    description=_TEXTS,
    hostname=st.none() | _TEXTS,
    driver=_ROOTS,
    dev=st.none() | _ROOTS,
    environ=st.dictionaries(_TEXTS, _TEXTS, max_size=2),
    release=_TEXTS,
    machine=_TEXTS,
    euid=_SMALL,
    groups=st.lists(_SMALL, max_size=3).map(tuple),
    lists=st.lists(st.builds(RecordedList, _TEXTS, _TEXTS, _TEXTS), max_size=1).map(tuple),
    runs=st.lists(_RUNS, max_size=2).map(tuple),
)


@given(_RECORDS)
@settings(max_examples=50, deadline=None)
def test_what_is_dumped_is_parsed_back(built: Record) -> None:
    assert parse_record(dump_record(built, "1.0").encode()) == built


# What is ignored, and what is refused.


@pytest.mark.parametrize(
    "path", ["new", "uname|new", "trees|new", "trees|driver|new", "trees|driver|directories|/etc|new"]
)
def test_keys_that_this_version_does_not_know_are_ignored(path: str) -> None:
    assert parse(changed(path, {"some": ["value"]})) == RECORD


def test_unknown_keys_of_an_entry_are_ignored() -> None:
    found = parse(entry({"size": 3, "xattrs": {}})).driver.directories["/usr/lib64"].entries["libcuda.so.1"]
    assert found == RecordedEntry(Stat("file", 0o644, 0, 0, 3))


def test_a_newer_schema_is_refused_by_name() -> None:
    error = refusal(json.dumps(changed("schema", "gpubind.record/2")).encode())
    assert error.code == "newer-record"
    assert "gpubind.record/2" in error.what
    assert error.place == "schema"


def test_a_newer_schema_is_refused_whatever_else_the_record_holds() -> None:
    assert refusal(b'{"schema": "gpubind.record/17", "trees": 5}').code == "newer-record"


ENTRY = "/usr/lib64/libcuda.so.1"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(b"", "byte 0", id="empty"),
        pytest.param(b"\xff", "byte 0", id="not-utf8"),
        pytest.param(b'{"a": ', "byte 6", id="cut"),
        pytest.param(b"[" * 100_000, "the whole document", id="nested"),
        pytest.param(b"[]", "the whole document", id="array"),
        pytest.param(b"{}", "schema", id="no-schema"),
        pytest.param(b'{"schema": "gpubind.plan/1"}', "schema", id="a-plan"),
    ],
)
def test_what_is_no_record_is_refused(data: bytes, place: str) -> None:
    error = refusal(data)
    assert (error.code, error.place) == ("bad-record", place)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("uname", ..., "uname"),
        ("uname|release", 5, "uname.release"),
        ("identity|euid", True, "identity.euid"),
        ("identity|euid", 1.5, "identity.euid"),
        ("identity|euid", -2, "identity.euid"),
        ("identity|groups", ["root"], "identity.groups[0]"),
        ("identity|groups", [True], "identity.groups[0]"),
        ("identity|groups", [1 << 32], "identity.groups[0]"),
        ("environ", [], "environ"),
        ("environ|PATH", None, "environ.PATH"),
        ("hostname", 1, "hostname"),
        ("lists", {}, "lists"),
        ("lists", [{"name": "a", "label": "b"}], "lists[0].text"),
        ("lists", [{"name": "a", "label": "b", "text": "\ud800"}], "lists[0].text"),
        ("runs", [{"argv": "ls", "status": 0}], "runs[0].argv"),
        (
            "runs",
            [{"argv": ["ls"], "status": 0, "stdout": "", "stderr": "", "missing": ["x", ""]}],
            "runs[0].missing[0]",
        ),
        ("trees", ..., "trees"),
        ("trees|driver", ..., "trees.driver"),
        ("trees|dev", 1, "trees.dev"),
        ("trees|driver|root", ..., "trees.driver.root"),
        ("trees|driver|directories|/etc", [], "trees.driver.directories./etc"),
        ("trees|driver|directories|/etc|listed", "yes", "trees.driver.directories./etc.listed"),
        ("trees|driver|directories|/etc|listed", ["gone", ""], "trees.driver.directories./etc.listed[0]"),
        ("trees|driver|directories|/etc|others", [1], "trees.driver.directories./etc.others[0]"),
        ("trees|driver|directories|/etc|entries|a/b", None, "trees.driver.directories./etc.entries"),
        ("trees|driver|directories|/etc|entries|", None, "trees.driver.directories./etc.entries"),
    ],
)
def test_a_wrong_member_is_refused_by_its_key(path: str, value: Any, place: str) -> None:
    error = refusal(json.dumps(changed(path, value)).encode())
    assert (error.code, error.place) == ("bad-record", place)


@pytest.mark.parametrize(
    ("item", "place"),
    [
        (5, ENTRY),
        ([], ENTRY),
        ({"type": "link"}, f"{ENTRY}.type"),
        ({"type": "door"}, f"{ENTRY}.type"),
        ({"mode": "rw"}, f"{ENTRY}.mode"),
        ({"mode": "8"}, f"{ENTRY}.mode"),
        ({"mode": 420}, f"{ENTRY}.mode"),
        ({"size": "big"}, f"{ENTRY}.size"),
        ({"size": 1 << 64}, f"{ENTRY}.size"),
        ({"rdev": [1]}, f"{ENTRY}.rdev"),
        ({"acl": "user:bob:rw-"}, f"{ENTRY}.acl"),
        ({"acl": "user:1:rw-,"}, f"{ENTRY}.acl"),
        ({"rdev": [1, "2"]}, f"{ENTRY}.rdev[1]"),
        ({"base64": "*"}, ENTRY),
        ({"text": 1}, f"{ENTRY}.text"),
        ({"missing": ["gone", ""]}, f"{ENTRY}.missing[0]"),
        ({"missing": ["absent"]}, f"{ENTRY}.missing"),
        ({"not_elf": ["odd", ""]}, f"{ENTRY}.not_elf[0]"),
        ({"ident": [64, "little", 62]}, f"{ENTRY}.ident"),
        ({"ident": [16, "little", 62, 3]}, f"{ENTRY}.ident[0]"),
        ({"ident": [64.0, "little", 62, 3]}, f"{ENTRY}.ident[0]"),
        ({"ident": [64, "middle", 62, 3]}, f"{ENTRY}.ident[1]"),
        ({"ident": [64, "little", "x86", 3]}, f"{ENTRY}.ident[2]"),
        ({"ident": [64, "little", True, 3]}, f"{ENTRY}.ident[2]"),
        ({"ident": [64, "little", 62, -3]}, f"{ENTRY}.ident[3]"),
        ({"elf": {}}, ENTRY),
        ({"elf": [], "ident": [64, "little", 62, 3]}, f"{ENTRY}.elf"),
        ({"elf": {"needed": "libc"}, "ident": [64, "little", 62, 3]}, f"{ENTRY}.elf.needed"),
        ({"elf": {"version_needs": {"a": 1}}, "ident": [64, "little", 62, 3]}, f"{ENTRY}.elf.version_needs.a"),
    ],
    ids=repr,
)
def test_a_wrong_entry_is_refused_by_its_path(item: Any, place: str) -> None:
    error = refusal(json.dumps(entry(item)).encode())
    assert (error.code, error.place) == ("bad-record", place)


def test_a_device_tree_is_recorded_only_if_it_is_another_one() -> None:
    assert parse(changed("trees|dev", ...)).dev is None
    assert RECORD.dev is not None


# Damage.


def use(data: bytes) -> None:
    """Parse, and ask what a plan asks first."""
    host = RecordedHost(parse_record(data), "test")
    for name in LIST_FILES:
        host.liblist(name)
    host.run(("nvidia-container-cli", "list"), 1)


@given(damaged(TEXT.encode()))
@settings(max_examples=100, deadline=None)
def test_damage_gives_a_value_or_a_place(data: bytes) -> None:
    answers(use, data)


_JSON = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | _TEXTS | st.lists(st.integers(), max_size=2)


@given(st.data())
@settings(max_examples=66, deadline=None)
def test_a_value_of_another_type_anywhere_gives_a_value_or_a_place(data: st.DataObject) -> None:
    document: Any = json.loads(TEXT)
    holder: Any = document
    while True:
        keys: list[Any] = sorted(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = data.draw(st.sampled_from(keys))
        inner = holder[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.integers(0, 3)) == 0:
            break
        holder = inner
    holder[key] = data.draw(_JSON)
    answers(use, json.dumps(document).encode())


def test_only_device_nodes_have_numbers() -> None:
    read = parse_record(json.dumps(entry({"size": 1, "rdev": [195, 0]})).encode())
    assert parse_record(dump_record(read, "1.0").encode()) == read


def test_what_a_later_version_nests_deeply_is_refused_or_passed_over() -> None:
    text = read_data("model/data/hosts/debian13-nvidia550.json").decode()
    for depth in range(100, 1000, 100):
        deep = text.replace("{", '{"later": ' + "[" * depth + r'"\u00e9"' + "]" * depth + ",", 1)
        try:
            parse_record(deep.encode())
        except FormatError as error:
            assert (error.code, error.why) == ("bad-record", "nested too deeply")
