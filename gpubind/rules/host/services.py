"""Services of the host that CUDA uses or waits for: the fabric manager, persistence, MPS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.host import Host
from gpubind.inventory.nvidia.devices import mps_directory
from gpubind.model import Finding, finding
from gpubind.rules.preflight import Preflight

NVSWITCHES = "/proc/driver/nvidia-nvswitch/devices"
_FABRIC_MANAGER = ("nvidia-fabricmanager/socket", "nvidia-fabricmanager/nv-fabricmanager.pid")
"""Files of a running fabric manager. Its socket exists only if the configuration names one; the pid file always
does.
"""
_PERSISTENCED = ("nvidia-persistenced/socket", "nvidia-persistenced/nvidia-persistenced.pid")
_MANY_GPUS = 4
"""The number of GPUs from which on waking all of them takes so long that programs give up and jobs start late."""
_MPS_PID = "nvidia-cuda-mps-control.pid"
"""The daemon removes it when it ends; its socket `control` remains."""


def fabric_manager_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report NVSwitches that no fabric manager has set up: cuInit waits for that, and fails.

    Source: Fabric Manager User Guide, "GPU/NVSwitch initialization and CUDA"; its systemd unit names the pid file.
    """
    host = preflight.host
    switch = nvswitch(host)
    if switch and preflight.has_linux_driver and preflight.wants("compute") and _surely_off(host, _FABRIC_MANAGER):
        where = f"{switch}; no " + ", ".join(f"/run/{name}" for name in _FABRIC_MANAGER)
        yield finding("fabric-manager-missing", subject="nvidia-fabricmanager", where=where)


def nvswitch(host: Host) -> Optional[str]:
    """Return the path of an NVSwitch; None if the host has none."""
    nodes = [name for name in host.dev.names("/dev") if re.fullmatch(r"nvidia-nvswitch([0-9]+|ctl)", name)]
    if nodes:
        return f"/dev/{nodes[0]}"
    return NVSWITCHES if host.dev.names(NVSWITCHES) else None


def _surely_off(host: Host, names: tuple[str, ...]) -> bool:
    return all(host.dev.lacks(f"{base}/{name}") for base in ("/run", "/var/run") for name in names)


def persistence_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report GPUs for which no persistence daemon runs. The first program on an idle GPU must initialise it, which
    takes seconds.
    """
    number = len(preflight.gpus)
    if number >= _MANY_GPUS and preflight.has_linux_driver and _surely_off(preflight.host, _PERSISTENCED):
        where = "no " + ", ".join(f"/run/{name}" for name in _PERSISTENCED)
        yield finding("persistence-missing", subject="nvidia-persistenced", where=where, number=number)


def mps_active(preflight: Preflight) -> Iterator[Finding]:
    """Report the caller's MPS daemon. Its directory is in the plan, so every CUDA process becomes its client."""
    directory = mps_directory(preflight.host)
    bound = any(mount.kind == "directory" and mount.target == directory for mount in preflight.plan.mounts)
    if bound and preflight.host.dev.has(f"{directory}/{_MPS_PID}"):
        yield finding("mps-active", subject=directory, where=f"{directory}/{_MPS_PID}")


def mps_other_user(preflight: Preflight) -> Iterator[Finding]:
    """Report another user's MPS daemon, which delays or rejects this user's processes."""
    directory = mps_directory(preflight.host)
    decisions = [d for d in preflight.plan.decisions if d.rule == "not-yours" and d.subject == directory]
    if decisions and not preflight.host.dev.lacks(f"{directory}/{_MPS_PID}"):
        yield finding("mps-other-user", subject=directory, where=f"{directory} ({decisions[0].detail})")
