"""A start that lacks nothing says nothing: no error, no warning, whoever starts what with which runtime."""

from __future__ import annotations

import json

import pytest

from tests.live.containers import CONTAINERS, Case, image, start
from tests.live.machine import Machine

pytestmark = pytest.mark.live

DIRECTORIES = tuple(f"{suite}{kind}" for suite in ("bullseye", "bookworm", "trixie") for kind in ("", "-sb", "-gl"))
IMAGES = {
    "apptainer": (
        *DIRECTORIES,
        *(f"{suite}{kind}.sif" for suite in ("bullseye", "bookworm", "trixie") for kind in ("", "-gl")),
    ),
    "bwrap": DIRECTORIES,
}
COMPUTE = ("--caps", "compute,utility")
STARTS = [
    *(Case(backend, name, True) for backend, names in IMAGES.items() for name in names),
    *(Case(backend, name, True, COMPUTE) for backend in IMAGES for name in ("bookworm-sb", "bullseye-gl")),
]
THE_RUNTIMES_OWN = "INFO: "


@pytest.mark.parametrize("case", STARTS, ids=str)
@pytest.mark.parametrize("check", [(), ("--check",)], ids=["plain", "checked"])
def test_a_healthy_start_writes_nothing(trixie: Machine, case: Case, check: tuple[str, ...]) -> None:
    done = start(trixie, case._replace(options=(*case.options, *check)), "true")
    assert [line for line in done.stderr.splitlines() if not line.startswith(THE_RUNTIMES_OWN)] == []


@pytest.mark.parametrize("name", ["bullseye", "bookworm", "trixie"])
def test_check_of_a_healthy_image_has_six_lines_at_most(trixie: Machine, name: str) -> None:
    words = ["check", "--nv", "--image", image(name)]
    lines = trixie.gpubind(*words, driver=True, binds=[CONTAINERS]).splitlines()
    assert lines[0].startswith("ok: ")
    assert len(lines) <= 6


@pytest.mark.parametrize("backend", IMAGES)
@pytest.mark.parametrize("name", ["bullseye-sb", "bookworm", "trixie-gl"])
def test_for_root_too_a_healthy_container_has_no_error_and_no_warning(trixie: Machine, backend: str, name: str) -> None:
    words = ["check", "--nv", "--json", "--backend", backend, "--image", image(name)]
    findings = json.loads(trixie.gpubind(*words, driver=True, binds=[CONTAINERS]))["findings"]
    assert [(f["severity"], f["code"], f["subject"]) for f in findings if f["severity"] != "note"] == []
