"""Chosen CDI devices: those of NVIDIA's driver are a source of claims, devices of other kinds are an inventory.

The locator finds, completes and places the driver's files as those of any source. For other kinds, a plan follows the
spec literally, as far as binds, nodes and variables can express it. gpubind runs no hooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from posixpath import basename
from typing import Union

from gpubind.formats.driver.cdi import CdiMount, parse_hook
from gpubind.formats.driver.gpu_names import NVIDIA_VISIBLE_DEVICES
from gpubind.formats.driver.names import HOST_ONLY
from gpubind.host import Host
from gpubind.inventory.cdi.specs import SOURCE, AppliedEdits, CdiChoice, in_driver_root, registry_findings
from gpubind.inventory.claims import Claim, Outcome, SourceResult, is_clean, partition_outcomes
from gpubind.inventory.nodes import read_groups, read_node
from gpubind.model import Decision, DeviceNode, Driver, EnvVar, HostFile, Inventory, PassedOver, SourceUsed, finding
from gpubind.model.files import LINKS_LIMIT, ContainerPath, Missing
from gpubind.model.host import Finding, Vendor, Verdict
from gpubind.model.layouts import UNBINDABLE_DIRECTORIES

_NVIDIA_RUNTIME_VARIABLES = (NVIDIA_VISIBLE_DEVICES, "NVIDIA_CTK_LIBCUDA_DIR")
_PREPENDED = ("LD_LIBRARY_PATH", "PATH")
_IGNORED_HOOKS = {
    "chmod": "it changes modes of directories for users of the container; a bind keeps the host's",
    "disable-device-node-modification": "it keeps root in the container from making nodes anew; who starts without "
    "privileges cannot make any, and the nodes are the host's own",
    "enable-cuda-compat": "it prefers the image's own newer libcuda in /usr/local/cuda/compat; with an image, the plan "
    "decides that itself (--cuda-compat)",
    "update-application-profile": "it chooses the GPU for OpenGL where only some are visible",
}
"""Hooks without an effect on the plan, and the reason why nothing is lost."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPTIONS = ("ro", "nosuid", "nodev", "noexec")
"""The options of a bind that a plan keeps; runtimes decide on others (rbind, rprivate)."""


