"""What is special about this platform: its kernel's limits, its layout, devices beside the GPU's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from gpubind.host import Host
from gpubind.inventory.nodes import read_majors
from gpubind.inventory.nvidia.devices import GPUDIRECT_NODES, STORAGE, is_asked, nodes_of
from gpubind.model import Finding, Missing
from gpubind.model.findings import finding
from gpubind.rules.preflight import Preflight

CHAR = "/dev/char"
APPARMOR = "/etc/apparmor.d"
UDEV = "/run/udev"
IMEX_NODES = "/dev/nvidia-caps-imex-channels"
IMEX_DOMAIN = "/etc/nvidia-imex/nodes_config.cfg"
TEGRA_LISTS = "/etc/nvidia-container-runtime/host-files-for-container.d"


class Sysctl(NamedTuple):
    """A setting of the kernel's that can forbid user namespaces to ordinary users."""

    path: str
    off: str
    """The value that forbids them."""
    on: str
    """What allows them, in sysctl's words."""


APPARMORS = Sysctl(
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"
)
USER_NAMESPACES = (
    Sysctl("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    Sysctl("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    APPARMORS,
)
"""Source: user_namespaces(7), namespaces(7); Debian's and Ubuntu's kernels for the two sysctls of their own."""

_USUAL_INTERPRETERS = re.compile(r"/(usr/)?lib(32|64|x32)?/[^/]+(/[^/]+)?")


def dev_char_links_missing(preflight: Preflight) -> Iterator[Finding]:
    """systemd finds the devices of a container by /dev/char; without links it forgets NVIDIA's at a daemon-reload.

    Source: NVIDIA Container Toolkit, "Troubleshooting", and issue 48.
    """
    links = preflight.host.dev.list(CHAR)
    if not preflight.limits.systemd_cgroups or not preflight.has_linux_driver or isinstance(links, Missing):
        return
    nodes = [node for node in preflight.plan.devices if node.type == "c" and node.target.startswith("/dev/nvidia")]
    without = [node for node in nodes if f"{node.major}:{node.minor}" not in links]
    if without:
        where = ", ".join(f"{CHAR}/{node.major}:{node.minor} ({node.target})" for node in without)
        yield finding("dev-char-links-missing", subject=CHAR, where=where, without=len(without), nodes=len(nodes))


def user_namespaces_off(preflight: Preflight) -> Iterator[Finding]:
    """The kernel does not let this user make user namespaces, and this runtime needs one."""
    backend, host, needs = preflight.backend or "", preflight.host, preflight.limits.user_namespaces
    if needs is None or host.identity.euid == 0:
        return
    sysctl = _no_user_namespaces(host, backend)
    helpers = [host.dev.stat(path) for path in needs.helpers]
    if sysctl is None or any(not isinstance(helper, Missing) and helper.mode & 0o4000 for helper in helpers):
        return
    lacks = f"; no set-user-id {' or '.join(needs.helpers[:2])}" if needs.helpers else ""
    yield finding(
        "user-namespaces-off",
        subject=backend,
        # A runtime from a module tree or a container has its helper elsewhere.
        severity="warning" if needs.moves else "error",
        where=f"{sysctl.path} = {sysctl.off}{lacks}",
        setting=sysctl.on,
        message=needs.message,
    )


def _no_user_namespaces(host: Host, backend: str) -> Optional[Sysctl]:
    """Return the setting that forbids them to *backend*; None if none does."""
    for sysctl in USER_NAMESPACES:
        has_profile = sysctl == APPARMORS and any(
            re.fullmatch(rf"(usr\.(local\.)?(s?bin|libexec)\.)?{re.escape(backend)}\b.*", name)
            for name in host.dev.names(APPARMOR)
        )
        if host.dev.text(sysctl.path) == sysctl.off and not has_profile:
            return sysctl
    return None


def foreign_interpreter(preflight: Preflight) -> Iterator[Finding]:
    """A program of the driver that was built for a host with another layout: NixOS, Guix, Talos.

    The kernel starts PT_INTERP (elf(5)); it must be at that very path in the container.
    """
    tree = preflight.host.driver
    for mount in preflight.plan.mounts:
        rooted = tree.rooted(mount.source or "")
        if mount.kind != "binary" or mount.vendor != "nvidia" or rooted is None:
            continue
        facts = tree.elf(rooted)
        interpreter = None if isinstance(facts, Missing) else facts.interpreter
        if interpreter is None or not interpreter.startswith("/") or _USUAL_INTERPRETERS.fullmatch(interpreter):
            continue
        if preflight.container is not None and preflight.container.locate(interpreter) is not None:
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
    """Windows' driver behind /dev/dxg: no kernel module, no /proc/driver/nvidia, no version to compare."""
    if preflight.driver is not None and preflight.driver.kind == "wsl":
        yield finding("wsl", subject="/dev/dxg", where="/dev/dxg, /usr/lib/wsl/lib")


def tegra(preflight: Preflight) -> Iterator[Finding]:
    """Jetson: the board's list files say what a container needs. Source: nvidia-container-toolkit, csv mode."""
    if preflight.driver is not None and preflight.driver.kind == "tegra":
        lists = [name for name in preflight.host.dev.names(TEGRA_LISTS) if name.endswith(".csv")]
        yield finding(
            "tegra",
            subject="/etc/nv_tegra_release",
            case="with-lists" if lists else None,
            where="/etc/nv_tegra_release, " + ", ".join(f"{TEGRA_LISTS}/{name}" for name in lists or ("*.csv",)),
            lists=", ".join(lists),
        )


def imex_channel_missing(preflight: Preflight) -> Iterator[Finding]:
    """Yield a host that belongs to an IMEX domain, or a job that wants a channel, without a channel node.

    Every driver since 550 registers the device, so that alone means nothing. Source: CUDA Programming Guide, "Virtual
    Memory Management", fabric handles.
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
    """GPUDirect Storage: its module is loaded, but libcufile will not find what it looks for.

    Source: GPUDirect Storage documentation, "Using GDS in containers"; nvidia-container-toolkit, NVIDIA_GDS.
    """
    host = preflight.host
    loaded = "nvidia-fs" in read_majors(host)[0] or host.dev.has("/sys/module/nvidia_fs")
    if not loaded or not preflight.has_linux_driver or not preflight.wants("compute"):
        return
    has_nodes = any(node.target.startswith("/dev/nvidia-fs") for node in preflight.plan.devices)
    lacking = (*(() if has_nodes else ("/dev/nvidia-fs*",)), *((UDEV,) if host.dev.lacks(UDEV) else ()))
    if lacking:
        where = ", ".join(("/proc/devices (nvidia-fs), /sys/module/nvidia_fs", *lacking))
        yield finding("gds-incomplete", subject="nvidia-fs", where=where, lacking=" and ".join(lacking))


def gpudirect_not_asked(preflight: Preflight) -> Iterator[Finding]:
    """GPUs can exchange data with storage, a network or the CPU here; a container gets what it takes on request.

    Source: nvidia-container-toolkit `internal/modifier/gated.go`.
    """
    if not preflight.has_linux_driver or not preflight.wants("compute"):
        return
    host = preflight.host
    there = {variable: [node.path for node in nodes_of(host, variable)] for variable in GPUDIRECT_NODES}
    there[STORAGE] = [node.target for node in preflight.plan.devices if node.target.startswith("/dev/nvidia-fs")]
    for variable, paths in there.items():
        if paths and not is_asked(host, variable):
            yield finding("gpudirect-not-asked", subject=variable, case=variable, where=", ".join(paths[:8]))
