"""Make a plan of inventories: capabilities, placement, collisions, environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Optional

from gpubind.errors import FormatError
from gpubind.formats.driver.gpu_names import GPU_VARIABLES
from gpubind.formats.driver.icd import parse_icd, with_library_paths
from gpubind.formats.driver.names import REQUIRED, name_facts
from gpubind.frozen import NamedTuple
from gpubind.model import Capability, Decision, DeviceNode, EnvVar, Finding, HostFile, Inventory, Mount, Vendor
from gpubind.model.digest import node_digest, plan_digest
from gpubind.model.files import ContainerPath
from gpubind.model.findings import SEVERITIES
from gpubind.model.host import READ_ONLY_OPTIONS, Step, Verdict
from gpubind.model.image import ImageFacts
from gpubind.model.layouts import gbm_directories
from gpubind.model.plan import Plan, PlannedDriver, Request
from gpubind.model.vendors import userspaces_of
from gpubind.planner.placement import GBM_BACKEND, GPUBIND_LAYOUT, Layout, with_libdir
from gpubind.planner.sides import host_libc_side, host_side

if TYPE_CHECKING:
    from gpubind.loader.verdict import ImageFit

_IMPLIED_CAPABILITIES: dict[Capability, tuple[Capability, ...]] = {"video": ("compute",), "display": ("graphics",)}
"""Capabilities whose libraries need those of others. Source: libnvidia-container `src/nvc_info.c`."""

_NODE_FINDINGS = ("device-number", "device-permission")
"""Findings about a device node, which matter only if the container gets the node."""

_LEFT_OUT: tuple[Verdict, str, Step] = ("left-out", "capability", "capability")
_NOT_REQUESTED = "belongs to {}, which was not asked for"

_SOCKET_OPTIONS = ("nosuid", "nodev", "noexec")


def make_plan(
    inventories: Iterable[Inventory],
    request: Request,
    layout: Layout = GPUBIND_LAYOUT,
    fit: Optional[ImageFit] = None,
    environ: Optional[Mapping[str, str]] = None,
    findings: Iterable[Finding] = (),
) -> Plan:
    """Return the plan of *inventories* for the image of *fit*; *findings* are added to its own.

    *environ* is the caller's environment, which chooses GPUs where *request* does not.
    Mounts and devices are sorted by target, the rest by step. No two mounts share a target.
    """
    layout = with_libdir(layout, request.libdir)
    of_node = tuple(inventories)
    selected = _select_gpus(of_node, request, environ or {}, layout)
    inventories = tuple(inventory for inventory, _, _ in selected)
    parts = [*(_vendor_part(each, request, layout, fit) for each in inventories), _libc_part(request, layout, fit)]
    mounts, placed = _resolve_collisions(pair for part in parts for pair in part.mounts)
    nodes = {node.target: node for part in parts for node in part.devices}  # in WSL all vendors share one
    devices = tuple(node for _, node in sorted(nodes.items()))
    gpus = tuple(gpu for inventory in inventories for gpu in inventory.gpus)
    compat_env, compat_decisions = _compat(request, inventories, fit, layout)
    env = (
        *compat_env,
        *_environment(mounts, layout, fit.gbm if fit is not None else ()),
        *(variable for inventory in inventories for variable in inventory.env),
        *(variable for _, _, variables in selected for variable in variables),
    )
    decisions = [*(decision for part in parts for decision in part.decisions), *placed]
    decisions += [*(decision for _, left_out, _ in selected for decision in left_out), *compat_decisions]
    return Plan(
        request=request,
        layout=layout.name,
        isolated=layout.isolated,
        drivers=tuple(PlannedDriver(i.driver, i.source, i.searched, i.libcuda_directories) for i in inventories),
        gpus=gpus,
        libdir=layout.libdir,
        libdir32=layout.libdir32,
        mounts=mounts,
        devices=devices,
        env=env,
        image=fit.facts if fit else None,
        decisions=tuple(sorted(decisions, key=_decision_order)),
        findings=_ordered([*findings, *(finding for part in parts for finding in part.findings)], len(inventories) > 1),
        digest=plan_digest(mounts, devices, env, gpus),
        node_digest=node_digest(of_node) if of_node else None,
    )


def _ordered(findings: Sequence[Finding], of_several: bool) -> tuple[Finding, ...]:
    if of_several:
        findings = tuple({(finding.code, finding.subject, finding.what): finding for finding in findings}.values())
    return tuple(sorted(findings, key=finding_order))


class _VendorPart(NamedTuple):
    mounts: tuple[tuple[HostFile, Mount], ...]
    """The mounts before collisions are resolved: two may share a target."""
    devices: tuple[DeviceNode, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]


def _vendor_part(inventory: Inventory, request: Request, layout: Layout, fit: Optional[ImageFit]) -> _VendorPart:
    requested = requested_capabilities(request)
    requested_files = [file for file in inventory.files if _is_file_requested(file, requested)]
    left_out = [file for file in inventory.files if not _is_file_requested(file, requested)]
    side = host_side(requested_files, request, fit)
    if userspaces_of([inventory.driver.vendor]) and not inventory.devices_only:
        from gpubind.planner.userspace import add_userspace_findings  # few hosts need it

        side = add_userspace_findings(inventory, side, requested_files, request, fit)
    return _VendorPart(
        mounts=tuple(
            (file, mount)
            for file in side.files
            for mount in _mounts(file, side.files, layout, fit.manifests if fit is not None else ())
        ),
        devices=tuple(node for node in inventory.devices if _is_requested(node.capability, requested)),
        decisions=(
            *side.decisions,
            *(file.decision(file.name, *_LEFT_OUT, detail=_NOT_REQUESTED.format(file.capability)) for file in left_out),
            *(
                node.decision("taken", "devices", "place")
                if _is_requested(node.capability, requested)
                else node.decision(*_LEFT_OUT, detail=_NOT_REQUESTED.format(node.capability))
                for node in inventory.devices
            ),
            *inventory.decisions,
        ),
        findings=(*findings_that_matter(inventory, request), *side.findings),
    )


def _libc_part(request: Request, layout: Layout, fit: Optional[ImageFit]) -> _VendorPart:
    side = host_libc_side(request, fit)
    mounts = tuple((file, mount) for file in side.files for mount in _mounts(file, (), layout))
    return _VendorPart(mounts, (), side.decisions, side.findings)


def empty_plan(
    layout: Layout = GPUBIND_LAYOUT, image: Optional[ImageFacts] = None, vendors: tuple[Vendor, ...] = ()
) -> Plan:
    """Return a plan that binds nothing, for a start on a host without a GPU of *vendors*."""
    return make_plan((), Request(vendors=vendors), layout)._replace(image=image)


def _select_gpus(
    inventories: tuple[Inventory, ...], request: Request, environ: Mapping[str, str], layout: Layout
) -> Iterable[tuple[Inventory, tuple[Decision, ...], tuple[EnvVar, ...]]]:
    """Return each inventory with its chosen GPUs, the Decisions about its other nodes, and the variables to set.

    If there is no choice and no cgroup hides a GPU, all stay, and the modules that read choices are not imported.
    """
    is_asked = request.gpus is not None or any(name in environ for name in GPU_VARIABLES)
    if not is_asked and not any(inventory.hidden_gpu_indexes for inventory in inventories):
        return tuple((inventory, (), ()) for inventory in inventories)
    from gpubind.planner.gpus.selection import select

    return select(inventories, request.gpus, environ, isolated=layout.isolated)


def findings_that_matter(inventory: Inventory, request: Request) -> Iterator[Finding]:
    """Yield the findings of *inventory*, except those about nodes that the container does not get.

    Unless graphics was requested by name, a graphics node that cannot be opened is only a note.
    """
    nodes, requested = {node.target: node for node in inventory.devices}, requested_capabilities(request)
    for finding in inventory.findings:
        node = nodes.get(ContainerPath(finding.subject)) if finding.code in _NODE_FINDINGS else None
        if node is not None and not _is_requested(node.capability, requested):
            continue
        is_for_display = node is not None and (node.capability == "graphics" or "/dri/card" in node.target)
        by_name = request.caps_named and "graphics" in requested
        if finding.code == "device-permission" and finding.severity == "warning" and is_for_display and not by_name:
            finding = finding._replace(severity="note")
        yield finding


def requested_capabilities(request: Request) -> frozenset[Capability]:
    """Return the requested capabilities and those that they imply."""
    implied = [cap for capability in request.capabilities for cap in _IMPLIED_CAPABILITIES.get(capability, ())]
    return frozenset((*request.capabilities, *implied))


def _is_file_requested(file: HostFile, requested: frozenset[Capability]) -> bool:
    if _is_requested(file.capability, requested):
        return True
    return any(name_facts(name).shared in requested for name in file.names)


def _is_requested(capability: Optional[Capability], requested: frozenset[Capability]) -> bool:
    return capability is None or capability in requested


def _mounts(
    file: HostFile, mounted_files: Iterable[HostFile], layout: Layout, manifests: Iterable[Iterable[str]] = ()
) -> Iterator[Mount]:
    if file.kind == "library":
        directories = layout.directories(compat32=file.compat32)
        targets = [layout.place(directory, name) for directory in directories for name in file.names]
    elif file.kind == "binary":
        targets = [ContainerPath(f"{layout.bindir}/{file.names[0]}")]
    else:
        targets = [file.target, *_named_targets(file, mounted_files, manifests)] if file.target else []
    content = _rewrite_manifest(file, mounted_files, layout) if file.content is not None else None
    options = _SOCKET_OPTIONS if file.kind in ("socket", "directory") else READ_ONLY_OPTIONS
    for target in targets:
        yield Mount(
            vendor=file.vendor,
            source=file.source if content is None else None,
            content=content,
            target=target,
            kind=file.kind,
            arch=file.arch,
            soname=file.soname,
            version=file.version,
            capability="compat32" if file.compat32 else file.capability,
            options=options if file.options is None else file.options,
            required=file.soname in REQUIRED and not file.compat32,
            size=file.size if content is None else len(content.encode("utf-8", "surrogateescape")),
            rule=file.named_by,
        )


def _named_targets(
    file: HostFile, mounted_files: Iterable[HostFile], manifests: Iterable[Iterable[str]]
) -> Iterator[ContainerPath]:
    """Yield the path at which each of *manifests*, the values of variables, names *file*.

    NVIDIA's toolkit binds Vulkan's manifest into /etc/vulkan, and images name it there, with the architecture in its
    name or without. One manifest is bound for a variable: of two, Vulkan would list each GPU twice.
    """
    targets = {mounted.target for mounted in mounted_files}
    stem = (file.target or "").rpartition("/")[2].partition(".")[0]
    for paths in manifests if "nvidia" in stem and (file.target or "").endswith(".json") else ():
        named = [path for path in paths if path.rpartition("/")[2].partition(".")[0] == stem and path.endswith(".json")]
        if named and not targets.intersection(paths):
            yield ContainerPath(named[0])


def _rewrite_manifest(file: HostFile, mounted_files: Iterable[HostFile], layout: Layout) -> Optional[str]:
    """Return the manifest with absolute library paths replaced by sonames; None if it can be bound unchanged.

    An absolute path (RPM packages since 560, Nix) is valid only on the host: in the container the loader finds the
    library by its name, unless the library is bound at that very path.
    """
    try:
        icd = parse_icd(file.content or b"")
    except FormatError:
        return None
    sonames = {name for library in mounted_files if library.kind == "library" for name in library.names}
    directories = layout.directories()
    replacements = {
        path: path.rpartition("/")[2]
        for path in icd.libraries
        if path.startswith("/") and path.rpartition("/")[2] in sonames and path.rpartition("/")[0] not in directories
    }
    return with_library_paths(icd, replacements) if replacements else None


def _resolve_collisions(requested: Iterable[tuple[HostFile, Mount]]) -> tuple[tuple[Mount, ...], list[Decision]]:
    """Keep the first mount of each target, sorted by target. Return a Decision about each of *requested*."""
    mounts: dict[ContainerPath, Mount] = {}
    decisions = []
    for file, mount in requested:
        first_mount = mounts.setdefault(mount.target, mount)
        detail = None
        if first_mount is not mount:
            detail = f"{first_mount.source or 'a generated file'} is already there"
        elif mount.content is not None:
            detail = "rewritten: its library path would not exist in the container"
        subject = mount.target.rpartition("/")[2] if mount.kind in ("library", "binary") else mount.target
        verdict: Verdict = "taken" if first_mount is mount else "left-out"
        rule = file.named_by if first_mount is mount else "collision"
        decisions.append(file.decision(subject, verdict, rule, "place", target=mount.target, detail=detail))
    return tuple(sorted(mounts.values(), key=lambda mount: mount.target)), decisions


def _environment(mounts: tuple[Mount, ...], layout: Layout, gbm: Iterable[str]) -> Iterator[EnvVar]:
    """Yield the variables by which loaders and shells find *mounts*. These precede the image's and the user's.

    No variable hides what a loader finds without it. libgbm searches only the directories of its variable, so the value
    contains those that an image's libgbm searches without it: *gbm*, and the usual ones. libvdpau also searches its own
    directory. Sources: Mesa `src/loader/loader.c` (loader_open_driver_lib), where a backend of Mesa itself is a file
    since 24.3; libvdpau `src/vdpau_wrapper.c`.
    """
    names = {mount.target for mount in mounts}
    if any(mount.kind == "binary" for mount in mounts) and not layout.bindir_on_path:
        yield EnvVar("PATH", "append", layout.bindir, ":", "binaries")
    if layout.searched:
        return
    for directory in (layout.libdir, layout.libdir32):
        if any(name.startswith(directory + "/") for name in names):
            yield EnvVar("LD_LIBRARY_PATH", "prepend", directory, ":", "libraries")
    backends = [mount for mount in mounts if mount.target.endswith(f"/{GBM_BACKEND}")]
    if backends:
        directories = (mount.target.rpartition("/")[0] for mount in backends)
        usual = (path for mount in backends for path in gbm_directories(mount.arch or ""))
        value = ":".join(dict.fromkeys((*directories, *gbm, *usual)))
        yield EnvVar("GBM_BACKENDS_PATH", "append", value, ":", "gbm-backend")
    if f"{layout.libdir}/libvdpau_nvidia.so.1" in names:
        # libvdpau reads it as one directory.
        yield EnvVar("VDPAU_DRIVER_PATH", "default", layout.libdir, None, "vdpau-driver")


def _compat(
    request: Request, inventories: Iterable[Inventory], fit: Optional[ImageFit], layout: Layout
) -> tuple[tuple[EnvVar, ...], tuple[Decision, ...]]:
    """Return the variables and Decisions about compat libraries; none unless NVIDIA's compute capability is requested.

    There are none, either, if the image has no compat libcuda and the request does not ask for it.
    """
    nvidia = next((inventory for inventory in inventories if inventory.driver.vendor == "nvidia"), None)
    is_requested = fit is not None and (fit.facts.compat or request.cuda_compat == "image")
    if fit is None or nvidia is None or not is_requested or "compute" not in requested_capabilities(request):
        return (), ()
    from gpubind.planner.compat import compat_host, cuda_compat  # few images have one

    return cuda_compat(request, compat_host(nvidia.driver, nvidia.gpus, fit.serves), fit, layout)


_VERDICT_ORDER = {"taken": 0, "left-out": 1, "rejected": 2, "absent": 3}


def _decision_order(decision: Decision) -> tuple[str, int, str, str, str]:
    order = _VERDICT_ORDER[decision.verdict]
    return decision.vendor, order, decision.subject, decision.target or "", decision.path or ""


def finding_order(finding: Finding) -> tuple[int, str, str]:
    """Return a sort key: errors first, then by code and subject."""
    return SEVERITIES.index(finding.severity), finding.code, finding.subject
