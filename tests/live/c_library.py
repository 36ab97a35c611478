"""What containers say whose programs run on the host's C library, and the table of docs/c-library.md."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Container, Iterable, Mapping
from typing import Any

from gpubind.formats.driver.names import name_facts
from tests.live.containers import CONTAINERS, Case, image, start
from tests.live.machine import CHECKOUT, Machine
from tests.support import golden

PAGE, PART = golden.DOCS / "c-library.md", "as tested"
TITLES = ("image", "its glibc", "on the host's", "libraries that load", "of these lack something else", "started by")
HEAD = f"| {' | '.join(TITLES)} |\n{'| --- ' * len(TITLES)}|\n"
VENDORS = ("--nv", "--rocm")
HOSTS = ("--libc", "host")
Report = Mapping[str, Any]
Row = tuple[str, ...]
"""Who started it, and what the columns before that say."""

with open(f"{CHECKOUT}/tests/live/rig/c_library.py") as _file:
    PROBE = _file.read()


def vendors(machine: Machine) -> tuple[str, ...]:
    """What *machine* has a user space of."""
    return VENDORS if os.path.exists(f"{machine.root}/usr/bin/rocminfo") else VENDORS[:1]


@functools.cache
def own_report(machine: Machine, suite: str) -> Report:
    """What a container of *suite* says with its own C library; started once."""
    return report(start(machine, Case("bwrap", suite, True, vendors(machine)), "python3", "-c", PROBE).stdout)


@functools.cache
def foretold(machine: Machine, suite: str) -> str:
    """What check says of a start of *suite* with the host's; for ROCm it ends with 1: amdgpu is not loaded."""
    words = ["check", *vendors(machine), *HOSTS, "--image", image(suite), "--json"]
    status = int("--rocm" in vendors(machine))
    found = machine.tried(*words, user=True, driver=True, binds=[CONTAINERS], status=status)
    return "\n".join(finding["what"] for finding in json.loads(found.stdout)["findings"])


def report(said: str) -> Report:
    """The report in what a container *said*."""
    made: Report = json.loads(said.splitlines()[-1])
    return made


def hold(machine: Machine, backend: str, name: str, hosts: Report, but: Container[str] = ()) -> None:
    """Programs say the same with the host's C library; what does not load lacks a library that check had named.

    And the table has that row; `--update-golden` writes it anew. *but* are programs for which the image lacks files.
    """
    suite = Case(backend, name, True).suite
    own = own_report(machine, suite)
    other = {name: (own["programs"][name], said) for name, said in hosts["programs"].items() if name not in but}
    assert {name: both for name, both in other.items() if both[0] != both[1]} == {}
    assert {name: status for name, (status, _) in own["programs"].items() if status > 1} == {}
    assert {*own["loaded"]} <= {*hosts["loaded"]}
    assert [why for why in hosts["refused"].values() if "cannot open shared object file" not in why] == []
    lacking = {why.partition(":")[0] for name, why in hosts["refused"].items() if not name_facts(name).is_unused}
    assert {library for library in lacking if library not in foretold(machine, suite)} == set()
    glibcs = [report["glibc"].partition(" ")[2] for report in (own, hosts)]
    numbers = [f"{len(own['loaded'])} → {len(hosts['loaded'])}", str(len(hosts["refused"]))]
    row = (backend, name, *glibcs, *numbers)
    rows = parsed(golden.generated(PAGE, PART))
    if golden.is_updating:
        rows = {row, *(other for other in rows if other[:4] != row[:4])}
        golden.assert_golden(PAGE, table(rows), part=PART)
    if row not in rows:
        golden.fail(f"{PAGE}: the table lacks {row}", golden.how_to_update())


def parsed(text: str) -> set[Row]:
    """The rows of the table *text*, one for each that started something."""
    lines = ([cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines()[2:])
    return {(backend, *rest) for *rest, backends in lines for backend in backends.split("; ")}


def table(rows: Iterable[Row]) -> str:
    """Starts with the same outcome are one line."""
    lines: dict[Row, list[str]] = {}
    for backend, *rest in sorted(rows, key=lambda row: (*row[1:], row[0])):
        lines.setdefault(tuple(rest), []).append(backend)
    return HEAD + "".join(f"| {' | '.join((*rest, '; '.join(backends)))} |\n" for rest, backends in lines.items())
