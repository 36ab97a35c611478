"""A plan as a fragment of a Kubernetes pod: volumes of the host's files, and where they are mounted.

Sources: the Kubernetes API reference v1, `hostPath` and `volumeMounts`; its validation refuses a colon in `mountPath`,
and `..` as a part of a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpubind.documents.mounts.fragment import groups_of, heading, mount_edits, yaml_text
from gpubind.model import ContainerPath, FileRole, HostPath, Plan
from gpubind.runtimes.edits import unsupported_path

NAME = "gpubind"
_WHAT = "a pod"
_TYPES: Mapping[FileRole, str] = {"directory": "Directory", "socket": "Socket"}
_NODES = {"c": "CharDevice", "b": "BlockDevice"}
_NOTE = (
    "The device cgroup refuses a node that comes in as a hostPath. So the container is privileged, and has every",
    "device of the host. Where the cluster has a device plugin or a DRA driver for its GPUs, use that, not this.",
)


def render_kubernetes(plan: Plan, staged: Mapping[ContainerPath, HostPath]) -> str:
    """Return *plan* as a pod with the container `gpubind`, without its image, with the paths of *staged* files.

    A file that is mounted several times is one volume. Errors: `RuntimeLimitError` (codes `unsupported-path`,
    `unsupported-value`).
    """
    edits = mount_edits(plan, staged, _WHAT)
    types = {mount.target: _TYPES.get(mount.kind, "File") for mount in plan.mounts}
    places = [(bind.source, bind.target, types[ContainerPath(bind.target)], bind.read_only) for bind in edits.binds]
    places += [(node.source, node.target, _NODES[node.type], False) for node in edits.devices]
    volumes: dict[tuple[str, str], dict[str, Any]] = {}
    mounts = []
    for source, target, kind, read_only in places:
        if ":" in target:
            raise unsupported_path(
                target, "it has a colon in it, which Kubernetes takes in no place of a mount", document=_WHAT
            )
        path = {"path": source, "type": kind}
        volume = volumes.setdefault((source, kind), {"name": f"{NAME}-{len(volumes)}", "hostPath": path})
        mounts.append({"name": volume["name"], "mountPath": target, "readOnly": read_only})
    # Kubernetes replaces $(NAME) by a variable, and $$ by $.
    env = [{"name": v.name, "value": (v.value or "").replace("$", "$$")} for v in edits.env]
    container = {
        "name": NAME,
        "securityContext": {"privileged": True} if edits.devices else {},
        "env": env,
        "volumeMounts": mounts,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {
            "securityContext": {"supplementalGroups": list(groups_of(edits))} if groups_of(edits) else {},
            "containers": [container],
            "volumes": list(volumes.values()),
        },
    }
    return heading(plan, "#", *_NOTE) + yaml_text(pod)
