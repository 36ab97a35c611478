"""Environment files: what a shell would make of them, without one. Real shells are the oracle."""

from __future__ import annotations

import shutil
import subprocess
from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.formats.text.shell import Exports, parse_exports
from tests.support.measure import is_less_work
from tests.support.scripts import DECIDED, UNDECIDED

BEFORE = {"A": "1", "EMPTY": "", "PATH": "/bin", "V": "before", "L": "/l", "WORDS": "a  b *"}
KNOWN = Exports(dict(BEFORE), frozenset(BEFORE))
NAMES = (*BEFORE, "U", "W", "F", "LD_LIBRARY_PATH")
SHELLS = [[found] for name in ("dash", "bash") if (found := shutil.which(name))] or [["/bin/sh"]]


@pytest.mark.parametrize(("script", "value"), DECIDED.items(), ids=lambda text: str(text)[:30])
def test_a_plain_statement_is_read_as_a_shell_would(script: str, value: Optional[str]) -> None:
    exports = parse_exports(script, KNOWN)
    assert exports.is_known("V")
    assert exports.env["V"] == value
    agrees(script)


@pytest.mark.parametrize("script", UNDECIDED, ids=lambda text: str(text)[:30])
def test_what_needs_a_shell_leaves_the_variable_undecided(script: str) -> None:
    exports = parse_exports(script, KNOWN)
    assert not exports.is_known("V")
    assert "V" not in exports.env
    assert "V" in exports.unknown
    agrees(script)


def test_a_condition_clouds_what_it_does_not_name() -> None:
    for script in ("[ -d /x ] && V=1", ". /etc/env.sh", "if true; then V=1; fi"):
        exports = parse_exports(script, KNOWN)
        assert not any(exports.is_known(name) for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_VERSION", "A"))


def test_a_later_plain_assignment_decides_again_what_does_not_build_on_doubt() -> None:
    exports = parse_exports("V=$(pwd)\nW=$V/b\nV=/a\nU=$V/c\n", KNOWN)
    assert (exports.env["V"], exports.env["U"]) == ("/a", "/a/c")
    assert not exports.is_known("W")


@pytest.mark.parametrize("script", ["export() { unset V; }\n", ". /etc/env.sh\n", "if a; then b; fi\n"])
def test_nothing_is_known_again_after_a_statement_that_is_not_plain(script: str) -> None:
    exports = parse_exports(script + "export V=1\n", KNOWN)
    assert not exports.is_known("V")
    assert not parse_exports("export V=1", exports).is_known("V")


def test_a_substitution_clouds_its_own_variable_alone() -> None:
    exports = parse_exports("export V=$(nproc) W=2", KNOWN)
    assert [exports.is_known(name) for name in ("V", "W", "PATH", "L")] == [False, True, True, True]


def test_a_program_sees_what_is_exported() -> None:
    exports = parse_exports("U=1\nW=2; export W\nunset A\n", KNOWN)
    assert exports.exported == {*BEFORE, "W"} - {"A"}


def test_files_build_on_one_another() -> None:
    first = parse_exports("export LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH=/b:$LD_LIBRARY_PATH\n", Exports({}))
    assert parse_exports("F=$LD_LIBRARY_PATH:/c", first).env["F"] == "/b:/a:/c"


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "PWD", "OLDPWD", "PATH", "SHELL", "SHLVL", "TERM", "IFS", "PS0", "PS1", "PS2", "PS3", "PS4"),
        *("HOSTNAME", "HOSTTYPE", "OSTYPE", "MACHTYPE", "MAIL", "MAILCHECK", "MAILPATH", "COLUMNS", "LINES"),
        *("PROMPT_COMMAND", "USER", "LOGNAME", "HISTFILE", "HISTSIZE", "ENV", "CDPATH", "TIMEFORMAT", "NLSPATH"),
        *("FIGNORE", "IGNOREEOF"),
    ],
)
def test_a_variable_that_may_be_set_before_a_script_is_known_once_it_is_assigned(name: str) -> None:
    assert not Exports({}).is_known(name)
    assert parse_exports(f"{name}=1", Exports({})).is_known(name)
    assert Exports({}).is_known(f"{name}_x")
    assert Exports({}).is_known(f"x{name}")


