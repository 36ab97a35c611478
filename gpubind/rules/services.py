"""Services of the host that CUDA goes through, or waits for: the fabric manager, persistence, MPS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.host import Host
from gpubind.model import Finding
from gpubind.rules.looking import (
    gpus_in_use,
    is_absent,
    is_linux_driver,
    is_there,
    is_wanted,
    names_in,
)
from gpubind.rules.preflight import Preflight
from gpubind.sources.nvidia.devices import MPS_DIRECTORY

NVSWITCHES = "/proc/driver/nvidia-nvswitch/devices"
FABRIC_MANAGER = ("nvidia-fabricmanager/socket", "nvidia-fabricmanager/nv-fabricmanager.pid")
"""Its pid file, too: the socket is there only where its configuration names one."""
PERSISTENCED = ("nvidia-persistenced/socket", "nvidia-persistenced/nvidia-persistenced.pid")
MANY_GPUS = 4
"""From here on waking all GPUs takes long enough to be noticed: programs give up, and jobs start late."""
MPS_PID = "nvidia-cuda-mps-control.pid"
"""The daemon removes it when it ends; its socket `control` stays."""


def fabric_manager_missing(preflight: Preflight) -> Iterator[Finding]:
    """NVSwitches connect the GPUs only once the fabric manager has set them up; cuInit waits for that, and fails.

    Source: Fabric Manager User Guide, "GPU/NVSwitch initialization and CUDA"; its systemd unit names the pid file.
    """
    plan, host = preflight.plan, preflight.host
    switch = _nvswitch(host)
    if switch and is_linux_driver(plan) and is_wanted(plan, "compute") and _surely_off(host, FABRIC_MANAGER):
        yield Finding(
            "fabric-manager-missing",
            "warning",
            "nvidia",
            "nvidia-fabricmanager",
            "this host has NVSwitches, and no sign of a running fabric manager",
            f"{switch}; no " + ", ".join(f"/run/{name}" for name in FABRIC_MANAGER),
            "without it cuInit answers 802 (CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized), although "
            "nvidia-smi works",
            "start it on the host, as root; its version must be exactly the driver's",
            "systemctl enable --now nvidia-fabricmanager",
        )


def _nvswitch(host: Host) -> Optional[str]:
    """Where an NVSwitch shows, if there is one."""
    nodes = [name for name in names_in(host.dev, "/dev") if re.fullmatch(r"nvidia-nvswitch([0-9]+|ctl)", name)]
    if nodes:
        return f"/dev/{nodes[0]}"
    return NVSWITCHES if names_in(host.dev, NVSWITCHES) else None


def _surely_off(host: Host, names: tuple[str, ...]) -> bool:
    return all(is_absent(host.dev, f"{base}/{name}") for base in ("/run", "/var/run") for name in names)


def persistence_missing(preflight: Preflight) -> Iterator[Finding]:
    """Without persistence each first use initialises the GPUs anew: seconds for each of them."""
    gpus = gpus_in_use(preflight.plan)
    if len(gpus) >= MANY_GPUS and is_linux_driver(preflight.plan) and _surely_off(preflight.host, PERSISTENCED):
        yield Finding(
            "persistence-missing",
            "note",
            "nvidia",
            "nvidia-persistenced",
            f"nothing seems to keep the {len(gpus)} GPUs of this host initialised between jobs",
            "no " + ", ".join(f"/run/{name}" for name in PERSISTENCED),
            "the first use of each GPU takes seconds; nvidia-container-cli may say `initialization error: driver rpc "
            "error: timed out`",
            "run nvidia-persistenced on the host (persistence mode by `nvidia-smi -pm 1` leaves no trace in files)",
            "systemctl enable --now nvidia-persistenced",
        )


def mps_active(preflight: Preflight) -> Iterator[Finding]:
    """The caller's own MPS daemon: its directory is in the plan, and every CUDA process becomes its client."""
    directory = _mps_directory(preflight.host)
    bound = any(mount.kind == "directory" and mount.target == directory for mount in preflight.plan.mounts)
    if bound and is_there(preflight.host.dev, f"{directory}/{MPS_PID}"):
        yield Finding(
            "mps-active",
            "note",
            "nvidia",
            directory,
            "an MPS daemon of this user is running; CUDA processes of the container will share GPUs through it",
            f"{directory}/{MPS_PID}",
            "its limits hold for them: its CUDA_VISIBLE_DEVICES, its memory limits, its number of clients "
            "(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 808); one client that dies may take the others with it",
            "to go without it: stop it, or set CUDA_MPS_PIPE_DIRECTORY to a directory that is not there",
            "echo quit | nvidia-cuda-mps-control",
        )


def mps_other_user(preflight: Preflight) -> Iterator[Finding]:
    """Another user's MPS daemon has the GPUs: this user's processes wait for it, or are turned away."""
    directory = _mps_directory(preflight.host)
    decisions = [d for d in preflight.plan.decisions if d.rule == "not-yours" and d.subject == directory]
    if decisions and not is_absent(preflight.host.dev, f"{directory}/{MPS_PID}"):
        yield Finding(
            "mps-other-user",
            "warning",
            "nvidia",
            directory,
            "an MPS daemon of another user is running; its directory is not bound",
            f"{directory} ({decisions[0].detail})",
            "a CUDA process that finds it waits until the other user's clients are gone, or answers 805 "
            "(CUDA_ERROR_MPS_CONNECTION_FAILED); one that does not, on a GPU in exclusive mode, answers 46 "
            "(CUDA_ERROR_DEVICE_UNAVAILABLE)",
            "a daemon that root runs for all: bind its directory yourself; else ask for the GPU alone, or set "
            "CUDA_MPS_PIPE_DIRECTORY to a directory of your own",
        )


def _mps_directory(host: Host) -> str:
    return host.environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_DIRECTORY
