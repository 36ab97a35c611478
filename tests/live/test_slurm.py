"""contrib/ on a cluster of five nodes, each of which can be broken alone: what drains a node, and what does not."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import parser

from tests.live.cluster import Cluster, cluster
from tests.live.interpreters import dependencies
from tests.live.machine import CHECKOUT, INSIDE_CHECKOUT, INSIDE_PYTHON, Bind

pytestmark = pytest.mark.live

GPUBIND = f"""#!/bin/sh
export PYTHONPATH={INSIDE_CHECKOUT}:{INSIDE_PYTHON} PYTHONPYCACHEPREFIX=/srv/bytecode
exec /usr/bin/python3 -m gpubind "$@"
"""
PROLOG = (
    *("PrologFlags=Alloc", "SchedulerParameters=nohold_on_prolog_fail,sched_interval=1"),
    *("SchedulerType=sched/builtin", "AuthInfo=cred_expire=5"),
)
"""cred_expire is how long a job that is queued again waits, 5 s or more."""
HEALTH = ("HealthCheckInterval=1",)
CHECK = "/etc/slurm/hooks/healthcheck.sh"
DRIVER = "/usr/lib/x86_64-linux-gnu/nvidia/current"
LIBCUDA = f"{DRIVER}/libcuda.so.550.163.01"
SITE = "/etc/gpubind"
BY_HAND = " - resume by hand"
EXPECTED = f"mkdir -p {SITE}; printf '[require]\\ngpus = 2\\n' > {SITE}/config.toml"
ALL = ("n1", "n2", "n3", "n4", "n5")


class Break(NamedTuple):
    """What happens to a node, what undoes it, and the reason that the node is drained with."""

    change: str
    repair: str
    reason: str


BREAKS = {
    "truncated library": Break(
        f"cp {LIBCUDA} /mnt; truncate -s 20000000 {LIBCUDA}",
        f"cp /mnt/libcuda* {LIBCUDA}",
        "library-unreadable(libcuda.so.1)",
    ),
    "node gone": Break(
        "rm /dev/nvidia1", "mknod -m 666 /dev/nvidia1 c 195 1", "expected-gpus(1 of 2) gpu-node-missing(/dev/nvidia1)"
    ),
    "GPU gone": Break(
        "mv /proc/driver/nvidia/gpus/0000:02:00.0 /mnt; rm /dev/nvidia1",
        "mv /mnt/0000:02:00.0 /proc/driver/nvidia/gpus; mknod -m 666 /dev/nvidia1 c 195 1",
        "expected-gpus(1 of 2)",
    ),
    "wrong minor": Break(
        "rm /dev/nvidia0; mknod -m 666 /dev/nvidia0 c 195 7",
        "rm /dev/nvidia0; mknod -m 666 /dev/nvidia0 c 195 0",
        "gpu-node-missing(/dev/nvidia0)",
    ),
    "module unloaded": Break(
        "cp /proc/devices /mnt; mv /proc/driver/nvidia /mnt; grep -v nvidia /mnt/devices > /proc/devices",
        "cat /mnt/devices > /proc/devices; cp -r /mnt/nvidia /proc/driver",
        "driver-not-loaded(nvidia)",
    ),
    "updated without a reboot": Break(
        "sed -i s/550.163.01/550.90.07/ /proc/driver/nvidia/version",
        "sed -i s/550.90.07/550.163.01/ /proc/driver/nvidia/version",
        "driver-mismatch(550.163.01)",
    ),
    "older list": Break(
        f"mkdir -p {SITE}; grep -v ptxjit {INSIDE_CHECKOUT}/etc/nvliblist.conf > {SITE}/nvliblist.conf",
        f"rm {SITE}/nvliblist.conf",
        "companion-missing(libnvidia-ptxjitcompiler.so.1)",
    ),
    "nvidia-uvm's node gone": Break(
        "rm /dev/nvidia-uvm", "mknod -m 666 /dev/nvidia-uvm c 235 0", "uvm-missing(/dev/nvidia-uvm)"
    ),
}
HALVES = [list(BREAKS)[:4], list(BREAKS)[4:]]
Up = Callable[..., AbstractContextManager[Cluster]]


@pytest.fixture(scope="session")
def up(rig: str, tmp_path_factory: pytest.TempPathFactory) -> Up:
    """A function that has a cluster up, of five nodes with gpubind and contrib/slurm."""
    directory = tmp_path_factory.mktemp("slurm")
    gpubind = directory / "gpubind"
    gpubind.write_text(GPUBIND)
    gpubind.chmod(0o755)
    places = {
        CHECKOUT: INSIDE_CHECKOUT,
        dependencies(rig, "3.13"): INSIDE_PYTHON,
        str(gpubind): "/usr/local/bin/gpubind",
    }
    (directory / "bytecode").mkdir()
    binds = [Bind(source, target) for source, target in places.items()]
    binds.append(Bind(f"{directory}/bytecode", "/srv/bytecode", readonly=False))
    hooks = f"{CHECKOUT}/contrib/slurm"
    return lambda *settings: cluster(f"{directory}/rig", 5, hooks=hooks, settings=settings, binds=binds)


@pytest.mark.parametrize("names", HALVES, ids=" and ".join)
def test_no_job_runs_on_a_broken_node(up: Up, names: list[str]) -> None:
    with up(*PROLOG) as five:
        for node, name in zip(ALL, names):
            five.on(node, "sh", "-ec", f"{EXPECTED}; {BREAKS[name].change}")
        jobs(five, 5)
        assert ran_on(five, 5) == ["n5"] * 5
        drained = {node: f"drained gpubind: {BREAKS[name].reason}{BY_HAND}" for node, name in zip(ALL, names)}
        wait(five, {**drained, "n5": "idle"})


def test_the_health_check_drains_and_resumes(up: Up) -> None:
    """As docs/cluster.md shows it."""
    shown = ""
    with up(*HEALTH) as five:
        for node in ALL:
            five.on(node, "sh", "-c", EXPECTED)
        for names in HALVES:
            shell(five, {node: BREAKS[name].change for node, name in zip(ALL, names)})
            drained = {node: f"drained gpubind: {BREAKS[name].reason}" for node, name in zip(ALL, names)}
            wait(five, {**drained, "n5": "idle"})
            shown += five.run("sinfo", "-R", "-o", "%N %E")
            shell(five, {node: BREAKS[name].repair for node, name in zip(ALL, names)})
            wait(five, dict.fromkeys(ALL, "idle"))
            assert set(five.run("sinfo", "-hN", "-o", "%E").split()) == {"none"}
    page = Path(CHECKOUT, "docs/cluster.md").read_text()
    assert [
        line for line in page.splitlines() if re.match("n[0-9] gpubind: ", line) and line not in shown.splitlines()
    ] == []


def test_a_node_that_a_job_has_broken_is_drained_when_it_ends(up: Up) -> None:
    with up(*PROLOG) as five:
        five.run("srun", "-w", "n1", "--gres=gpu:1", "rm", "/dev/nvidia-uvm")
        wait(five, {"n1": f"drained gpubind: uvm-missing(/dev/nvidia-uvm){BY_HAND}"})


def test_no_drain_by_slurm_is_undone(up: Up) -> None:
    """Slurm keeps the first reason: only slurmctld's log has that a site's epilog has failed after gpubind's drain."""
    with up(*PROLOG, *HEALTH) as five:
        Path(five.directory, "etc/hooks/epilog.sh").write_text("#!/bin/sh\nexit 1\n")
        lost = "rm /dev/nvidia-uvm; until scontrol show node n1 | grep DRAIN; do sleep 0.2; done"
        five.run("srun", "-w", "n1", "--gres=gpu:1", "sh", "-c", lost)
        five.run("srun", "-w", "n2", "--gres=gpu:1", "true")
        shell(five, {"n3": "rm /dev/nvidia-uvm"})
        drained = f"drained gpubind: uvm-missing(/dev/nvidia-uvm){BY_HAND}"
        wait(five, {"n1": drained, "n2": "drained Epilog error", "n3": drained.removesuffix(BY_HAND)})
        assert "epilog error on n1" in Path(five.directory, "log/ctl").read_text()
        shell(five, dict.fromkeys(("n1", "n3"), BREAKS["nvidia-uvm's node gone"].repair))
        wait(five, {"n3": "idle"})
        for node in ALL[:2]:
            five.on(node, "env", "-i", f"SLURMD_NODENAME={node}", CHECK)
        wait(five, {"n1": drained, "n2": "drained Epilog error"})


