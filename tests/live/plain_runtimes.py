"""Runtimes without options for GPUs: how each starts an image."""

from __future__ import annotations

from typing import NamedTuple

IMAGES = "/images"
"""Where the machine sees the containers: ch-run hides what lies below /srv."""


class Way(NamedTuple):
    """Who starts a container by which runtime, and what is known to be otherwise there."""

    backend: str
    user: bool
    options: tuple[str, ...] = ()
    read_only: bool = True
    """Whether binds are read-only whoever the caller is."""
    isolated: bool = False
    """Whether /dev has the chosen nodes alone."""
    environment: bool = True
    """Whether the caller's own variables reach the container."""
    killed: int = 0
    """The exit status of one that a signal has ended; 0: that of the signal."""
    group: bool = False
    """Whether a signal must be sent to the whole process group: the runtime itself heeds none."""

    def __str__(self) -> str:
        return f"{self.backend}-{'user' if self.user else 'root'}"


WAYS = (
    Way("ch-run", True, read_only=False),
    Way("ch-run", False, ("--allow-writable",), read_only=False),
    Way("proot", True, read_only=False, killed=255, group=True),
    Way("proot", False, ("--allow-writable",), read_only=False, killed=255, group=True),
    Way("systemd-nspawn", False, isolated=True, environment=False, killed=1),
)


SIGNALLED = r"""
ready=/tmp/ready.$$
# -q: found is found, also where other processes end while it looks. -z: at the end of an argument.
going() {{ grep -zsq "60[.]$$\$" /proc/[0-9]*/cmdline; }}
mkfifo $ready.in
env --default-signal=INT {start} sh -c "echo going; exec sleep 60.$$" > $ready < $ready.in &
pid=$!
exec 3> $ready.in
until [ -s $ready ]; do sleep 0.05; kill -0 $pid; done
rm $ready $ready.in
python3 -c "import os; os.kill({to}$pid, {number})"
wait $pid && echo ended 0 || echo ended $?
for try in $(seq 100); do going || break; sleep 0.3; done
! going || echo the child goes on
"""
"""Starts a container, sends its process (or all of its group) a signal, and says how it ended and whether the child
did, too."""
