"""What the edits of chosen CDI devices mean for a plan.

Edits that bring NVIDIA's driver are a list of names like any other source's: which file a name is, what completes it,
where it lands, is decided as always. Of every other kind the spec is all that is known, so it is done to the letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Optional, Union

from gpubind.errors import NotRecordedError
from gpubind.formats.cdi import CdiEdits, CdiMount, CdiNode
from gpubind.host import Host
from gpubind.model import (
    ContainerPath,
    Decision,
    DeviceNode,
    Driver,
    EnvVar,
    Finding,
    HostFile,
    Inventory,
    PassedOver,
    SourceUsed,
    Vendor,
    Verdict,
)
from gpubind.sources.cdi.hooks import Links, read_hooks
from gpubind.sources.cdi.registry import SOURCE, Applied, Choice, in_driver_root, registry_findings
from gpubind.sources.claims import Claim, Serving
from gpubind.sources.files import KINDS, SYSTEM_DIRECTORIES, Followed, follow, lead
from gpubind.sources.layouts import HOST_ONLY
from gpubind.sources.nodes import NoNode, look_at_node, read_groups

OPTIONS = ("ro", "nosuid", "nodev", "noexec")
"""What a plan says of a bind; the rest (rbind, rprivate) is every runtime's own way."""
FOR_NVIDIAS_RUNTIME = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_CTK_LIBCUDA_DIR")
PREPENDED = ("LD_LIBRARY_PATH", "PATH")
LINKS_LIMIT = 40

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def claims(host: Host, choice: Choice) -> Union[Serving, PassedOver]:
    """What the edits of *choice* that bring the driver claim; `PassedOver` (code `no-library`) if no library of it is
    on *host*.

    Every mount, node, hook and variable gets a Decision, or is what a Decision of another step is about.
    """
    at = ", ".join(str(name) for name in choice.driver_names)
    decisions: list[Decision] = []
    mounts = {
        in_driver_root(host, mount.host_path) or mount.host_path: mount
        for mount in _mounts(choice.driver, decisions, "nvidia")
    }
    hooks = read_hooks(choice.driver, "nvidia")
    links = _library_names(hooks)
    files = [
        _claim(path, lead(host.driver, path), mount, at, links.get(mount.container_path, ()))
        for path, mount in mounts.items()
    ]
    if not any(claim.kind == "library-file" and claim.stays is None for claim in files):
        return PassedOver(SOURCE, "no-library", f"none of the {len(mounts)} files that {at} names is a library here")
    nodes = [node for part in choice.driver for node in part.edits.nodes if _is_clean(node.source)]
    env, env_decisions = _environment(choice.driver, "nvidia")
    findings = (
        *registry_findings(choice.registry, choice.names),
        *hooks.findings,
        *_not_done(host, choice.driver, "nvidia"),
    )
    return Serving(
        name=SOURCE,
        detail=f"{at} ({', '.join(dict.fromkeys(part.at.partition(': ')[0] for part in choice.driver))})",
        claims=(*files, *(Claim("device", node.source, SOURCE, at) for node in nodes)),
        decisions=(*decisions, *hooks.decisions, *env_decisions),
        findings=findings,
        nodes=None if choice.whole else tuple(node.path for node in nodes),
        env=env,
    )


def _claim(path: str, real: Optional[str], mount: CdiMount, at: str, links: tuple[str, ...]) -> Claim:
    """What *mount* claims: a library, under whatever names the host has it; or a file, at its place."""
    stays = next((only.why for only in HOST_ONLY if real and fnmatchcase(real, only.pattern)), None)
    if real and ".so" in real.rpartition("/")[2]:
        return Claim("library-file", path, SOURCE, at, stays=stays, links=links)
    return Claim("file", path, SOURCE, at, stays=stays, target=ContainerPath(mount.container_path))


