"""`check --try` on the rig: which containers, and what must be so of each.

`python -m tests.live.trials [WORD...]` tries all of `PAIRS`, or those with a WORD in their names, and prints each with
a wrong prediction.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.live.containers import CONTAINERS, privileges
from tests.live.engine_starts import LIMITS
from tests.live.interpreters import dependencies
from tests.live.machine import DRIVER, PYTHON_ENV, RIG, Bind, Machine
from tests.live.plain_runtimes import IMAGES

NEEDED = {
    "podman": ("--backend-arg=--network=none", *(f"--backend-arg=--ulimit={word}" for word in LIMITS)),
    "ch-run": ("--allow-writable",),
    "proot": ("--allow-writable",),
}
"""What a start by root on the rig needs."""
SUITES = ("bullseye", "bookworm", "trixie")
DIRECTORIES = (*(f"{suite}{kind}" for suite in SUITES for kind in ("", "-sb", "-gl")), "bookworm-path-sb", "busybox")
WITH_I386 = ("bullseye-cc", "bookworm-cc")
FILES = (*(f"{suite}{kind}.sif" for suite in SUITES for kind in ("", "-gl")), "busybox.sif")
HOSTS = {
    "trixie": ("bwrap", "apptainer", "podman", "ch-run", "proot", "systemd-nspawn"),
    "bookworm": ("bwrap", "podman"),
}
"""The machines, with the runtimes that start a directory there."""
ONLY_ROOT = ("systemd-nspawn", "podman")
"""For an ordinary user's podman the images are somebody else's."""
WAYS: Mapping[str, tuple[str, ...]] = {
    "plain": ("--nv",),
    "host": ("--nv", "--vendor-neutral", "host"),
    "all": ("--caps", "all", "--libc", "auto"),
    "rocm": ("--rocm",),
}


class Pair(NamedTuple):
    """A container of an image on a machine."""

    machine: str
    backend: str
    image: str
    user: bool
    way: str = "plain"

    def __str__(self) -> str:
        return "-".join((self.machine, self.backend, self.image, "user" if self.user else "root", self.way))

    @property
    def words(self) -> tuple[str, ...]:
        """What `check` is told of it."""
        needed = NEEDED.get(self.backend, ()) if not self.user else ()
        needed += tuple(f"--backend-arg={word}" for word in privileges(self.backend, user=self.user))
        return (*WAYS[self.way], "--backend", self.backend, *needed, "--image", f"{IMAGES}/{self.image}")


def _pairs() -> Iterator[Pair]:
    for machine, backends in HOSTS.items():
        for backend in backends:
            for image in (*DIRECTORIES, *WITH_I386, *(FILES if backend == "apptainer" else ())):
                for user in (False,) if backend in ONLY_ROOT else (True, False):
                    for way in WAYS if machine == "trixie" else ("plain", "host", "all"):
                        yield Pair(machine, backend, image, user, way)


PAIRS = tuple(_pairs())
SOME = tuple(
    Pair(machine, backend, image, user, way)
    for machine, backend, image, way in (
        ("trixie", "bwrap", "bullseye", "plain"),
        ("trixie", "bwrap", "trixie-gl", "all"),
        ("trixie", "bwrap", "trixie", "rocm"),
        ("trixie", "apptainer", "bullseye-gl.sif", "host"),
        ("trixie", "apptainer", "bookworm-path-sb", "plain"),
        ("trixie", "podman", "bookworm-gl", "plain"),
        ("trixie", "ch-run", "bookworm", "plain"),
        ("trixie", "proot", "trixie", "plain"),
        ("trixie", "systemd-nspawn", "bullseye-sb", "plain"),
        ("bookworm", "bwrap", "bookworm-cc", "all"),
        ("bookworm", "podman", "trixie", "plain"),
    )
    for user in (True, False)
    if not (user and backend in ONLY_ROOT)
)
"""Those that `make live` tries."""


def machines() -> dict[str, Machine]:
    """The rig's machines that have runtimes, by name."""
    pythons = {"trixie": ("3.13", DRIVER), "bookworm": ("3.11", "535.261.03")}
    return {
        name: Machine(f"{RIG}/hosts/{name}", dependencies(RIG, python), driver)
        for name, (python, driver) in pythons.items()
    }


def tried(machine: Machine, pair: Pair, *words: str, driver: bool = True) -> dict[str, Any]:
    """The document of the check."""
    script = 'python3 -m gpubind check --try --json "$@" || test $? = 1'
    command = ["sh", "-c", script, "sh", *pair.words, *words]
    binds = [*machine.modules, Bind(CONTAINERS.source, IMAGES)]
    done = machine.run(command, user=pair.user, driver=driver, binds=binds, env=PYTHON_ENV)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def need_right(document: dict[str, Any]) -> Counter[tuple[str, Any, Any]]:
    """How many answers there are of each kind, predicted and seen so. Fails unless everything is as predicted."""
    wrong = [found for found in document["findings"] if found["code"] in ("prediction-wrong", "try-failed")]
    assert wrong == []
    assert document["tried"]["failure"] is None
    assert document["tried"]["untried"] == 0
    answers = document["tried"]["answers"]
    return Counter((answer["kind"], answer["predicted"], answer["seen"]) for answer in answers)


def main(words: list[str]) -> None:
    """Try the pairs that *words* name, and print how each ended."""
    there = machines()
    wrong = 0
    pairs = [pair for pair in PAIRS if all(word in f"-{pair}-" for word in words)]
    for pair in pairs:
        began = time.monotonic()
        try:
            told = f"right: {dict(need_right(tried(there[pair.machine], pair)))}"
        except AssertionError as error:
            wrong += 1
            told = f"WRONG: {error}"
        sys.stdout.write(f"{pair} {time.monotonic() - began:.1f} s {told}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(pairs)} pairs, {wrong} wrong\n")


if __name__ == "__main__":
    main(sys.argv[1:])
