"""What `gpubind check` says will not load is exactly what the loader in the container refuses.

docs/check.md has the table of it: `pytest -m live tests/live/test_check.py --update-golden` writes it anew.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from typing import Any, NamedTuple

import pytest

from tests.live.containers import CONTAINERS, PROBE, exec_words, image
from tests.live.machine import Machine
from tests.support.golden import DOCS, assert_golden

pytestmark = pytest.mark.live

REFUSED = ("executable-stack", "library-missing", "library-version", "library-unreadable")
SUITES = ("bullseye", "bookworm", "trixie")
IMAGES = tuple(f"{suite}{kind}" for suite in SUITES for kind in ("", "-sb", "-gl", ".sif", "-gl.sif"))
UNUSED = ("nvidia-persistenced", "libnvidia-pkcs11", "nv-fabricmanager")
"""What no job uses: check says nothing of it."""


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


@functools.cache
def observed(machine: Machine, start: Start) -> tuple[frozenset[str], frozenset[str]]:
    """The libraries and programs of the driver in the container, and those of them that its loader refuses."""
    command = ["python3", "-c", PROBE]
    if start.way == "like":
        words = ["apptainer", "exec", "--nv", image(start.image), *command]
        text = machine.run(words, user=True, driver=True, binds=[CONTAINERS]).stdout
    else:
        words = [*exec_words(start.backend, user=True), *start.options, image(start.image), *command]
        text = machine.gpubind(*words, user=True, driver=True, binds=[CONTAINERS])
    report = json.loads(text)
    programs = [path.rpartition("/")[2] for path in report["unlinked"]]
    return frozenset(report["libraries"]), frozenset([*report["unloadable"], *programs])


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_what_check_says_will_not_load_is_what_does_not_load(trixie: Machine, start: Start) -> None:
    libraries, refused = observed(trixie, start)
    assert len(libraries) > 30
    assert sorted(predicted(checked(trixie, start))) == sorted(name for name in refused if not name.startswith(UNUSED))


@pytest.mark.parametrize("name", ["busybox", "busybox-sb", "busybox.sif"])
@pytest.mark.parametrize("way", ["like", "host", "image"])
def test_nothing_of_the_driver_is_promised_to_an_image_without_a_loader(trixie: Machine, name: str, way: str) -> None:
    document = checked(trixie, Start(name, way, "apptainer"))
    words = ["apptainer", "exec", "--nv", image(name), "/usr/bin/nvidia-smi"]
    script = ["sh", "-c", '"$@" 2>&1; test $? -gt 125', "sh", *words]
    said = trixie.run(script, user=True, driver=True, binds=[CONTAINERS])
    assert re.search("no such file|shared library is likely missing", said.stdout)
    if way == "like":
        assert {"libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"} <= predicted(document)
    else:
        assert "image-without-glibc" in [f["code"] for f in document["findings"] if f["severity"] == "error"]


def table(machine: Machine) -> str:
    """What was seen, as the docs show it."""
    versions = dict(zip(SUITES, ("2.31", "2.36", "2.41")))
    ways = {"like": "`--nv`", "host": "host", "image": "image"}
    rows: dict[tuple[str, str, int, str], list[str]] = {}
    for suite, display, way in itertools.product(SUITES, ("", "-gl"), ways):
        libraries, refused = observed(machine, Start(f"{suite}{display}.sif", way, "apptainer"))
        names = ", ".join(f"`{name}`" for name in sorted(refused)) or "none"
        row = (f"{suite}, {versions[suite]}", "yes" if display else "no", len(libraries), names)
        rows.setdefault(row, []).append(ways[way])
    lines = [
        "| image, glibc | display libraries | plan | libraries | refused by the loader |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {image} | {has} | {', '.join(plans)} | {number} | {names} |"
        for (image, has, number, names), plans in rows.items()
    ]
    return "\n".join(lines) + "\n"


def test_the_table_in_the_docs_is_what_was_seen(trixie: Machine) -> None:
    assert_golden(DOCS / "check.md", table(trixie), part="measured")