def other_inventory(host: Host, choice: Choice) -> Inventory:
    """What devices of other kinds bring: to the letter, as far as binds, nodes and variables can say it."""
    vendor: Vendor = "other"
    names = [str(name) for name in choice.names if name not in choice.driver_names]
    decisions: list[Decision] = []
    hooks = read_hooks(choice.others, vendor)
    files: dict[str, HostFile] = {}
    for mount in _mounts(choice.others, decisions, vendor):
        answer = _file(host, mount, mount.host_path, mount.container_path, vendor)
        if isinstance(answer, HostFile):
            files[mount.container_path] = answer
        else:
            decisions.append(answer)
    for link in hooks.links:
        answer = _linked(host, link, hooks, files, vendor)
        if isinstance(answer, HostFile):
            files.setdefault(link, answer)
        else:
            decisions.append(answer)
    groups = read_groups(host)
    nodes: dict[str, DeviceNode] = {}
    for part in choice.others:
        for node in part.edits.nodes:
            made = _node(host, node, groups, part.at, vendor)
            if isinstance(made, DeviceNode):
                nodes[node.path] = made
            else:
                decisions.append(made)
    env, env_decisions = _environment(choice.others, vendor)
    folders = tuple(EnvVar("LD_LIBRARY_PATH", "prepend", folder, ":", "cdi") for folder in hooks.folders)
    where = ", ".join(dict.fromkeys(part.at.partition(": ")[0] for part in choice.others))
    return Inventory(
        driver=Driver(vendor, None, False, None, "linux", None, host.dev.root),
        source=SourceUsed(SOURCE, f"{', '.join(names)} ({where})"),
        searched=(),
        files=tuple(files.values()),
        devices=tuple(nodes.values()),
        gpus=(),
        decisions=(*decisions, *hooks.decisions, *env_decisions),
        findings=(
            *(() if choice.driver else registry_findings(choice.registry, choice.names)),
            *hooks.findings,
            *_not_done(host, choice.others, vendor),
        ),
        env=(*folders, *env),
    )


def _mounts(applied: Iterable[Applied], decisions: list[Decision], vendor: Vendor) -> list[CdiMount]:
    """The binds among the mounts, the last for each place in the container; a Decision for each that is none."""
    found: dict[str, CdiMount] = {}
    for part in applied:
        for number, mount in enumerate(part.edits.mounts):
            at = f"{part.at}.mounts[{number}]"
            subject = mount.container_path
            if not _is_bind(mount):
                detail = f"a mount of type {mount.type}; a plan has binds alone"
                decisions.append(_rejected(vendor, subject, "cdi-mount", at, mount.host_path, detail))
            elif not (_is_clean(mount.host_path) and _is_clean(mount.container_path)):
                detail = "a path in a spec is absolute, without `.`, `..` and doubled or trailing slashes"
                decisions.append(_rejected(vendor, subject, "unclean-path", at, mount.host_path, detail))
            elif mount.container_path in SYSTEM_DIRECTORIES:
                detail = "binding it would hide the container's own"
                decisions.append(_rejected(vendor, subject, "system-directory", at, mount.host_path, detail))
            else:
                found.pop(subject, None)
                found[subject] = mount
    return list(found.values())


def _is_bind(mount: CdiMount) -> bool:
    return mount.type in ("", "bind", "none", "rbind")


def _is_clean(path: str) -> bool:
    parts = path.split("/")
    return path.startswith("/") and path != "/" and not {"", ".", ".."} & set(parts[1:])


def _library_names(hooks: Links) -> dict[str, tuple[str, ...]]:
    """The last parts of the links that hooks would make to libraries, by where they lead."""
    names: dict[str, tuple[str, ...]] = {}
    for link in hooks.links:
        end, name = _followed(link, hooks), link.rpartition("/")[2]
        if ".so" in name:
            names[end] = (*names.get(end, ()), name)
    return names


def _followed(path: str, hooks: Links) -> str:
    """Where *path* leads by the links that hooks would make."""
    for _ in range(LINKS_LIMIT):
        if path not in hooks.links:
            break
        path = hooks.links[path]
    return path


