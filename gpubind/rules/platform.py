"""What is special about this platform: its kernel's limits, its layout, devices beside the GPU's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.host import Host
from gpubind.model import DriverKind, Finding, Missing, Plan, Severity
from gpubind.rules.looking import (
    ask,
    is_absent,
    is_linux_driver,
    is_there,
    is_wanted,
    majors,
    names_in,
    nvidia_driver,
    text_of,
)
from gpubind.rules.preflight import Preflight

CHAR = "/dev/char"
APPARMOR = "/etc/apparmor.d"
UDEV = "/run/udev"
IMEX_NODES = "/dev/nvidia-caps-imex-channels"
IMEX_DOMAIN = "/etc/nvidia-imex/nodes_config.cfg"
TEGRA_LISTS = "/etc/nvidia-container-runtime/host-files-for-container.d"
MAX_USER_NAMESPACES = "/proc/sys/user/max_user_namespaces"
USERNS_CLONE = "/proc/sys/kernel/unprivileged_userns_clone"
USERNS_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def dev_char_links_missing(preflight: Preflight) -> Iterator[Finding]:
    """systemd finds the devices of a container by /dev/char; without links it forgets NVIDIA's at a daemon-reload.

    Source: NVIDIA Container Toolkit, "Troubleshooting", and issue 48.
    """
    host = preflight.host
    links = ask(host.dev.list, CHAR)
    if not preflight.limits.systemd_cgroups or not is_linux_driver(preflight.plan):
        return
    nodes = [node for node in preflight.plan.devices if node.type == "c" and node.target.startswith("/dev/nvidia")]
    without = [node for node in nodes if not isinstance(links, Missing) and f"{node.major}:{node.minor}" not in links]
    if without:
        yield Finding(
            "dev-char-links-missing",
            "note",
            "nvidia",
            CHAR,
            f"{len(without)} of {len(nodes)} NVIDIA device nodes have no link in {CHAR}",
            ", ".join(f"{CHAR}/{node.major}:{node.minor} ({node.target})" for node in without),
            "where systemd manages the container's cgroup, a `systemctl daemon-reload` takes the GPUs away from "
            "running containers: `Failed to initialize NVML: Unknown Error`",
            "make the links at every boot, as root; or let the runtime manage cgroups itself "
            "(native.cgroupdriver=cgroupfs)",
            "nvidia-ctk system create-dev-char-symlinks --create-all",
        )


def user_namespaces_off(preflight: Preflight) -> Iterator[Finding]:
    """The kernel does not let this user make user namespaces, and this runtime needs one.

    Source: user_namespaces(7), namespaces(7); Debian's and Ubuntu's kernels for the two sysctls of their own.
    """
    backend, host, needs = preflight.backend or "", preflight.host, preflight.limits.user_namespaces
    why_off = _why_no_user_namespaces(host, backend)
    if why_off is None or needs is None or host.identity.euid == 0:
        return
    helpers = [ask(host.dev.stat, path) for path in needs.helpers]
    if any(not isinstance(helper, Missing) and helper.mode & 0o4000 for helper in helpers):
        return
    # A runtime from a module tree or a container has its helper elsewhere.
    severity: Severity = "warning" if needs.moves else "error"
    path, value, allow = why_off
    yield Finding(
        "user-namespaces-off",
        severity,
        None,
        backend,
        f"this kernel lets an ordinary user make no user namespace, and {backend} starts containers in one",
        f"{path} = {value}" + (f"; no set-user-id {' or '.join(needs.helpers[:2])}" if needs.helpers else ""),
        needs.message,
        "allow them, as root; or install the runtime's set-user-id helper, where there is one",
        allow,
    )


def _why_no_user_namespaces(host: Host, backend: str) -> Optional[tuple[str, str, str]]:
    """The sysctl that forbids them, its value, and the command that allows them; None if nothing does."""
    for path, off, allowing in (
        (MAX_USER_NAMESPACES, "0", "user.max_user_namespaces=15000"),
        (USERNS_CLONE, "0", "kernel.unprivileged_userns_clone=1"),
        (USERNS_APPARMOR, "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ):
        profile = path == USERNS_APPARMOR and any(
            re.fullmatch(rf"(usr\.(local\.)?(s?bin|libexec)\.)?{re.escape(backend)}\b.*", name)
            for name in names_in(host.dev, APPARMOR)
        )
        if text_of(host.dev, path) == off and not profile:
            return path, off, f"sysctl -w {allowing}"
    return None


_USUAL_INTERPRETERS = re.compile(r"/(usr/)?lib(32|64|x32)?/[^/]+(/[^/]+)?")


def foreign_interpreter(preflight: Preflight) -> Iterator[Finding]:
    """A program of the driver that was built for a host with another layout: NixOS, Guix, Talos.

    The kernel starts PT_INTERP (elf(5)); it must be at that very path in the container.
    """
    host = preflight.host
    for mount in preflight.plan.mounts:
        rooted = host.driver.rooted(mount.source or "")
        if mount.kind != "binary" or mount.vendor != "nvidia" or rooted is None:
            continue
        facts = ask(host.driver.elf, rooted)
        interpreter = None if isinstance(facts, Missing) else facts.interpreter
        if interpreter is None or not interpreter.startswith("/") or _USUAL_INTERPRETERS.fullmatch(interpreter):
            continue
        if preflight.image is not None and is_there(preflight.image.tree, interpreter):
            continue
        name = mount.target.rpartition("/")[2]
        yield Finding(
            "foreign-interpreter",
            "warning",
            "nvidia",
            name,
            f"{name} of this host wants the loader {interpreter}, which images do not have",
            f"{mount.source} (PT_INTERP)",
            f"starting it will say `{name}: No such file or directory`, though the file is there; libraries are not "
            "affected",
            f"bind /{interpreter.split('/')[1]} too, read-only, or start the loader of the image with the program: "
            f"`ld.so {mount.target}`",
        )


def wsl(preflight: Preflight) -> Iterator[Finding]:
    """Windows' driver behind /dev/dxg: no kernel module, no /proc/driver/nvidia, no version to compare."""
    if _kind(preflight.plan) == "wsl":
        yield Finding(
            "wsl",
            "note",
            "nvidia",
            "/dev/dxg",
            "this is WSL: the driver is Windows', and its version cannot be checked from here",
            "/dev/dxg, /usr/lib/wsl/lib",
            "its libraries only work together with /dev/dxg and /usr/lib/wsl/drivers; a driver too old for the image "
            "says CUDA_ERROR_NOT_FOUND (500) or CUDA_ERROR_OPERATING_SYSTEM (304)",
            "keep the driver up to date in Windows, install none in WSL, and let the container see /dev/dxg and "
            "/usr/lib/wsl",
            "nvidia-smi",
        )