class ClaimedEdits:
    """The combined edits of several devices: binds, effects of hooks, and variables."""

    def __init__(self, host: Host, applied: tuple[AppliedEdits, ...], vendor: Vendor) -> None:
        self.vendor = vendor
        self.mounts: dict[str, CdiMount] = {}
        """The mounts by container path; the last mount at a path takes precedence."""
        self.links: dict[str, str] = {}
        """Links in the container: absolute paths, and their absolute targets."""
        self.library_directories: dict[str, None] = {}
        """Directories for the container's loader."""
        self.env: dict[str, EnvVar] = {}
        """The variables by name; the last value takes precedence."""
        self.decisions: list[Decision] = []
        """The Decisions about all other edits."""
        self.findings: list[Finding] = []
        self.files = ", ".join(dict.fromkeys(part.location.partition(": ")[0] for part in applied))
        """The paths of the spec files."""
        for read in (self._read_mounts, self._read_hooks, self._read_variables):
            for part in applied:
                read(part)
        self.findings += (unsupported for part in applied for unsupported in _unsupported_edits(host, part, vendor))

    def resolve_link(self, path: str) -> str:
        """Return *path* with the links resolved."""
        for _ in range(LINKS_LIMIT):
            if path not in self.links:
                break
            path = self.links[path]
        return path

    def library_names(self) -> dict[str, tuple[str, ...]]:
        """Return the file names of links to libraries, by target."""
        names: dict[str, tuple[str, ...]] = {}
        for link in self.links:
            end, name = self.resolve_link(link), basename(link)
            if ".so" in name:
                names[end] = (*names.get(end, ()), name)
        return names

    def _read_mounts(self, part: AppliedEdits) -> None:
        for number, mount in enumerate(part.edits.mounts):
            subject = mount.container_path
            if not _is_bind(mount):
                rule, detail = "cdi-mount", f"a mount of type {mount.type}; a plan has binds alone"
            elif not (is_clean(mount.host_path) and is_clean(subject)):
                rule = "unclean-path"
                detail = "a path in a spec is absolute, without `.`, `..` and doubled or trailing slashes"
            elif subject in UNBINDABLE_DIRECTORIES:
                rule, detail = "system-directory", "binding it would hide the container's own"
            else:
                self.mounts.pop(subject, None)  # the last mount takes precedence, with its position
                self.mounts[subject] = mount
                continue
            claim = Claim("file", subject, SOURCE, f"{part.location}.mounts[{number}]", self.vendor)
            self.decisions.append(claim.rejected(rule, detail, mount.host_path))

    def _read_hooks(self, part: AppliedEdits) -> None:
        """Add the effects of the hooks of *part*. A hook that is unknown or not NVIDIA's is a finding."""
        for number, hook in enumerate(part.edits.hooks):
            location, call = f"{part.location}.hooks[{number}]", parse_hook(hook)
            subject = call.name or basename(hook.path)
            verdict: Verdict = "left-out"
            if call.name == "create-symlinks":
                self.links.update(call.links)
                verdict, rule, detail = "taken", "cdi-hook", f"{len(call.links)} links, each a bind under its own name"
            elif call.name == "update-ldcache":
                self.library_directories.update(dict.fromkeys(call.library_directories))
                verdict, rule = "taken", "cdi-hook"
                detail = "the directory of the libraries is in LD_LIBRARY_PATH instead"
            elif call.name in _IGNORED_HOOKS:
                rule, detail = "cdi-hook-not-run", _IGNORED_HOOKS[call.name]
            else:
                rule, detail = "cdi-hook-unknown", "what it does is not known, and it is not run"
                unknown = finding("cdi-hook", subject=subject, vendor=self.vendor, where=location, program=hook.path)
                self.findings.append(unknown)
            claim = Claim("file", subject, SOURCE, location, self.vendor)
            self.decisions.append(claim.decision(verdict, rule, detail, path=hook.path, step="name"))

    def _read_variables(self, part: AppliedEdits) -> None:
        # Search paths are prepended to the user's own.
        for name, _, value in (text.partition("=") for text in part.edits.env):
            claim = Claim("file", name, SOURCE, f"{part.location}.env", self.vendor)
            if name in _NVIDIA_RUNTIME_VARIABLES:
                detail = "only NVIDIA's own runtime and hooks read it"
                self.decisions.append(claim.decision("left-out", "cdi-env", detail, step="name"))
            elif not _VARIABLE.fullmatch(name):
                self.decisions.append(claim.decision("rejected", "cdi-env", "no name of a variable", step="name"))
            elif name not in _PREPENDED:
                self.env[name] = EnvVar(name, "set", value, None, "cdi")
            elif value:
                self.env[name] = EnvVar(name, "prepend", value, ":", "cdi")


def _is_bind(mount: CdiMount) -> bool:
    return mount.type in ("", "bind", "none", "rbind")


def _unsupported_edits(host: Host, part: AppliedEdits, vendor: Vendor) -> Iterator[Finding]:
    identity = host.identity
    gids = [gid for gid in part.edits.gids if gid and gid not in identity.groups and identity.euid != 0]
    mounts = [mount for mount in part.edits.mounts if not _is_bind(mount)]
    edits = [
        *(("network", f"the network interface {device.host_name}") for device in part.edits.net_devices),
        *([("resources", "a class of Intel's resource director")] if part.edits.rdt is not None else []),
        *([("groups", f"the groups {', '.join(map(str, gids))}")] if gids else []),
        *(("mount", f"a mount of type {mount.type} at {mount.container_path}") for mount in mounts),
    ]
    for case, subject in edits:
        yield finding("cdi-edit", case=case, subject=subject, vendor=vendor, where=part.location)


def driver_claims(host: Host, choice: CdiChoice) -> Union[SourceResult, PassedOver]:
    """Return the claims of those edits of *choice* that provide the driver.

    `PassedOver` (code `no-library`) if none of their libraries is on *host*. Every mount, node, hook and variable gets
    a Decision here or in another step.
    """
    location = ", ".join(str(name) for name in choice.driver_names)
    edits = ClaimedEdits(host, choice.driver, "nvidia")
    mounts = {in_driver_root(host, mount.host_path) or mount.host_path: mount for mount in edits.mounts.values()}
    links = edits.library_names()
    files = [_claim(host, path, mount, location, links.get(mount.container_path, ())) for path, mount in mounts.items()]
    if not any(claim.kind == "library-file" and claim.host_only_reason is None for claim in files):
        why = f"none of the {len(mounts)} files that {location} names is a library here"
        return PassedOver(SOURCE, "no-library", why)
    nodes = [node for part in choice.driver for node in part.edits.nodes if is_clean(node.source)]
    return SourceResult(
        name=SOURCE,
        detail=f"{location} ({edits.files})",
        claims=(*files, *(Claim("device", node.source, SOURCE, location) for node in nodes)),
        decisions=tuple(edits.decisions),
        findings=(*registry_findings(choice.registry, choice.names), *edits.findings),
        nodes=None if choice.has_all_gpus else tuple(node.path for node in nodes),
        env=tuple(edits.env.values()),
    )


