"""What hostile inputs cost: any of up to 16 MB ends in a verdict or an error, with a bounded amount of work and memory;
tests/golden/hostile_inputs.md has them all, docs/security.md the greatest of each cost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import golden
from tests.support.bounded import MEMORY, PIECES, Cost, run_bounded
from tests.support.greedy import GREEDY, PROGRAM
from tests.support.greedy_hosts import GREEDY_HOSTS
from tests.support.greedy_words import GREEDY_WORDS, HOST, Words

PAGE = golden.DOCS / "security.md"
TABLE = golden.GOLDEN / "hostile_inputs.md"
HEAD = "| input | KB | ends in | seconds | MB |\n| --- | ---: | --- | ---: | ---: |\n"
MB = 1_000_000


def _of_image(make: Callable[[Path], str]) -> Callable[[Path], Words]:
    return lambda path: Words(("check", "--nv", "--host", HOST, "--image", make(path), "--program", PROGRAM))


def _of_host(make: Callable[[Path], str]) -> Callable[[Path], Words]:
    def words(path: Path) -> Words:
        root = make(path)
        return Words(("check", "--nv", "--root", root, "--dev-root", root))

    return words


INPUTS: dict[str, Callable[[Path], Words]] = {
    **{name: _of_image(make) for name, make in GREEDY.items()},
    **{name: _of_host(make) for name, make in GREEDY_HOSTS.items()},
    **GREEDY_WORDS,
}


def _cost(name: str, path: Path) -> Cost:
    words = INPUTS[name](path)
    return run_bounded(*words.arguments, **words.environ)


def _ending(cost: Cost) -> str:
    """In the words of the table."""
    error = re.match(r"error: ([a-z-]+): ", cost.stderr)
    bound = re.search(r"bound (`[a-z]+`)", cost.stderr)
    said = f"`{error.group(1)}`" if cost.status > 1 and error else "answer"
    return f"{said}, {bound.group(1)}" if bound else said


def _title(name: str) -> str:
    words = re.sub(r"(?<=[0-9])_(?=[0-9]{3}(_|$))", ",", name).replace("_", " ")
    return re.sub(r"\b[km]b\b", lambda unit: unit.group().upper(), words)


def _size(path: Path) -> int:
    """Bytes of the files below *path*; one of several names counts once."""
    files = (os.lstat(f"{directory}/{name}") for directory, _, names in os.walk(path) for name in names)
    return sum({facts.st_ino: facts.st_size for facts in files}.values())


def _rows() -> dict[str, list[str]]:
    """The table, by its first column."""
    lines = TABLE.read_text().removeprefix(HEAD).splitlines()
    rows = (line.strip("| ").split(" | ") for line in lines)
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("name", INPUTS)
def test_a_hostile_input_ends_in_an_answer_or_an_error_after_bounded_work(tmp_path: Path, name: str) -> None:
    cost = _cost(name, tmp_path)
    assert cost.status in (0, 1, 2, 3, 4, 5), cost.stderr
    assert cost.pieces < PIECES
    assert cost.memory < MEMORY
    if not golden.is_updating:
        assert _ending(cost) == _rows()[_title(name)][1], golden.how_to_update()


def test_the_table_has_every_hostile_input_and_the_page_the_greatest_costs(tmp_path: Path) -> None:
    if golden.is_updating:
        rows = []
        for name in INPUTS:
            (tmp_path / name).mkdir()
            cost = _cost(name, tmp_path / name)
            size = f"{_size(tmp_path / name) / 1000:,.0f}"
            rows.append(f"| {_title(name)} | {size} | {_ending(cost)} | {cost.seconds:.1f} | {cost.memory // MB} |\n")
        golden.assert_golden(TABLE, HEAD + "".join(rows))
    rows_there = _rows()
    golden.assert_listed(
        rows_there,
        map(_title, INPUTS),
        add=f"{TABLE} lacks the row `{{}}`. {golden.how_to_update()}",
        remove=f"{TABLE} has a row `{{}}` and no test has such an input. {golden.how_to_update()}",
    )
    seconds, memory = (max(float(row[at]) for row in rows_there.values()) for at in (2, 3))
    assert seconds * 100 < PIECES
    assert memory * MB < MEMORY
    greatest = f"at most {seconds:.1f} s of processor time and {memory:.0f} MB"
    assert greatest in PAGE.read_text(), f"docs/security.md: write `{greatest}`"
