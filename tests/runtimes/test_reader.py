"""Options on a command line, as pflag reads them, and the values of options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.launch.wrap import prefix
from gpubind.runtimes import PROGRAMS
from gpubind.runtimes.cmdline import programs, reader
from gpubind.runtimes.cmdline.reader import PFLAG, ParsedCommandLine, ParseFailure, parse_option_table, parse_options
from gpubind.runtimes.cmdline.values import (
    format_map,
    parse_assignment,
    parse_bool,
    parse_list,
    parse_map,
    parse_mount,
)
from tests.support.golden import GOLDEN, assert_golden

KNOWN = parse_option_table("clean/e contain/c bind/B= pwd= no-mount= env=")


def read(words: list[str]) -> ParsedCommandLine:
    """Return the options in *words*, stepping over what cannot be read."""
    return parse_options(
        PFLAG, KNOWN, words, 0, lambda trouble: trouble.position + 1 if trouble.kind != "no-value" else None
    )


def rest(line: ParsedCommandLine) -> list[str]:
    return [line.argv[at] for at in line.operand_indexes]


@pytest.mark.parametrize(
    ("words", "given_", "rest_"),
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
        ([], [], []),
    ],
)
def test_a_command_line_is_read_as_pflag_reads_it(
    words: list[str], given_: list[tuple[str, str]], rest_: list[str]
) -> None:
    line = read(words)
    assert [(option.name, option.value) for option in line.options] == given_
    assert rest(line) == rest_
    assert line.skipped_errors == ()


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
    trouble = read(words).error
    assert (None if trouble is None else words[trouble.position]) == incomplete


def test_a_word_that_is_no_option_of_the_program_is_told() -> None:
    line = read(["--never=1", "-xyz", "-eq", "-c=maybe", "--contain"])
    assert line.skipped_errors == (*(ParseFailure("unknown", at) for at in range(3)), ParseFailure("bad-value", 3))
    assert [(option.name, option.value) for option in line.options] == [("contain", "true")]
    assert not parse_options(PFLAG, KNOWN, line.argv).options


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
    word = format_map("NAME", value)
    if word is None:
        assert "\r\n" in value
    else:
        assert parse_map(word) == {"NAME": value}


@given(st.lists(st.text(alphabet="-ecB=/x "), max_size=6))
def test_every_word_is_an_option_a_value_or_the_rest(words: list[str]) -> None:
    line = read(words)
    left = rest(line)
    assert words[len(words) - len(left) :] == left


OPTIONS = {
    **prefix._texts(),
    **{name: program.options for name, program in PROGRAMS.items()},
    **{
        f"{name} {' '.join(words)}": start.options
        for name, program in PROGRAMS.items()
        for words, start in program.subcommands.items()
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_no_table_has_an_option_twice(name: str) -> None:
    known = parse_option_table(OPTIONS[name])
    count = len(OPTIONS[name].replace("|", " ").split())
    unnamed = [option for option in known.letters.values() if option.name not in known.names]
    assert count == len(known.names) + len({option.name for option in unnamed})


def test_every_subcommand_has_options() -> None:
    for program in PROGRAMS.values():
        assert all(start.option_table.names for start in program.subcommands.values())


ROWS = parse_option_table("flag/fF value/v= alias|other= pair/p=2 maybe/m? amb-one amb-two= /x /y= adjustment=")
LINES = """
    -f | -fF x | -v x | -vx | -v=x | -v= | -fvx | -fv x | -vf | -v | -fv | -fu | -u | -x -y z | -yz | -y | --flag |
    --flag=true | --flag=false | --flag=0 | --flag=x | --flag= | -f=false | -f=x | -f= | --fla | --value x | --value=x
    | --value=a=b | --value= | --value | --value -f | -v -f | --val x | --value -- | -- -v | --alias x | --other=x |
    --pair a b | --pair a | -p a b | -pa b | --pair=a b | --pair a=b c | --pair | --maybe x | --maybe=x | -m x | -mx |
    -m=x | --amb | --amb=x | --amb-one | --unknown=x | --=x | -- | - -f | a -f | -f a -f -- -v | -f -- a | a -- -f |
    -5 | -+5 | --5 | -5a | ---flag | ---value=x | -flag | -value x | -value=x | -pair a b | -maybe=x | -maybe x |
    -flag=true | -alias=x -x
