"""udocker in mode P1 with Debian's PRoot: what a container of it gets, and how it ends.

So it needs no tarball of tools. PRoot 5.1 starts no program of bookworm for it, with gpubind or without.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping

import pytest

from tests.live.containers import CONTAINERS, EXCLUDES, MARK, PROBE, gone_wrong, image
from tests.live.machine import CHECKOUT, PYTHON_ENV, RIG, Bind, Machine
from tests.live.plain_runtimes import SIGNALLED
from tests.live.table import Shows

pytestmark = pytest.mark.live

ROW = "udocker, P1"
PLACE = "/srv/udocker"
STORE = {"UDOCKER_DIR": f"{PLACE}/store", "UDOCKER_TARBALL": ""}
ENVIRONMENT = {**STORE, "UDOCKER_USE_PROOT_EXECUTABLE": "/usr/bin/proot"}
SCRIPTS = Bind(f"{CHECKOUT}/tests/live/rig", "/scripts")
OWN = "/own/lib"
"""The LD_LIBRARY_PATH of the container."""
USER = 1000
LOADS = """
import ctypes, glob, os
loaded = 0
for path in [*glob.glob("/usr/lib/x86_64-linux-gnu/lib*nvidia*.so*"), "/usr/lib/x86_64-linux-gnu/libcuda.so.1"]:
    try:
        ctypes.CDLL(path)
        loaded += 1
    except OSError as error:
        print(path, error)
    try:
        open(path, "r+b")
        print(path, "is opened")
    except PermissionError:
        pass
print(loaded)
print(os.environ["LD_LIBRARY_PATH"])
"""


@pytest.fixture(scope="module")
def store(trixie: Machine) -> Iterator[Bind]:
    """The ordinary user's container `bullseye`, where the machine sees it; in memory, for it is many small files."""
    base = tempfile.mkdtemp(prefix="gpubind-udocker-", dir="/dev/shm")
    os.chown(base, USER, USER)
    bind = Bind(base, PLACE, readonly=False)
    try:
        tar = ["tar", "-C", f"{RIG}/ct/bullseye", *shlex.split(EXCLUDES)]
        done = subprocess.run([*tar, "-cf", f"{base}/tar", "."])
        assert done.returncode in (0, 1)  # 1: a file changed meanwhile, be it by a link to it
        shell(trixie, bind, f"udocker import --tocontainer --name=bullseye {PLACE}/tar; rm {PLACE}/tar")
        path = f"{base}/store/containers/bullseye/container.json"
        with open(path) as file:
            container = json.load(file)
        container.setdefault("config", {})["Env"] = [f"LD_LIBRARY_PATH={OWN}"]
        with open(path, "w") as file:
            json.dump(container, file)
        yield bind
    finally:
        shutil.rmtree(base)


def shell(
    machine: Machine, store: Bind, script: str, *, env: Mapping[str, str] = ENVIRONMENT, status: int = 0
) -> subprocess.CompletedProcess[str]:
    binds = [*machine.modules, store, SCRIPTS, CONTAINERS]
    return machine.run(
        ["sh", "-ec", script], user=True, driver=True, binds=binds, env={**PYTHON_ENV, **env}, status=status
    )


def gpubind(*options: str) -> str:
    """What starts a command, for a shell."""
    return shlex.join(["python3", "-m", "gpubind", "exec", "--backend", "udocker", *options, "bullseye"])


def start(machine: Machine, store: Bind, *command: str, options: tuple[str, ...] = (), status: int = 0) -> str:
    """What *command* says in the container."""
    return shell(machine, store, f"exec {gpubind(*options)} {shlex.join(command)}", status=status).stdout


