"""`gpubind exec` with real runtimes, images of several ages, and the real driver in them."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.live.containers import CONTAINERS, Case, image, look, start
from tests.live.driver_shown import PUBLIC_NODES, VERSION
from tests.live.machine import Machine
from tests.live.table import Shows

pytestmark = pytest.mark.live

SUITES = ("bullseye", "bookworm", "trixie")

LACKING = {"bullseye-gl": "libcrypto.so.3: cannot open", "bookworm-gl": "nothing", "trixie-gl": "nothing"}
"""How the loader's complaint starts about what the display libraries do not bring: bullseye has OpenSSL 1.1."""

PLAIN = [
    *(
        Case(backend, suite + kind, True)
        for backend in ("bwrap", "apptainer")
        for suite in SUITES
        for kind in ("", "-sb")
    ),
    *(Case("bwrap", suite, False) for suite in SUITES),
    *(Case("apptainer", f"{suite}-sb", False) for suite in SUITES),
    *(
        Case("apptainer", name, user)
        for name, user in (("bookworm", False), ("bookworm.sif", True), ("bookworm.sif", False))
    ),
]
DISPLAY = [
    *(Case(backend, f"{suite}-gl", True) for backend in ("bwrap", "apptainer") for suite in SUITES),
    *(Case(backend, "bookworm-gl", False) for backend in ("bwrap", "apptainer")),
]
WITH_HOSTS_LOADERS = [
    Case(backend, f"{suite}-gl", True, ("--vendor-neutral", "host"))
    for backend in ("bwrap", "apptainer")
    for suite in SUITES
]
CONTAINED = [
    Case("apptainer", name, user, ("--backend-arg=--contain",))
    for name in ("bookworm", "bookworm-sb")
    for user in (True, False)
]
WHOLE_DEV = [case for case in PLAIN if case.backend == "apptainer"]
MINIMAL_DEV = [case for case in (*PLAIN, *CONTAINED) if case not in WHOLE_DEV]

GPUS = "/dev/nvidia[0-9]"
NODES = (*PUBLIC_NODES, "/dev/dri/card0", "/dev/dri/renderD128", "/dev/nvidia-caps/nvidia-cap1")


