"""Rules about the runtime: its limits, and the host files on which it depends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory.cdi.specs import SOURCE, registry_findings, stale_findings
from gpubind.model import Finding, Missing, finding
from gpubind.rules.preflight import Preflight

CHAR = "/dev/char"
APPARMOR = "/etc/apparmor.d"


class Sysctl(NamedTuple):
    """A kernel setting that can forbid user namespaces to ordinary users."""

    path: str
    off: str
    """The value that forbids user namespaces."""
    on: str
    """The argument of sysctl that allows them."""


_APPARMORS = Sysctl(
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"
)
USER_NAMESPACES = (
    Sysctl("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    Sysctl("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    _APPARMORS,
)
"""The settings that can forbid user namespaces. Source: user_namespaces(7), namespaces(7); Debian's and Ubuntu's
kernels.
"""


def runtime_limit(preflight: Preflight) -> Iterator[Finding]:
    """Report the part of the plan that the runtime cannot express."""
    error = preflight.limit
    if error is not None:
        yield finding(
            "runtime-limit",
            subject=error.code,
            where=error.where,
            runtime=preflight.backend,
            limit=error.what,
            why=error.why,
            hint=error.hint,
        )


def dev_char_links_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report missing links in /dev/char. Without them, systemd drops NVIDIA's devices at a daemon-reload.

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
    """Report that the kernel denies this user the user namespaces that the runtime needs."""
    backend, host, needs = preflight.backend or "", preflight.host, preflight.limits
    if not needs.no_namespace_message or host.identity.euid == 0:
        return
    sysctl = _no_user_namespaces(host, backend)
    programs = [host.dev.stat(path) for path in needs.setuid_programs]
    if sysctl is None or any(not isinstance(program, Missing) and program.mode & 0o4000 for program in programs):
        return
    lacks = f"; no set-user-id {' or '.join(needs.setuid_programs[:2])}" if needs.setuid_programs else ""
    yield finding(
        "user-namespaces-off",
        subject=backend,
        # A runtime from a module tree or a container has its helper elsewhere.
        severity="warning" if needs.module_may_split else "error",
        where=f"{sysctl.path} = {sysctl.off}{lacks}",
        setting=sysctl.on,
        message=needs.no_namespace_message,
    )


def _no_user_namespaces(host: Host, backend: str) -> Optional[Sysctl]:
    for sysctl in USER_NAMESPACES:
        has_profile = sysctl == _APPARMORS and any(
            re.fullmatch(rf"(usr\.(local\.)?(s?bin|libexec)\.)?{re.escape(backend)}\b.*", name)
            for name in host.dev.names(APPARMOR)
        )
        if host.dev.text(sysctl.path) == sysctl.off and not has_profile:
            return sysctl
    return None


def bad_cdi(preflight: Preflight) -> Iterator[Finding]:
    """Report the faults of the host's CDI specs if the plan does not come from them.

    Two faults have other codes: `cdi-conflict`, if two specs of one directory define a device, and `stale-cdi`, if a
    spec names files, device numbers or GPUs that this host no longer has.
    """
    if any(planned.source.served == SOURCE for planned in preflight.plan.drivers):
        return  # the plan has these findings
    registry = preflight.registry(preflight.plan.request.cdi_directories)
    dev = preflight.host.dev
    answers = (dev.list(path) if path in registry.directories else dev.read(path) for path in registry.ignored_files)
    if any(isinstance(answer, Missing) and answer.why == "unrecorded" for answer in answers):
        return  # a record does not cover the specs
    yield from registry_findings(registry)
    version = preflight.driver.kernel_version if preflight.driver is not None else None
    yield from stale_findings(preflight.host, registry.specs, version, preflight.plan.gpus, "warning")
