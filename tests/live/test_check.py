"""What `gpubind check` says will not load is exactly what the loader in the container refuses."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from live.containers import CONTAINERS, PROBE, exec_words, image
from live.machine import Machine

pytestmark = pytest.mark.live

REFUSED = ("library-missing", "library-version", "library-unreadable")
SUITES = ("bullseye", "bookworm", "trixie")
IMAGES = tuple(f"{suite}{kind}" for suite in SUITES for kind in ("", "-sb", "-gl", ".sif", "-gl.sif"))


class Start(NamedTuple):
    """A container with the driver in it: made of which image, by whom, in which way."""

    image: str
    way: str
    """`host`, `image` or `auto` for --vendor-neutral, `like` for Apptainer's own --nv."""
    backend: str

    def __str__(self) -> str:
        return "-".join(self)

    @property
    def options(self) -> tuple[str, ...]:
        """What check and plan are told of it."""
        return ("--like", "apptainer") if self.way == "like" else ("--vendor-neutral", self.way)


STARTS = [
    *(Start(name, "like", "apptainer") for name in IMAGES if name not in SUITES and not name.endswith("-gl")),
    *(Start(name, way, "apptainer") for name in IMAGES for way in ("host", "image")),
    *(Start(name, way, "bwrap") for name in IMAGES if ".sif" not in name for way in ("host", "image", "auto")),
]


def checked(machine: Machine, start: Start) -> dict[str, Any]:
    """The check document; on an error finding the exit is 1."""
    words = ["check", "--nv", "--json", "--backend", start.backend, "--image", image(start.image), *start.options]
    done = machine.run(
        ["sh", "-c", 'python3 -m gpubind "$@" || test $? = 1', "sh", *words],
        user=True,
        driver=True,
        binds=[*machine.modules, CONTAINERS],
        env={"PYTHONPATH": "/srv/gpubind:/srv/python", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def predicted(document: dict[str, Any]) -> set[str]:
    """The libraries that check says will not load."""
    return {name for f in document["findings"] if f["code"] in REFUSED for name in f["where"].split(", ")}


def observed(machine: Machine, start: Start) -> tuple[set[str], set[str]]:
    """The libraries in the container's driver directory, and those that dlopen refuses."""
    command = ["python3", "-c", PROBE]
    if start.way == "like":
        words = ["apptainer", "exec", "--nv", image(start.image), *command]
        text = machine.run(words, user=True, driver=True, binds=[CONTAINERS]).stdout
    else:
        words = [*exec_words(start.backend, user=True), *start.options, image(start.image), *command]
        text = machine.gpubind(*words, user=True, driver=True, binds=[CONTAINERS])
    report = json.loads(text)
    return set(report["libraries"]), set(report["unloadable"])


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_what_check_says_will_not_load_is_what_does_not_load(trixie: Machine, start: Start) -> None:
    libraries, refused = observed(trixie, start)
    assert len(libraries) > 30
    assert sorted(predicted(checked(trixie, start))) == sorted(refused)
