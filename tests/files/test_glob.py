"""glob: wildcards in absolute paths."""

from __future__ import annotations

import re
from fnmatch import translate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import BoundError, FormatError
from gpubind.files import glob
from gpubind.files.glob import GLOB_LIMIT, glob_or_note
from gpubind.machine.budget import BOUNDS, VARIABLE, one_command
from tests.support.measure import is_less_work
from tests.support.trees import Dir, Hidden, Item, Link, make_tree, recorded_tree

ICDS = "/etc/vulkan/icd.d"
SPEC: dict[str, Item] = {
    f"{ICDS}/nvidia_icd.json": "{}",
    f"{ICDS}/nvidia_icd.x86_64.json": "{}",
    f"{ICDS}/radeon_icd.json": "{}",
    f"{ICDS}/.nvidia_icd.json": "{}",
    f"{ICDS}/[odd].json": "{}",
    "/etc/vulkan-sc/icd.d/nvidia_icd.json": "{}",
    "/etc/alternatives/dangling.json": Link("none"),
    "/etc/link": Link("vulkan"),
    "/opt/rocm-6.0/lib/a.so": b"",
    "/opt/rocm-6.1/lib/a.so": b"",
    "/opt/rocm": Link("rocm-6.1"),
    "/opt/rocm-file": b"",
    "/secret": Hidden(directory=True),
    "/empty": Dir(),
}


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        pytest.param("/opt/rocm-6.0/lib/a.so", ["/opt/rocm-6.0/lib/a.so"], id="no-wildcard"),
        pytest.param("/opt/rocm-9/lib/a.so", [], id="no-wildcard-absent"),
        pytest.param(
            f"{ICDS}/nvidia*.json",
            [f"{ICDS}/nvidia_icd.json", f"{ICDS}/nvidia_icd.x86_64.json"],
            id="star",
        ),
        pytest.param(
            f"{ICDS}/*icd.json",
            [f"{ICDS}/nvidia_icd.json", f"{ICDS}/radeon_icd.json"],
            id="star-first",
        ),
        pytest.param(f"{ICDS}/*_*.*.*", [f"{ICDS}/nvidia_icd.x86_64.json"], id="stars"),
        pytest.param(f"{ICDS}/nvidia_icd.json*", [f"{ICDS}/nvidia_icd.json"], id="star-for-nothing"),
        pytest.param(
            "/opt/rocm-6.?/lib/a.so", ["/opt/rocm-6.0/lib/a.so", "/opt/rocm-6.1/lib/a.so"], id="question-mark"
        ),
        pytest.param("/opt/rocm-6.[1-9]/lib/*", ["/opt/rocm-6.1/lib/a.so"], id="range"),
        pytest.param("/opt/rocm-6.[!1]/lib/*", ["/opt/rocm-6.0/lib/a.so"], id="not"),
        pytest.param("/opt/rocm-6.[9-1]/lib/*", [], id="backward-range"),
        pytest.param(f"{ICDS}/[[]odd].json", [f"{ICDS}/[odd].json"], id="a-bracket"),
        pytest.param(f"{ICDS}/[odd*", [f"{ICDS}/[odd].json"], id="an-open-bracket"),
        pytest.param(f"{ICDS}/.*", [f"{ICDS}/.nvidia_icd.json"], id="hidden-if-asked-for"),
        pytest.param(
            "/*/rocm*/lib/*.so",
            ["/opt/rocm-6.0/lib/a.so", "/opt/rocm-6.1/lib/a.so", "/opt/rocm/lib/a.so"],
            id="each-component",
        ),
        pytest.param("/etc/link/icd.d/radeon*", ["/etc/link/icd.d/radeon_icd.json"], id="through-a-link"),
        pytest.param("/etc/alternatives/*", ["/etc/alternatives/dangling.json"], id="a-dangling-link-exists"),
        pytest.param("/opt/rocm-file/*", [], id="a-file-has-no-names"),
        pytest.param("/empty/*", [], id="an-empty-directory"),
        pytest.param("/secret/*", [], id="a-forbidden-directory"),
        pytest.param("/none/*/x", [], id="an-absent-directory"),
        pytest.param(
            "/etc/*/icd.d/nvidia_icd.json",
            [
                "/etc/link/icd.d/nvidia_icd.json",
                "/etc/vulkan-sc/icd.d/nvidia_icd.json",
                f"{ICDS}/nvidia_icd.json",
            ],
            id="sorted-as-paths",
        ),
        pytest.param("/opt/*6.0/", ["/opt/rocm-6.0"], id="trailing-slash"),
    ],
)
def test_each_component_matches_as_in_fnmatch(pattern: str, paths: list[str]) -> None:
    assert list(glob(recorded_tree(SPEC), pattern)) == paths


