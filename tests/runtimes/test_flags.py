"""Options on a command line, as pflag reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.runtimes.cmdline.flags import Flag, Given, map_word, parse_bool, parse_command_line, parse_list, parse_map

FLAGS = (
    Flag("clean", "bool", "e"),
    Flag("contain", "bool", "c"),
    Flag("bind", "array", "B"),
    Flag("pwd", "string"),
    Flag("no-mount", "list"),
    Flag("env", "map"),
)


@pytest.mark.parametrize(
    ("words", "given_", "rest"),
    [
        (["--contain", "img", "--pwd"], [("contain", "true")], ["img", "--pwd"]),
        (["--contain=0", "--contain=true"], [("contain", "0"), ("contain", "true")], []),
        (["--contain", "true"], [("contain", "true")], ["true"]),
        (["--bind", "/a", "--bind=/b", "-B", "/c", "-B/d", "-B=/e"], [("bind", f"/{x}") for x in "abcde"], []),
        (["-ec"], [("clean", "true"), ("contain", "true")], []),
        (["-ecB/a"], [("clean", "true"), ("contain", "true"), ("bind", "/a")], []),
        (["-eB", "/a"], [("clean", "true"), ("bind", "/a")], []),
        (["-c=false"], [("contain", "false")], []),
        (["--pwd", "--contain"], [("pwd", "--contain")], []),
        (["--pwd=", "-c"], [("pwd", ""), ("contain", "true")], []),
        (["--", "--contain"], [], ["--contain"]),
        (["-"], [], ["-"]),
        (["--pwd"], [("pwd", "")], []),
        ([], [], []),
    ],
)
def test_a_command_line_is_read_as_pflag_reads_it(
    words: list[str], given_: list[tuple[str, str]], rest: list[str]
) -> None:
    line = parse_command_line(words, FLAGS)
    assert [*map(tuple, line.given)] == given_
    assert list(line.rest) == rest
    assert line.unknown == ()


@pytest.mark.parametrize(
    ("words", "incomplete"),
    [
        (["--contain", "--bind"], "--bind"),
        (["-eB"], "-eB"),
        (["--bind", "/a"], None),
        (["--bind="], None),
        (["-B/a"], None),
        (["-c"], None),
        (["--pwd", "--bind"], None),
    ],
)
def test_an_option_that_lacks_its_value_is_told(words: list[str], incomplete: object) -> None:
    assert parse_command_line(words, FLAGS).incomplete == incomplete


def test_a_word_that_is_no_option_of_the_program_is_told() -> None:
    line = parse_command_line(["--never=1", "-xyz", "-eq", "--contain"], FLAGS)
    assert line.unknown == ("--never=1", "-xyz", "-q")
    assert line.given == (Given("clean", "true"), Given("contain", "true"))


@pytest.mark.parametrize(
    ("text", "expected"), [("1", True), ("T", True), ("False", False), ("0", False), ("yes", None), ("", None)]
)
def test_a_switch_takes_the_words_that_go_takes(text: str, expected: object) -> None:
    assert parse_bool(text) is expected


def test_a_list_is_a_line_of_csv() -> None:
    assert parse_list('a,"b,c","d""e"') == ("a", "b,c", 'd"e')
    assert parse_list("") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("A=1,2", {"A": "1,2"}),
        ("A=1,B=2", {"A": "1", "B": "2"}),
        ('"A=1,2",B=3', {"A": "1,2", "B": "3"}),
        ('A="x"', {"A": '"x'}),
        ("A=", {"A": ""}),
        ("A", {}),
    ],
)
def test_a_map_with_one_equals_sign_is_one_pair_and_else_csv(text: str, expected: dict[str, str]) -> None:
    assert parse_map(text) == expected


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])))
def test_any_value_is_said_to_the_letter_or_not_at_all(value: str) -> None:
    word = map_word("NAME", value)
    if word is None:
        assert "\r\n" in value
    else:
        assert parse_map(word) == {"NAME": value}


@given(st.lists(st.text(alphabet="-ecB=/x "), max_size=6))
def test_every_word_is_an_option_a_value_or_the_rest(words: list[str]) -> None:
    line = parse_command_line(words, FLAGS)
    assert len(line.rest) <= len(words)
    assert tuple(words[len(words) - len(line.rest) :]) == line.rest
