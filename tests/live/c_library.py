"""What containers say whose programs run on the host's C library, and the table of docs/c-library.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from gpubind.names import is_unused
from live.machine import CHECKOUT

PAGE = f"{CHECKOUT}/docs/c-library.md"
TITLES = ("started by", "image", "its glibc", "on the host's", "libraries that load", "of these lack something else")
VENDORS = ("--nv", "--rocm")
Report = Mapping[str, Any]

with open(f"{CHECKOUT}/tests/live/rig/c_library.py") as _file:
    PROBE = _file.read()


def reports(start: Callable[..., str]) -> tuple[Report, Report]:
    """What the container says without and with the host's C library; *start* takes options, then a command."""
    own, hosts = (start((*VENDORS, "--libc", side), "python3", "-c", PROBE) for side in ("image", "host"))
    return json.loads(own.splitlines()[-1]), json.loads(hosts.splitlines()[-1])


def hold(own: Report, hosts: Report, foretold: Iterable[str]) -> None:
    """Programs say the same with either; what does not load lacks a library of the image's that check had named."""
    assert hosts["programs"] == own["programs"]
    assert {name: status for name, (status, _) in own["programs"].items() if status > 1} == {}
    assert {*own["loaded"]} <= {*hosts["loaded"]}
    said = "\n".join(foretold)
    assert [why for why in hosts["refused"].values() if "cannot open shared object file" not in why] == []
    lacking = {why.partition(":")[0] for name, why in hosts["refused"].items() if not is_unused(name)}
    assert {library for library in lacking if library not in said} == set()


def told(request: pytest.FixtureRequest, backend: str, image: str, own: Report, hosts: Report) -> None:
    """Hold the row of the table against what was seen; `--update-golden` writes it anew."""
    glibcs = [report["glibc"].partition(" ")[2] for report in (own, hosts)]
    numbers = [f"{len(own['loaded'])} → {len(hosts['loaded'])}", str(len(hosts["refused"]))]
    row = f"| {' | '.join((backend, image, *glibcs, *numbers))} |"
    with open(PAGE) as file:
        page = file.read()
    if request.config.getoption("--update-golden"):
        page = _with_row(page, row, f"| {backend} | {image} |")
        with open(PAGE, "w") as file:
            file.write(page)
    assert row in page.splitlines()


def _with_row(page: str, row: str, begins: str) -> str:
    head = f"| {' | '.join(TITLES)} |\n{'| --- ' * len(TITLES)}|\n"
    before, _, rest = page.partition("<!-- as tested -->\n")
    rows, _, after = rest.partition("<!-- end -->")
    kept = [line for line in rows.splitlines()[2:] if not line.startswith(begins)]
    return (
        f"{before}<!-- as tested -->\n{head}"
        + "".join(f"{line}\n" for line in sorted([*kept, row]))
        + f"<!-- end -->{after}"
    )


def findings(report: str) -> list[str]:
    """What the findings of `check --json` say."""
    return [finding["what"] for finding in json.loads(report)["findings"]]
