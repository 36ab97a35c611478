"""CDI devices of other kinds than NVIDIA's driver: what they bring is done to the letter, as far as binds, nodes and
variables can say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Union

from gpubind.host import Host
from gpubind.inventory.cdi.edits import read_edits
from gpubind.inventory.cdi.hooks import Links
from gpubind.inventory.cdi_specs import SOURCE, Applied, CdiChoice, registry_findings
from gpubind.inventory.claims import Answer, Claim, is_clean
from gpubind.inventory.nodes import look_at_node, read_groups
from gpubind.model import ContainerPath, Decision, DeviceNode, Driver, EnvVar, HostFile, Inventory, Missing, SourceUsed

OPTIONS = ("ro", "nosuid", "nodev", "noexec")
"""What a plan says of a bind; the rest (rbind, rprivate) is every runtime's own way."""


def other_inventory(host: Host, choice: CdiChoice) -> Inventory:
    """Return what the devices of *choice* bring that do not bring NVIDIA's driver."""
    names = [str(name) for name in choice.names if name not in choice.driver_names]
    edits = read_edits(host, choice.others, "other")
    mounted = {
        mount.container_path: _file(host, mount.container_path, mount.host_path, mount.options)
        for mount in edits.mounts
    }
    files = {target: file for target, file in mounted.items() if isinstance(file, HostFile)}
    linked: list[Answer] = []
    for link in edits.hooks.links:
        linked.append(_linked(host, link, edits.hooks, files))
        if isinstance(linked[-1], HostFile):
            files.setdefault(link, linked[-1])
    groups = read_groups(host)
    nodes = [node for part in choice.others for node in _nodes(host, part, groups)]
    answers = (*mounted.values(), *linked, *nodes)
    folders = tuple(EnvVar("LD_LIBRARY_PATH", "prepend", folder, ":", "cdi") for folder in edits.hooks.folders)
    return Inventory(
        driver=Driver("other", None, False, None, "linux", None, host.dev.root),
        source=SourceUsed(SOURCE, f"{', '.join(names)} ({edits.files})"),
        searched=(),
        files=tuple(files.values()),
        devices=tuple({node.target: node for node in nodes if isinstance(node, DeviceNode)}.values()),
        gpus=(),
        decisions=(*(answer for answer in answers if isinstance(answer, Decision)), *edits.decisions),
        findings=(*(() if choice.driver else registry_findings(choice.registry, choice.names)), *edits.findings),
        env=(*folders, *edits.env),
    )


def _file(host: Host, target: str, path: str, options: tuple[str, ...]) -> Answer:
    """Return what is at *path*, to be bound at *target*."""
    claim = Claim("file", target, SOURCE, f"mount {target}", "other", target=ContainerPath(target))
    tree = host.dev.lenient
    found = tree.find(path)
    if isinstance(found, Missing):
        return claim.lost(found, path, "the spec names it, but it leads nowhere")
    made = claim.bindable(tree, found, found_by=path)
    if isinstance(made, Decision):
        return made
    return made._replace(options=tuple(option for option in OPTIONS if option in options))


def _linked(host: Host, link: str, hooks: Links, files: Mapping[str, HostFile]) -> Answer:
    """The file of the host that a link would lead to, to be bound under the link's name."""
    end = hooks.followed(link)
    if is_clean(link) and end in files:
        return files[end]._replace(target=ContainerPath(link))
    for place, file in files.items():
        if file.kind == "directory" and end.startswith(f"{place}/") and is_clean(link):
            return _file(host, link, file.path + end[len(place) :], file.options or ())
    detail = f"it leads to {end}, which no mount of the spec brings: if the image has that, a bind cannot say it"
    claim = Claim("file", link, SOURCE, "create-symlinks", "other")
    return claim.decision(verdict="left-out", rule="cdi-link", detail=detail)


def _nodes(host: Host, part: Applied, groups: dict[int, str]) -> Iterator[Union[DeviceNode, Decision]]:
    """The nodes of *part* as they are on the host now: a bind has its numbers, whatever the spec remembers."""
    for node in part.edits.nodes:
        claim = Claim("file", node.path, SOURCE, part.at, "other")
        if is_clean(node.path) and is_clean(node.source):
            yield look_at_node(host.lenient, claim, node.source, groups)
        else:
            detail = "no clean absolute path"
            yield claim.decision(verdict="rejected", rule="unclean-path", path=node.source, detail=detail)
