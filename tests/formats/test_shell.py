"""Environment files: what a shell would make of them, without one. Real shells are the oracle."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.formats.shell import Exports, parse_exports

BEFORE = {"A": "1", "EMPTY": "", "PATH": "/bin", "V": "before", "L": "/l", "WORDS": "a  b *"}
KNOWN = Exports(dict(BEFORE), frozenset(BEFORE))
NAMES = (*BEFORE, "U", "W", "F", "LD_LIBRARY_PATH")
SHELLS = [[found] for name in ("dash", "bash") if (found := shutil.which(name))] or [["/bin/sh"]]

DECIDED = {
    "export V=/a:/b": "/a:/b",
    'V="/a b"': "/a b",
    "  V='/a$b' ; export V": "/a$b",
    "\tV=/a\n\n\n": "/a",
    "export V=/a # a comment": "/a",
    "#export V=/a": "before",
    "# it's a comment with a quote": "before",
    "export V=/a#b": "/a#b",
    "export U=1 V=2": "2",
    "U=1 V=$U; export V": "1",
    "F=/a; export V=$F/lib": "/a/lib",
    "F=/a;export V=$F/lib;": "/a/lib",
    'export V="/a:$LD_LIBRARY_PATH"': "/a:",
    "export V=/a${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}": "/a",
    "export V=/a${L:+:$L}": "/a:/l",
    "export V=$A:${A}${EMPTY}": "1:1",
    "export V=${A:-x}${EMPTY:-y}${EMPTY-z}${U:-w}${A:+p}${EMPTY:+q}${EMPTY+r}": "1ywpr",
    'export V="${V:-"cuda>=12.4 brand=tesla,driver>=470,driver<471"}"': "before",
    'unset V; export V="${V:-"cuda>=12.4 brand=tesla,driver>=470,driver<471"}"': (
        "cuda>=12.4 brand=tesla,driver>=470,driver<471"
    ),
    'unset V; export V="${V:-""}"': "",
    'unset V; export V="${V:-"a\\"b\\$c\\\\d"}"': 'a"b$c\\d',
    "unset V": None,
    "unset V U": None,
    "unset U": "before",
    "V=x; unset V; V=y": "y",
    "export V": "before",
    r'export V="it\"s \\ \$A"': r'it"s \ $A',
    r"export V=a\ b\;c": "a b;c",
    'unset V; export V="${V:-"{a}"}"': "{a}",
    'export V="${U:-"${A:-"/usr/local/nvidia"}"}"': "1",
    "export V='/a\n/b'": "/a\n/b",
    'export V="/a\n/b"': "/a\n/b",
    "export V=/a\\\n/b": "/a/b",
    'export V="/a:\\\n/b"': "/a:/b",
    "export \\\n  V=/a": "/a",
    "export V=/a \\\n  U=/b": "/a",
    "export V='a'\"b\"c": "abc",
    "export V=$": "$",
    'export V="$"': "$",
    "export V=/$:/b": "/$:/b",
    "export V=a=b,c%d@e+f!g^h": "a=b,c%d@e+f!g^h",
    "export V=": "",
    "export V=''": "",
    "export V=*.so": "*.so",
    "V=$WORDS": "a  b *",
    "V=[a]?": "[a]?",
    "true; : nothing; V=x": "x",
    "export A=2; export V=$A": "2",
    "export Ä=1; V=x": "x",
    "export V=é": "é",
    "export V=$U": "",
    'export V="$A""$U"$L': "1/l",
    "export V=${A-$(id)}": "1",
    "if true; then V=no; fi; V=yes": "yes",
    "if true\nthen\n  V=no\nelse V=x\nfi\nexport V=yes": "yes",
    "for d in /a /b; do V=$V:$d; done; V=x": "x",
    "while false; do V=1; done\nV=x": "x",
    "case $A in\n 1|2) V=a ;;\n *) V=b ;;\nesac\nV=x": "x",
    "[ -d / ] && V=1; V=2": "2",
    "[ -d /nonexistent ] ||\n V=1\nV=2": "2",
    "echo hello > /dev/null 2>&1; V=2": "2",
    "{ V=1; }; V=2": "2",
    "(V=1); V=2": "2",
    "export U=$(echo a; echo b); V=2": "2",
}
"""What is known, and what V is then; None: unset."""

UNDECIDED = [
    "export V=$(echo /a)",
    "export V=`echo /a`",
    'export V="$(echo /a)"',
    "export V=$((1+1))",
    "export V=${A%x}",
    "export V=${#A}",
    "export V=$1",
    "export V=$#",
    "export V=~/lib",
    "export V=$HOME/lib",
    "export V={a,b}",
    "export V=$'a'",
    'export V=$"a"',
    "export V=a|cat",
    "V=1 & wait",
    "V=1 | cat",
    "export V=\"${U:-'a'}\"",
    'export V="${U:-\\a}"',
    "export A=2 V=$A",
    "V+=x",
    "export V+=x",
    "declare -x V=1",
    "readonly V=1",
    "typeset V=1",
    'export "V=1"',
    "export 'V'=1",
    "ex\\port V=1",
    "'export' V=1",
    ": ${V:=x}",
    "unset V; : ${V:=x}",
    "unset -v V",
    "unset -f V",
    "eval 'V=1'",
    "eval V=1; U=2",
    ". /dev/null",
    "true && V=1",
    "false && export V=1",
    "true || V=1",
    "if true; then export V=1; fi",
    "if [ -e /nonexistent ]; then\n  export V=1\nfi",
    "if false\nthen\nV=1\nfi",
    "for V in a b; do :; done",
    "for d in a b; do V=$V:$d; done",
    "while true; do V=1; break; done",
    "until V=1; do :; done",
    "case a in a) V=1;; esac",
    "case a in\n(b) V=1;;\n(a) V=2;;\nesac",
    "f() { V=1; }; f",
    "f() {\nV=1\n}\nf",
    "f()\n{\nexport V=1\n}",
    "{ V=1; }",
    "(V=1)",
    "! V=1",
    "read V < /dev/null",
    "echo x | while read V; do :; done",
    "while read V; do :; done <<EOF\na\nEOF",
    "cat > /dev/null <<EOF\nV=1\nEOF",
    "cat > /dev/null <<'EOF'\nexport V=1\nunset V\nEOF",
    "exit 0\nV=1",
    "return 0\nV=1",
    "return\nV=1",
    "false && {\nV=1\n}",
    "false && {\\\n\nV=1\n}",
    "if false; then\nV=1\nf\\\ni\nfi",
    "alias export=true\nexport V=1",
    "set -n\nV=1",
    "V='a",
    'V="a',
    "V=a\\",
    "V=`",
    "V=$(",
    "V=${",
    "V=(a b)",
    "V=1; ;",
    "V=1;; U=1",
    "; V=1",
    "V=1\r\nU=2\r",
    "V=1\r",
    "trap 'V=1' 0",
    "cd / && V=$PWD",
    "getopts a V",
    "V=$RANDOM",
    "V=$LINENO",
    "V=$_",
    "V=$PPID",
    "export V=" + "${V:-" * 100 + "x" + "}" * 100,
    "export V=" + "x" * 70_000,
    "if false; then echo 'fi'\nV=1\nfi",
    "for x in do done; do V=1; done",
    "for x do V=1; done",
    "for x in fi\ndo V=1\ndone",
    "if false; then # fi\nV=1\nfi",
    "case x in\nif) V=1;;\nfi) V=2;;\nesac",
    "[ -n '$(' ] && V=1",
    "[ -n ')' ] || V=1",
    "echo ${A%'}'} && V=1",
    "false && : $(case a in a) echo b;; esac)\\\n && V=1",
]


@pytest.mark.parametrize(("script", "value"), DECIDED.items(), ids=lambda text: str(text)[:30])
def test_a_plain_statement_is_read_as_a_shell_would(script: str, value: Optional[str]) -> None:
    exports = parse_exports(script, KNOWN)
    assert exports.decided("V")
    assert exports.env["V"] == value
    agrees(script)


@pytest.mark.parametrize("script", UNDECIDED, ids=lambda text: str(text)[:30])
def test_what_needs_a_shell_leaves_the_variable_undecided(script: str) -> None:
    exports = parse_exports(script, KNOWN)
    assert not exports.decided("V")
    assert "V" not in exports.env
    assert "V" in exports.unknown
    agrees(script)


def test_a_condition_clouds_what_it_does_not_name() -> None:
    for script in ("[ -d /x ] && V=1", ". /etc/env.sh", "if true; then V=1; fi"):
        exports = parse_exports(script, KNOWN)
        assert not any(exports.decided(name) for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_VERSION", "A"))


def test_a_later_plain_assignment_decides_again_what_does_not_build_on_doubt() -> None:
    exports = parse_exports(". /etc/env.sh\nV=/a\nW=$L/b\nU=$V/c\n", KNOWN)
    assert (exports.env["V"], exports.env["U"]) == ("/a", "/a/c")
    assert not exports.decided("W")


def test_nothing_is_known_again_after_a_function() -> None:
    exports = parse_exports("export() { unset V; }\n", KNOWN)
    assert not parse_exports("export V=1", exports).decided("V")


def test_a_substitution_clouds_its_own_variable_alone() -> None:
    exports = parse_exports("export V=$(nproc) W=2", KNOWN)
    assert [exports.decided(name) for name in ("V", "W", "PATH", "L")] == [False, True, True, True]


def test_a_program_sees_what_is_exported() -> None:
    exports = parse_exports("U=1\nW=2; export W\nunset A\n", KNOWN)
    assert exports.exported == {*BEFORE, "W"} - {"A"}


def test_files_build_on_one_another() -> None:
    first = parse_exports("export LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH=/b:$LD_LIBRARY_PATH\n", Exports({}))
    assert parse_exports("F=$LD_LIBRARY_PATH:/c", first).env["F"] == "/b:/a:/c"


def test_a_value_does_not_grow_without_end() -> None:
    exports = parse_exports("export A=$A$A\n" * 100, KNOWN)
    assert not exports.decided("A")


def test_a_large_file_takes_time_in_proportion() -> None:
    lines = "".join(f"export N{number}=x\n" for number in range(110_000))
    began = time.process_time()
    assert len(parse_exports(lines, KNOWN).env) == 110_000 + len(BEFORE)
    for hostile in ("V=$(", "V=${A:-", "if a; then\n", "V='\n'\n", "V=`", '"$(', "A=$A$A;", "a && V=1\n", "{ "):
        parse_exports(hostile * 20_000, KNOWN)
    assert time.process_time() - began < 20


FRAGMENTS = [
    "V=1", "export V=/a:$V", "L=/x", "U=$V", "export W='q'", 'W="$A b"', "unset V", "unset U", "V=$(echo a)",
    "V=${V:+$V:}/z", "L=${U:-d}", "V=${A%1}", "V+=p", "true", "false", ":", "echo a", "[ -d / ]", ". /dev/null",
    "eval V=e", "if", "then", "else", "elif", "fi", "for x in 1 2", "for V in a b", "while false", "do", "done",
    "case $A in", "1)", "*)", "(a|1)", ";;", "esac", "{", "}", "(", ")", "f()", "f", "\n", "\n", "\n", ";", ";", "&&",
    "||", "|", "!", "# c", "'", '"', "\\\n", "\\", "$", "`echo b`", "<<E", "E", "> /dev/null", "2>&1", "return", "exit",
    "break", "in", "~", "*", "{a,b}", "V=~", "=", "V", "export", "unset", "$V", "${V:=n}", "a b", "\t",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.sampled_from(["", " ", " ", "\n", "; "])), max_size=14),
)
def test_generated_scripts_are_read_as_a_shell_would_or_not_at_all(words: list[tuple[str, str]]) -> None:
    agrees("".join(word + gap for word, gap in words))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([fragment for fragment in FRAGMENTS if len(fragment) > 4]), max_size=8))
def test_generated_lines_are_read_as_a_shell_would_or_not_at_all(lines: list[str]) -> None:
    agrees("\n".join(lines))


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("\"'\\$ {}:-+AB=;#`(x\n")))
def test_no_text_makes_an_exception(text: str) -> None:
    parse_exports("export V=" + text, KNOWN)


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("\"'\\$ {}:-+AV=;`x")))
def test_generated_values_are_read_as_a_shell_would_or_not_at_all(text: str) -> None:
    agrees("export V=" + text)


def agrees(script: str) -> None:
    """Assert that what the parser says it knows is what shells make of *script*. One that gives up says nothing."""
    exports = parse_exports(script, KNOWN)
    for shell in SHELLS:
        real = by_shell(shell, script)
        for name in NAMES if real else ():
            if exports.decided(name):
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
