"""`--libc host`: images whose programs run on the host's C library, and what only loads with it."""

from __future__ import annotations

import pytest

from tests.live.bundle_starts import Started, made_bundles
from tests.live.bundle_starts import start as start_bundle
from tests.live.c_library import HOSTS, PROBE, VENDORS, hold, report, vendors
from tests.live.containers import CONTAINERS, Case, image, start
from tests.live.engine_starts import Engine
from tests.live.engine_starts import start as start_engine
from tests.live.machine import RIG, Bind, Machine, document
from tests.live.plain_runtimes import IMAGES, WAYS, Way
from tests.live.wrapped_lines import bwrap_line, line

pytestmark = pytest.mark.live

CASES = [
    Case("bwrap", "bullseye", True),
    Case("bwrap", "bookworm", False),
    Case("apptainer", "bullseye.sif", True),
    Case("apptainer", "bookworm-sb", False),
]
PLAIN = ("ch-run-user", "proot-user", "systemd-nspawn-root")
ROCM = """
import ctypes
calls = (("libamdhip64.so.5", "hipInit", 0), ("libhsa-runtime64.so.1", "hsa_init"), ("libcuda.so.1", "cuInit", 0))
print([getattr(ctypes.CDLL(name), function)(*arguments) for name, function, *arguments in calls])
"""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_that_lacked_a_newer_glibc_loads_and_the_image_goes_on_working(trixie: Machine, case: Case) -> None:
    said = start(trixie, case._replace(options=(*VENDORS, *HOSTS)), "python3", "-c", PROBE).stdout
    who = "an ordinary user" if case.user else "root"
    hold(trixie, f"{case.backend}, {who}", case.image, report(said))


@pytest.mark.parametrize("node", ["trixie", "bookworm"])
def test_podman_starts_a_directory_with_it(node: str, request: pytest.FixtureRequest) -> None:
    machine: Machine = request.getfixturevalue(node)
    engine = Engine("podman", image("bullseye"))
    said = start_engine(machine, engine, "python3", "-c", PROBE, options=[*vendors(machine), *HOSTS])
    hold(machine, "podman, root", "bullseye", report(said))


@pytest.mark.parametrize("user", [True, False], ids=["user", "root"])
def test_an_older_host_serves_an_image_that_is_older_still(bookworm: Machine, user: bool) -> None:
    said = start(bookworm, Case("bwrap", "bullseye", user, ("--nv", *HOSTS)), "python3", "-c", PROBE).stdout
    who = "an ordinary user" if user else "root"
    hold(bookworm, f"bwrap, {who}", "bullseye", report(said))


def test_crun_starts_a_bundle_on_an_older_host_with_it(bookworm: Machine) -> None:
    case = Started("crun", "bullseye", False)
    with made_bundles(bookworm, [case]) as bundles:
        options = ("--nv", *HOSTS)
        said = start_bundle(bookworm, bundles, case, "python3", "-c", PROBE, options=options).stdout
    hold(bookworm, "crun, root", "bullseye", report(said))


@pytest.mark.parametrize(("user", "name"), [(True, "bullseye-sb"), (False, "bookworm-sb")])
def test_apptainers_own_line_gets_it_from_wrap(trixie: Machine, user: bool, name: str) -> None:
    words = ["wrap", *HOSTS, "--", *line(user=user, name=name, flags=VENDORS), "python3", "-c", PROBE]
    said = trixie.gpubind(*words, user=user, driver=True, binds=[CONTAINERS])
    who = "an ordinary user" if user else "root"
    hold(trixie, f"wrap of apptainer, {who}", name, report(said))


def test_bubblewraps_own_line_gets_it_from_wrap(trixie: Machine) -> None:
    words = ["wrap", *VENDORS, *HOSTS, "--", *bwrap_line(name="bullseye"), "python3", "-c", PROBE]
    said = trixie.gpubind(*words, user=True, driver=True, binds=[CONTAINERS])
    hold(trixie, "wrap of bwrap, an ordinary user", "bullseye", report(said))


def test_a_driver_root_brings_its_own_c_library(trixie: Machine) -> None:
    """Debian 12 with its driver in a directory: glibc 2.36 for an image that has 2.31."""
    case = Case("bwrap", "bullseye", True, ("--nv", *HOSTS, "--root", "/srv/nv535", "--dev-root", "/"))
    done = start(trixie, case, "python3", "-c", PROBE, binds=[Bind(f"{RIG}/hosts/nv535", "/srv/nv535")])
    seen = report(done.stdout)
    assert seen["glibc"] == "glibc 2.36"
    assert [why for why in seen["refused"].values() if "version" in why] == []


def test_a_rocm_of_a_newer_distribution_starts_with_auto(trixie: Machine) -> None:
    case = Case("apptainer", "bullseye-sb", True, (*VENDORS, "--libc", "auto"))
    assert start(trixie, case, "python3", "-c", ROCM).stdout.split("\n")[0] == "[101, 4104, 100]"


@pytest.mark.parametrize("way", [way for way in WAYS if str(way) in PLAIN], ids=str)
def test_every_plain_runtime_binds_over_the_images_own_loader(trixie: Machine, way: Way) -> None:
    words = [
        "exec",
        "--backend",
        way.backend,
        *way.options,
        *VENDORS,
        *HOSTS,
        f"{IMAGES}/bullseye",
        "python3",
        "-c",
        ROCM,
    ]
    said = trixie.tried(*words, user=way.user, driver=True, binds=[Bind(f"{RIG}/ct", IMAGES)]).stdout
    assert said.split("\n")[0] == "[101, 4104, 100]"


def test_an_image_as_new_as_the_host_gets_the_plan_that_it_got(trixie: Machine) -> None:
    words = ["plan", *VENDORS, "--image", image("trixie"), "--json"]
    plans = [document(trixie.gpubind(*words, "--libc", side, binds=[CONTAINERS])) for side in ("image", "host", "auto")]
    for plan in plans:
        del plan["request"]["libc"]
    assert plans[0] == plans[1] == plans[2]
