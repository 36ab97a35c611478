"""RecordedTree: absent, forbidden and not recorded are three answers."""

from __future__ import annotations

from typing import Any, Optional, Union

import pytest

from gpubind.errors import NotRecordedError
from gpubind.host.record import RecordedDirectory, RecordedEntry, RecordedRoot
from gpubind.host.recorded import RecordedTree
from gpubind.model import HostPath, Missing, Stat
from tests.support.elf import elf
from tests.support.trees import ABSENT, FORBIDDEN, Hidden, Item, Link, Node, recorded_root, recorded_tree

DIRECTORY = RecordedEntry(Stat("dir", 0o755, 0, 0, 0))
FILE = RecordedEntry(Stat("file", 0o644, 0, 0, 5))
DENIED, GONE = RecordedEntry(FORBIDDEN), RecordedEntry(ABSENT)

# /whole is listed, /part is known of by some names only, /shut cannot be listed.
SURVEY = RecordedRoot(
    HostPath("/"),
    {
        "/": RecordedDirectory(
            {"whole": DIRECTORY, "part": DIRECTORY, "shut": DIRECTORY, "none": RecordedEntry(ABSENT)}
        ),
        "/whole": RecordedDirectory({"a": FILE, "gone": GONE, "denied": DENIED}, ("other",), True),
        "/part": RecordedDirectory({"a": FILE, "gone": GONE}),
        "/shut": RecordedDirectory({"a": FILE}, (), FORBIDDEN),
    },
)


def tree() -> RecordedTree:
    return RecordedTree(SURVEY, "node7.json")


def refusal(ask: Any, path: str) -> NotRecordedError:
    with pytest.raises(NotRecordedError) as caught:
        ask(path)
    return caught.value


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param("/whole/a", FILE.stat, id="recorded"),
        pytest.param("/whole/gone", ABSENT, id="known-to-be-absent"),
        pytest.param("/whole/b", ABSENT, id="not-in-the-listing"),
        pytest.param("/whole/b/c", ABSENT, id="below-what-is-not-in-the-listing"),
        pytest.param("/whole/a/c", ABSENT, id="below-a-file"),
        pytest.param("/whole/denied", FORBIDDEN, id="forbidden"),
        pytest.param("/whole/denied/x", FORBIDDEN, id="below-forbidden"),
        pytest.param("/whole/other", None, id="a-name-without-facts"),
        pytest.param("/part/a", FILE.stat, id="looked-up"),
        pytest.param("/part/gone", ABSENT, id="looked-up-and-absent"),
        pytest.param("/part/b", None, id="never-looked-up"),
        pytest.param("/shut/a", FILE.stat, id="looked-up-where-listing-is-forbidden"),
        pytest.param("/shut/b", FORBIDDEN, id="not-looked-up-where-listing-is-forbidden"),
        pytest.param("/none/a/b", ABSENT, id="below-absent"),
        pytest.param("/new", None, id="outside"),
        pytest.param("/new/a", None, id="below-outside"),
    ],
)
def test_absent_forbidden_and_not_recorded_are_told_apart(path: str, answer: Optional[object]) -> None:
    for ask in (tree().lstat, tree().stat):
        if answer is None:
            refusal(ask, path)
        else:
            assert ask(path) == answer


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param("/whole", ("a", "denied", "other"), id="listed"),
        pytest.param("/whole/a", ABSENT, id="a-file"),
        pytest.param("/whole/b", ABSENT, id="absent"),
        pytest.param("/shut", FORBIDDEN, id="forbidden"),
        pytest.param("/part", None, id="never-listed"),
        pytest.param("/", None, id="the-root-never-listed"),
    ],
)
def test_a_listing_holds_every_name_but_those_known_to_be_absent(path: str, answer: Optional[object]) -> None:
    if answer is None:
        refusal(tree().list, path)
    else:
        assert tree().list(path) == answer


def test_a_directory_whose_contents_were_never_looked_at_is_not_recorded() -> None:
    found = RecordedTree(RecordedRoot(HostPath("/"), {"/": RecordedDirectory({"a": DIRECTORY}, (), True)}), "x")
    assert found.resolve("/a") == "/a"
    refusal(found.list, "/a")
    refusal(found.stat, "/a/b")


@pytest.mark.parametrize("ask", ["read", "read_text", "ident", "elf"])
def test_facts_that_the_survey_did_not_read_are_not_recorded(ask: str) -> None:
    error = refusal(getattr(tree(), ask), "/whole/a")
    assert error.where == "/whole/a"


def test_what_is_not_recorded_names_the_record_and_the_path_and_exits_with_4() -> None:
    error = refusal(tree().stat, "/part/b")
    assert (error.code, error.where, error.exit_code) == ("not-recorded", "/part/b", 4)
    assert "node7.json" in error.what
    assert error.hint


def test_an_answer_that_was_a_failure_is_a_failure_again() -> None:
    damaged = Missing("unreadable", "damaged ELF file")
    entry = FILE._replace(body=FORBIDDEN, ident=FORBIDDEN, elf=damaged)
    found = RecordedTree(RecordedRoot(HostPath("/"), {"/": RecordedDirectory({"a": entry})}), "x")
    answers: tuple[Union[object, Missing], ...] = (found.read("/a"), found.ident("/a"), found.elf("/a"))
    assert answers == (FORBIDDEN, FORBIDDEN, damaged)


def test_a_directory_that_cannot_be_searched_forbids_all_below_it() -> None:
    found = recorded_tree({"/root": Hidden(directory=True), "/link": Link("/root/lib/a.so"), "/x": Hidden()})
    for path in ("/root/lib/a.so", "/root/.ssh", "/link", "/link/x"):
        assert found.stat(path) == found.read(path) == found.resolve(path) == FORBIDDEN
    assert found.list("/root") == FORBIDDEN
    assert found.stat("/x") == FORBIDDEN


def test_device_nodes_tell_their_numbers_and_owner() -> None:
    found = recorded_tree({"/dev/nvidia0": Node("char", 195, 0, 0o660, gid=44), "/dev/sda": Node("block", 8, 0)})
    assert found.stat("/dev/nvidia0") == Stat("char", 0o660, 0, 44, 0, 195, 0)
    assert found.stat("/dev/sda") == Stat("block", 0o666, 0, 0, 0, 8, 0)
    assert found.read("/dev/nvidia0") == Missing("unreadable", "a character device, not a regular file")


def test_a_link_whose_target_could_not_be_read_leads_nowhere() -> None:
    """The survey writes it down with an empty target; Linux has no such links."""
    found = recorded_tree({"/d/link": Link(""), "/d/a": b""})
    assert found.resolve("/d/link") == found.stat("/d/link/a") == ABSENT
    assert found.readlink("/d/link") == ""


def test_the_real_path_has_the_recorded_root_before_it() -> None:
    spec: dict[str, Item] = {
        "/usr/lib64/libcuda.so.1": elf("libcuda.so.1"),
        "/lib64": Link("/usr/lib64"),
    }
    found = RecordedTree(recorded_root(spec, "/run/nvidia/driver"), "x")
    resolved = found.resolve("/lib64/libcuda.so.1")
    assert not isinstance(resolved, Missing)
    assert found.real(resolved) == "/run/nvidia/driver/usr/lib64/libcuda.so.1"
