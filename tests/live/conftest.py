"""Fixtures of the live tests: the rig's machines, and gpubind's dependencies for their interpreters.

Nothing here skips: a test that needs a runtime, the rig or root fails where it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.live import table
from tests.live.interpreters import dependencies
from tests.live.machine import DRIVER, RIG, Machine


@pytest.fixture(scope="session")
def rig() -> str:
    """The directory of the rig."""
    if os.geteuid() != 0:
        pytest.fail("the live tests need root: they enter root file systems", pytrace=False)
    stamps = os.path.join(RIG, "stamps")
    targets = ["containers", "host", "sandboxes", "images", "gl", "sifs", "archives", "runtimes", "udocker"]
    targets += ["distrobox", "nv535", "bookworm", "compilers", "flat550", "clients", "slurm", "intel"]
    missing = [target for target in targets if not os.path.exists(f"{stamps}/{target}")]
    if missing:
        pytest.fail(f"{RIG} has no {', '.join(missing)}: run tests/live/rig/build", pytrace=False)
    return RIG


@pytest.fixture(scope="session")
def trixie(rig: str) -> Machine:
    """The GPU node: driver 550, apptainer, Python 3.13."""
    return Machine(f"{rig}/hosts/trixie", dependencies(rig, "3.13"), DRIVER)


@pytest.fixture(scope="session")
def clients(trixie: Machine) -> Machine:
    """The same node with programs that start containers by themselves, each in /opt/clients."""
    return trixie._replace(root=f"{RIG}/hosts/clients")


@pytest.fixture(scope="session")
def nv535(rig: str) -> Machine:
    """A node with driver 535, 64 and 32 bits, and Python 3.11; no runtime."""
    return Machine(f"{rig}/hosts/nv535", dependencies(rig, "3.11"), "535.261.03")


@pytest.fixture(scope="session")
def bookworm(rig: str, nv535: Machine) -> Machine:
    """The same node with bubblewrap, podman and crun: glibc 2.36."""
    return nv535._replace(root=f"{rig}/hosts/bookworm")


@pytest.fixture(params=["trixie", "nv535"])
def node(request: pytest.FixtureRequest, trixie: Machine, nv535: Machine) -> Machine:
    """Each node that has a driver and can be run on."""
    return {"trixie": trixie, "nv535": nv535}[request.param]


SUITES = {"3.9": "bullseye", "3.11": "bookworm", "3.13": "trixie"}
"""The Debian release that has each Python."""


@pytest.fixture(scope="session")
def interpreters(rig: str) -> dict[str, Machine]:
    """Plain systems by their Python: the oldest that gpubind serves, and two newer ones."""
    return {python: Machine(f"{rig}/ct/{suite}", dependencies(rig, python)) for python, suite in SUITES.items()}


@pytest.fixture
def shows(request: pytest.FixtureRequest) -> Iterator[table.Shows]:
    """What the test calls for each fact of docs/runtimes-tested.md that it has seen, behind its assertions."""
    facts: list[table.Fact] = []

    def show(row: str, asked: str, said: str = table.YES) -> None:
        assert asked in table.ASKED[row]
        facts.append(table.Fact(row, asked, said))

    yield show
    table.write(request.node.nodeid, facts)
