"""Containers that are started more than once: `use_cdi_devices` gives them a CDI device instead of paths.

The paths of a plan contain the driver's version, and a container keeps the paths of its creation. So it does not start
after an update of the driver. Of a CDI device, docker and podman store only the name, and they read its spec at each
start. Decision 0018 lists the experiments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Optional, Union

from gpubind.launch.target import StartRequest, StartTarget
from gpubind.model import Plan, Severity, Vendor
from gpubind.model.notice import Notice
from gpubind.runtimes.runtime import PreparedStart, Runtime, Start

if TYPE_CHECKING:
    from gpubind.inventory.cdi.specs import LoadedSpec, Registry
    from gpubind.rules.preflight import Preflight

_OPENCL = "libOpenCL.so.1"
"""The loader of OpenCL. It belongs to no vendor, CDI specs lack it, and CUDA does not need it."""


def restart_severity(start: Start, container: Literal["removed", "kept", "created"]) -> Optional[Severity]:
    """Return how serious it is if the container of *start* cannot start again; None if it is started only once.

    *container*: as in `StartRequest`. A container that runs in the foreground and is kept may be one for development,
    which is started again. A container that is only created is started later, even if it is removed at its end.
    """
    options = start.user.options
    restarts = (options.last("restart") or "no") != "no"
    is_removed = options.has("rm") if options.all("rm") or restarts else container == "removed"
    if not start.runtime.keeps_containers or (is_removed and container != "created"):
        return None
    is_later = container == "created" or restarts or options.has("detach")
    return "warning" if is_later and not is_removed else "note"


def use_cdi_devices(
    request: StartRequest, target: StartTarget, prepared: PreparedStart, *, has_nodes: bool = False
) -> PreparedStart:
    """Return *prepared* with CDI devices in place of the plan's paths.

    This happens only if the container may be started again, and if the devices give the same GPUs; if they do not, a
    notice reports why. *has_nodes*: whether the user's options provide device nodes.
    """
    start, plan = prepared.start, prepared.plan
    if start.restarts is None or not plan.mounts:
        return prepared
    is_fit = not has_nodes and not request.elsewhere and "cdi-spec-dir" not in request.global_options
    devices_or_reason = _devices(prepared) if is_fit else "gpubind uses none for such a line"
    if not isinstance(devices_or_reason, str):
        return prepared._replace(arguments=start.runtime.by_device(devices_or_reason, plan, start))
    text = f"no CDI device takes the place of paths: {devices_or_reason}"
    request.report(Notice("note", "cdi-device", text, is_detail=True))
    return prepared


def _devices(prepared: PreparedStart) -> Union[tuple[str, ...], str]:
    """Return the CDI devices that give the GPUs of the plan at each start, or the reason why there are none."""
    from gpubind.model.vendors import CDI_KINDS
    from gpubind.rules.preflight import Preflight

    plan, runtime = prepared.plan, prepared.start.runtime
    vendors = {planned.driver.vendor for planned in plan.drivers}
    if runtime.store is None or len(vendors) > 1 or not vendors <= {*CDI_KINDS}:
        return "gpubind uses none for this engine, or for these vendors"
    (vendor,) = vendors
    preflight = Preflight(prepared.host, plan, runtime.name, prepared.start)
    directories = _directories(preflight, runtime)
    if not directories:
        return f"{runtime.title} reads no CDI specs"
    registry = preflight.registry(directories)
    names = _names(registry, plan, vendor)
    if not names:
        return f"no spec in {', '.join(directories)} has a device for exactly these GPUs"
    specs = {registry.devices[name][0].path: registry.devices[name][0] for name in names}
    unfit = next((path for path, loaded in specs.items() if not _is_fit(loaded, preflight, runtime.name)), None)
    return names if unfit is None else f"{unfit} is stale, too new, or lacks a hook or a file that the plan requires"


def _directories(preflight: Preflight, runtime: Runtime) -> tuple[str, ...]:
    from gpubind.image.engine import cdi_directories_of_daemon
    from gpubind.rules.host.engines import cdi_directories

    if runtime.has_daemon and runtime.store is not None:
        return cdi_directories_of_daemon(runtime.store)
    return cdi_directories(preflight, runtime.name) if preflight.release(runtime.name) is not None else ()


def _names(registry: Registry, plan: Plan, vendor: Vendor) -> tuple[str, ...]:
    """Return the names of the devices in *registry* that together have exactly the GPUs that the plan chooses.

    The device `all` is returned if the plan chooses all GPUs. Empty if there are no such devices.
    """
    from gpubind.inventory.cdi.specs import GPU_NODES
    from gpubind.model.vendors import CDI_KINDS

    kind, pattern = CDI_KINDS[vendor], GPU_NODES[vendor]
    all_name = f"{kind}=all"
    gpus = [gpu for gpu in plan.gpus if gpu.vendor == vendor]
    if plan.request.gpus in (None, "all") and all(gpu.chosen for gpu in gpus):
        return (all_name,) if all_name in registry.devices else ()
    if any(gpu.mig for gpu in gpus):
        return ()  # a device of a whole GPU is not one of its MIG devices
    nodes = {
        name: {node.source for node in device.edits.nodes if pattern.fullmatch(node.source)}
        for name, (loaded, device) in sorted(registry.devices.items())
        if loaded.spec.kind == kind and name != all_name
    }
    names = []
    for gpu in (gpu for gpu in gpus if gpu.chosen):
        sources = (str(node.source) for node in plan.devices if node.gpu == gpu.index and node.vendor == vendor)
        gpu_nodes = {source for source in sources if pattern.fullmatch(source)}
        name = next((name for name, device_nodes in nodes.items() if gpu_nodes and device_nodes == gpu_nodes), None)
        if name is None:
            return ()
        names.append(name)
    return tuple(names)


def _is_fit(loaded: LoadedSpec, preflight: Preflight, engine: str) -> bool:
    """Return whether the engine can use the devices of *loaded* now, with their hooks, and they provide what
    *preflight*'s plan requires.
    """
    from gpubind.formats.driver.cdi import VERSIONS
    from gpubind.inventory.cdi.specs import missing_paths, stale_findings

    plan, release = preflight.plan, preflight.release(engine)
    if release is None or VERSIONS.index(loaded.spec.version) > VERSIONS.index(release.reads):
        return False
    sources = {mount.host_path for edits in loaded.edits for mount in edits.mounts}
    caps = plan.request.caps if plan.request.caps_named else ()
    required = (m for m in plan.mounts if m.required or (m.capability in (caps or ()) and m.soname != _OPENCL))
    hooks = (hook.path for edits in loaded.edits for hook in edits.hooks)
    version = next((planned.driver.kernel_version for planned in plan.drivers), None)
    is_stale = stale_findings(preflight.host, [loaded], version, plan.gpus, "warning")
    return not is_stale and all(m.source in sources for m in required) and not missing_paths(preflight.host, hooks)