def test_a_live_tree_matches_like_a_recorded_one(tmp_path: Path) -> None:
    spec = {path: item for path, item in SPEC.items() if not isinstance(item, Hidden)}
    live, recorded = make_tree(tmp_path, spec), recorded_tree(spec)
    for pattern in ("/*", "/*/*", "/*/*/*", "/*/*/*/*.json", "/opt/*[0-9]/lib", "/etc/v*n/*"):
        assert glob(live, pattern) == glob(recorded, pattern) != ()


def test_links_that_match_are_not_resolved() -> None:
    assert glob(recorded_tree(SPEC), "/opt/roc?") == ("/opt/rocm",)


def test_a_pattern_that_would_walk_the_disk_is_refused() -> None:
    spec: dict[str, Item] = {f"/d/{number}": Dir() for number in range(GLOB_LIMIT + 1)}
    with pytest.raises(FormatError) as caught:
        glob(recorded_tree(spec), "/d/*/*")
    assert caught.value.code == "wide-glob"
    assert "/d/*/*" in caught.value.what
    assert caught.value.where
    assert len(glob(recorded_tree(spec), "/d/*")) == GLOB_LIMIT + 1


def test_a_tree_answers_the_same_pattern_as_often_as_it_is_asked() -> None:
    """A host may serve plans for months: what bounds a list file must not wear out."""
    tree = recorded_tree(SPEC)
    answers = {glob(tree, f"{ICDS}/nvidia*.json") for _ in range(BOUNDS["listings"].amount + 1)}
    assert len(answers) == 1
    assert glob(tree, "/opt/rocm-6.?") == ("/opt/rocm-6.0", "/opt/rocm-6.1")


def test_all_patterns_of_one_command_together_are_bounded_and_the_next_command_has_as_much_again() -> None:
    spec: dict[str, Item] = {f"/d/{number}": Dir() for number in range(GLOB_LIMIT - 1)}
    tree = recorded_tree(spec)
    fitting = BOUNDS["listings"].amount // GLOB_LIMIT
    with one_command(), pytest.raises(BoundError) as caught:
        for number in range(fitting + 1):
            glob(tree, f"/d/*/{number}*")
    assert (caught.value.where, VARIABLE in caught.value.hint) == ("bound `listings`", True)
    assert glob(tree, "/d/*/0*") == ()
    for command in range(3):
        with one_command():
            for number in range(fitting):
                assert glob(tree, f"/d/*/{command}{number}*") == ()


def test_many_stars_take_no_long_time() -> None:
    tree = recorded_tree({"/d/" + "a" * 200: b""})
    assert is_less_work(lambda: [glob(tree, "/d/" + "*a" * 30 + last) for last in ("b", "?b", "[b]")], 200)


@given(st.text("ab*?.[]!-", min_size=1, max_size=6), st.lists(st.text("ab.[]-", min_size=1, max_size=5), max_size=6))
@settings(max_examples=100, deadline=None)
def test_a_name_matches_where_fnmatch_says(pattern: str, names: list[str]) -> None:
    try:
        matches = re.compile(translate(pattern)).match
    except re.error:  # a backward range, before Python 3.11
        matches = re.compile("(?!)").match
    names = [name for name in names if name not in (".", "..")]
    wanted = {name for name in names if matches(name) and (pattern.startswith(".") or not name.startswith("."))}
    if not set(pattern) & set("*?["):
        wanted = set(names) & {pattern}
    tree = recorded_tree({"/d": Dir(), **{f"/d/{name}": b"" for name in names}})
    if pattern not in (".", ".."):
        assert list(glob(tree, f"/d/{pattern}")) == sorted(f"/d/{name}" for name in wanted)


def test_a_pattern_lists_up_to_a_limit_of_directories() -> None:
    spec: dict[str, Item] = {f"/d/{number}/x": b"" for number in range(GLOB_LIMIT - 1)}
    tree = recorded_tree(spec)
    assert len(glob(tree, "/d/*/*")) == GLOB_LIMIT - 1
    wide = recorded_tree({**spec, "/d/more/x": b""})
    with pytest.raises(FormatError) as caught:
        glob(wide, "/d/*/*")
    error = caught.value
    why = f"it matches in more than {GLOB_LIMIT} directories"
    assert (error.what, error.where, error.why) == ("the pattern `/d/*/*` is too wide", "/d/*/*", why)
    assert (glob_or_note(wide, "/d/*/*"), glob_or_note(wide, "/d/*/*", "a list")) == ((), ())
    assert wide.unseen == {"/d/*/*": why, "a list": why}
