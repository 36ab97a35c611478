"""What the edits of chosen CDI devices say: binds, links, variables, and what no plan can do.

Edits that bring NVIDIA's driver are a list of names like any other source's (`driver.py`). Of every other kind the spec
is all that is known, so it is done to the letter (`other.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpubind.formats.driver.cdi import CdiMount
from gpubind.formats.driver.gpu_variables import NVIDIA_VISIBLE_DEVICES
from gpubind.host import Host
from gpubind.inventory.cdi.hooks import Links, read_hooks
from gpubind.inventory.cdi_specs import SOURCE, Applied
from gpubind.inventory.claims import Claim, is_clean
from gpubind.model import Decision, EnvVar, Finding, Vendor, Verdict
from gpubind.model.findings import finding
from gpubind.model.layouts import SYSTEM_DIRECTORIES

FOR_NVIDIAS_RUNTIME = (NVIDIA_VISIBLE_DEVICES, "NVIDIA_CTK_LIBCUDA_DIR")
PREPENDED = ("LD_LIBRARY_PATH", "PATH")
_UNCLEAN = "a path in a spec is absolute, without `.`, `..` and doubled or trailing slashes"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ClaimedEdits(NamedTuple):
    """What the edits of several devices say together."""

    mounts: tuple[CdiMount, ...]
    """The binds, the last for each place in the container."""
    hooks: Links
    env: tuple[EnvVar, ...]
    decisions: tuple[Decision, ...]
    """About everything else."""
    findings: tuple[Finding, ...]
    files: str
    """The spec files that they stand in."""


def read_edits(host: Host, applied: Iterable[Applied], vendor: Vendor) -> ClaimedEdits:
    """Return what *applied* say, on *host*; a Decision or a finding for whatever a plan cannot do."""
    applied = tuple(applied)
    mounts, mount_decisions = _mounts(applied, vendor)
    hooks = read_hooks(applied, vendor)
    env, env_decisions = _environment(applied, vendor)
    return ClaimedEdits(
        mounts=mounts,
        hooks=hooks,
        env=env,
        decisions=(*mount_decisions, *hooks.decisions, *env_decisions),
        findings=(*hooks.findings, *(found for part in applied for found in _not_done(host, part, vendor))),
        files=", ".join(dict.fromkeys(part.at.partition(": ")[0] for part in applied)),
    )


def _mounts(applied: Iterable[Applied], vendor: Vendor) -> tuple[tuple[CdiMount, ...], list[Decision]]:
    found: dict[str, CdiMount] = {}
    decisions: list[Decision] = []
    for part in applied:
        for number, mount in enumerate(part.edits.mounts):
            subject = mount.container_path
            if not _is_bind(mount):
                rule, detail = "cdi-mount", f"a mount of type {mount.type}; a plan has binds alone"
            elif not (is_clean(mount.host_path) and is_clean(subject)):
                rule, detail = "unclean-path", _UNCLEAN
            elif subject in SYSTEM_DIRECTORIES:
                rule, detail = "system-directory", "binding it would hide the container's own"
            else:
                found.pop(subject, None)  # the last counts, and in the place of the last
                found[subject] = mount
                continue
            claim = Claim("file", subject, SOURCE, f"{part.at}.mounts[{number}]", vendor)
            decisions.append(claim.decision(verdict="rejected", rule=rule, path=mount.host_path, detail=detail))
    return tuple(found.values()), decisions


def _is_bind(mount: CdiMount) -> bool:
    return mount.type in ("", "bind", "none", "rbind")


def _environment(applied: Iterable[Applied], vendor: Vendor) -> tuple[tuple[EnvVar, ...], list[Decision]]:
    """The variables of the edits, the last value of each; search paths go before the user's own, which is kept."""
    found: dict[str, EnvVar] = {}
    decisions: list[Decision] = []
    for part in applied:
        for name, _, value in (text.partition("=") for text in part.edits.env):
            if name not in FOR_NVIDIAS_RUNTIME and _VARIABLE.fullmatch(name):
                if name not in PREPENDED:
                    found[name] = EnvVar(name, "set", value, None, "cdi")
                elif value:
                    found[name] = EnvVar(name, "prepend", value, ":", "cdi")
                continue
            claim = Claim("file", name, SOURCE, f"{part.at}.env", vendor)
            verdict: Verdict = "left-out" if name in FOR_NVIDIAS_RUNTIME else "rejected"
            detail = "only NVIDIA's own runtime and hooks read it"
            detail = detail if verdict == "left-out" else "no name of a variable"
            decisions.append(claim.decision(verdict=verdict, rule="cdi-env", step="name", detail=detail))
    return tuple(found.values()), decisions


def _not_done(host: Host, part: Applied, vendor: Vendor) -> Iterator[Finding]:
    """A finding for each edit that no plan can do."""

    def told(case: str, what: str) -> Finding:
        return finding("cdi-edit", case=case, subject=what, vendor=vendor, where=part.at)

    for device in part.edits.net_devices:
        yield told("network", f"the network interface {device.host_name}")
    if part.edits.rdt is not None:
        yield told("resources", "a class of Intel's resource director")
    gids = [gid for gid in part.edits.gids if gid and gid not in host.identity.groups and host.identity.euid != 0]
    if gids:
        yield told("groups", f"the groups {', '.join(map(str, gids))}")
    for mount in part.edits.mounts:
        if not _is_bind(mount):
            yield told("mount", f"a mount of type {mount.type} at {mount.container_path}")