def _linked(
    host: Host, link: str, hooks: Links, files: dict[str, HostFile], vendor: Vendor
) -> Union[HostFile, Decision]:
    """The file of the host that a link would lead to, to be bound under the link's name."""
    end = _followed(link, hooks)
    if _is_clean(link) and end in files:
        return files[end]._replace(target=ContainerPath(link))
    for place, file in files.items():
        if file.kind == "directory" and end.startswith(f"{place}/") and _is_clean(link):
            mount = CdiMount(file.path + end[len(place) :], link, file.options or (), "")
            return _file(host, mount, mount.host_path, link, vendor)
    detail = f"it leads to {end}, which no mount of the spec brings: if the image has that, a bind cannot say it"
    return Decision(vendor, link, "left-out", "cdi-link", "search", SOURCE, "create-symlinks", None, None, None, detail)


def _file(host: Host, mount: CdiMount, path: str, target: str, vendor: Vendor) -> Union[HostFile, Decision]:
    claim = Claim("file", path, SOURCE, f"mount {mount.container_path}", vendor, target=ContainerPath(target))
    try:
        found = follow(host.dev, path)
    except NotRecordedError as error:
        return claim.decision(subject=target, verdict="rejected", rule="unreadable", path=path, detail=error.what)
    if not isinstance(found, Followed):
        detail = "the spec names it, but it leads nowhere"
        return claim.decision(subject=target, verdict="rejected", rule=found[0], path=path, detail=detail)
    kind = KINDS.get(found.stat.kind)
    if kind is None:
        detail = f"a {found.stat.kind}"
        return claim.decision(subject=target, verdict="rejected", rule="special-file", path=path, detail=detail)
    made = claim.file(kind=kind, path=found.path, source=host.dev.real(found.path), size=found.stat.size, found_by=path)
    options = tuple(option for option in OPTIONS if option in mount.options)
    return made._replace(target=claim.target, options=options)


def _node(host: Host, node: CdiNode, groups: dict[int, str], at: str, vendor: Vendor) -> Union[DeviceNode, Decision]:
    """The node as it is on the host now: a bind has its numbers, whatever the spec remembers."""
    if not (_is_clean(node.path) and _is_clean(node.source)):
        return _rejected(vendor, node.path, "unclean-path", at, node.source, "no clean absolute path")
    try:
        found = look_at_node(host, node.source, node.path, groups, vendor)
    except NotRecordedError as error:
        return _rejected(vendor, node.path, "unreadable", at, node.source, error.what)
    if isinstance(found, NoNode):
        return _rejected(vendor, node.path, found.rule, at, node.source, found.detail)
    return found


def _environment(applied: Iterable[Applied], vendor: Vendor) -> tuple[tuple[EnvVar, ...], list[Decision]]:
    """The variables of the edits, the last value of each; search paths go before the user's own, which is kept."""
    found: dict[str, EnvVar] = {}
    decisions: list[Decision] = []

    def decide(name: str, verdict: Verdict, rule: str, at: str, detail: str) -> None:
        decisions.append(Decision(vendor, name, verdict, rule, "name", SOURCE, at, None, None, None, detail))

    for part in applied:
        for text in part.edits.env:
            name, _, value = text.partition("=")
            at = f"{part.at}.env"
            if name in FOR_NVIDIAS_RUNTIME:
                decide(name, "left-out", "cdi-env", at, "it speaks to NVIDIA's own runtime and hooks alone")
            elif not _VARIABLE.fullmatch(name):
                decide(name, "rejected", "cdi-env", at, "no name of a variable")
            elif name in PREPENDED:
                if value:
                    found[name] = EnvVar(name, "prepend", value, ":", "cdi")
            else:
                found[name] = EnvVar(name, "set", value, None, "cdi")
    return tuple(found.values()), decisions


def _not_done(host: Host, applied: Iterable[Applied], vendor: Vendor) -> list[Finding]:
    """A finding for each edit that no plan can say."""
    findings = []
    for part in applied:
        for what, why in _beyond(host, part.edits):
            findings.append(
                Finding(
                    "cdi-edit",
                    "warning",
                    vendor,
                    what,
                    f"the CDI spec gives {what}, and a plan cannot",
                    part.at,
                    why,
                    "start the container with podman or docker and `--device`, which can",
                )
            )
    return findings


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


def _rejected(vendor: Vendor, subject: str, rule: str, at: str, path: Optional[str], detail: str) -> Decision:
    return Decision(vendor, subject, "rejected", rule, "search", SOURCE, at, path, None, None, detail)