def test_another_fault_changes_the_reason(up: Up) -> None:
    with up(*HEALTH) as five:
        shell(five, {"n1": "rm /dev/nvidia-uvm"})
        wait(five, {"n1": "drained gpubind: uvm-missing(/dev/nvidia-uvm)"})
        shell(five, {"n1": "rm /dev/nvidia1"})
        wait(five, {"n1": "drained gpubind: gpu-node-missing(/dev/nvidia1) uvm-missing(/dev/nvidia-uvm)"})


def test_what_an_administrator_has_drained_stays_as_it_is(up: Up) -> None:
    """Broken or not, also if gpubind had drained the node before."""
    with up(*HEALTH) as five:
        update(five, "n1", "drain", "new disk")
        update(five, "n2", "drain", "new disk")
        update(five, "n3", "down", "no power")
        shell(five, dict.fromkeys(("n2", "n3", "n4", "n5"), "rm /dev/nvidia-uvm"))
        wait(five, dict.fromkeys(("n4", "n5"), "drained gpubind: uvm-missing(/dev/nvidia-uvm)"))
        update(five, "n4", "drain", "see ticket")
        told = {"n1": "drained new disk", "n2": "drained new disk", "n3": "down no power", "n4": "drained see ticket"}
        shell(five, {"n5": BREAKS["nvidia-uvm's node gone"].repair})
        wait(five, {**told, "n5": "idle"})
        shell(five, dict.fromkeys(("n2", "n4"), BREAKS["nvidia-uvm's node gone"].repair))
        for node, status in zip(ALL, (0, 0, 1, 0)):
            five.on(node, "env", "-i", f"SLURMD_NODENAME={node}", CHECK, status=status)
        assert states(five) == {**told, "n5": "idle"}


