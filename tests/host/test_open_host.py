"""Hosts by name, records in files, and files that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind.errors import FormatError, GpubindError, HostReadError, NotRecordedError, UsageError
from gpubind.host import RunResult
from gpubind.host.open import FILE_LIMIT, host_name, open_host, read_file, read_listfile
from gpubind.host.record import RecordedList, RecordedRun, dump_record
from gpubind.model import HostPath, Missing
from gpubind.model.data import BUNDLED_HOSTS
from tests.support.trees import Dir, Item, make_tree, record


def refusal(*args: Any) -> GpubindError:
    with pytest.raises(GpubindError) as caught:
        open_host(*args)
    return caught.value


def test_a_record_in_a_file_is_a_host(tmp_path: Path) -> None:
    lists = (RecordedList("nvliblist.conf", "/etc/gpubind/nvliblist.conf", "lib\udcff.so\n"),)
    runs = (RecordedRun(("nvidia-container-cli", "list"), 0, "out", "err"),)
    made = record({"/a": b"x"}, {"/b": b"y"}, environ={"PATH": "/p"}, lists=lists, runs=runs, root="/r")
    (tmp_path / "node.json").write_text(dump_record(made, "1"))
    host = open_host(f"{tmp_path}/node.json")
    assert (host.label, host.driver.root, host.dev.root, host.environ) == ("node.json", "/r", "/", {"PATH": "/p"})
    assert (host.driver.read("/a"), host.dev.read("/b")) == (b"x", b"y")
    assert host.liblist("nvliblist.conf") == ("/etc/gpubind/nvliblist.conf", b"lib\xff.so\n", False)
    assert host.run(("nvidia-container-cli", "list"), 1) == RunResult(0, "out", "err")


@pytest.mark.parametrize("name", BUNDLED_HOSTS)
def test_every_shipped_host_opens_by_name(name: str) -> None:
    host = open_host(name)
    assert host.label == name
    assert host.uname.machine


def test_a_name_that_is_neither_a_file_nor_shipped_says_what_ships() -> None:
    error = refusal("no-such-host")
    assert isinstance(error, UsageError)
    assert error.code == "unknown-host"
    assert BUNDLED_HOSTS[0] in error.hint


@pytest.mark.parametrize(("root", "dev_root"), [("/", None), (None, "/")])
def test_a_record_has_roots_of_its_own(root: Optional[str], dev_root: Optional[str]) -> None:
    error = refusal(BUNDLED_HOSTS[0], root, dev_root)
    assert (error.code, error.exit_code) == ("host-with-root", 2)


def test_a_malformed_record_is_an_error_that_names_the_file_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema": 1}')
    error = refusal(f"{tmp_path}/x.json")
    assert isinstance(error, FormatError)
    assert (error.where, error.exit_code) == (f"{tmp_path}/x.json: schema", 5)


@pytest.mark.parametrize(
    ("item", "why"), [(None, "No such file or directory"), (Dir(), "Is a directory")], ids=["absent", "directory"]
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, item: Optional[Item], why: str) -> None:
    make_tree(tmp_path, {"/x": item} if item else {})
    error = refusal(f"{tmp_path}/x")
    assert (error.code, error.where, error.why, error.exit_code) == ("unreadable-file", f"{tmp_path}/x", why, 4)


def test_a_file_over_the_limit_is_an_error_and_one_at_the_limit_is_not(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * FILE_LIMIT)
    assert read_listfile(f"{tmp_path}/x") == (f"{tmp_path}/x", b"x" * FILE_LIMIT, False)
    with pytest.raises(HostReadError) as caught:
        read_file(f"{tmp_path}/x", FILE_LIMIT - 1)
    assert caught.value.why == f"larger than {FILE_LIMIT - 1} bytes"


def test_a_path_with_a_nul_byte_is_an_error() -> None:
    with pytest.raises(HostReadError) as caught:
        read_file("/a\0b", 10)
    assert caught.value.code == "unreadable-file"


def whole(error: GpubindError) -> tuple[str, ...]:
    return (error.code, error.what, error.where, error.why, error.hint)


def test_errors_about_the_name_of_a_host_are_whole() -> None:
    known = "known: debian13-nvidia550, mi300x-rocm62; or describe one: driver:535,gpu:a100x4"
    why = "there is no such file, and no record of that name ships"
    assert whole(refusal("none")) == ("unknown-host", "unknown host `none`", "", why, known)
    assert whole(refusal("mi300x-rocm6"))[4] == f"did you mean `mi300x-rocm62`? {known}"
    what = "--root and --dev-root cannot be used with --host"
    assert whole(refusal("x", "/")) == ("host-with-root", what, "", "a record has the roots that it was made with", "")
    why = "it does not exist"
    assert whole(refusal("./none"))[:3] == ("unreadable-file", "a file cannot be read", "./none")


@pytest.mark.parametrize(
    ("host", "hostname", "name"),
    [
        *(("/a/gpu1.json", None, "gpu1"), ("/a/gpu1.json", "node7", "node7"), ("gpu1", None, "gpu1")),
        *(("/a/b.json/", None, "b"), ("x.json.json", None, "x.json"), (".json", None, ".json")),
    ],
)
def test_a_host_is_called_by_its_name_or_that_of_its_file(host: str, hostname: Optional[str], name: str) -> None:
    assert host_name(host, hostname) == name


def test_a_recorded_host_without_a_program_or_a_path_says_so() -> None:
    host = open_host(BUNDLED_HOSTS[0])
    why = "`lspci` was not run, or gave no answer, when this host was recorded"
    assert host.run(("lspci", "-n"), 1) == Missing("absent", why)
    with pytest.raises(NotRecordedError) as caught:
        host.driver.lstat("/etc/none")
    message = f"the record `{BUNDLED_HOSTS[0]}` does not cover this path"
    hint = "record the host again, with the same --library-path, --cdi-dir and --list, or plan on the host"
    assert whole(caught.value) == (
        *("not-recorded", message, "/etc/none", "it was made by a survey that did not look there", hint),
    )
    assert host.lenient.driver.lstat("/etc/none") == Missing("unrecorded", message)
    with pytest.raises(UsageError) as unknown:
        host.as_user("bob")
    assert whole(unknown.value) == (
        *("unknown-user", "unknown user `bob`", "", "a record holds no users", "ask on the host itself"),
    )
    with pytest.raises(LookupError) as name:
        host.variable("NONE")
    assert str(name.value) == "`NONE` is not in PLAN_VARIABLES"
    assert (host.user_name(0), host.untrusted(), host.distrusted("x", "/y"), host.variable("PATH") != "") == (
        *(None, (), None, True),
    )


def test_a_host_shows_its_roots_and_whether_it_is_closed() -> None:
    host = open_host(BUNDLED_HOSTS[0])
    assert repr(host) == "<RecordedHost 'debian13-nvidia550': x86_64>"
    with host:
        pass
    assert repr(host) == "<RecordedHost 'debian13-nvidia550': x86_64, closed>"
    host.dev.root = HostPath("/r")
    assert "dev root '/r'" in repr(host)