def test_the_driver_answers_and_a_line_of_its_own_gives_the_same(trixie: Machine, store: Bind, shows: Shows) -> None:
    report = json.loads(start(trixie, store, "python3", "-c", PROBE))
    assert report["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}
    assert {report["devices"][f"/dev/{name}"] for name in ("nvidia0", "nvidia1", "nvidiactl")} == {"ENXIO"}
    line = ["wrap", "--", "udocker", "run", "--nobanner", "bullseye", "python3", "-c", PROBE]
    wrapped = shell(trixie, store, shlex.join(["python3", "-m", "gpubind", *line]))
    assert json.loads(wrapped.stdout) == report
    shows(ROW, "bullseye")
    shows(ROW, "chosen ones usable")
    shows(ROW, "others absent", "/dev is the host's")


def test_libraries_load_and_cannot_be_written_and_the_images_path_is_kept(
    trixie: Machine, store: Bind, shows: Shows
) -> None:
    *wrong, loaded, path = start(trixie, store, "python3", "-c", LOADS).splitlines()
    assert [line for line in wrong if "cannot open shared object file" not in line] == []
    assert (int(loaded) > 10, path) == (True, OWN)
    shows(ROW, "bullseye loads")
    shows(ROW, "read-only", "no such bind; the modes count")
    shows(ROW, "a write fails")
    shows(ROW, "the image's")


def test_the_users_own_path_is_kept_and_the_driver_found(trixie: Machine, store: Bind, shows: Shows) -> None:
    script = "import ctypes, os; print(os.environ['LD_LIBRARY_PATH'], ctypes.CDLL('libcuda.so.1').cuInit(0))"
    users = ("--backend-arg=-e", "--backend-arg=LD_LIBRARY_PATH=/users")
    assert start(trixie, store, "python3", "-c", script, options=users) == "/users 100\n"
    shows(ROW, "the user's")


def test_no_program_of_bookworm_starts_with_gpubind_or_without(trixie: Machine, store: Bind, shows: Shows) -> None:
    said = "libc.so.6: cannot stat shared object: Invalid argument"
    place = f"--location={image('bookworm')}"
    assert said in shell(trixie, store, f"udocker run --nobanner {place} none true", status=127).stderr
    assert said in shell(trixie, store, f"{gpubind('--backend-arg', place)} true", status=127).stderr
    for asked in ("bookworm", "bookworm loads"):
        shows(ROW, asked, "PRoot 5.1 starts nothing of it for udocker")


def test_missing_tools_are_said_before_udocker_fails(trixie: Machine, store: Bind) -> None:
    done = shell(trixie, store, f"{gpubind()} true", env=STORE, status=1)
    assert done.stderr.startswith("warning: udocker-tools")


@pytest.mark.parametrize("status", [0, 42, 255])
def test_the_exit_code_is_the_childs(trixie: Machine, store: Bind, status: int, shows: Shows) -> None:
    start(trixie, store, "sh", "-c", f"exit {status}", status=status)
    shows(ROW, "exit code")


@pytest.mark.parametrize(("signal", "number", "ended"), [("TERM", 15, 143), ("INT", 2, 1)])
def test_a_signal_to_the_process_group_ends_the_child(
    trixie: Machine, store: Bind, signal: str, number: int, ended: int, shows: Shows
) -> None:
    script = SIGNALLED.format(start=f"setsid {gpubind()}", number=number, to="-")
    assert shell(trixie, store, script).stdout.splitlines() == [f"ended {ended}"]
    shows(ROW, f"SIG{signal}", f"to the process group alone, exit {ended}")


def test_standard_input_and_a_terminal_are_the_childs(trixie: Machine, store: Bind, shows: Shows) -> None:
    assert shell(trixie, store, f"echo through | {gpubind()} cat | cat").stdout == "through\n"
    inside = f"{gpubind()} sh -c 'test -t 0 && test -t 1 && echo a terminal'"
    assert "a terminal" in shell(trixie, store, f"script -qec {shlex.quote(inside)} /dev/null").stdout
    shows(ROW, "standard input")
    shows(ROW, "terminal")


def test_nothing_is_left_but_what_udocker_itself_leaves(trixie: Machine, store: Bind, shows: Shows) -> None:
    script = f"""{MARK}
        udocker run --nobanner bullseye true
        find {PLACE} -printf '%p %y %s\\n' | sort > /dev/shm/before
        cat /proc/self/mountinfo > /dev/shm/mounts
        MARKED=$MARK {gpubind()} true
        cat /proc/self/mountinfo | cmp - /dev/shm/mounts
        find {PLACE} -printf '%p %y %s\\n' | sort | diff /dev/shm/before -
        marked || echo nothing is left
    """
    assert shell(trixie, store, script).stdout.splitlines() == ["nothing is left"]
    shows(ROW, "nothing left")


def test_a_container_gets_the_same_bytes_or_the_name_is_said(trixie: Machine, store: Bind) -> None:
    done = shell(trixie, store, "python3 /scripts/hostile.py udocker bullseye --allow-writable")
    report = json.loads(done.stdout)
    assert report["b'plain'"]["same"] == ["libcuda.so.1", "libnvidia-ml.so.1"]
    assert gone_wrong(report) == {}


def test_programs_run_on_the_hosts_c_library_by_the_words_of_a_plan_that_knows_the_image(
    trixie: Machine, store: Bind
) -> None:
    known = f"--image {PLACE}/store/containers/bullseye/ROOT"
    words = f"$(python3 -m gpubind plan -q --nv --libc host {known} --format udocker)"
    script = "import ctypes, os; print(os.confstr('CS_GNU_LIBC_VERSION'), ctypes.CDLL('libcuda.so.1').cuInit(0))"
    said = shell(trixie, store, f"udocker run --nobanner {words} bullseye python3 -c {shlex.quote(script)}").stdout
    assert said == "glibc 2.41 100\n"
    started = shell(trixie, store, f"{gpubind('--nv', '--libc', 'host')} getconf GNU_LIBC_VERSION")
    assert (started.stdout, "libc-without-image" in started.stderr) == ("glibc 2.31\n", True)
