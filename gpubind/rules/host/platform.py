"""Platforms with special layouts, and devices other than GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname

from gpubind.host import Host
from gpubind.inventory.interpreters import foreign_interpreter as foreign
from gpubind.inventory.nodes import read_majors
from gpubind.inventory.nvidia.devices import GDS_VARIABLE, GPUDIRECT_NODES, is_requested, requested_nodes
from gpubind.model import Finding, finding
from gpubind.model.layouts import DXG, WSL_LIBRARIES
from gpubind.rules.preflight import Preflight

UDEV = "/run/udev"
IMEX_NODES = "/dev/nvidia-caps-imex-channels"
IMEX_DOMAIN = "/etc/nvidia-imex/nodes_config.cfg"


def foreign_interpreter(preflight: Preflight) -> Iterator[Finding]:
    """Report a program of the driver that was built for another directory layout: the container will lack its
    loader.
    """
    tree, brought = preflight.host.driver, {mount.target for mount in preflight.plan.mounts}
    for mount in preflight.plan.mounts:
        rooted = tree.rooted(mount.source or "")
        if mount.kind != "binary" or mount.vendor != "nvidia" or rooted is None:
            continue
        interpreter = foreign(tree, rooted)
        if interpreter is None or dirname(interpreter) in brought:
            continue
        if preflight.has_image and preflight.container.locate(interpreter) is not None:
            continue
        yield finding(
            "foreign-interpreter",
            subject=mount.target.rpartition("/")[2],
            where=f"{mount.source} (PT_INTERP)",
            interpreter=interpreter,
            directory=interpreter.split("/")[1],
            target=mount.target,
        )


def wsl(preflight: Preflight) -> Iterator[Finding]:
    """Report the driver of Windows if nothing of it is missing. If something is missing, the plan has the finding."""
    is_windows = preflight.driver is not None and preflight.driver.kind == "wsl"
    if is_windows and all(finding.code != "wsl" for finding in preflight.plan.findings):
        yield finding("wsl", subject=DXG, severity="note", where=f"{DXG}, {WSL_LIBRARIES}")


def imex_channel_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report that the host has an IMEX domain, or a channel was requested, but there is no channel node.

    Every driver since 550 registers the device, so its number in /proc/devices proves nothing. Source: CUDA Programming
    Guide, "Virtual Memory Management", fabric handles.
    """
    host = preflight.host
    majors = read_majors(host)[0].get("nvidia-caps-imex-channels", set())
    channels = host.variable("NVIDIA_IMEX_CHANNELS")
    is_due = preflight.is_nvidias and majors and (channels or host.dev.has(IMEX_DOMAIN))
    if is_due and host.dev.has_nothing_in(IMEX_NODES):
        numbers = ", ".join(map(str, sorted(majors)))
        where = f"{IMEX_NODES}/channel*, /proc/devices (nvidia-caps-imex-channels: {numbers})"
        yield finding(
            "imex-channel-missing",
            subject=IMEX_NODES,
            case="asked" if channels else None,
            where=where if channels else f"{where}, {IMEX_DOMAIN}",
            channels=channels,
        )


def gds_incomplete(preflight: Preflight) -> Iterator[Finding]:
    """Report that the module of GPUDirect Storage is loaded, but files that libcufile needs are missing.

    Source: GPUDirect Storage documentation, "Using GDS in containers"; nvidia-container-toolkit, NVIDIA_GDS.
    """
    host = preflight.host
    if not has_storage(host) or not preflight.has_linux_driver or not preflight.wants("compute"):
        return
    has_nodes = any(node.target.startswith("/dev/nvidia-fs") for node in preflight.plan.devices)
    lacking = (*(() if has_nodes else ("/dev/nvidia-fs*",)), *((UDEV,) if host.dev.lacks(UDEV) else ()))
    if lacking:
        where = ", ".join(("/proc/devices (nvidia-fs), /sys/module/nvidia_fs", *lacking))
        yield finding("gds-incomplete", subject="nvidia-fs", where=where, lacking=" and ".join(lacking))


def has_storage(host: Host) -> bool:
    """Return whether the module of GPUDirect Storage is loaded."""
    return "nvidia-fs" in read_majors(host)[0] or host.dev.has("/sys/module/nvidia_fs")


def gpudirect_not_asked(preflight: Preflight) -> Iterator[Finding]:
    """Report nodes for transfers to storage, a network or the CPU that were not requested: containers get them only on
    request.

    Source: nvidia-container-toolkit `internal/modifier/gated.go`.
    """
    if not preflight.has_linux_driver or not preflight.wants("compute"):
        return
    host, nodes = preflight.host, preflight.plan.devices
    node_paths = {variable: [node.path for node in requested_nodes(host, variable)] for variable in GPUDIRECT_NODES}
    node_paths[GDS_VARIABLE] = [node.target for node in nodes if node.target.startswith("/dev/nvidia-fs")]
    for variable, paths in node_paths.items():
        if paths and not is_requested(host, variable):
            yield finding("gpudirect-not-asked", subject=variable, case=variable, where=", ".join(paths[:8]))
