"""What an image costs to look at, and the budget that it is spent of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubind.errors import EXIT_UNREADABLE, BoundError
from gpubind.files.blob import open_blob
from gpubind.machine.budget import BOUNDS, Budget, current, one_command, renew, spend, times_of
from tests.support.bounded import run_bounded
from tests.support.greedy import GREEDY, PROGRAM, of_sif
from tests.support.trees import Dir, File

HOST = "debian13-nvidia550"


def test_the_error_says_which_bound_and_how_to_raise_it(tmp_path: Path) -> None:
    image = GREEDY["links_of_4_kb_each"](tmp_path)
    cost = run_bounded("check", "--nv", "--host", HOST, "--image", image)
    assert cost.status == EXIT_UNREADABLE
    assert "over-bounds" in cost.stderr
    assert "bound `texts`" in cost.stderr
    assert "GPUBIND_BOUNDS=10" in cost.stderr
    raised = run_bounded("check", "--nv", "--host", HOST, "--image", image, GPUBIND_BOUNDS="10")
    assert "over-bounds" not in raised.stderr


def test_a_search_path_of_absent_directories_costs_nothing_for_each_library(tmp_path: Path) -> None:
    """As Spack and conda make them: hundreds of directories, and hundreds of libraries in a few of them."""
    from tests.support.elf import elf

    names = [f"lib{number}.so" for number in range(200)]
    image = of_sif(tmp_path, {
        PROGRAM: File(elf(kind=2, needed=names, runpath=":".join(f"/r{n}" for n in range(600))), 0o755),
        "/r599": Dir(),
        **{f"/r599/{name}": elf(name) for name in names},
    })  # fmt: skip
    cost = run_bounded("check", "--nv", "--host", HOST, "--image", image, "--program", PROGRAM)
    assert "lib199.so" not in cost.stdout + cost.stderr
    assert cost.status in (0, 1)
    assert cost.pieces < 200


# The budget.


def test_outside_of_a_command_nothing_is_spent() -> None:
    assert current() is None
    spend("lookups", 1 << 60)


def test_one_inside_another_is_the_same_command() -> None:
    with one_command():
        outer = current()
        with one_command(times=100):
            assert current() is outer
        assert current() is outer
    assert current() is None


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_is_for_one_command_and_times_as_much_on_request(name: str) -> None:
    amount = BOUNDS[name].amount
    for times in (1, 1, 3):
        with one_command(times):
            for _ in range(times):
                spend(name, amount)
            with pytest.raises(BoundError) as caught:
                spend(name)
            assert caught.value.code == "over-bounds"
            assert name in caught.value.where


def test_a_file_of_an_image_gives_as_much_as_it_has_once() -> None:
    budget = Budget()
    before = budget.left("unpacked")
    for _ in range(3):
        budget.grant((1, 2), 1 << 20)
    assert budget.left("unpacked") - before == BOUNDS["unpacked"].each << 10


@pytest.mark.parametrize(
    ("said", "times"), [(None, 1), ("", 1), ("7", 7), ("0", 1), ("-3", 1), ("1e9", 1), ("9999", 1000), ("٣", 1)]
)
def test_the_variable_gives_whole_times(said: str, times: int) -> None:
    assert times_of(said) == times


def test_an_image_that_was_opened_before_has_its_size_counted_in_each_command(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(bytes(1 << 20))
    blob = open_blob(str(tmp_path / "image"))
    for _ in range(2):
        with one_command():
            budget = current()
            assert budget is not None
            before = budget.left("unpacked")
            assert len(blob.read_at(0, 10)) == len(blob.read_at(5, 10)) == 10
            assert budget.left("unpacked") - before == BOUNDS["unpacked"].each << 10


def test_what_the_user_gives_a_command_stays_when_it_begins_anew() -> None:
    with one_command(10):
        renew()
        budget = current()
        assert budget is not None
        assert budget.left("lookups") == 10 * BOUNDS["lookups"].amount
