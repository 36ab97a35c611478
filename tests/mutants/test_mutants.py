"""The mutation run: what it changes, which tests it runs for a change, and what it reports."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import equivalents
from tests.mutants.lines import MARK, blocks_of, marked
from tests.mutants.sites import drawn, mutants_of
from tests.support.golden import assert_none

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests/mutants"

SOURCE = b'''\
"""A docstring is not changed."""
from typing import Optional, Union
Name = Union[str, "Path"]
KINDS = ("a", "b")

def smaller(a: Optional[int], b: int = 0) -> Optional[int]:
    """Nor is this one."""
    if a is not None and not a < b:
        return None
    return a
'''


@pytest.mark.parametrize(
    "change",
    [
        *("'a' -> 'a~'", "'a' -> ''", "'a' -> (removed)", "'b' -> (removed)", "0 -> 1", "0 -> -1"),
        *("a is not None -> a is None", "a < b -> a <= b", "not a < b -> a < b", "return a -> return None"),
        "a is not None and (not a < b) -> a is not None or not a < b",
        "a is not None and (not a < b) -> not (a is not None and (not a < b))",
    ],
)
def test_an_expression_that_runs_is_changed(change: str) -> None:
    changes = {mutant.change: mutant for mutant in mutants_of("gpubind/x.py", SOURCE)}
    assert change in changes
    ast.parse(changes[change].applied(SOURCE))


@pytest.mark.parametrize(
    "source", [b"a = b.decode('utf-8', 'surrogateescape')", b"if a:\n    raise AssertionError('never')"]
)
def test_what_no_test_can_notice_is_not_changed(source: bytes) -> None:
    assert [each.change for each in mutants_of("gpubind/x.py", source)] == ["a -> not a"][: source.count(b"if")]


def test_nothing_else_is_changed() -> None:
    mutants = mutants_of("gpubind/x.py", SOURCE)
    assert {mutant.line for mutant in mutants} == {4, 6, 8, 10}
    assert {mutant.function for mutant in mutants} == {"", "smaller"}


def test_a_mutant_has_the_same_key_when_lines_are_added_above_it() -> None:
    keys = [mutant.key for mutant in mutants_of("gpubind/x.py", SOURCE)]
    assert [mutant.key for mutant in mutants_of("gpubind/x.py", b"\n\n" + SOURCE)] == keys


def test_a_seed_draws_the_same_mutants_each_time_and_another_seed_others() -> None:
    sources = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in (ROOT / "gpubind/loader").glob("*.py")}
    backwards = dict(reversed(sources.items()))
    assert drawn(sources, 7, 50) == drawn(backwards, 7, 50)
    assert drawn(sources, 7, 50) != drawn(sources, 8, 50)


def test_each_suite_and_what_follows_one_is_a_block() -> None:
    source = b"""\
X = 1
def f(a):
    "Text."
    if a:
        b = 1
    elif a is None:
        b = 2
    else:
        b = 3
    return b
"""
    blocks = blocks_of(source, 5)
    assert blocks.of_line == {4: 5, 5: 6, 6: 5, 7: 7, 8: 5, 9: 8, 10: 9}
    text = marked(source, blocks).decode()
    ast.parse(text)
    assert f"    {MARK}[9] = 1\n    return b" in text


TREE = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    ".gitignore": ".mutants/\n__pycache__/\n",
    "gpubind/__init__.py": "",
    "gpubind/planner.py": """\
LIMIT = 3


def larger(a, b):
    return a if a > b else b


def under(number):
    return number < LIMIT


def unused():
    return LIMIT
""",
    "tests/__init__.py": "",
    "tests/planner/test_planner.py": """\
import subprocess, sys
from gpubind.planner import larger


def test_larger():
    assert (larger(1, 2), larger(2, 1)) == (2, 2)


def test_under_in_a_process_without_environment():
    code = "from gpubind.planner import under; raise SystemExit(under(3) or not under(2))"
    assert subprocess.run([sys.executable, "-c", code], env={}).returncode == 0


def test_that_fails_always():
    assert False
""",
}


def test_a_run_reports_what_no_test_notices_and_leaves_the_tree_alone(tmp_path: Path) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copytree(HERE, tmp_path / "tests/mutants", ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    (tmp_path / "tests/mutants/equivalent.tsv").write_text(
        "gpubind/planner.py\tlarger\treturn a if a > b else b\ta > b -> a >= b\tEqual numbers are the same number.\n"
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    assert "  tests/planner/test_planner.py::test_that_fails_always" in _run(tmp_path, "--map", "--count", "0")
    assert _run(tmp_path, "--seed", "3") == _run(tmp_path, "--seed", "3")
    lines = [f"gpubind/planner.py\t{function}\t{text}\t{change}\n" for function, text, change in EACH]
    (tmp_path / "list").write_text("".join(lines))
    said = _run(tmp_path, "--again", "list")
    for said_of, (function, _text, change) in zip(OUTCOMES, EACH):
        assert any(line.startswith(said_of) and line.endswith(f"{function}: {change}") for line in said), said
    assert "planner           6       4   67%          1" in said
    status = subprocess.run([*git, "status", "--porcelain"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert status.stdout == "?? list\n"


EACH = (
    ("larger", "return a if a > b else b", "a > b -> not a > b"),
    ("larger", "return a if a > b else b", "a > b -> a >= b"),
    ("under", "return number < LIMIT", "number < LIMIT -> number <= LIMIT"),
    ("", "LIMIT = 3", "3 -> 2"),
    ("unused", "return LIMIT", "return LIMIT -> return None"),
    ("under", "return number < LIMIT", "return number < LIMIT -> return None"),
)
OUTCOMES = ("noticed", "equivalent", "noticed", "noticed", "UNNOTICED", "noticed")


def _run(tree: Path, *words: str) -> list[str]:
    """Run the mutants of a small tree; return what it prints, without times."""
    command = [sys.executable, "-m", "tests.mutants", "--jobs", "1", "--count", "3", *words]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (line.partition(" (")[0] for line in done.stdout.splitlines())
    return [line for line in lines if not line.startswith("map: ")]


def test_each_mutant_of_the_list_is_in_the_code() -> None:
    """One that is not is about code that has changed: delete its line."""
    keys = equivalents()
    files = {key.partition("\t")[0] for key in keys}
    there = {each.key for file in files for each in mutants_of(file, (ROOT / file).read_bytes())}
    assert_none(sorted(set(keys) - there), "tests/mutants/equivalent.tsv: delete the line of {}")
    assert all(len(reason.split()) > 2 for reason in keys.values())
