"""`gpubind exec` with crun and runc, of root and of an ordinary user, in bundles that these runtimes wrote themselves.

Two things of the rig's: its /proc has mounts in it, and then the kernel lets no user namespace mount a /proc of its
own; and it has no session manager, so XDG_RUNTIME_DIR is set here, where a user's containers have their state.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live import c_library
from tests.live.bundle_starts import ALL, RIG_SCRIPTS, RUNTIMES, STATE, Started, exec_words, made_bundles, shell, start
from tests.live.containers import PROBE
from tests.live.machine import RIG, Bind, Machine
from tests.live.table import Shows
from tests.live.trials import need_right

pytestmark = pytest.mark.live

VERSION = re.compile(r"version `\S+' not found")
PUBLIC_NODES = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm")

SIGNALLED = """
mkdir -p -m 700 {state}
{start} sh -c 'trap "echo got it; exit 7" {signal}; echo ready; while :; do sleep 0.1; done' > /tmp/said.$$ &
pid=$!
until grep -sq ready /tmp/said.$$; do sleep 0.1; kill -0 $pid; done
kill -{signal} $pid
wait $pid && echo ended 0 || echo ended $?
cat /tmp/said.$$
rm /tmp/said.$$
"""


SOME = [case for case in ALL if case.suite == "bookworm"]


@pytest.fixture(scope="session")
def bundles(trixie: Machine) -> Iterator[Bind]:
    with made_bundles(trixie, ALL) as bind:
        yield bind


def cases(listed: list[Started]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", listed, ids=str)


@functools.cache
def look(machine: Machine, bundles: Bind, case: Started) -> dict[str, Any]:
    """What rig/inside.py says in the container of *case*; each is started once a session."""
    report: dict[str, Any] = json.loads(start(machine, bundles, case, "python3", "-c", PROBE).stdout)
    return report


@cases(ALL)
def test_what_check_predicts_is_seen(trixie: Machine, bundles: Bind, case: Started) -> None:
    words = shlex.join(["check", "--try", "--json", "--backend", case.runtime, "--image", case.bundle])
    done = shell(trixie, bundles, case, f"mkdir -p -m 700 {STATE}; exec python3 -m gpubind {words}")
    assert need_right(json.loads(done.stdout))["loads", True, True] > 25


@cases(SOME)
@pytest.mark.parametrize("options", ["-b {bundle}", "--bundle={bundle}", ""])
def test_a_line_of_their_own_gives_the_driver_that_exec_gives(
    trixie: Machine, bundles: Bind, case: Started, options: str
) -> None:
    with open(f"{bundles.source}/{case}/config.json") as file:
        config = json.load(file)
    config["process"].update(args=["python3", "-c", PROBE], terminal=False)
    config["root"]["path"] = f"{case.bundle}/rootfs"
    other = f"{bundles.source}/{case}-line"
    os.makedirs(other, exist_ok=True)
    with open(f"{other}/config.json", "w") as file:
        json.dump(config, file)
    bundle = f"{case.bundle}-line"
    line = f"cd {bundle}; exec python3 -m gpubind wrap -- {case.runtime} run {options.format(bundle=bundle)} mine"
    done = shell(trixie, bundles, case, f"mkdir -p -m 700 {STATE}; {line}")
    assert json.loads(done.stdout)["status"] == look(trixie, bundles, case)["status"]


@cases(ALL)
def test_the_driver_runs_and_finds_no_gpu(trixie: Machine, bundles: Bind, case: Started, shows: Shows) -> None:
    assert look(trixie, bundles, case)["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}
    shows(case.runtime, case.suite)


@cases(ALL)
def test_no_library_and_no_program_wants_a_newer_c_library(
    trixie: Machine, bundles: Bind, case: Started, shows: Shows
) -> None:
    report = look(trixie, bundles, case)
    assert len(report["libraries"]) > 30
    assert [why for why in report["unloadable"].values() if "cannot open shared object file" not in why] == []
    assert [line for lines in report["unlinked"].values() for line in lines if VERSION.search(line)] == []
    shows(case.runtime, f"{case.suite} loads")


@cases([case for case in ALL if case.suite == "bullseye"])
def test_a_bundles_programs_run_on_the_hosts_c_library(trixie: Machine, bundles: Bind, case: Started) -> None:
    options = (*c_library.VENDORS, *c_library.HOSTS)
    said = start(trixie, bundles, case, "python3", "-c", c_library.PROBE, options=options).stdout
    who = "an ordinary user" if case.user else "root"
    c_library.hold(trixie, f"{case.runtime}, {who}", case.suite, c_library.report(said))


@cases(ALL)
def test_the_bundles_own_search_paths_are_kept(trixie: Machine, bundles: Bind, case: Started, shows: Shows) -> None:
    environ = look(trixie, bundles, case)["environ"]
    assert environ["LD_LIBRARY_PATH"] == "/.gpubind/libs:/opt/own/lib"
    assert environ["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/.gpubind/bin"
    shows(case.runtime, "the image's")
    shows(case.runtime, "the user's", "is that of config.json")


@cases(ALL)
def test_every_mount_of_the_driver_is_read_only(trixie: Machine, bundles: Bind, case: Started, shows: Shows) -> None:
    mounts = look(trixie, bundles, case)["mounts"]
    assert "/.gpubind/libs/libcuda.so.1" in mounts
    assert {path: options for path, (options, _) in mounts.items() if "ro" not in options.split(",")} == {}
    refusals = {"EACCES", "EROFS"} if case.user else {"EROFS"}
    assert {answer for _, answer in mounts.values()} <= refusals
    shows(case.runtime, "read-only")
    shows(case.runtime, "a write fails")


@cases(ALL)
def test_the_planned_nodes_are_there_and_usable_and_no_other_is(
    trixie: Machine, bundles: Bind, case: Started, shows: Shows
) -> None:
    devices = look(trixie, bundles, case)["devices"]
    assert {path: devices.get(path) for path in PUBLIC_NODES} == dict.fromkeys(PUBLIC_NODES, "ENXIO")
    assert "/dev/kfd" not in devices
    shows(case.runtime, "chosen ones usable")


@cases(SOME)
def test_a_gpu_that_is_not_chosen_has_no_node(trixie: Machine, bundles: Bind, case: Started, shows: Shows) -> None:
    command = ("sh", "-c", "ls /dev/nvidia[0-9]; ! echo > /.gpubind/x")
    done = start(trixie, bundles, case, *command, options=("--gpus", "1"))
    assert done.stdout == "/dev/nvidia1\n"
    shows(case.runtime, "others absent")


@cases(SOME)
@pytest.mark.parametrize(
    ("command", "status"),
    [(("sh", "-c", "exit 42"), 42), (("true",), 0), (("/etc/passwd",), 126), (("nothere",), 127)],
    ids=["42", "0", "no program", "not there"],
)
def test_the_exit_code_is_the_childs(
    trixie: Machine, bundles: Bind, case: Started, command: tuple[str, ...], status: int, shows: Shows
) -> None:
    start(trixie, bundles, case, *command, status=status)
    shows(case.runtime, "exit code")


@cases(SOME)
@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_a_signal_comes_through(trixie: Machine, bundles: Bind, case: Started, signal: str, shows: Shows) -> None:
    words = shlex.join(["python3", "-m", "gpubind", *exec_words(case), "-q", case.bundle])
    # A shell has its background jobs ignore SIGINT, and what ignores it passes that on.
    listening = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
    words = f"python3 -c {shlex.quote(listening)} {words}"
    script = SIGNALLED.format(state=STATE, start=words, signal=signal)
    assert shell(trixie, bundles, case, script).stdout.splitlines() == ["ended 7", "ready", "got it"]
    shows(case.runtime, f"SIG{signal}")


@cases(SOME)
def test_input_output_and_a_terminal_are_the_childs(
    trixie: Machine, bundles: Bind, case: Started, shows: Shows
) -> None:
    words = shlex.join(["python3", "-m", "gpubind", *exec_words(case), "-q", case.bundle])
    piped = shell(trixie, bundles, case, f"mkdir -m 700 {STATE}; echo through | {words} cat | cat")
    assert piped.stdout == "through\n"
    inside = f"{words} sh -c 'test -t 0 && test -t 1 && echo a terminal'"
    typed = shell(trixie, bundles, case, f"mkdir -m 700 {STATE}; script -qec {shlex.quote(inside)} /dev/null")
    assert "a terminal" in typed.stdout
    shows(case.runtime, "standard input")
    shows(case.runtime, "terminal")


@cases(SOME)
def test_what_is_left_are_empty_mount_points_and_the_staged_configuration(
    trixie: Machine, bundles: Bind, case: Started, shows: Shows
) -> None:
    look(trixie, bundles, case)
    there = f"{bundles.source}/{case}"
    before, config = entries(f"{RIG}/ct/{case.suite}"), os.stat(f"{there}/config.json")
    script = f"""
        mkdir -m 700 {STATE}; cat /proc/self/mountinfo > /tmp/before
        python3 -m gpubind {shlex.join(exec_words(case))} -q {case.bundle} true
        cat /proc/self/mountinfo | cmp - /tmp/before
        test -z "$(find {STATE} /run/{case.runtime} -name 'gpubind-*' 2> /dev/null)"
        cd ~/.cache/gpubind; ls -d */*
    """
    staged = shell(trixie, bundles, case, script).stdout.splitlines()
    assert [name.rpartition("/")[2] for name in staged] == ["config.json"]
    assert os.stat(f"{there}/config.json").st_mtime_ns == config.st_mtime_ns
    left = {path: size for path, size in entries(f"{there}/rootfs").items() if path not in before}
    assert {path for path in left if path.startswith("/.gpubind")} == {"/.gpubind"}
    assert {path: size for path, size in left.items() if size} == {}
    assert {*before} <= {*entries(f"{there}/rootfs")}
    shows(case.runtime, "nothing left", "empty mount points in the rootfs; the edited config.json in ~/.cache/gpubind")


@cases(SOME)
def test_a_bundle_that_is_edited_in_place_starts_by_the_runtimes_own_command(
    trixie: Machine, bundles: Bind, case: Started
) -> None:
    program = ["python3", "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
    script = f"""
        mkdir -m 700 {STATE} /tmp/b; cd /tmp/b; ln -s {case.bundle}/rootfs rootfs
        python3 - {case.bundle}/config.json {shlex.join(program)} <<'END'
import json, sys
config = json.load(open(sys.argv[1]))
config["process"].update(args=sys.argv[2:], terminal=False)
config["root"]["path"] = "{case.bundle}/rootfs"
json.dump(config, open("config.json", "w"), indent=1)
END
        python3 -m gpubind plan --format oci --image . -q -o config.json; cp config.json once
        python3 -m gpubind plan --format oci --image . -q -o config.json; cmp config.json once
        {case.runtime} run --bundle . edited
    """
    assert shell(trixie, bundles, case, script).stdout == "100\n"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_root_file_system_of_somebody_elses_is_told_before_the_start(
    trixie: Machine, bundles: Bind, runtime: str
) -> None:
    case = Started(runtime, "bookworm", True)
    roots = Started(runtime, "bookworm", False)
    ours = f"{bundles.source}/{roots}/rootfs/.gpubind"
    if os.path.isdir(ours):
        os.rmdir(ours)
    script = f"python3 -m gpubind exec --backend {runtime} {roots.bundle} true"
    assert "read-only-rootfs" in shell(trixie, bundles, case, script, status=125).stderr


@cases([case for case in SOME if case.user])
def test_a_container_gets_the_same_bytes_or_the_name_is_said(trixie: Machine, bundles: Bind, case: Started) -> None:
    script = f"mkdir -m 700 {STATE}; python3 {RIG_SCRIPTS.target}/hostile.py {case.runtime} {case.bundle}"
    report = json.loads(shell(trixie, bundles, case, script).stdout)
    assert report["b'plain'"]["same"] == ["libcuda.so.1", "libnvidia-ml.so.1"]
    refused = {name for name, found in report.items() if found["status"] == 125 and found["root"] in found["said"]}
    assert refused == {ascii(b"\xff\xfe")}
    wrong = {name: found["said"][-300:] for name, found in report.items() if name not in refused and found["other"]}
    assert wrong == {}


def entries(root: str) -> dict[str, int]:
    """Everything below *root*, with the size of each file."""
    found: dict[str, int] = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(directory, name)
            size = os.lstat(path).st_size if name in files else 0
            found[path[len(root) :]] = size
    return found
