"""The law of the memo on a machine with the real driver packages and runtimes: what happens to such machines."""

from __future__ import annotations

import shlex

import pytest

from tests.live.containers import image
from tests.live.machine import INSIDE_CONTAINERS, PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

DRIVER = "/usr/lib/x86_64-linux-gnu/nvidia/current"
SEEN = "ls -l /.singularity.d/libs; env | grep -v ^GPUBIND_MEMO= | sort"
COMMANDS = (
    "plan --nv --json",
    f"check -q --image {image('bookworm')}",
    f"exec -q --backend apptainer {image('bookworm')} sh -c {shlex.quote(SEEN)}",
)
CHANGES = {
    "nothing": ":",
    "ldconfig": "ldconfig",
    "a package of the driver is removed": "dpkg --remove --force-depends libnvcuvid1",
    "and put back": "tar x -C / -f /mnt/package.tar && ldconfig",
    "a library is not there": f"mv {DRIVER}/libcuda.so.550.163.01 /mnt/",
    "and there again": f"mv /mnt/libcuda.so.550.163.01 {DRIVER}/",
    "nvidia-uvm's node is gone": "rm /dev/nvidia-uvm",
    "and has another number": "mknod -m 666 /dev/nvidia-uvm c 234 0",
    "and its own": "rm /dev/nvidia-uvm && mknod -m 666 /dev/nvidia-uvm c 235 0",
    "a list file for the site": "mkdir -p /etc/gpubind && echo libcuda.so > /etc/gpubind/nvliblist.conf",
    "and none": "rm -r /etc/gpubind",
    "another Apptainer": "cp /usr/bin/apptainer /mnt/a && cat /mnt/a > /usr/bin/apptainer",
}
TMPFS = (
    *("mount --make-rprivate /", "mount -t tmpfs -o mode=755 memos /run", "mount -t tmpfs -o mode=1777 own /tmp"),
    *("mount -t tmpfs -o mode=755 homes /home", "install -d -m 700 -o user -g user /home/user"),
)
OF_ITS_OWN = (
    *TMPFS,
    "mount -t tmpfs upper /mnt",
    *(
        f"mkdir /mnt/{place} /mnt/{place}.work && mount -t overlay {place} /{place}"
        f" -o lowerdir=/{place},upperdir=/mnt/{place},workdir=/mnt/{place}.work"
        for place in ("etc", "usr", "var")
    ),
    "mkdir /mnt/dev && cp -ax /dev/. /mnt/dev/ && mount --rbind /mnt/dev /dev",
    "dpkg -L libnvcuvid1 | while read -r file; do [ -d $file ] || echo $file; done > /mnt/files",
    "tar c -f /mnt/package.tar -T /mnt/files /var/lib/dpkg 2> /dev/null",
)
"""The machine is others', too: what changes is a layer of this test's own."""


def answers(options: str = "") -> str:
    """Shell: every command, its output and exit code."""
    runs = (command.replace(" ", f" {options} ", 1) for command in COMMANDS)
    return "; ".join(f"python3 -m gpubind {command}; echo $?" for command in runs)


SAME = f"""
(export GPUBIND_MEMO=off; {answers()}) > $1/cold
(export GPUBIND_MEMO=on; {answers()}) > $1/first; (export GPUBIND_MEMO=on; {answers()}) > $1/again
cmp $1/cold $1/first && cmp $1/cold $1/again && grep -q /libcuda.so $1/cold && echo same
"""
SERVED = f"""
served() {{ ({answers("-vv")}) 2>&1 > /dev/null | grep -c '^memo: served$'; }}
export GPUBIND_MEMO=on; served > /dev/null; served
"""
USER = "su user -s /bin/sh"


def test_what_happens_to_a_machine_is_seen(trixie: Machine, rig: str) -> None:
    same = f"{USER} -c {shlex.quote(SAME)} sh /tmp"
    lines = ["set -u", *OF_ITS_OWN, f"{same} > /dev/null"]
    for name, change in CHANGES.items():
        lines += [f"({change}) > /mnt/said 2>&1 || cat /mnt/said", f"{same} && echo {shlex.quote(name)}"]
    done = run(trixie, rig, "\n".join([*lines, f"{USER} -c {shlex.quote(SERVED)}"]))
    assert done.splitlines() == [*(line for name in CHANGES for line in ("same", name)), f"{len(COMMANDS)}"]


def test_each_user_has_memos_of_their_own(trixie: Machine, rig: str) -> None:
    """Also where the environment names the place of another."""
    theirs = [f"{USER} -c {shlex.quote(script)} sh /tmp" for script in (SAME, SERVED)]
    lines = [
        *(*TMPFS, "mkdir -m 700 /run/own", "export XDG_RUNTIME_DIR=/run/own", *theirs),
        *("export GPUBIND_MEMO=on", "root() { python3 -m gpubind plan -vv --nv --json 2>&1 > /dev/null; }"),
        *("root > /dev/null", "root", "find /tmp /run /home -name memo -o -name memo.key | sort"),
    ]
    done = run(trixie, rig, "\n".join(lines)).splitlines()
    number = f"{len(COMMANDS)}"
    users = ["/home/user/.cache/gpubind/memo", "/home/user/.local/state/gpubind/memo.key"]
    assert done == ["same", number, "memo: served", *users, "/run/gpubind/memo", "/run/gpubind/memo.key"]


def run(machine: Machine, rig: str, script: str) -> str:
    binds = [*machine.modules, Bind(f"{rig}/ct", INSIDE_CONTAINERS)]
    return machine.run(["sh", "-c", script], driver=True, binds=binds, env=PYTHON_ENV).stdout