"""
"""Command lines that the libraries of programs read differently."""
PARSERS = {name: parser for name, parser in vars(reader).items() if isinstance(parser, reader.OptionParser)}


def reading(parser: reader.OptionParser, words: list[str]) -> str:
    line = parse_options(parser, ROWS, words)
    skipping = parse_options(parser, ROWS, words, skip=lambda failure: failure.position + 1)
    options = [f"{name}={value!r} of {args} at {position}" for name, value, args, position in line.options]
    parts = [*options, f"operands {line.operand_indexes} insert at {line.insert_index}", str(line.error or "")]
    if skipping != line:
        parts.append(f"skipping: {skipping.operand_indexes} {skipping.insert_index} {skipping.skipped_errors}")
    return "; ".join(filter(None, parts))


def test_each_parser_reads_each_line_as_recorded() -> None:
    """The parsers that read a line alike share a row; `others` are all that no other row of the line names."""
    text = ""
    for words in map(str.strip, LINES.split("|")):
        readings: dict[str, list[str]] = {}
        for name, parser in PARSERS.items():
            readings.setdefault(reading(parser, words.split()), []).append(name)
        most = max(readings, key=lambda each: len(readings[each]))
        text += f"$ {words}\n  others: {most}\n"
        text += "".join(f"  {' '.join(names)}: {each}\n" for each, names in readings.items() if each != most)
    assert_golden(GOLDEN / "parsers.txt", text)


def test_what_each_program_reads_is_recorded() -> None:
    text = ""
    for name, program in PROGRAMS.items():
        parser = next(each for each, value in PARSERS.items() if value == program.reader)
        root = program.root_of(program.read(())) if () in program.subcommands else None
        text += f"# {name}: {parser}, family `{program.family}`, root {root}, {program.option_files}\n"
        text += f"starts {program.start_subcommands}, by flag {program.requests_gpus_by_flag}\n"
        text += f"  its own: {' '.join(program.option_table.names)}\n"
        for words, start in program.subcommands.items():
            text += f"  {' '.join(words)}: {start._replace(options=' '.join(sorted(start.option_table.names)))}\n"
    text += "".join(f"{name}: {hint}\n" for name, hint in programs.UNSUPPORTED_PROGRAMS.items())
    assert_golden(GOLDEN / "programs.txt", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("A=1", {"A": "1"}), ("A=", {"A": ""}), ("A=b=c", {"A": "b=c"}), ("B", {"B": "2"}), ("C", {}), ("", {})],
)
def test_an_assignment_without_a_value_is_the_callers(text: str, expected: dict[str, str]) -> None:
    assert parse_assignment(text, {"A": "0", "B": "2"}) == expected


def test_a_mount_has_one_name_for_its_source_and_one_for_its_target() -> None:
    for source in ("source", "src", "SRC"):
        for target in ("destination", "dst", "target", "Target"):
            fields = parse_mount(f'type=bind,{source}=/a,"{target}=/b,c",ro')
            assert (fields["source"], fields["target"], fields["type"], fields["ro"]) == ("/a", "/b,c", "bind", "")
    assert parse_mount("type=tmpfs") == {"type": "tmpfs", "source": "", "target": ""}
    assert parse_mount("") == {"source": "", "target": ""}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("1", "t", "T", "TRUE", "true", "True")),
        *((text, False) for text in ("0", "f", "F", "FALSE", "false", "False")),
        *((text, None) for text in ("", "yes", "no", "tRUE", "2")),
    ],
)
def test_a_switch_has_gos_values(text: str, value: object) -> None:
    assert parse_bool(text) is value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("A", "1", "A=1"),
        ("A", "a,b", "A=a,b"),
        ("A", '1"', '"A=1""","A=1"""'),
        ("A", "b=c", '"A=b=c"'),
        ("A", 'b="c', '"A=b=""c"'),
        ("A", "a\r\nb", "A=a\r\nb"),
        ("A", "=\r\nb", None),
    ],
)
def test_a_map_of_one_pair_is_written_so_that_it_is_read_again(name: str, value: str, text: str | None) -> None:
    assert format_map(name, value) == text


def test_the_place_of_an_argument_is_counted_from_the_program() -> None:
    assert reader.argument_location(0) == "argument 1"


def test_a_table_that_cannot_be_read_is_a_fault_of_gpubinds() -> None:
    with pytest.raises(ValueError, match=r"^a==$"):
        parse_option_table("a==")
