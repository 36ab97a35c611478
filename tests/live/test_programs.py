"""What `gpubind check` says of a program is what happens when Apptainer starts it.

docs/check.md has the table of it: `pytest -m live tests/live/test_programs.py --update-golden` writes it anew.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.live.machine import PYTHON_ENV, Bind, Machine
from tests.live.programs.build import INSIDE
from tests.live.programs.images import IMAGES, NAMES, PLACE, SIF, made_images, programs
from tests.support.golden import DOCS, assert_golden

pytestmark = pytest.mark.live

ATTEMPT = "/srv/gpubind/tests/live/programs/attempt.py"
EXCEPTIONS = {
    f"{INSIDE}/undefined-now": "symbols without versions are not looked up",
    f"{INSIDE}/mode-0711": "what may be executed and not read is a warning; overlayfs in a user namespace must read it",
    **{
        f"{INSIDE}/script/{name}": "of env's arguments only NAME and -S NAME are followed"
        for name in ("env-i", "env-S-path", "env-unknown")
    },
}
"""Where check says nothing of what does not start, or only warns. docs/check.md names each."""


class Outcome(NamedTuple):
    """What check said of a program, and what came of it."""

    errors: list[str]
    warnings: list[str]
    status: int
    text: str

    @property
    def is_as_said(self) -> bool:
        return bool(self.errors) == (self.status != 0)


@pytest.fixture(scope="module")
def outcomes(trixie: Machine) -> Iterator[dict[str, dict[str, Outcome]]]:
    """By image and program."""
    found = {}
    with made_images(trixie):
        tried = programs()
        for name in NAMES:
            words = ["python3", ATTEMPT, f"{IMAGES.target}/{name}", *tried]
            text = trixie.run(words, user=True, driver=True, binds=[*trixie.modules, IMAGES], env=PYTHON_ENV).stdout
            found[name] = {program: Outcome(*answer) for program, answer in json.loads(text).items()}
        yield found


def test_what_check_says_of_a_program_is_what_happens(outcomes: dict[str, dict[str, Outcome]]) -> None:
    assert sum(map(len, outcomes.values())) > 700
    for tried in outcomes.values():  # the test can tell
        started = [program for program, outcome in tried.items() if outcome.status == 0]
        assert 60 < len(started) < len(tried) - 50
    wrong = {
        (image, program): outcome
        for image, tried in outcomes.items()
        for program, outcome in tried.items()
        if not outcome.is_as_said and program not in EXCEPTIONS
    }
    assert wrong == {}


def test_the_exceptions_are_no_more_than_that(outcomes: dict[str, dict[str, Outcome]]) -> None:
    for program in EXCEPTIONS:
        differs = [image for image, tried in outcomes.items() if not tried[program].is_as_said]
        assert differs
        assert all(not outcomes[image][program].errors for image in differs)


ROOT = f"{IMAGES.target}/programs"
BOUND = ["--bind", f"{ROOT}:/app"]
ON_THE_HOST: list[tuple[str, list[str], str]] = [
    *(
        (ROOT, [], program)
        for program in (
            "./static",
            "./rpath",
            "./nowhere",
            "./in-env",
            "./wants-GLIBC_2.41",
            "./i386-static",
            "./aarch64",
            "./mode-0644",
            "./mode-0700",
            "./empty",
            "./nothing",
            "./link",
            "bin/runpath-origin",
            "./script/sh",
            "./script/crlf",
            f"{ROOT}/static",
            f"{ROOT}/nowhere",
            f"{ROOT}/bin/rpath-origin",
        )
    ),
    *(
        ("/tmp", BOUND, f"/app/{program}")
        for program in (
            "static",
            "rpath",
            "nowhere",
            "bin/rpath-origin",
            "link",
            "link-runpath",
            "i386-static",
            "mode-0644",
            "wants-GLIBC_2.99",
            "script/python",
            "nothing",
        )
    ),
    ("/tmp", [], f"{ROOT}/static"),
    ("/tmp", ["--bind", ROOT], f"{ROOT}/static"),
    ("/tmp", ["--bind", ROOT], f"{ROOT}/nowhere"),
    ("/tmp", ["--pwd", ROOT], "./static"),
]
"""Programs of this machine: in which directory Apptainer is started, with which options, and what."""


def test_what_check_says_of_a_program_on_the_host_is_what_happens(
    trixie: Machine, outcomes: dict[str, dict[str, Outcome]]
) -> None:
    for name in ("bookworm-sb", SIF):
        rows = shlex.quote(json.dumps(ON_THE_HOST))
        command = f"printf %s {rows} | python3 {ATTEMPT} --host {IMAGES.target}/{name}"
        binds = [*trixie.modules, IMAGES]
        text = trixie.run(["sh", "-c", command], user=True, driver=True, binds=binds, env=PYTHON_ENV).stdout
        answers = [Outcome(*answer) for answer in json.loads(text)]
        wrong = [(row, answer) for row, answer in zip(ON_THE_HOST, answers) if not answer.is_as_said]
        assert (name, wrong) == (name, [])


def test_what_check_says_of_a_program_without_a_container_is_what_happens(
    trixie: Machine, outcomes: dict[str, dict[str, Outcome]]
) -> None:
    binds = [*trixie.modules, Bind(f"{PLACE}/programs", INSIDE)]
    words = ["python3", ATTEMPT, "--bare", *programs()]
    text = trixie.run(words, user=True, driver=True, binds=binds, env=PYTHON_ENV).stdout
    tried = {program: Outcome(*answer) for program, answer in json.loads(text).items()}
    assert 40 < sum(outcome.status == 0 for outcome in tried.values()) < len(tried) - 40  # the test can tell
    secure = f"{INSIDE}/bin/rpath-origin-setuid"  # without a container it gains rights, and ld.so ignores $ORIGIN
    exceptions = {*EXCEPTIONS, secure}
    assert {program: each for program, each in tried.items() if not each.is_as_said and program not in exceptions} == {}
    assert tried[secure].warnings == ["program-unreadable"]


DRIVERS = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvcuvid.so.550.163.01"


@pytest.mark.parametrize(("name", "refused"), [("bookworm-sb", False), ("trixie-sb", True)])
def test_an_executable_stack_is_refused_by_dlopen_where_check_says_so(
    trixie: Machine, outcomes: dict[str, dict[str, Outcome]], name: str, refused: bool
) -> None:
    """A library of the driver that asks for one, as those of driver 340 do."""
    binds = [*trixie.modules, IMAGES, Bind(f"{PLACE}/programs/stack/libt.so", DRIVERS)]
    image = f"{IMAGES.target}/{name}"
    script = f"python3 -m gpubind check --nv --caps compute,utility,video --json --image {image} || test $? = 1"
    document = json.loads(trixie.run(["sh", "-c", script], user=True, driver=True, binds=binds, env=PYTHON_ENV).stdout)
    found = [finding for finding in document["findings"] if finding["code"] == "executable-stack"]
    assert [(finding["subject"], finding["severity"]) for finding in found] == [("libt.so", "error")] * refused
    opening = "import ctypes\ntry: print(ctypes.CDLL('libnvcuvid.so.1'))\nexcept OSError as error: print(error)"
    words = ["exec", "-q", "--nv", "--backend", "apptainer", image, "python3", "-c", opening]
    said = trixie.gpubind(*words, user=True, driver=True, binds=[IMAGES, binds[-1]])
    assert ("cannot enable executable stack as shared object requires: Invalid argument" in said) == refused
    assert said.startswith("<CDLL") != refused


def table(outcomes: dict[str, dict[str, Outcome]]) -> str:
    """What was seen, as the docs show it; which programs start depends on the processor of the machine, too."""
    rows: dict[tuple[int, str], list[str]] = {}
    for image, tried in outcomes.items():
        reasons: dict[str, list[str]] = {}
        for program, outcome in tried.items():
            if not outcome.is_as_said:
                reasons.setdefault(EXCEPTIONS[program], []).append(f"`{program.rpartition('/')[2]}`")
        differs = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items()) or "nowhere"
        rows.setdefault((len(tried), differs), []).append(image)
    lines = ["| images | programs | where `check` has no error and the program does not start |", "| --- | --- | --- |"]
    lines += [f"| {', '.join(images)} | {number} | {differs} |" for (number, differs), images in rows.items()]
    return "\n".join(lines) + "\n"


def test_the_table_in_the_docs_is_what_was_seen(outcomes: dict[str, dict[str, Outcome]]) -> None:
    assert_golden(DOCS / "check.md", table(outcomes), part="programs")
