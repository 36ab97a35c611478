"""A plan as a CDI spec: for `podman run --device nvidia.com/gpu=all` and the like, where no tool of NVIDIA is
installed.

It sets only the variables of `context_free_env`, because variables of a spec replace the image's and the user's values.
It has no device numbers: the runtime reads them at each start, so that a reboot makes nothing stale. Its version is the
oldest that supports its content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from gpubind.documents.mounts.fragment import NO_GPU, context_free_env
from gpubind.errors import RuntimeLimitError
from gpubind.formats.driver.cdi import VERSIONS, is_device_name, parse_cdi, required_version
from gpubind.model import VENDOR_FLAGS, ContainerPath, DeviceNode, HostPath, Mount, Plan, Vendor, sorted_by_pci
from gpubind.model.vendors import CDI_KINDS
from gpubind.runtimes.edits import is_utf8, unsupported_path, unsupported_value

_HOOK_PROGRAM = "nvidia-cdi-hook"
_NOT_UTF8 = "it is not UTF-8, and a CDI spec is JSON"

_GPU_NODE = re.compile(r"/dev/nvidia[0-9]+")


def render_cdi(plan: Plan, staged: Mapping[ContainerPath, HostPath], hook: Optional[HostPath] = None) -> str:
    """Return *plan* as a spec that has a device for each GPU, by number and by UUID, and the device `all`.

    The number of an AMD GPU is that of AMD's toolkit (`sorted_by_pci`), not its index. The spec of an empty plan for
    one vendor has the devices `all` and `none`, which provide nothing. *staged* has the paths of generated files.
    *hook* is the path of nvidia-cdi-hook on the host, which adds the libraries' directory to the container's ld cache.
    Errors: `RuntimeLimitError`: `cdi-kinds` for a plan of several vendors, or of a vendor without a kind of CDI device;
    `unsupported-path` for a path that is not UTF-8, `unsupported-value` for a variable that is not.
    """
    vendor = _vendor_of(plan)
    if not plan.drivers:
        return _empty_spec(vendor)
    by_gpu = {gpu.index: [n for n in plan.devices if n.gpu == gpu.index] for gpu in plan.gpus if gpu.index is not None}
    # A node of an unknown GPU, such as an excluded one, is not part of another GPU's device.
    strays = [node for node in plan.devices if by_gpu and node.gpu is None and _GPU_NODE.fullmatch(node.target)]
    shared = [node for node in plan.devices if node.gpu not in by_gpu and node not in strays]
    counted = [gpu for gpu in plan.gpus if gpu.index is not None]
    numbers = {gpu.index: number for number, gpu in enumerate(sorted_by_pci(counted))} if vendor == "amd" else {}
    devices: dict[str, list[dict[str, Any]]] = {}
    for gpu in plan.gpus:
        if gpu.index is None or not gpu.chosen or not by_gpu[gpu.index]:
            continue
        nodes = [_node(node) for node in by_gpu[gpu.index]]
        devices[str(numbers.get(gpu.index, gpu.index))] = nodes
        if gpu.uuid and is_device_name(gpu.uuid):
            # Partitions of an AMD GPU may share a UUID: it then names all of them, as for --gpus.
            devices[gpu.uuid] = [*devices.get(gpu.uuid, ()), *nodes]
    all_nodes = [_node(node) for nodes in (*by_gpu.values(), strays) for node in nodes]
    common: dict[str, Any] = {}
    if all_nodes or not shared:
        common["deviceNodes"] = [_node(node) for node in shared]
    else:  # without a known GPU, the shared nodes are the device
        all_nodes = [_node(node) for node in shared]
    mounts = [_mount(mount, staged) for mount in plan.mounts]
    everything: dict[str, Any] = {"deviceNodes": all_nodes} if all_nodes else {"mounts": mounts}
    if all_nodes:
        common["mounts"] = mounts
    if hook is not None:
        common["hooks"] = [_ldconfig(plan, hook)]
    common["env"] = list(_env(plan))
    spec = {
        "kind": CDI_KINDS[vendor],
        "devices": [
            *({"name": name, "containerEdits": {"deviceNodes": nodes}} for name, nodes in devices.items()),
            {"name": "all", "containerEdits": everything},
        ],
        "containerEdits": {key: value for key, value in common.items() if value},
    }
    return _text(spec)


def _vendor_of(plan: Plan) -> Vendor:
    """Errors: `RuntimeLimitError` (code `cdi-kinds`)."""
    vendors = tuple(dict.fromkeys(planned.driver.vendor for planned in plan.drivers)) or plan.request.vendors
    if len(vendors) == 1 and vendors[0] in CDI_KINDS:
        return vendors[0]
    names = ", ".join(vendors) or "no vendor"
    why = f"this plan is of {names}; a spec has devices of one kind: {', '.join(CDI_KINDS.values())}"
    by_name = f"name it: {' or '.join(VENDOR_FLAGS)}"
    hint = "plan for one vendor at a time, and write a file for each" if vendors else by_name
    raise RuntimeLimitError("cdi-kinds", "the plan cannot be one CDI spec", why=why, hint=hint)


def _env(plan: Plan) -> Iterator[str]:
    for variable in context_free_env(plan):
        if not is_utf8(f"{variable.name}{variable.value}"):
            raise unsupported_value(variable.name, _NOT_UTF8, document="a CDI spec")
        yield f"{variable.name}={variable.value}"


def _empty_spec(vendor: Vendor) -> str:
    """Return a spec without mounts. Runtimes refuse a device without edits, so each device sets a variable."""
    edits = {"env": [f"{NO_GPU[vendor].name}={NO_GPU[vendor].value}"]}
    return _text(
        {"kind": CDI_KINDS[vendor], "devices": [{"name": name, "containerEdits": edits} for name in ("all", "none")]}
    )


def _text(spec: dict[str, Any]) -> str:
    """Return the text of *spec*, with the oldest version that supports it. It is parsed again, so that no invalid
    one is written.
    """
    _need_utf8(spec)
    newest = parse_cdi(json.dumps({"cdiVersion": VERSIONS[-1], **spec}).encode())
    document = {"cdiVersion": required_version(newest), **spec}
    text = json.dumps(document, indent=1) + "\n"
    parse_cdi(text.encode())
    return text


def _need_utf8(value: Any) -> None:
    """Errors: `RuntimeLimitError` (code `unsupported-path`) for a byte that is not UTF-8: JSON has no escape for it."""
    if isinstance(value, str) and not is_utf8(value):
        raise unsupported_path(value, _NOT_UTF8, document="a CDI spec")
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _need_utf8(member)


def _node(node: DeviceNode) -> dict[str, Any]:
    """Return *node* without its numbers and type, which the runtime reads on the host. Its mode is kept: without
    one, all users could open it.
    """
    entry: dict[str, Any] = {"path": node.target}
    if str(node.source) != node.target:
        entry["hostPath"] = node.source
    entry["fileMode"] = node.mode
    entry["permissions"] = "rw"
    if node.uid:
        entry["uid"] = node.uid
    if node.gid:
        entry["gid"] = node.gid
    return entry


def _mount(mount: Mount, staged: Mapping[ContainerPath, HostPath]) -> dict[str, Any]:
    return {
        "hostPath": staged[mount.target] if mount.content is not None else mount.source,
        "containerPath": mount.target,
        "options": [*mount.options, "rbind", "rprivate"],
    }


def _ldconfig(plan: Plan, hook: HostPath) -> dict[str, Any]:
    folders = dict.fromkeys(m.target.rpartition("/")[0] for m in plan.mounts if m.kind == "library")
    args = [arg for folder in folders for arg in ("--folder", folder)]
    return {"hookName": "createContainer", "path": hook, "args": [_HOOK_PROGRAM, "update-ldcache", *args]}