@pytest.mark.parametrize(
    "name",
    [
        *("_", "UID", "EUID", "GID", "PPID", "GROUPS", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "EPOCHSECONDS"),
        *("OPTIND", "OPTARG", "OPTERR", "FUNCNAME", "DIRSTACK", "PIPESTATUS", "HISTCMD", "SHELLOPTS"),
        *("POSIXLY_CORRECT", "BASH", "BASHPID", "BASH_ENV", "COMP_LINE", "COPROC", "REPLY", "MAPFILE"),
        *("APPTAINER_NAME", "SINGULARITY_NAME"),
    ],
)
def test_a_variable_that_a_shell_or_the_runtime_changes_is_never_known(name: str) -> None:
    assert not Exports({}).is_known(name)
    assert not parse_exports(f"{name}=1", Exports({})).is_known(name)
    assert Exports({}).is_known(f"{name}_x1")
    assert Exports({}).is_known(f"x{name}")


def test_a_value_does_not_grow_without_end() -> None:
    exports = parse_exports("export A=$A$A\n" * 100, KNOWN)
    assert not exports.is_known("A")


def test_a_large_file_takes_time_in_proportion() -> None:
    lines = "".join(f"export N{number}=x\n" for number in range(110_000))
    assert len(parse_exports(lines, KNOWN).env) == 110_000 + len(BEFORE)
    hostile = ("V=$(", "V=${A:-", "if a; then\n", "V='\n'\n", "V=`", '"$(', "A=$A$A;", "a && V=1\n", "{ ")
    assert is_less_work(lambda: [parse_exports(text, KNOWN) for text in (lines, *(h * 20_000 for h in hostile))], 2000)


FRAGMENTS = [
    "V=1", "export V=/a:$V", "L=/x", "U=$V", "export W='q'", 'W="$A b"', "unset V", "unset U", "V=$(echo a)",
    "V=${V:+$V:}/z", "L=${U:-d}", "V=${A%1}", "V+=p", "true", "false", ":", "echo a", "[ -d / ]", ". /dev/null",
    "eval V=e", "if", "then", "else", "elif", "fi", "for x in 1 2", "for V in a b", "while false", "do", "done",
    "case $A in", "1)", "*)", "(a|1)", ";;", "esac", "{", "}", "(", ")", "f()", "f", "\n", "\n", "\n", ";", ";", "&&",
    "||", "|", "!", "# c", "'", '"', "\\\n", "\\", "$", "`echo b`", "<<E", "E", "> /dev/null", "2>&1", "return", "exit",
    "break", "in", "~", "*", "{a,b}", "V=~", "=", "V", "export", "unset", "$V", "${V:=n}", "a b", "\t",
]  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.sampled_from(["", " ", " ", "\n", "; "])), max_size=14),
)
def test_generated_scripts_are_read_as_a_shell_would_or_not_at_all(words: list[tuple[str, str]]) -> None:
    agrees("".join(word + gap for word, gap in words))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([fragment for fragment in FRAGMENTS if len(fragment) > 4]), max_size=8))
def test_generated_lines_are_read_as_a_shell_would_or_not_at_all(lines: list[str]) -> None:
    agrees("\n".join(lines))


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("\"'\\$ {}:-+AB=;#`(x\n")))
def test_no_text_makes_an_exception(text: str) -> None:
    parse_exports("export V=" + text, KNOWN)


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("\"'\\$ {}:-+AV=;`x")))
def test_generated_values_are_read_as_a_shell_would_or_not_at_all(text: str) -> None:
    agrees("export V=" + text)


def agrees(script: str) -> None:
    """Assert that what the parser says it knows is what shells make of *script*. One that gives up says nothing."""
    exports = parse_exports(script, KNOWN)
    for shell in SHELLS:
        real = by_shell(shell, script)
        for name in NAMES if real else ():
            if exports.is_known(name):
                assert exports.env.get(name) == real[name], (shell, name, script)


def by_shell(shell: list[str], script: str) -> dict[str, Optional[str]]:
    """What *shell* has in each variable once it has sourced *script*; nothing if it does not come so far."""
    report = "".join(f'printf "%s\\0" "{name}${{{name}+=}}${name}" >&3; ' for name in NAMES)
    around = f"exec 3>&1 4<&0; . /dev/fd/4 > /dev/null 2>&1 < /dev/null\n{report}"
    data = script.encode("utf-8", "surrogateescape")
    done = subprocess.run([*shell, "-c", around], input=data, capture_output=True, env=BEFORE, cwd="/", timeout=20)
    found: dict[str, Optional[str]] = {}
    for part in done.stdout.split(b"\0")[:-1]:
        name, equals, value = part.decode("utf-8", "surrogateescape").partition("=")
        found[name] = value if equals else None
    return found
