"""Charliecloud, systemd-nspawn and PRoot: what a container of each gets, and how it ends."""

from __future__ import annotations

import functools
import json
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.live.containers import MARK, PROBE, gone_wrong, listing
from tests.live.machine import CHECKOUT, PYTHON_ENV, RIG, Bind, Machine
from tests.live.plain_runtimes import IMAGES, SIGNALLED, WAYS, Way
from tests.live.table import Shows

pytestmark = pytest.mark.live

BINDS = (Bind(f"{RIG}/ct", IMAGES), Bind(f"{CHECKOUT}/tests/live/rig", "/scripts"))


WAY = pytest.mark.parametrize("way", WAYS, ids=str)
IMAGE = pytest.mark.parametrize("name", ["bullseye", "bookworm"])


def words(way: Way, name: str, *options: str) -> list[str]:
    return ["exec", "--backend", way.backend, *way.options, *options, f"{IMAGES}/{name}"]


def start(
    machine: Machine, way: Way, name: str, *command: str, env: Mapping[str, str] = {}, status: int = 0
) -> subprocess.CompletedProcess[str]:
    arguments = [*words(way, name), *command]
    return machine.tried(*arguments, user=way.user, driver=True, binds=BINDS, env=env, status=status)


@functools.cache
def look(machine: Machine, way: Way, name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(start(machine, way, name, "python3", "-c", PROBE).stdout)
    return report


def shell(machine: Machine, way: Way, script: str) -> str:
    binds = [*machine.modules, *BINDS]
    return machine.run(["sh", "-ec", script], user=way.user, driver=True, binds=binds, env=PYTHON_ENV).stdout


def gpubind(way: Way, name: str = "bookworm", *options: str) -> str:
    """What starts a command, for a shell."""
    return shlex.join(["python3", "-m", "gpubind", *words(way, name, "-q", *options)])


@WAY
@IMAGE
def test_the_driver_answers_and_no_library_fails_for_the_c_library(
    trixie: Machine, way: Way, name: str, shows: Shows
) -> None:
    report = look(trixie, way, name)
    assert report["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}
    assert [why for why in report["unloadable"].values() if "GLIBC" in why] == []
    assert report["environ"]["LD_LIBRARY_PATH"].split(":")[-1] == "/.gpubind/libs"
    shows(way.backend, name)
    shows(way.backend, f"{name} loads")


LINES = {
    "ch-run": ("ch-run", f"{IMAGES}/bookworm", "--"),
    "proot": ("proot", "-R", f"{IMAGES}/bookworm"),
    "systemd-nspawn": (
        "systemd-nspawn",
        "--quiet",
        "--directory",
        f"{IMAGES}/bookworm",
        "--register=no",
        "--keep-unit",
    ),
}


@WAY
def test_a_line_of_its_own_gives_the_driver_that_exec_gives(trixie: Machine, way: Way) -> None:
    line = ["wrap", *way.options, "--", *LINES[way.backend], "/usr/bin/python3", "-c", PROBE]
    done = trixie.tried(*line, user=way.user, driver=True, binds=BINDS)
    assert json.loads(done.stdout)["status"] == look(trixie, way, "bookworm")["status"]


@pytest.mark.parametrize(
    ("options", "env"),
    [(["-s", "/storage"], {}), ([], {"CH_IMAGE_STORAGE": "/storage"}), ([], {})],
    ids=["option", "variable", "default"],
)
def test_ch_run_by_name_starts_the_image_of_its_storage_with_the_driver(
    trixie: Machine, options: list[str], env: dict[str, str]
) -> None:
    storage = "/storage" if options or env else "/var/tmp/user.ch"
    stored = Bind(f"{RIG}/ct/bookworm", f"{storage}/img/host+5000%bull+1")
    line = ("ch-run", *options, "host:5000/bull:1", "--", "/usr/bin/python3", "-c", PROBE)
    assert json.loads(trixie.run(line, user=True, binds=[stored], env=env).stdout)["status"]["cuInit"] != 100
    done = trixie.tried("wrap", "--", *line, user=True, driver=True, binds=[stored], env=env)
    assert json.loads(done.stdout)["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}
    missing = ("wrap", "--", "ch-run", *options, "nobody:1", "--", "true")
    done = trixie.tried(*missing, user=True, driver=True, binds=[stored], env=env, status=1)
    assert "note: image-unknown: " in done.stderr
    assert "can't stat: nobody:1" in done.stderr


@WAY
@IMAGE
def test_no_file_of_the_driver_can_be_written_where_that_is_promised(
    trixie: Machine, way: Way, name: str, shows: Shows
) -> None:
    report = look(trixie, way, name)
    answers = report["opened"]
    if way.read_only:
        assert answers == ["EROFS"]
        assert {answer for _, answer in report["mounts"].values()} <= {"EROFS"}
        shows(way.backend, "read-only")
        shows(way.backend, "a write fails")
    elif way.user:
        assert answers == ["EACCES"]
        shows(way.backend, "a write fails")
        done = trixie.tried(*words(way, name, "-v"), "true", user=True, driver=True, binds=BINDS)
        assert "note: no-read-only-bind" in done.stderr


def test_root_is_told_what_a_container_could_write(trixie: Machine, shows: Shows) -> None:
    for way in WAYS:
        if "--allow-writable" in way.options:
            plain = way._replace(options=tuple(word for word in way.options if word != "--allow-writable"))
            assert "writable-bind" in start(trixie, plain, "bookworm", "true", status=125).stderr
            shows(way.backend, "read-only", "no such bind; the modes count")
            shows(way.backend, "a write fails", "for root refused before the start, or --allow-writable")


def test_a_line_of_proot_starts_as_it_is_where_root_could_write_the_drivers_files(trixie: Machine) -> None:
    line = ("proot", "-R", f"{IMAGES}/bookworm", "/bin/sh", "-c", "exit 7")
    done = trixie.tried("wrap", "--", *line, driver=True, binds=BINDS, status=7)
    assert "warning: writable-bind: " in done.stderr
    assert "the line starts as it is, without a plan" in done.stderr
    demanded = trixie.tried("wrap", "--gpus", "all", "--", *line, driver=True, binds=BINDS, status=125)
    assert "error: writable-bind: " in demanded.stderr


@WAY
def test_nodes_can_be_opened(trixie: Machine, way: Way, shows: Shows) -> None:
    devices = look(trixie, way, "bookworm")["devices"]
    assert {devices[f"/dev/{name}"] for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")} == {"ENXIO"}
    shows(way.backend, "chosen ones usable")


@WAY
def test_only_chosen_nodes_are_there_where_dev_is_isolated(trixie: Machine, way: Way, shows: Shows) -> None:
    there = shell(trixie, way, f"{gpubind(way, 'bookworm', '--gpus', '1')} sh -c 'echo /dev/nvidia[0-9]'").split()
    assert there == (["/dev/nvidia1"] if way.isolated else ["/dev/nvidia0", "/dev/nvidia1"])
    shows(way.backend, "others absent", "yes" if way.isolated else "/dev is the host's")


@WAY
def test_the_images_own_libraries_and_the_users_stay_in_the_search_path(
    trixie: Machine, way: Way, shows: Shows
) -> None:
    users = "LD_LIBRARY_PATH=/users/lib"
    if not way.environment:
        way = way._replace(options=(*way.options, f"--backend-arg=--setenv={users}"))
    env = dict([users.split("=")]) if way.environment else {}
    value = start(trixie, way, "bookworm-path-sb", "sh", "-c", "echo $LD_LIBRARY_PATH", env=env).stdout.strip()
    assert value.split(":") == ["/users/lib", "/.gpubind/libs", "/opt/own/lib"]
    shows(way.backend, "the image's")
    shows(way.backend, "the user's")


@WAY
@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_the_exit_code_is_the_childs(trixie: Machine, way: Way, status: int, shows: Shows) -> None:
    start(trixie, way, "bookworm", "sh", "-c", f"exit {status}", status=status)
    shows(way.backend, "exit code")


@WAY
@pytest.mark.parametrize(("command", "status"), [("/etc/passwd", 126), ("nothere", 127)])
def test_a_command_that_cannot_start_is_told_as_by_a_shell(
    trixie: Machine, way: Way, command: str, status: int
) -> None:
    start(trixie, way, "bookworm", command, status=status)


@WAY
@pytest.mark.parametrize(("signal", "number"), [("TERM", 15), ("INT", 2)])
def test_a_signal_to_the_process_ends_the_child(
    trixie: Machine, way: Way, signal: str, number: int, shows: Shows
) -> None:
    words = f"setsid {gpubind(way)}" if way.group else gpubind(way)
    script = SIGNALLED.format(start=words, number=number, to="-" if way.group else "")
    assert shell(trixie, way, script).splitlines() == [f"ended {way.killed or 128 + number}"]
    to = "to the process group alone, " if way.group else ""
    shows(way.backend, f"SIG{signal}", f"{to}exit {way.killed}" if way.killed else "yes")


@WAY
def test_standard_input_and_output_are_the_childs(trixie: Machine, way: Way, shows: Shows) -> None:
    assert shell(trixie, way, f"echo through | {gpubind(way)} cat | cat") == "through\n"
    shows(way.backend, "standard input")


@WAY
def test_a_terminal_is_the_childs(trixie: Machine, way: Way, shows: Shows) -> None:
    inside = f"{gpubind(way)} sh -c 'test -t 0 && test -t 1 && echo a terminal'"
    assert "a terminal" in shell(trixie, way, f"script -qec {shlex.quote(inside)} /dev/null")
    shows(way.backend, "terminal")


@WAY
def test_the_image_stays_as_it_was_and_nothing_is_left(trixie: Machine, way: Way, shows: Shows) -> None:
    before = listing(f"{RIG}/ct/bookworm")
    script = f"""{MARK}
        cat /proc/self/mountinfo > /dev/shm/before
        MARKED=$MARK {gpubind(way)} sh -c 'echo > /etc/x || true' 2> /dev/null
        cat /proc/self/mountinfo | cmp - /dev/shm/before
        marked || echo nothing is left
    """
    assert shell(trixie, way, script).splitlines() == ["nothing is left"]
    assert listing(f"{RIG}/ct/bookworm") == before
    shows(way.backend, "nothing left")


@WAY
def test_a_container_gets_the_same_bytes_or_the_name_is_said(trixie: Machine, way: Way) -> None:
    options = () if way.read_only else ("--allow-writable",)  # the script makes driver roots of its own
    done = trixie.run(
        ["python3", "/scripts/hostile.py", way.backend, f"{IMAGES}/bookworm", *options],
        user=way.user,
        driver=True,
        binds=[*trixie.modules, *BINDS],
        env=PYTHON_ENV,
    )
    report = json.loads(done.stdout)
    assert report["b'plain'"]["same"] == ["libcuda.so.1", "libnvidia-ml.so.1"]
    assert gone_wrong(report) == {}
