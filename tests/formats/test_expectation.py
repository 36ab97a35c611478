"""What a node is to have: a few lines of TOML, written from a good node and read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.documents.expectation import render_expectation
from gpubind.documents.text import printable
from gpubind.errors import FormatError
from gpubind.formats.text.requirements import parse_expectation
from gpubind.model import CAPABILITIES
from gpubind.model.host import Capability
from gpubind.model.requirements import Expectation


def test_each_key_is_read() -> None:
    text = b'driver = "550"\ncapabilities = ["compute", "compute"]\n[gpus]\n"NVIDIA A100" = 4\n"NVIDIA T4" = 1\n'
    gpus = (("NVIDIA A100", 4), ("NVIDIA T4", 1))
    assert parse_expectation(text) == Expectation("", ("550",), gpus, ("compute",))
    assert parse_expectation(b'driver = ["550.163.01", "6.2"]\ngpus = 8\n').gpus == (("", 8),)
    assert parse_expectation(b'capabilities = "compute"').capabilities == ("compute",)
    assert parse_expectation(b"") == Expectation()


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("drivers = '550'", "unknown key `drivers`", "driver"),
        ("driver = 'latest'", "driver: `latest` is not a version", ""),
        ("driver = 550", "driver: a string is wanted, not a number", 'driver = "550"'),
        ("driver = ''\ndriver = ''", "", ""),
        ("driver = ['']", "driver[0]: `` is not a version", ""),
        ("gpus = '8'", "gpus: a number is wanted", ""),
        ("gpus = true", "gpus: a number is wanted", ""),
        ("gpus = -1", "gpus: `-1` is out of range", ""),
        ("gpus = 1000000", "gpus: `1000000` is out of range", ""),
        ("[gpus]\nA100 = 'all'", "gpus.A100: a number is wanted", ""),
        ("capabilities = 1", "capabilities: a string is wanted", ""),
        ("origin = 'x'", "unknown key `origin`", ""),
        ("partition = 'spx'", "partition: `spx` is not a mode, such as SPX/NPS1", ""),
        ("capabilities = ['cuda']", "`cuda` is not one of compute, utility", ""),
        ("[", "", ""),
        ("\udcff", "not UTF-8 at byte 0", ""),
        ("#" * (256 << 10 | 1), "262144 at most", ""),
        (".".join("a" * 600) + " = 1", "more than 500 dots", ""),
    ],
)
def test_what_is_not_understood_is_an_error_that_names_it(text: str, why: str, hint: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_expectation(text.encode("utf-8", "surrogateescape"))
    assert caught.value.code == "bad-expectation"
    assert why in f"{caught.value.where}: {caught.value.why}"
    assert hint in caught.value.hint


VERSIONS = st.lists(st.from_regex(r"[0-9]{3}\.[0-9]{2,3}", fullmatch=True), max_size=2, unique=True)
MODELS = st.dictionaries(st.text(min_size=1, max_size=30).map(printable), st.integers(0, 64), max_size=4)


@given(VERSIONS, MODELS, st.lists(st.sampled_from(CAPABILITIES), unique=True), st.text(max_size=20))
def test_what_is_written_is_read_again(
    drivers: list[str], models: dict[str, int], names: list[Capability], comment: str
) -> None:
    expected = Expectation("", tuple(drivers), tuple(sorted(models.items())), tuple(names))
    text = render_expectation(expected, comment)
    assert parse_expectation(text.encode()) == expected


def test_gpus_whose_model_is_not_known_are_counted_in_all() -> None:
    text = render_expectation(Expectation("", (), (("", 1), ("NVIDIA A100", 7)), ()))
    assert parse_expectation(text.encode()).gpus == (("", 8),)


@pytest.mark.parametrize("text", ["{0} = 1", 'capabilities = ["{0}"]'])
def test_a_wrong_text_of_any_length_is_told_in_a_line(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_expectation(text.format("x" * 200_000).encode())
    assert len(str(caught.value)) < 1000
