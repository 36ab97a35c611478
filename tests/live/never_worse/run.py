"""Makes starts on the rig, each by the real program and by gpubind, and has them compared."""

from __future__ import annotations

import glob
import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from tests.live.machine import ENTER, ROOT_PATH, Bind, Machine
from tests.live.never_worse import build, ways
from tests.live.never_worse.compare import (
    COMPAT,
    HOST,
    IMAGE,
    NONE,
    OLD,
    STUB,
    Ended,
    Library,
    Seen,
    Verdict,
    judged,
    outcome,
)
from tests.live.never_worse.probe import content
from tests.live.never_worse.sample import INSTALLED, Start
from tests.live.never_worse.tables import SITES

CONF = "/etc/apptainer/apptainer.conf"
STATUS = 7
"""What the probe ends with: no status of a runtime's own."""
ARGUMENTS = ("two words", "$HOME", "it's", "*", "")
"""Of the probe: they have to arrive as they are."""

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe.py")) as _file:
    PROBE = _file.read()
PROGRAM = ("/usr/bin/python3", "-c", PROBE, str(STATUS), *ARGUMENTS)


class Row(NamedTuple):
    """A start, what was seen of it, and what that comes to."""

    start: Start
    real: Ended
    ours: Ended
    verdicts: tuple[Verdict, ...] = ()

    @property
    def startable(self) -> bool:
        """Whether the real program started it; else there is nothing to compare with."""
        return self.real.seen is not None

    @property
    def outcome(self) -> str:
        return outcome(self.verdicts)


class Job(NamedTuple):
    """What worker.py is told; the names are its."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    user: bool


class Done(NamedTuple):
    """What worker.py answers; the names are its."""

    status: int
    stdout: str
    stderr: str


def compared(machine: Machine, starts: Iterator[Start], number: int) -> list[Row]:
    """*number* comparisons; a start that the real program cannot make on the rig is kept, and one more is taken."""
    build.build(machine)
    labels = known_contents(machine)
    rows: list[Row] = []
    while missing := number - sum(row.startable for row in rows):
        taken = list(itertools.islice(starts, missing))
        if not taken:
            break
        rows += made(machine, taken, labels)
    return rows


def made(machine: Machine, starts: Sequence[Start], labels: Mapping[str, str]) -> list[Row]:
    """The starts, made by both and compared. *labels*: as `known_contents`."""
    both = [(start, way) for start in starts for way in (ways.real_of(start.way), ways.WAYS[start.way])]
    done = run(machine, [(start.site, job_of(start, way)) for start, way in both])
    ended = [ended_of(one, labels) for one in done]
    rows = [Row(start, real, ours) for start, real, ours in zip(starts, ended[::2], ended[1::2])]
    rows = [_judged(row) for row in rows]
    untold = [row for row in rows if any(v.rule == "bad_libcuda_is_told" for v in row.verdicts)]
    checks = run(machine, [(row.start.site, job_of(row.start, ways.checked)) for row in untold])
    findings = {row.start: check.stdout for row, check in zip(untold, checks)}
    return [_judged(row, findings[row.start]) if row.start in findings else row for row in rows]


def _judged(row: Row, findings: str = "") -> Row:
    """*row* with its verdicts; *findings* are what `check` says of the image."""
    if not row.startable:
        return row
    told = row.ours.stderr + findings
    bubblewrap = row.start.way == "bubblewrap"
    return row._replace(verdicts=tuple(judged(row.real, row.ours, row.start.variables, told, bubblewrap=bubblewrap)))


def job_of(start: Start, way: ways.Way) -> Job:
    """The job that makes *start* in one way."""
    caller = start.caller
    name = "user" if caller.user else "root"
    plain = {
        "PATH": f"{ROOT_PATH}:{ways.HERE}",
        "HOME": caller.home,
        "USER": name,
        "LOGNAME": name,
        "PWD": caller.directory,
    }
    env = {**plain, "SHELL": "/bin/bash", "TERM": "xterm", "LANG": "C.UTF-8", **start.variables}
    command = ways.Command(
        build.path(start.image, start.kind), start.words, PROGRAM, start.site if start.way == ways.CREATED else ""
    )
    return Job(way(command), env, caller.directory, caller.user)


def run(machine: Machine, jobs: Sequence[tuple[str, Job]]) -> list[Done]:
    """Every job on the machine with its site's configuration, each site's in one go; the answers in order."""
    answers: dict[int, Done] = {}
    for site in SITES:
        numbers = [
            number for number, (wanted, _) in enumerate(jobs) if site == (wanted if wanted in SITES else INSTALLED)
        ]
        if numbers:
            answers.update(zip(numbers, _run_site(machine, site, [jobs[number][1] for number in numbers])))
    return [answers[number] for number in range(len(jobs))]


def _run_site(machine: Machine, site: str, jobs: Sequence[Job]) -> list[Done]:
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(configuration(machine, site))
        conf.flush()
        os.chmod(conf.name, 0o644)
        env = entering(machine, conf.name if site != INSTALLED else None)
        command = [ENTER, machine.root, "/usr/bin/python3", f"{ways.HERE}/worker.py"]
        asked = json.dumps([job._asdict() for job in jobs])
        done = subprocess.run(command, env=env, cwd="/", input=asked, stdout=subprocess.PIPE, text=True, check=True)
    return [Done(**answer) for answer in json.loads(done.stdout)]


def entering(machine: Machine, conf: Optional[str] = None) -> dict[str, str]:
    """The environment of rig/enter: what the machine sees of this one."""
    binds = [*machine.modules, *build.binds(), *([Bind(conf, CONF)] if conf else [])]
    return {"PATH": ROOT_PATH, "BINDS": " ".join(map(str, binds)), "FAKE_DRIVER": machine.version}


def configuration(machine: Machine, site: str) -> str:
    """apptainer.conf with the site's directives in the place of those that are installed; binds are added."""
    with open(machine.root + CONF) as file:
        lines = file.read().splitlines()
    told = SITES[site]
    lines = [line for line in lines if line.partition("=")[0].strip() not in set(told) - {"bind path"}]
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in told.items()), ""])


def ended_of(done: Done, labels: Mapping[str, str]) -> Ended:
    """How the start ended, and what the probe saw if it ran."""
    last = done.stdout.splitlines()[-1:]
    if not last or not last[0].startswith('{"libraries"'):
        return Ended(done.status, done.stderr, None)
    seen: dict[str, Any] = json.loads(last[0])
    libraries = {name: _library(answer, labels) for name, answer in seen.pop("libraries").items()}
    return Ended(done.status, done.stderr, Seen(libraries, **seen))


def _library(answer: Mapping[str, Any], labels: Mapping[str, str]) -> Library:
    if "error" in answer:
        return Library(NONE)
    return Library(labels.get(answer["content"], IMAGE), answer["path"], answer["real"], answer["status"])


def known_contents(machine: Machine) -> dict[str, str]:
    """What is in a file, as the probe says it -> whose it is."""
    files = glob.glob(f"{machine.root}/usr/lib/**/lib*.so*", recursive=True)
    known = {content(path): HOST for path in files if os.path.isfile(path)}
    return {**known, **{content(build.LIBRARIES[label]): label for label in (STUB, OLD, COMPAT)}}
