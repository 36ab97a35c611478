"""What chosen CDI devices provide: NVIDIA's driver as a source of claims, devices of every other kind as an inventory.

The driver's files are found, completed and placed as those of any source. Of other kinds the spec is all that is known,
so it is done to the letter, as far as binds, nodes and variables can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Union

from gpubind.formats.driver.cdi import CdiMount
from gpubind.formats.driver.names import HOST_ONLY
from gpubind.host import Host
from gpubind.inventory.cdi.edits import Links, read_edits
from gpubind.inventory.cdi_specs import SOURCE, Applied, CdiChoice, in_driver_root, registry_findings
from gpubind.inventory.claims import Answer, Claim, Serving, is_clean, sorted_out
from gpubind.inventory.nodes import look_at_node, read_groups
from gpubind.model import (
    ContainerPath,
    Decision,
    DeviceNode,
    Driver,
    EnvVar,
    HostFile,
    Inventory,
    Missing,
    PassedOver,
    SourceUsed,
)

OPTIONS = ("ro", "nosuid", "nodev", "noexec")
"""The options of a bind that a plan keeps; runtimes decide on the rest (rbind, rprivate)."""


def driver_claims(host: Host, choice: CdiChoice) -> Union[Serving, PassedOver]:
    """Return what the edits of *choice* that provide the driver claim.

    `PassedOver` (code `no-library`) if no library of it is on *host*. Every mount, node, hook and variable gets a
    Decision, or is the subject of a Decision of another step.
    """
    at = ", ".join(str(name) for name in choice.driver_names)
    edits = read_edits(host, choice.driver, "nvidia")
    mounts = {in_driver_root(host, mount.host_path) or mount.host_path: mount for mount in edits.mounts}
    links = edits.hooks.library_names()
    files = [_claim(host, path, mount, at, links.get(mount.container_path, ())) for path, mount in mounts.items()]
    if not any(claim.kind == "library-file" and claim.stays is None for claim in files):
        return PassedOver(SOURCE, "no-library", f"none of the {len(mounts)} files that {at} names is a library here")
    nodes = [node for part in choice.driver for node in part.edits.nodes if is_clean(node.source)]
    return Serving(
        name=SOURCE,
        detail=f"{at} ({edits.files})",
        claims=(*files, *(Claim("device", node.source, SOURCE, at) for node in nodes)),
        decisions=edits.decisions,
        findings=(*registry_findings(choice.registry, choice.names), *edits.findings),
        nodes=None if choice.whole else tuple(node.path for node in nodes),
        env=edits.env,
    )


def _claim(host: Host, path: str, mount: CdiMount, at: str, links: tuple[str, ...]) -> Claim:
    """Return what *mount* claims: a library, under every name that the host has for it; or a file, at its place."""
    found = host.driver.lenient.resolve(path)
    real = "" if isinstance(found, Missing) else found
    stays = next((only.why for only in HOST_ONLY if fnmatchcase(real, only.pattern)), None)
    if ".so" in real.rpartition("/")[2]:
        return Claim("library-file", path, SOURCE, at, stays=stays, links=links)
    return Claim("file", path, SOURCE, at, stays=stays, target=ContainerPath(mount.container_path))


def other_inventory(host: Host, choice: CdiChoice) -> Inventory:
    """Return what those devices of *choice* provide that do not provide NVIDIA's driver."""
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
    _, decisions = sorted_out((*mounted.values(), *linked))
    folders = tuple(EnvVar("LD_LIBRARY_PATH", "prepend", folder, ":", "cdi") for folder in edits.hooks.folders)
    return Inventory(
        driver=Driver("other", None, False, None, "linux", None, host.dev.root),
        source=SourceUsed(SOURCE, f"{', '.join(names)} ({edits.files})"),
        searched=(),
        files=tuple(files.values()),
        devices=tuple({node.target: node for node in nodes if isinstance(node, DeviceNode)}.values()),
        gpus=(),
        decisions=(*decisions, *(node for node in nodes if isinstance(node, Decision)), *edits.decisions),
        findings=(*(() if choice.driver else registry_findings(choice.registry, choice.names)), *edits.findings),
        env=(*folders, *edits.env),
    )


def _file(host: Host, target: str, path: str, options: tuple[str, ...]) -> Answer:
    """Return *path* as a file to be bound at *target*."""
    claim = Claim("file", target, SOURCE, f"mount {target}", "other", target=ContainerPath(target))
    tree = host.dev.lenient
    found = tree.find(path)
    if isinstance(found, Missing):
        return claim.lost(found, path, "the spec names it, but it leads nowhere")
    file = claim.bindable(tree, found, found_by=path)
    if isinstance(file, Decision):
        return file
    return file._replace(options=tuple(option for option in OPTIONS if option in options))


def _linked(host: Host, link: str, hooks: Links, files: Mapping[str, HostFile]) -> Answer:
    """Return the file of the host that *link* would lead to, to be bound under the link's name."""
    end = hooks.followed(link)
    if is_clean(link) and end in files:
        return files[end]._replace(target=ContainerPath(link))
    for place, file in files.items():
        if file.kind == "directory" and end.startswith(f"{place}/") and is_clean(link):
            return _file(host, link, file.path + end[len(place) :], file.options or ())
    detail = f"it leads to {end}, which no mount of the spec brings: if the image has that, a bind cannot say it"
    return Claim("file", link, SOURCE, "create-symlinks", "other").decision("left-out", "cdi-link", detail)


def _nodes(host: Host, part: Applied, groups: dict[int, str]) -> Iterator[Union[DeviceNode, Decision]]:
    """Yield the nodes of *part* as they are on the host now: a bind has those numbers, not the spec's."""
    for node in part.edits.nodes:
        claim = Claim("file", node.path, SOURCE, part.at, "other")
        if is_clean(node.path) and is_clean(node.source):
            yield look_at_node(host.lenient, claim, node.source, groups)
        else:
            yield claim.rejected("unclean-path", "no clean absolute path", node.source)
