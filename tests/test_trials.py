"""The runner of `make fuzz`, `make law` and `make tars`."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

import pytest

from tests.support.trials import BrokenLawError, Engine, Kinds, Tally, search, tried


def seven_or_more(rng: random.Random) -> None:
    number = rng.randrange(1000)
    if number >= 7:
        raise BrokenLawError(f"{number} is too large")


@contextmanager
def opened(tally: Tally, options: Namespace) -> Iterator[Kinds]:
    def case(rng: random.Random) -> None:
        tally.counts["tried"] += 1
        seven_or_more(rng)

    yield {"small": case, "large": case}


def ran(number: int, replay: Optional[str] = None) -> Tally:
    engine = Engine("tests.test_trials", None, "cases", 1, opened)
    return tried(engine, number, Namespace(seed="1", job="0", seconds=None, replay=replay))


def test_the_smallest_case_that_breaks_a_law_is_reported_and_can_be_repeated() -> None:
    story = ran(20).broken[0]
    assert story.startswith("7 is too large\nagain: --replay ")
    again = ran(20, story.rpartition(" ")[2])
    assert again.broken[0].startswith("7 is too large")
    assert again.counts["tried"] <= 2


def test_the_same_seed_makes_the_same_cases() -> None:
    def drawn(seed: str) -> list[float]:
        numbers: list[float] = []
        search(lambda rng: numbers.append(rng.random()), seed, 50)
        return numbers

    assert len(drawn("1")) == 50
    assert drawn("1") == drawn("1") != drawn("2")


def test_each_kind_has_its_share_and_none_begins_when_the_time_is_up() -> None:
    @contextmanager
    def two(tally: Tally, options: Namespace) -> Iterator[Kinds]:
        yield {"rare": lambda _: tally.counts.update(["rare"]), "often": lambda _: tally.counts.update(["often"])}

    engine = Engine("tests.test_trials", None, "cases", 1, two, {"often": 3})
    options = Namespace(seed="1", job="0", seconds=None, replay=None)
    assert tried(engine, 40, options).counts == {"rare": 10, "often": 30}
    options.seconds = 1e-9
    assert (tried(engine, 40, options).cases, tried(engine, 40, options).broken) == (0, [])


def test_an_exception_of_a_case_is_a_broken_law() -> None:
    with pytest.raises(ZeroDivisionError):
        search(lambda rng: print(1 / rng.randrange(9)), "1", 50)  # noqa: T201