def cases(listed: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", listed, ids=str)


@cases(PLAIN + DISPLAY)
def test_the_driver_runs_and_finds_no_gpu(trixie: Machine, case: Case, shows: Shows) -> None:
    assert look(trixie, case)["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}
    if case.suite != "trixie":
        shows(case.backend, case.suite)


@cases(PLAIN)
def test_a_library_lacks_nothing_but_libraries_that_the_image_lacks(trixie: Machine, case: Case, shows: Shows) -> None:
    report = look(trixie, case)
    assert len(report["libraries"]) > 30
    other = {name: why for name, why in report["unloadable"].items() if "cannot open shared object file" not in why}
    assert other == {}
    if case.suite != "trixie":
        shows(case.backend, f"{case.suite} loads")


@cases(DISPLAY)
def test_every_library_loads_in_an_image_with_display_libraries(trixie: Machine, case: Case) -> None:
    report = look(trixie, case)
    assert "libGLX_nvidia.so.0" in report["libraries"]
    assert "libnvidia-egl-gbm.so.1" in report["libraries"] or "bullseye" in case.image
    other = {name: why for name, why in report["unloadable"].items() if not why.startswith(LACKING[case.image])}
    assert other == {}


GBM_DEVICE = (
    *("python3", "-c"),
    "import ctypes, os; create = ctypes.CDLL('libgbm.so.1').gbm_create_device; create.restype = ctypes.c_void_p; "
    "print(bool(create(os.open('/dev/null', os.O_RDWR))), os.environ.get('GBM_BACKENDS_PATH', '').split(':')[0])",
)
"""Has libgbm make a device of a node of another driver than NVIDIA's, as of any other GPU beside it."""


@cases([case for case in DISPLAY if case.user])
def test_libgbm_serves_other_gpus_as_before_beside_the_drivers_backend(trixie: Machine, case: Case) -> None:
    words = ["apptainer", "exec", "--nv", image(case.image), *GBM_DEVICE]
    real = trixie.run(words, user=True, driver=True, binds=[CONTAINERS]).stdout
    assert real == ("True \n" if case.suite == "trixie" else "False \n")  # the others have no driver of Mesa's
    ours = start(trixie, case, *GBM_DEVICE)
    assert ours.stdout == real.replace("\n", f"{case.libdir}\n"), ours.stderr


@cases(PLAIN + DISPLAY)
def test_every_program_has_the_versions_that_it_needs(trixie: Machine, case: Case) -> None:
    unlinked = look(trixie, case)["unlinked"]
    assert [line for lines in unlinked.values() for line in lines if VERSION.search(line)] == []


@cases(WITH_HOSTS_LOADERS)
def test_the_hosts_loaders_are_bound_all_or_none(trixie: Machine, case: Case) -> None:
    report = look(trixie, case)
    other = {name: why for name, why in report["unloadable"].items() if not why.startswith(LACKING[case.image])}
    assert other == {}
    assert ("libGL.so.1" in report["libraries"]) == (case.image == "trixie-gl")


@pytest.mark.parametrize("backend", ["bwrap", "apptainer"])
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_an_image_without_glibc_starts_with_a_finding(trixie: Machine, backend: str, user: bool) -> None:
    done = start(trixie, Case(backend, "busybox", user), "/bin/echo", "started")
    assert done.stdout == "started\n"
    assert "image-without-glibc" in done.stderr


def test_a_sif_without_a_c_library_starts(trixie: Machine) -> None:
    assert start(trixie, Case("apptainer", "busybox.sif", True), "/bin/echo", "started").stdout == "started\n"


@cases(PLAIN + DISPLAY + CONTAINED)
def test_every_mount_of_the_driver_is_read_only(trixie: Machine, case: Case, shows: Shows) -> None:
    mounts = look(trixie, case)["mounts"]
    assert f"{case.libdir}/libcuda.so.1" in mounts
    assert {path: options for path, (options, _) in mounts.items() if "ro" not in options.split(",")} == {}
    refusals = {"EACCES", "EROFS"} if case.user else {"EROFS"}
    assert {answer for _, answer in mounts.values()} <= refusals
    shows(case.backend, "read-only")
    shows(case.backend, "a write fails")


@cases(PLAIN + CONTAINED)
def test_a_node_is_there_and_usable(trixie: Machine, case: Case, shows: Shows) -> None:
    devices = look(trixie, case)["devices"]
    assert {path: devices.get(path) for path in PUBLIC_NODES} == dict.fromkeys(PUBLIC_NODES, "ENXIO")
    shows(case.backend, "chosen ones usable")


@cases(MINIMAL_DEV)
def test_a_container_with_a_dev_of_its_own_has_the_planned_nodes_alone(trixie: Machine, case: Case) -> None:
    devices = look(trixie, case)["devices"]
    assert sorted(set(NODES) - set(devices)) == []
    assert "/dev/kfd" not in devices


def test_a_container_with_the_whole_dev_is_said_to_have_it(trixie: Machine, shows: Shows) -> None:
    done = start(trixie, Case("apptainer", "bookworm-sb", True, ("-v", "--gpus", "1")), "sh", "-c", f"echo {GPUS}")
    assert "devices-not-isolated" in done.stderr
    assert done.stdout == "/dev/nvidia0 /dev/nvidia1\n"
    shows("apptainer", "others absent", "with --contain; else /dev is the host's")


@cases([Case("bwrap", "bookworm", user) for user in (True, False)] + CONTAINED[:1])
def test_a_gpu_that_is_not_chosen_has_no_node(trixie: Machine, case: Case, shows: Shows) -> None:
    chosen = case._replace(options=(*case.options, "--gpus", "1"))
    assert start(trixie, chosen, "sh", "-c", f"echo {GPUS}").stdout == "/dev/nvidia1\n"
    shows(case.backend, "others absent")


def test_bubblewrap_starts_directories_alone(trixie: Machine) -> None:
    words = ["exec", "--backend", "bwrap", image("bookworm.sif"), "true"]
    assert "no-image" in trixie.tried(*words, driver=True, binds=[CONTAINERS], status=125).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "--nv", "-B", "/usr/share", "{image}", "true"),
        ("exec", "--env", "A=1", "--nv", "{image}", "sh", "-c", "test $A = 1"),
        ("exec", "-e", "--contain", "--nv", "{image}", "true"),
        ("--nv", "exec", "--bind", "/usr/share", "{image}", "true"),
        ("--nv", "{image}", "true"),
        ("apptainer", "exec", "--nv", "{image}", "true"),
        ("check", "--nv", "{image}", "sh"),
        ("plan", "--nv", "{image}"),
        ("check", "--nvidia"),
    ],
    ids=" ".join,
)
def test_the_line_that_an_error_proposes_works(trixie: Machine, words: tuple[str, ...]) -> None:
    line = [word.format(image=image("bookworm-sb")) for word in words]
    told = trixie.tried(*line, user=True, driver=True, binds=[CONTAINERS], status=2).stderr
    proposed = re.search(r"did you mean `gpubind (.*?)`\?", told)
    assert proposed is not None
    trixie.tried(*shlex.split(proposed.group(1)), user=True, driver=True, binds=[CONTAINERS])
