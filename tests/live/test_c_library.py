"""`--libc host`: images whose programs run on the host's C library, and what only loads with it."""

from __future__ import annotations

import json

import pytest

from live.c_library import PROBE, VENDORS, findings, hold, reports, told
from live.containers import CONTAINERS, Case, image, start
from live.machine import RIG, Bind, Machine, document
from live.test_engines import Engine
from live.test_engines import start as start_engine

pytestmark = pytest.mark.live

CASES = [
    Case("bwrap", "bullseye", True),
    Case("bwrap", "bookworm", False),
    Case("apptainer", "bullseye.sif", True),
    Case("apptainer", "bookworm-sb", False),
]
ROCM = """
import ctypes
calls = (("libamdhip64.so.5", "hipInit", 0), ("libhsa-runtime64.so.1", "hsa_init"), ("libcuda.so.1", "cuInit", 0))
print([getattr(ctypes.CDLL(name), function)(*arguments) for name, function, *arguments in calls])
"""


def foretold(machine: Machine, name: str, *, user: bool, options: tuple[str, ...] = ()) -> list[str]:
    """What check says of a start with the host's C library; amdgpu is not loaded, so it ends with 1."""
    words = ["check", *VENDORS, "--libc", "host", "--image", image(name), "--json", *options]
    binds = [CONTAINERS, Bind(f"{RIG}/hosts/nv535", "/srv/nv535")]
    return findings(machine.tried(*words, user=user, driver=True, binds=binds, status=1).stdout)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_that_lacked_a_newer_glibc_loads_and_the_image_goes_on_working(
    trixie: Machine, case: Case, request: pytest.FixtureRequest
) -> None:
    own, hosts = reports(lambda options, *words: start(trixie, case._replace(options=options), *words).stdout)
    hold(own, hosts, foretold(trixie, case.image, user=case.user))
    who = "an ordinary user" if case.user else "root"
    told(request, f"{case.backend}, {who}", case.image, own, hosts)


def test_podman_starts_a_directory_with_it(trixie: Machine, request: pytest.FixtureRequest) -> None:
    engine = Engine("podman", image("bullseye"))
    own, hosts = reports(lambda options, *words: start_engine(trixie, engine, *words, options=options))
    hold(own, hosts, foretold(trixie, "bullseye", user=False))
    told(request, "podman, root", "bullseye", own, hosts)


def test_a_driver_root_brings_its_own_c_library(trixie: Machine) -> None:
    """Debian 12 with its driver in a directory: glibc 2.36 for an image that has 2.31."""
    case = Case("bwrap", "bullseye", True, ("--nv", "--libc", "host", "--root", "/srv/nv535", "--dev-root", "/"))
    done = start(trixie, case, "python3", "-c", PROBE, binds=[Bind(f"{RIG}/hosts/nv535", "/srv/nv535")])
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["glibc"] == "glibc 2.36"
    assert [why for why in report["refused"].values() if "version" in why] == []


def test_a_rocm_of_a_newer_distribution_starts_with_auto(trixie: Machine) -> None:
    case = Case("apptainer", "bullseye-sb", True, (*VENDORS, "--libc", "auto"))
    assert start(trixie, case, "python3", "-c", ROCM).stdout.split("\n")[0] == "[101, 4104, 100]"


def test_an_image_as_new_as_the_host_gets_the_plan_that_it_got(trixie: Machine) -> None:
    words = ["plan", *VENDORS, "--image", image("trixie"), "--json"]
    plans = [document(trixie.gpubind(*words, "--libc", side, binds=[CONTAINERS])) for side in ("image", "host", "auto")]
    for plan in plans:
        del plan["request"]["libc"]
    assert plans[0] == plans[1] == plans[2]