OF_USERS = {
    "n1": "true",
    "n2": "chgrp 44 /dev/nvidia*; chmod 660 /dev/nvidia*",
    "n3": "sed -i /^user:/d /etc/passwd",
    "n4": f"mkdir -p {SITE}; echo nonsense > {SITE}/config.toml",
}
"""Nodes for a group only, a user whom the node does not know, and a mistake of the site's."""


def test_what_is_no_fault_of_the_node_drains_nothing(up: Up) -> None:
    with up(*PROLOG, *HEALTH) as five:
        shell(five, OF_USERS)
        jobs(five, 5, "gpubind check --nv --image /nowhere.sif")
        assert sorted(ran_on(five, 5)) == list(ALL)
        for node in ALL:
            five.on(node, "env", "-i", f"SLURMD_NODENAME={node}", CHECK)
        wait(five, dict.fromkeys(ALL, "idle"))
        assert "error: device-permission" in Path(five.directory, "out/n2.log").read_text()


HANGS = "printf '#!/bin/sh\\nexec sleep 1000\\n'"
ZIP = f"python3 -m zipapp {INSIDE_CHECKOUT}/gpubind -p '/usr/bin/env python3'"
TRUNCATED = f"{ZIP} -o /mnt/zip; head -c 20000 /mnt/zip"
REPLACE = "> /mnt/gpubind; umount /usr/local/bin/gpubind; install -m 755 /mnt/gpubind /usr/local/bin/gpubind"
BAD_CONFIG = f"exit code 5: error: bad-config: malformed configuration file where: {SITE}/config.toml why: "
NO_ANSWER = {
    "n1": (f"{HANGS} {REPLACE}", "exit code 124: no answer in 3 s"),
    "n2": (f"mkdir -p {SITE}; echo 'cap = 1' > {SITE}/config.toml", BAD_CONFIG),
    "n3": (f"{TRUNCATED} {REPLACE}", "SyntaxError: "),
}
"""A node whose gpubind hangs, a mistake of the site's, and a damaged gpubind; and what is said about it."""
LISTEN = """exec python3 -c '
import os, socket
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
os.chmod("/dev/log", 0o666)
while True:
    print(log.recv(2000).decode(), flush=True)
' > /mnt/log 2>&1 < /dev/null &
until test -S /dev/log; do sleep 0.1; done"""


def test_a_gpubind_without_an_answer_is_reported_and_neither_drains_a_node_nor_holds_a_job(up: Up) -> None:
    with up(*PROLOG, *HEALTH) as five:
        for hook in Path(five.directory, "etc/hooks").glob("*.sh"):
            hook.write_text(hook.read_text().replace("limit=20", "limit=3"))
        shell(five, {node: f"{change}; {LISTEN}" for node, (change, _) in NO_ANSWER.items()})
        began = time.monotonic()
        jobs(five, 5, "env | grep -c APPTAINER")
        assert sorted(ran_on(five, 5)) == list(ALL)
        assert time.monotonic() - began < 60
        wait(five, dict.fromkeys(ALL, "idle"))
        for node, (_, said) in NO_ANSWER.items():
            printed = Path(five.directory, f"out/{node}.log").read_text()
            assert printed.startswith("gpubind: no GPU plan, so a container needs --nv: ")
            assert said in printed.splitlines()[0]
            assert printed.splitlines()[1:] == ["0"]
            logged = [line for line in five.on(node, "cat", "/mnt/log").splitlines() if said in line]
            assert [
                what for what in ("not checked", "job ") if not any(f"gpubind: {what}" in line for line in logged)
            ] == []
        for node in ALL[3:]:
            assert Path(five.directory, f"out/{node}.log").read_text() == "7\n"


