"""A plan as a fragment of a Compose file: a service that others extend.

Devices have the short form, which every release accepts; mounts have the long form, in which a path may contain a
colon. Source: the Compose specification, `05-services.md` and its JSON schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpubind.documents.mounts.fragment import NO_GPU, groups_of, heading, mount_edits, yaml_text
from gpubind.model import ContainerPath, DeviceNode, HostPath, Plan
from gpubind.runtimes.edits import unsupported_path

SERVICE = "gpubind"
_WHAT = "a Compose file"


def render_compose(plan: Plan, staged: Mapping[ContainerPath, HostPath]) -> str:
    """Return *plan* as the service `gpubind`, with its generated files where they are *staged*.

    Errors: `RuntimeLimitError` (codes `unsupported-path`, `unsupported-value`).
    """
    edits = mount_edits(plan, staged, _WHAT)
    if not plan.drivers:  # a service without a key is null, which Compose refuses
        edits = edits._replace(
            env=tuple(NO_GPU[vendor] for vendor in plan.request.vendors or NO_GPU if vendor in NO_GPU)
        )
    volumes = [
        {
            "type": "bind",
            "source": _plain(bind.source),
            "target": _plain(bind.target),
            "read_only": bind.read_only,
            # A missing source is an error; docker would make an empty directory.
            "bind": {"create_host_path": False},
        }
        for bind in edits.binds
    ]
    service: dict[str, Any] = {
        "devices": [_device(node) for node in edits.devices],
        "environment": {variable.name: _plain(variable.value or "") for variable in edits.env},
        "group_add": [str(group) for group in groups_of(edits)],
        "volumes": volumes,
    }
    use = f"In your own file: services: {{NAME: {{extends: {{file: THIS_FILE, service: {SERVICE}}}, image: ...}}}}"
    return heading(plan, "#", use) + yaml_text({"services": {SERVICE: service}})


def _device(node: DeviceNode) -> str:
    for path in (node.source, node.target):
        if ":" in path:
            raise unsupported_path(path, "it has a colon in it, which ends a path there", document=_WHAT)
    return _plain(f"{node.source}:{node.target}:rw")


def _plain(text: str) -> str:
    """Double the dollar signs of *text*: Compose would substitute variables."""
    return text.replace("$", "$$")
