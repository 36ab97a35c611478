"""The digests: equal for nodes whose containers would get the same files, devices and variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Optional

from gpubind.model.host import DeviceNode, EnvVar, Gpu, HostFile, Inventory, Mount

__all__ = ["node_digest", "plan_digest", "replace_uuids", "sha256", "sha256_hex"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:  # `hashlib` loads OpenSSL, which takes longer than a plan's digest
    try:
        from _sha2 import sha256  # since Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256


def sha256_hex(text: str) -> str:
    """Return the SHA-256 (hex) of *text*, which may contain surrogate escapes."""
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


_FILE_FIELDS = ("vendor", "target", "kind", "arch", "soname", "version", "capability")
_GPUDIRECT_NODES = ("/dev/gdrdrv", "/dev/infiniband/")
"""The nodes of GPUDirect, which only a variable requests."""
_MOUNT_FIELDS = (*_FILE_FIELDS, "options", "required", "size", "content")
_UUID = r"(?i)(?:GPU|MIG)-[0-9a-f][0-9a-f-]*"


def plan_digest(
    mounts: Iterable[Mount], devices: Iterable[DeviceNode], env: Iterable[EnvVar], gpus: Iterable[Gpu] = ()
) -> str:
    """Return the SHA-256 (hex) of what a container would get.

    Values that differ between equal nodes are left out: source paths (a driver root's prefix), device numbers, owners,
    modes, UUIDs, and the source that named a file.
    """
    gpus = tuple(gpus)
    document = [
        [[getattr(mount, name) for name in _MOUNT_FIELDS] for mount in mounts],
        [[d.vendor, d.target, d.type, d.gpu, d.capability] for d in devices],
        [[e.name, e.op, replace_uuids(e.value, gpus), e.separator] for e in env],
    ]
    return sha256(json.dumps(document, separators=(",", ":")).encode("ascii")).hexdigest()


def node_digest(inventories: Iterable[Inventory]) -> str:
    """Return the SHA-256 (hex) of a node's facts, which no choice and no variable of a job changes.

    It is equal for equal nodes, as `plan_digest` is. It leaves out what only a variable or a request adds (GPUDirect,
    32-bit libraries), and sockets and directories, which exist only while a service runs.
    """
    document = [
        [
            [getattr(each.driver, name) for name in ("vendor", "version", "kernel_version", "kind")],
            sorted(_row(file) for file in each.files if _belongs_to_node(file)),
            sorted(
                json.dumps([d.target, d.type, d.capability])
                for d in each.devices
                if not d.target.startswith(_GPUDIRECT_NODES)
            ),
            [_row_of_gpu(gpu) for gpu in each.gpus],
        ]
        for each in inventories
    ]
    return sha256(json.dumps(document, separators=(",", ":")).encode("ascii")).hexdigest()


def _belongs_to_node(file: HostFile) -> bool:
    return file.kind not in ("socket", "directory") and not file.compat32 and not file.named_at.startswith("NVIDIA_")


def _row_of_gpu(gpu: Gpu) -> list[object]:
    parts = [[device.gi, device.ci] for device in gpu.mig]
    return [gpu.index is None, gpu.model, parts, *([] if gpu.partition is None else [gpu.partition])]


def _row(file: HostFile) -> str:
    content = file.content.decode("latin-1") if file.content is not None else None
    values = [getattr(file, name) for name in ("kind", "names", "target", "soname", "capability", "version", "size")]
    return json.dumps([*values, content])


def replace_uuids(value: Optional[str], gpus: Iterable[Gpu]) -> Optional[str]:
    """Return *value* with the indexes of *gpus* in place of their UUIDs, and `UUID` for any other UUID."""
    if value is None or "-" not in value:
        return value
    numbers = {gpu.uuid.lower(): str(gpu.index) for gpu in gpus if gpu.uuid}
    return re.sub(_UUID, lambda match: numbers.get(match.group().lower(), "UUID"), value)