LOGGED = f"""
import os, socket, subprocess
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
log.settimeout(300)
done = subprocess.run(["{CHECK}"], env={{"SLURMD_NODENAME": os.uname().nodename}})
print(done.returncode, log.recv(2000).decode().partition("gpubind: ")[2])
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            f"mkdir -p {SITE}; echo nonsense > {SITE}/config.toml",
            f"0 not checked: {BAD_CONFIG}",
        ),
        ("umount /usr/local/bin/gpubind; rm /usr/local/bin/gpubind", "0 not checked: exit code 127: "),
    ],
    ids=["configuration", "program"],
)
def test_what_cannot_be_checked_is_in_the_log(up: Up, change: str, said: str) -> None:
    with up() as five:
        shell(five, {"n1": change})
        assert five.on("n1", "python3", "-c", LOGGED).startswith(said)


TIMED = """
import os, resource, subprocess, sys
def used():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
for turn in range(4):
    before = used()
    subprocess.run(sys.argv[1:], env={"SLURMD_NODENAME": os.uname().nodename, "SLURM_JOB_GPUS": "0"}, check=True)
    print(round(1000 * (used() - before)))
"""


def test_a_healthy_node_costs_a_job_little_processor_time(up: Up) -> None:
    """Milliseconds: the first job of a node, and each later one."""
    with up() as five:
        five.on("n2", "python3", "-c", TIMED, "/etc/slurm/hooks/prolog.sh")  # the byte code is there then
        first, _, *later = map(int, five.on("n1", "python3", "-c", TIMED, "/etc/slurm/hooks/prolog.sh").split())
        assert first < 500
        assert min(later) < 150


NHC = f"{INSIDE_CHECKOUT}/tests/data/nhc-1.4.3"
RUN_NHC = (f"{NHC}/nhc", "-c", "/mnt/nhc.conf", "-l", "/mnt/nhc.log", "INCDIR=/mnt/scripts", "MARK_OFFLINE=0")


def test_node_health_check_runs_the_check(up: Up) -> None:
    with up() as five:
        scripts = f"mkdir /mnt/scripts; cp {NHC}/scripts/* {INSIDE_CHECKOUT}/contrib/nhc/* /mnt/scripts"
        shell(five, {"n1": f"{scripts}; echo 'n* || check_gpubind' > /mnt/nhc.conf"})
        five.on("n1", *RUN_NHC)
        shell(five, {"n1": "rm /dev/nvidia-uvm"})
        five.on("n1", *RUN_NHC, status=1)
        log = five.on("n1", "cat", "/mnt/nhc.log")
        assert "Health check failed:  gpubind: uvm-missing(/dev/nvidia-uvm)\n" in log
        shell(five, {"n1": OF_USERS["n4"]})
        five.on("n1", *RUN_NHC)
        hang = "printf '#!/bin/sh\\nexec sleep 1000\\n' > /mnt/hangs; chmod 755 /mnt/hangs"
        shell(five, {"n1": f"{hang}; printf 'GPUBIND=/mnt/hangs\\nGPUBIND_LIMIT=1\\n' > /mnt/settings"})
        five.on("n1", "sh", "-c", f". /mnt/settings; export GPUBIND GPUBIND_LIMIT; {shlex.join(RUN_NHC)}")
        log = five.on("n1", "cat", "/mnt/nhc.log")
        assert "gpubind: not checked: exit code 5: error: bad-config: malformed configuration file" in log
        assert "gpubind: not checked: no answer in 1 s" in log


def test_what_a_check_names_is_no_program_for_node_health_check(up: Up) -> None:
    """It evaluates a reason between single quotes when it drains the node."""
    with up() as five:
        lines = ["#!/bin/sh", "cat <<'END'", "gpubind: library-unreadable(lib'$(touch /mnt/seen)'.so)", "END", "exit 1"]
        Path(five.directory, "gpubind").write_text("\n".join(lines))
        os.chmod(f"{five.directory}/gpubind", 0o755)
        shell(five, {"n1": f"mkdir /mnt/scripts; cp {NHC}/scripts/* {INSIDE_CHECKOUT}/contrib/nhc/* /mnt/scripts"})
        shell(five, {"n1": "echo 'n* || check_gpubind' > /mnt/nhc.conf"})
        five.on("n1", "env", "GPUBIND=/srv/slurm/gpubind", *RUN_NHC[:-1], "NHC_RM=slurm", "OFFLINE_NODE=:", status=1)
        assert "library-unreadable(lib$(touch /mnt/seen).so)" in five.on("n1", "cat", "/mnt/nhc.log")
        five.on("n1", "test", "!", "-e", "/mnt/seen")


def test_the_units_are_systemds(up: Up) -> None:
    with up() as five:
        for unit in sorted(os.listdir(f"{CHECKOUT}/contrib/systemd")):
            line = f"systemd-analyze verify {INSIDE_CHECKOUT}/contrib/systemd/{unit} 2>&1"
            assert five.on("n1", "sh", "-c", line) == ""


def test_the_unit_of_the_cdi_spec_writes_none_of_a_broken_node(up: Up) -> None:
    line = started("gpubind-cdi.service")
    with up() as five:
        shell(
            five, {"n1": f"mkdir /run/cdi; {line}", "n2": f"mkdir /run/cdi; rm /dev/nvidia-uvm; {line} || test $? = 1"}
        )
        assert '"kind": "nvidia.com/gpu"' in five.on("n1", "cat", line.split()[-1])
        assert five.on("n2", "ls", "/run/cdi") == ""


def test_prometheus_reads_the_textfile_of_each_node(up: Up) -> None:
    line = started("gpubind-textfile.service")
    *_, file = line.split()
    with up() as five:
        directory = f"mkdir -p {os.path.dirname(file)}"
        shell(five, {"n1": f"{directory}; {line}", "n2": f"{directory}; rm /dev/nvidia-uvm; {line} || test $? = 1"})
        for node, status in {"n1": 0, "n2": 2}.items():
            families = parser.text_string_to_metric_families(five.on(node, "cat", file))
            samples = [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]
            assert ("gpubind_check_status", {}, status) in samples
            found = {"code": "uvm-missing", "severity": "error", "subject": "/dev/nvidia-uvm"}
            assert (("gpubind_finding", found, 1) in samples) == (status == 2)
            assert five.on(node, "stat", "-c", "%a", file) == "644\n"


def started(unit: str) -> str:
    """The command line that a unit starts."""
    lines = Path(CHECKOUT, "contrib/systemd", unit).read_text().splitlines()
    return next(line for line in lines if line.startswith("ExecStart=")).partition("=")[2]


def states(five: Cluster) -> dict[str, str]:
    """The state of each node, and the reason of one that is not in service."""
    lines = (line.split("|") for line in five.run("sinfo", "-hN", "-o", "%N|%T|%E").splitlines())
    told = {node: (state.rstrip("*"), reason) for node, state, reason in lines}
    return {node: state if state == "idle" else f"{state} {reason}" for node, (state, reason) in told.items()}


def wait(five: Cluster, wanted: dict[str, str]) -> None:
    """Return when the nodes are in the states *wanted*, or fail."""
    for _ in range(1500):
        if wanted.items() <= states(five).items():
            return
        time.sleep(0.2)
    seen = states(five)
    assert seen == {**seen, **wanted}


def shell(five: Cluster, scripts: dict[str, str]) -> None:
    for node, script in scripts.items():
        five.on(node, "sh", "-ec", script)


def update(five: Cluster, node: str, state: str, reason: str) -> None:
    five.run("scontrol", "update", f"nodename={node}", f"state={state}", f"reason={reason}")


def jobs(five: Cluster, number: int, script: str = "true") -> None:
    """Have the user submit jobs that use both GPUs of a node."""
    os.makedirs(f"{five.directory}/out")
    os.chmod(f"{five.directory}/out", 0o777)
    line = f'{script}; echo "$SLURMD_NODENAME" > /srv/slurm/out/$SLURM_JOB_ID'
    words = ["sbatch", "--gres=gpu:2", "-o", "/srv/slurm/out/%N.log", f"--array=1-{number}", "--wrap", line]
    five.run("su", "-", "user", "-c", shlex.join(words))


def ran_on(five: Cluster, number: int) -> list[str]:
    """The nodes on which the jobs ran, when all have."""
    for _ in range(1500):
        done = [path.read_text() for path in sorted(Path(five.directory, "out").glob("*[0-9]"))]
        if len("".join(done).split()) == number:
            return "".join(done).split()
        time.sleep(0.2)
    raise AssertionError(five.run("squeue") + five.run("sinfo", "-R"))