def _claim(host: Host, path: str, mount: CdiMount, location: str, links: tuple[str, ...]) -> Claim:
    resolved = host.driver.lenient.resolve(path)
    real_path = "" if isinstance(resolved, Missing) else resolved
    reason = next((only.why for only in HOST_ONLY if fnmatchcase(real_path, only.pattern)), None)
    if ".so" in real_path.rpartition("/")[2]:
        return Claim("library-file", path, SOURCE, location, host_only_reason=reason, extra_names=links)
    return Claim("file", path, SOURCE, location, host_only_reason=reason, target=ContainerPath(mount.container_path))


def other_inventory(host: Host, choice: CdiChoice) -> Inventory:
    """Return the inventory of those devices of *choice* that do not provide NVIDIA's driver."""
    names = [str(name) for name in choice.names if name not in choice.driver_names]
    edits = ClaimedEdits(host, choice.others, "other")
    mounted = {target: _file(host, target, mount.host_path, mount.options) for target, mount in edits.mounts.items()}
    files = {target: file for target, file in mounted.items() if isinstance(file, HostFile)}
    linked: list[Outcome] = []
    for link in edits.links:
        linked.append(_linked(host, link, edits, files))
        if isinstance(linked[-1], HostFile):
            files.setdefault(link, linked[-1])
    groups = read_groups(host)
    nodes = [node for part in choice.others for node in _planned_nodes(host, part, groups)]
    _, decisions = partition_outcomes((*mounted.values(), *linked))
    folders = tuple(EnvVar("LD_LIBRARY_PATH", "prepend", folder, ":", "cdi") for folder in edits.library_directories)
    return Inventory(
        driver=Driver("other", None, False, None, "linux", None, host.dev.root),
        source=SourceUsed(SOURCE, f"{', '.join(names)} ({edits.files})"),
        files=tuple(files.values()),
        devices=tuple({node.target: node for node in nodes if isinstance(node, DeviceNode)}.values()),
        decisions=(*decisions, *(node for node in nodes if isinstance(node, Decision)), *edits.decisions),
        findings=(*registry_findings(choice.registry, choice.names), *edits.findings),
        env=(*folders, *edits.env.values()),
    )


def _file(host: Host, target: str, path: str, options: tuple[str, ...]) -> Outcome:
    claim = Claim("file", target, SOURCE, f"mount {target}", "other", target=ContainerPath(target))
    tree = host.dev.lenient
    resolved = tree.find(path)
    if isinstance(resolved, Missing):
        return claim.unreadable(resolved, path, "the spec names it, but it leads nowhere")
    file = claim.to_file(tree, resolved, found_by=path)
    kept_options = tuple(option for option in OPTIONS if option in options)
    return file if isinstance(file, Decision) else file._replace(options=kept_options)


def _linked(host: Host, link: str, edits: ClaimedEdits, files: Mapping[str, HostFile]) -> Outcome:
    end = edits.resolve_link(link)
    if is_clean(link) and end in files:
        return files[end]._replace(target=ContainerPath(link))
    for place, file in files.items():
        if file.kind == "directory" and end.startswith(f"{place}/") and is_clean(link):
            return _file(host, link, file.path + end[len(place) :], file.options or ())
    detail = f"it leads to {end}, which no mount of the spec brings: if the image has that, a bind cannot say it"
    return Claim("file", link, SOURCE, "create-symlinks", "other").decision("left-out", "cdi-link", detail)


def _planned_nodes(host: Host, part: AppliedEdits, groups: dict[int, str]) -> Iterator[Union[DeviceNode, Decision]]:
    # With the host's current numbers, not the spec's: a bind shows those.
    for node in part.edits.nodes:
        claim = Claim("file", node.path, SOURCE, part.location, "other")
        if is_clean(node.path) and is_clean(node.source):
            yield read_node(host.lenient, claim, node.source, groups)
        else:
            yield claim.rejected("unclean-path", "no clean absolute path", node.source)
