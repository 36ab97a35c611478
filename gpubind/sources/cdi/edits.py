"""What the edits of chosen CDI devices say: binds, links, variables, and what no plan can do.

Edits that bring NVIDIA's driver are a list of names like any other source's (`driver.py`). Of every other kind the spec
is all that is known, so it is done to the letter (`other.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gpubind.formats.cdi import CdiEdits, CdiMount
from gpubind.host import Host
from gpubind.model import Decision, EnvVar, Finding, Vendor, Verdict
from gpubind.sources.cdi.hooks import Links, read_hooks
from gpubind.sources.cdi.registry import SOURCE, Applied
from gpubind.sources.claims import Claim
from gpubind.sources.files import SYSTEM_DIRECTORIES

FOR_NVIDIAS_RUNTIME = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_CTK_LIBCUDA_DIR")
PREPENDED = ("LD_LIBRARY_PATH", "PATH")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Edits(NamedTuple):
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


def read_edits(host: Host, applied: Iterable[Applied], vendor: Vendor) -> Edits:
    """What *applied* say, on *host*; a Decision or a finding for whatever a plan cannot do."""
    applied = tuple(applied)
    mounts, mount_decisions = _mounts(applied, vendor)
    hooks = read_hooks(applied, vendor)
    env, env_decisions = _environment(applied, vendor)
    not_done = [_not_done(what, why, part.at, vendor) for part in applied for what, why in _beyond(host, part.edits)]
    return Edits(
        mounts,
        hooks,
        env,
        (*mount_decisions, *hooks.decisions, *env_decisions),
        (*hooks.findings, *not_done),
        ", ".join(dict.fromkeys(part.at.partition(": ")[0] for part in applied)),
    )


def _mounts(applied: Iterable[Applied], vendor: Vendor) -> tuple[tuple[CdiMount, ...], list[Decision]]:
    found: dict[str, CdiMount] = {}
    decisions: list[Decision] = []
    for part in applied:
        for number, mount in enumerate(part.edits.mounts):
            subject = mount.container_path
            refused = None
            if not _is_bind(mount):
                refused = "cdi-mount", f"a mount of type {mount.type}; a plan has binds alone"
            elif not (is_clean(mount.host_path) and is_clean(subject)):
                detail = "a path in a spec is absolute, without `.`, `..` and doubled or trailing slashes"
                refused = "unclean-path", detail
            elif subject in SYSTEM_DIRECTORIES:
                refused = "system-directory", "binding it would hide the container's own"
            if refused is None:
                found.pop(subject, None)
                found[subject] = mount
                continue
            rule, detail = refused
            claim = Claim("file", subject, SOURCE, f"{part.at}.mounts[{number}]", vendor)
            decisions.append(claim.decision(verdict="rejected", rule=rule, path=mount.host_path, detail=detail))
    return tuple(found.values()), decisions


def _is_bind(mount: CdiMount) -> bool:
    return mount.type in ("", "bind", "none", "rbind")


def is_clean(path: str) -> bool:
    """Whether *path* is absolute, without `.`, `..` and doubled or trailing slashes, and not the root."""
    parts = path.split("/")
    return path.startswith("/") and path != "/" and not {"", ".", ".."} & set(parts[1:])


def _environment(applied: Iterable[Applied], vendor: Vendor) -> tuple[tuple[EnvVar, ...], list[Decision]]:
    """The variables of the edits, the last value of each; search paths go before the user's own, which is kept."""
    found: dict[str, EnvVar] = {}
    decisions: list[Decision] = []
    for part in applied:
        for text in part.edits.env:
            name, _, value = text.partition("=")
            refused: tuple[Verdict, str]
            if name in FOR_NVIDIAS_RUNTIME:
                refused = "left-out", "it speaks to NVIDIA's own runtime and hooks alone"
            elif not _VARIABLE.fullmatch(name):
                refused = "rejected", "no name of a variable"
            else:
                if name not in PREPENDED:
                    found[name] = EnvVar(name, "set", value, None, "cdi")
                elif value:
                    found[name] = EnvVar(name, "prepend", value, ":", "cdi")
                continue
            claim = Claim("file", name, SOURCE, f"{part.at}.env", vendor)
            decisions.append(claim.decision(verdict=refused[0], rule="cdi-env", step="name", detail=refused[1]))
    return tuple(found.values()), decisions


def _not_done(what: str, why: str, at: str, vendor: Vendor) -> Finding:
    return Finding(
        code="cdi-edit",
        severity="warning",
        vendor=vendor,
        subject=what,
        what=f"the CDI spec gives {what}, and a plan cannot",
        where=at,
        why=why,
        hint="start the container with podman or docker and `--device`, which can",
    )


def _beyond(host: Host, edits: CdiEdits) -> list[tuple[str, str]]:
    found = [
        (f"the network interface {device.host_name}", "the container's network is its runtime's business")
        for device in edits.net_devices
    ]
    if edits.rdt is not None:
        found.append(("a class of Intel's resource director", "it wants privileges and the runtime's own cgroup"))
    gids = [gid for gid in edits.gids if gid and gid not in host.identity.groups and host.identity.euid != 0]
    if gids:
        numbers = ", ".join(map(str, gids))
        found.append(
            (f"the groups {numbers}", "without them the nodes that only a group may open stay closed (EACCES)")
        )
    found += [
        (f"a mount of type {m.type} at {m.container_path}", "a plan has binds alone")
        for m in edits.mounts
        if not _is_bind(m)
    ]
    return found
