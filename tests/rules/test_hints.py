"""Whoever follows a hint to the letter is rid of the finding, and has no new error."""

from __future__ import annotations

from itertools import chain

import pytest

from gpubind.model import Finding
from gpubind.model.findings import REMEDIES, finding_texts
from tests.rules.followed import CASES, FOLLOWED
from tests.rules.programs import run
from tests.rules.situations import Situation, found
from tests.support.golden import assert_listed
from tests.support.trees import Item

BY = {code: text["by"] for code, text in finding_texts().items()}
OTHERS_MEND = ("person", "nothing")


def about(code: str, situation: Situation) -> list[Finding]:
    return [finding for finding in found(situation) if finding.code == code]


def errors(situation: Situation) -> set[str]:
    return {finding.code for finding in found(situation) if finding.severity == "error"}


def after(situation: Situation, commands: list[str]) -> Situation:
    """*situation*, once root has run *commands*."""
    files: dict[str, Item] = dict(chain.from_iterable(part.items() for part in situation.parts))
    environ = dict(situation.facts.get("environ", {}))
    for command in commands:
        run(command, files, environ)
    return situation._replace(parts=(files,), facts={**situation.facts, "environ": environ})


def test_every_code_says_what_mends_it() -> None:
    file = "gpubind/model/data/findings.json"
    assert_listed(
        BY.values(),
        REMEDIES,
        add=f"gpubind/model/findings.py, MENDED_BY: remove `{{}}`, which is `by` of no code in {file}",
        remove=f"{file}: `by` may not be `{{}}`; gpubind/model/findings.py, MENDED_BY, has the list",
    )


def test_every_hint_is_followed_but_what_a_person_alone_can_do() -> None:
    due = [code for code, by in BY.items() if by not in (*OTHERS_MEND, "command")]
    assert_listed(
        FOLLOWED,
        due,
        add='tests/rules/followed.py: add `"{}": almost("{}", "WORDS OF ITS HINT")` to FOLLOWED, or `with_...`: '
        "the situation after the user has followed the hint",
        remove="tests/rules/followed.py: remove `{}`; or its `by` in gpubind/model/data/findings.json is to be option, "
        "variable, image or host",
    )


@pytest.mark.parametrize("code", sorted(FOLLOWED))
def test_a_hint_that_is_followed_ends_the_finding_and_makes_no_new_error(code: str) -> None:
    fires, followed = CASES[code].fires, FOLLOWED[code]
    told = [f"{finding.hint}: {finding.command}" for finding in about(code, fires)]
    assert [text for text in told if followed.says in text], (
        f"tests/rules/followed.py: `{code}`: no hint or command says `{followed.says}`; they say {told}"
    )
    assert about(code, followed.then) == []
    assert errors(followed.then) <= errors(fires) - {code}


@pytest.mark.parametrize("code", sorted(code for code, by in BY.items() if by == "command" and code in CASES))
def test_a_command_that_is_run_ends_the_finding_and_makes_no_new_error(code: str) -> None:
    fires = CASES[code].fires
    commands = [finding.command or "" for finding in about(code, fires)]
    assert all(commands)
    then = after(fires, list(dict.fromkeys(commands)))
    assert about(code, then) == []
    assert errors(then) <= errors(fires) - {code}


@pytest.mark.parametrize("code", sorted(code for code, by in BY.items() if by in OTHERS_MEND and code in CASES))
def test_what_a_person_has_to_do_is_told(code: str) -> None:
    assert all(finding.hint for finding in about(code, CASES[code].fires))
