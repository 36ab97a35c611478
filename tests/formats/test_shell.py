"""Environment files: what a shell would make of them, without one."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.formats.shell import Exports, parse_exports

KNOWN = Exports({"A": "1", "EMPTY": ""})
LINES = {
    "export V=/a:/b": "/a:/b",
    'V="/a b"': "/a b",
    "  V='/a$b' ; export V": "/a$b",
    "export V=/a # a comment": "/a",
    "export U=1 V=2": "2",
    'export V="/a:$LD_LIBRARY_PATH"': "/a:",
    "export V=/a${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}": "/a",
    "export V=$A:${A}${EMPTY}": "1:1",
    "export V=${A:-x}${EMPTY:-y}${EMPTY-z}${U:-w}${A:+p}${EMPTY:+q}${EMPTY+r}": "1ywpr",
    'export V="${V:-"cuda>=12.4 brand=tesla,driver>=470,driver<471"}"': "cuda>=12.4 brand=tesla,driver>=470,driver<471",
    'export V="${V:-""}"': "",
    r'export V="it\"s \\ \$A"': r'it"s \ $A',
    r"export V=a\ b\;c": "a b;c",
    'export V="${V:-"{a}"}"': "{a}",
    'export V="${U:-"${A:-"/usr/local/nvidia"}"}"': "1",
}
UNKNOWN = [
    "export V=$(touch /tmp/owned)",
    "export V=`id`",
    'export V="$(id)"',
    "export V=$((1+1))",
    "export V=${A%x}",
    "export V=${#A}",
    "export V=$1",
    "V=1 command",
    "export V='a",
    'export V="a',
    "export V=a\\",
    "export V=a|b",
    "# export V=a",
    "echo V=a",
    "export V=" + "${V:-" * 100 + "x" + "}" * 100,
    "export V=" + "x" * 70_000,
]


@pytest.mark.parametrize(("line", "value"), LINES.items())
def test_an_assignment_is_read_as_a_shell_would(line: str, value: str) -> None:
    assert parse_exports(f"#!/bin/sh\n{line}\n", KNOWN).env["V"] == value
    sh = shutil.which("sh")
    if sh:
        assert by_shell(sh, line) == value


@pytest.mark.parametrize("line", UNKNOWN, ids=lambda line: line[:20])
def test_what_needs_a_shell_leaves_the_variable_undecided(line: str) -> None:
    exports = parse_exports(line, Exports({**KNOWN.env, "V": "before"}))
    assert exports.env["V"] == "before"
    assert set(exports.undecided) <= {"V"}
    assert parse_exports("export V=plain", exports) == Exports({**KNOWN.env, "V": "plain"})


def test_lines_build_on_one_another() -> None:
    text = "export LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH=/b:$LD_LIBRARY_PATH\nexport P=$HOME/bin\n"
    assert parse_exports(text, Exports({})).env == {"LD_LIBRARY_PATH": "/b:/a", "P": "$HOME/bin"}


def test_a_value_does_not_grow_without_end() -> None:
    assert len(parse_exports("export A=$A$A\n" * 100, Exports({"A": "x"})).env["A"]) <= 1 << 16


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("\"'\\$ {}:-+AB=;#`(x\n")))
def test_no_text_makes_an_exception(text: str) -> None:
    parse_exports("export V=" + text, KNOWN)


def by_shell(sh: str, line: str) -> str:
    script = f'A=1 EMPTY=; unset U V LD_LIBRARY_PATH\n{line}\nprintf %s "$V"'
    return subprocess.run([sh, "-c", script], capture_output=True, text=True, check=True, env={}).stdout
