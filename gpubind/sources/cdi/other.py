"""CDI devices of other kinds than NVIDIA's driver: what they bring is done to the letter, as far as binds, nodes and
variables can say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Union

from gpubind.errors import NotRecordedError
from gpubind.formats.cdi import CdiNode
from gpubind.host import Host
from gpubind.model import ContainerPath, Decision, DeviceNode, Driver, EnvVar, HostFile, Inventory, SourceUsed
from gpubind.sources.cdi.edits import is_clean, read_edits
from gpubind.sources.cdi.hooks import Links
from gpubind.sources.cdi.registry import SOURCE, Choice, registry_findings
from gpubind.sources.claims import Claim
from gpubind.sources.files import KINDS, Followed, follow
from gpubind.sources.nodes import NoNode, look_at_node, read_groups

OPTIONS = ("ro", "nosuid", "nodev", "noexec")
"""What a plan says of a bind; the rest (rbind, rprivate) is every runtime's own way."""


def other_inventory(host: Host, choice: Choice) -> Inventory:
    """What the devices of *choice* bring that do not bring NVIDIA's driver."""
    names = [str(name) for name in choice.names if name not in choice.driver_names]
    edits = read_edits(host, choice.others, "other")
    decisions: list[Decision] = []
    files: dict[str, HostFile] = {}
    for mount in edits.mounts:
        claim = _claim(mount.container_path, f"mount {mount.container_path}")
        answer = _file(host, claim, mount.host_path, mount.options)
        if isinstance(answer, HostFile):
            files[mount.container_path] = answer
        else:
            decisions.append(answer)
    for link in edits.hooks.links:
        answer = _linked(host, link, edits.hooks, files)
        if isinstance(answer, HostFile):
            files.setdefault(link, answer)
        else:
            decisions.append(answer)
    groups = read_groups(host)
    nodes: dict[str, DeviceNode] = {}
    for part in choice.others:
        for node in part.edits.nodes:
            made = _node(host, node, groups, part.at)
            if isinstance(made, DeviceNode):
                nodes[node.path] = made
            else:
                decisions.append(made)
    folders = tuple(EnvVar("LD_LIBRARY_PATH", "prepend", folder, ":", "cdi") for folder in edits.hooks.folders)
    return Inventory(
        driver=Driver("other", None, False, None, "linux", None, host.dev.root),
        source=SourceUsed(SOURCE, f"{', '.join(names)} ({edits.files})"),
        searched=(),
        files=tuple(files.values()),
        devices=tuple(nodes.values()),
        gpus=(),
        decisions=(*decisions, *edits.decisions),
        findings=(
            *(() if choice.driver else registry_findings(choice.registry, choice.names)),
            *edits.findings,
        ),
        env=(*folders, *edits.env),
    )


def _claim(target: str, at: str) -> Claim:
    return Claim("file", target, SOURCE, at, "other")


def _linked(host: Host, link: str, hooks: Links, files: Mapping[str, HostFile]) -> Union[HostFile, Decision]:
    """The file of the host that a link would lead to, to be bound under the link's name."""
    end = hooks.followed(link)
    if is_clean(link) and end in files:
        return files[end]._replace(target=ContainerPath(link))
    for place, file in files.items():
        if file.kind == "directory" and end.startswith(f"{place}/") and is_clean(link):
            return _file(host, _claim(link, f"mount {link}"), file.path + end[len(place) :], file.options or ())
    detail = f"it leads to {end}, which no mount of the spec brings: if the image has that, a bind cannot say it"
    return _claim(link, "create-symlinks").decision(verdict="left-out", rule="cdi-link", detail=detail)


def _file(host: Host, claim: Claim, path: str, options: tuple[str, ...]) -> Union[HostFile, Decision]:
    """What is at *path*, to be bound at the place that *claim* names."""
    try:
        found = follow(host.dev, path)
    except NotRecordedError as error:
        return claim.decision(verdict="rejected", rule="unreadable", path=path, detail=error.what)
    if not isinstance(found, Followed):
        detail = "the spec names it, but it leads nowhere"
        return claim.decision(verdict="rejected", rule=found[0], path=path, detail=detail)
    kind = KINDS.get(found.stat.kind)
    if kind is None:
        return claim.decision(verdict="rejected", rule="special-file", path=path, detail=f"a {found.stat.kind}")
    made = claim.file(kind=kind, path=found.path, source=host.dev.real(found.path), size=found.stat.size, found_by=path)
    kept = tuple(option for option in OPTIONS if option in options)
    return made._replace(target=ContainerPath(claim.name), options=kept)


def _node(host: Host, node: CdiNode, groups: dict[int, str], at: str) -> Union[DeviceNode, Decision]:
    """The node as it is on the host now: a bind has its numbers, whatever the spec remembers."""
    if is_clean(node.path) and is_clean(node.source):
        try:
            found = look_at_node(host, node.source, node.path, groups, "other")
        except NotRecordedError as error:
            found = NoNode("unreadable", error.what)
    else:
        found = NoNode("unclean-path", "no clean absolute path")
    if isinstance(found, DeviceNode):
        return found
    claim = _claim(node.path, at)
    return claim.decision(verdict="rejected", rule=found.rule, path=node.source, detail=found.detail)
