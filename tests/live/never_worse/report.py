"""What was compared, in text and as the docs show it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from tests.live.machine import ENTER, Machine
from tests.live.never_worse import ways
from tests.live.never_worse.compare import OUTCOMES, WORSE
from tests.live.never_worse.recipes import IMAGES
from tests.live.never_worse.run import PROBE, Row, entering, job_of
from tests.live.never_worse.tables import CREATED_OPTIONS, CREATED_SITES, ENVIRONMENTS, OPTIONS, SITES
from tests.live.never_worse.ways import WAYS

SAID = 12
"""Lines of gpubind's standard error that a report shows."""
KINDS = ("sandbox", "directory", "SIF")


def worse(rows: Sequence[Row]) -> str:
    """Each start that is worse: why, and both command lines."""
    return "\n".join(f"{number}. {_row(row)}" for number, row in enumerate(rows) if row.outcome == WORSE)


def not_startable(rows: Sequence[Row]) -> str:
    """Each start that the real program could not make on the rig, and what it said."""
    lines = []
    for row in rows:
        if not row.startable:
            last = row.real.stderr.strip().splitlines()[-1:] or [f"status {row.real.status}"]
            lines.append(f"not startable: {row.start}: {last[0]}\n")
    return "".join(lines)


def by_rule(rows: Sequence[Row]) -> str:
    """How many starts each rule calls worse."""
    rules = Counter(rule for row in rows for rule in {v.rule for v in row.verdicts if v.outcome == WORSE})
    return "".join(f"{number:5} {rule}\n" for rule, number in rules.most_common())


def how_to_repeat(machine: Machine) -> str:
    """The way into the machine; the site's configuration has to be bound by hand."""
    env = entering(machine)
    words = ["env", *(f"{name}={value}" for name, value in env.items()), ENTER, machine.root]
    user = "setpriv --reuid 1000 --regid 1000 --clear-groups"
    return f"in the machine: {shlex.join(words)}\nthere: PROBE=$(cat {_FILE}); for the user: {user} COMMAND\n"


_FILE, _PROBE = f"{ways.HERE}/probe.py", '"$PROBE"'


def _row(row: Row) -> str:
    verdicts = "".join(f"   {v.outcome}: {v.rule}: {v.why}\n" for v in row.verdicts)
    real, ours = (_line(row, way) for way in (ways.real_of(row.start.way), WAYS[row.start.way]))
    told = "".join(f"   said: {line}\n" for line in row.ours.stderr.splitlines()[:SAID])
    return f"{row.start}\n{verdicts}{told}   real: {real}\n   ours: {ours}\n"


def _line(row: Row, way: ways.Way) -> str:
    """The command line of one way, for a shell in the machine in which PROBE is set."""
    job = job_of(row.start, way)
    words = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in job.env.items())])
    argv = shlex.join(job.argv)
    nested = shlex.quote(shlex.quote(PROBE))[1:-1]
    if nested in argv:
        words, argv = f'{words} PROBE="$PROBE"', argv.replace(nested, '"$PROBE"')
    return f"cd {job.cwd}; {words} {argv.replace(shlex.quote(PROBE), _PROBE)}"


def summary(rows: Sequence[Row]) -> str:
    """Number of starts by way and outcome; as a table for the docs."""
    lines = ["| started by | " + " | ".join(OUTCOMES) + " |", "| --- |" + " --- |" * len(OUTCOMES)]
    started = [(row.start.way, row.outcome) for row in rows if row.startable]
    for way in (*WAYS, "all"):
        counted = Counter(outcome for by, outcome in started if way in (by, "all"))
        if counted:
            lines.append(f"| {way} | " + " | ".join(str(counted[outcome]) for outcome in OUTCOMES) + " |")
    return "\n".join(lines) + "\n"


def tables() -> str:
    """What varies, for the docs: how many rows each table has, and the short ones whole."""
    listed = {
        "bases": sorted({image.base for image in IMAGES}),
        "site configurations": list(SITES),
        "ways to create a container": list(CREATED_SITES),
        "ways to start": list(WAYS),
    }
    counted = {
        "images with one change": sum(bool(image.steps) for image in IMAGES),
        "groups of options": len(OPTIONS),
        "groups of options of docker and podman": len(CREATED_OPTIONS),
        "callers' environments": len(ENVIRONMENTS),
    }
    lines = [f"- {number} {what}" for what, number in counted.items()]
    lines += [f"- {len(rows)} {what}: {', '.join(f'`{row}`' for row in rows)}" for what, rows in listed.items()]
    return "".join(f"{line}\n" for line in lines)