def tegra(preflight: Preflight) -> Iterator[Finding]:
    """Jetson: the board's list files say what a container needs. Source: nvidia-container-toolkit, csv mode."""
    if _kind(preflight.plan) == "tegra":
        lists = [name for name in names_in(preflight.host.dev, TEGRA_LISTS) if name.endswith(".csv")]
        told = f"they are {', '.join(lists)}" if lists else "there are none"
        yield Finding(
            "tegra",
            "note",
            "nvidia",
            "/etc/nv_tegra_release",
            f"this is a Jetson board: its own lists say what containers need, and a plan does not read them; {told}",
            "/etc/nv_tegra_release, " + ", ".join(f"{TEGRA_LISTS}/{name}" for name in lists or ("*.csv",)),
            "nodes such as /dev/nvmap and /dev/nvhost-*, and libraries in /usr/lib/aarch64-linux-gnu/tegra, may be "
            "missing in the container: CUDA_ERROR_NO_DEVICE (100)",
            "for containers on Jetson use NVIDIA's container runtime, or CDI made by nvidia-ctk in csv mode",
            "nvidia-ctk cdi generate --mode=csv --output=/etc/cdi/nvidia.yaml",
        )


def _kind(plan: Plan) -> Optional[DriverKind]:
    driver = nvidia_driver(plan)
    return driver.kind if driver is not None else None


def imex_channel_missing(preflight: Preflight) -> Iterator[Finding]:
    """A host that belongs to an IMEX domain, or a job that wants a channel, without a channel node.

    Every driver since 550 registers the device, so that alone means nothing. Source: CUDA Programming Guide, "Virtual
    Memory Management", fabric handles.
    """
    host = preflight.host
    major = majors(host).get("nvidia-caps-imex-channels")
    asked = host.environ.get("NVIDIA_IMEX_CHANNELS", "")
    if major is None or not (asked or is_there(host.dev, IMEX_DOMAIN)):
        return
    names = ask(host.dev.list, IMEX_NODES)
    known = names if not isinstance(names, Missing) else () if names.why == "absent" else ("unknown",)
    if not known:
        yield Finding(
            "imex-channel-missing",
            "note",
            "nvidia",
            IMEX_NODES,
            "no IMEX channel is there, though this host is part of an IMEX domain"
            if not asked
            else f"no IMEX channel is there, though NVIDIA_IMEX_CHANNELS={asked} asks for one",
            f"{IMEX_NODES}/channel*, /proc/devices (nvidia-caps-imex-channels: {major})"
            + ("" if asked else f", {IMEX_DOMAIN}"),
            "memory cannot be shared with GPUs of other nodes: cuMemCreate answers CUDA_ERROR_NOT_PERMITTED (800); "
            "work on one node is not affected",
            "make the channel on the host, as root; NVreg_CreateImexChannel0=1 makes it at every boot",
            "nvidia-modprobe -i 0:1",
        )


def gds_incomplete(preflight: Preflight) -> Iterator[Finding]:
    """GPUDirect Storage: its module is loaded, but libcufile will not find what it looks for.

    Source: GPUDirect Storage documentation, "Using GDS in containers"; nvidia-container-toolkit, NVIDIA_GDS.
    """
    host = preflight.host
    loaded = "nvidia-fs" in majors(host) or is_there(host.dev, "/sys/module/nvidia_fs")
    if not loaded or not is_linux_driver(preflight.plan) or not is_wanted(preflight.plan, "compute"):
        return
    lacking = []
    if not any(node.target.startswith("/dev/nvidia-fs") for node in preflight.plan.devices):
        lacking.append("/dev/nvidia-fs*")
    if is_absent(host.dev, UDEV):
        lacking.append(UDEV)
    if lacking:
        yield Finding(
            "gds-incomplete",
            "note",
            "nvidia",
            "nvidia-fs",
            f"the module of GPUDirect Storage is loaded, but {' and '.join(lacking)} is missing",
            ", ".join(("/proc/devices (nvidia-fs), /sys/module/nvidia_fs", *lacking)),
            "libcufile falls back to copies through the host's memory (compatibility mode), or says `GPUDirect Storage "
            "not supported`",
            "load nvidia-fs anew on the host, as root; the container needs the nodes, and /run/udev read-only",
            "modprobe -r nvidia-fs && modprobe nvidia-fs",
        )
