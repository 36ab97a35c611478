"""The law of the memo on a machine with the real driver packages and runtimes: what happens to such machines."""

from __future__ import annotations

import shlex

import pytest

from live.containers import image
from live.machine import INSIDE_CONTAINERS, PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

PLAN = "plan --nv --json"
EXEC = f"exec -q --backend apptainer {image('bookworm')} true"
CHANGES = {
    "ldconfig": "ldconfig",
    "a library's package is removed": "mv /usr/lib/x86_64-linux-gnu/nvidia/current/libnvcuvid.so.* /root/ && ldconfig",
    "and put back": "mv /root/libnvcuvid.so.* /usr/lib/x86_64-linux-gnu/nvidia/current/ && ldconfig",
    "nvidia-uvm's node is another one": "mount --bind /dev/null /dev/nvidia-uvm",
    "a list file for the site": "mkdir -p /etc/gpubind && echo libcuda.so > /etc/gpubind/nvliblist.conf",
    "and none": "rm -r /etc/gpubind",
}
OVERLAYS = (
    "mount --make-rprivate /",
    "mount -t tmpfs upper /mnt",
    "mount -t tmpfs memos /run",
    *(
        f"mkdir /mnt/{place} /mnt/{place}.work && mount -t overlay {place} /{place}"
        f" -o lowerdir=/{place},upperdir=/mnt/{place},workdir=/mnt/{place}.work"
        for place in ("etc", "usr")
    ),
)
"""The machine is others', too: what changes is a layer of this test's own."""
ANSWER = f"python3 -m gpubind {PLAN}; echo $?; python3 -m gpubind {EXEC.replace('exec', 'exec --dry-run')}; echo $?"


def test_what_happens_to_a_machine_is_seen(trixie: Machine, rig: str) -> None:
    lines = [
        *("set -u", *OVERLAYS, f"answer() {{ {ANSWER}; }}"),
        *("cold() { export GPUBIND_MEMO=off; answer; }", "kept() { export GPUBIND_MEMO=on; answer; }"),
        *("same() { cold > /tmp/a; kept > /tmp/b; kept > /tmp/c; cmp /tmp/a /tmp/b && cmp /tmp/a /tmp/c; }", "same"),
    ]
    for name, change in CHANGES.items():
        lines += [f"({change}) || echo FAILED", f"same && echo same: {shlex.quote(name)}"]
    done = run(trixie, rig, "\n".join(lines))
    assert done.splitlines() == [f"same: {name}" for name in CHANGES]


def test_each_user_has_memos_of_their_own(trixie: Machine, rig: str) -> None:
    script = f"python3 -m gpubind {PLAN} > /dev/null; ls -d /tmp/gpubind-*/memo /run/gpubind/memo"
    assert run(trixie, rig, f"{script} || :", user=True).split() == ["/tmp/gpubind-1000/memo"]


def run(machine: Machine, rig: str, script: str, *, user: bool = False) -> str:
    binds = [*machine.modules, Bind(f"{rig}/ct", INSIDE_CONTAINERS)]
    return machine.run(["sh", "-c", script], driver=True, user=user, binds=binds, env=PYTHON_ENV).stdout
