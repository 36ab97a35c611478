"""What the parser of the command line finds wrong has the form and the codes of every other error."""

from __future__ import annotations

import json

import pytest
from test_cli import gpubind
from test_help import help_of


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("pln", "unknown-command", "did you mean `plan`"),
        ("plan --hots x", "unknown-option", "did you mean `--host`"),
        ("exec --nvv image true", "unknown-option", "did you mean `--nv`"),
        ("--bogus", "unknown-option", "gpubind has no option `--bogus`"),
        ("record", "missing-argument", "gpubind record needs --output"),
        ("exec", "missing-argument", "IMAGE"),
        ("completion", "missing-argument", "bash|zsh|fish"),
        ("plan --caps", "wrong-use", "gpubind plan: option '--caps' requires an argument"),
        ("plan --nv=3", "wrong-use", "gpubind plan: option '--nv' does not take a value"),
        ("plan word", "wrong-use", "(word)"),
    ],
)
def test_wrong_use_has_a_code_a_hint_and_exit_2(words: str, code: str, said: str) -> None:
    done = gpubind(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {code}: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 2
    assert "--help` lists the options\n" in done.stderr or code == "unknown-command"


def test_where_json_is_asked_for_wrong_use_is_json_too() -> None:
    document = json.loads(gpubind("check", "--json", "--jsn").stdout)
    assert (document["schema"], document["code"], document["exit"]) == ("gpubind.error/1", "unknown-option", 2)


def test_without_a_command_help_is_shown_and_the_exit_code_says_that_nothing_was_done() -> None:
    done = gpubind()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", help_of("", 80))
