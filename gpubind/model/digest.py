"""The digest: equal for nodes whose containers would get the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Optional

from gpubind.model.host import DeviceNode, EnvVar, Gpu, Mount

__all__ = ["digest", "sha256", "without_uuids"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:  # for short texts: `hashlib` loads OpenSSL, which takes longer than a plan's digest
    try:
        from _sha2 import sha256  # since Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

_OF_FILE = ("vendor", "target", "kind", "arch", "soname", "version", "capability")
_OF_MOUNT = (*_OF_FILE, "options", "required", "size", "content")
_UUID = r"(?i)(?:GPU|MIG)-[0-9a-f][0-9a-f-]*"


def digest(
    mounts: Iterable[Mount], devices: Iterable[DeviceNode], env: Iterable[EnvVar], gpus: Iterable[Gpu] = ()
) -> str:
    """Return sha256 (hex) over what a container would get.

    It leaves out what differs between equal nodes: source paths (a driver root's prefix), device numbers, owners,
    modes, UUIDs, and which source named a file.
    """
    gpus = tuple(gpus)
    document = [
        [[getattr(mount, name) for name in _OF_MOUNT] for mount in mounts],
        [[d.vendor, d.target, d.type, d.gpu, d.capability] for d in devices],
        [[e.name, e.op, without_uuids(e.value, gpus), e.separator] for e in env],
    ]
    return sha256(json.dumps(document, separators=(",", ":")).encode("ascii")).hexdigest()


def without_uuids(value: Optional[str], gpus: Iterable[Gpu]) -> Optional[str]:
    """Return *value* with the indexes of *gpus* in place of their UUIDs, and `UUID` for any other UUID."""
    if value is None or "-" not in value:
        return value
    numbers = {gpu.uuid.lower(): str(gpu.index) for gpu in gpus if gpu.uuid}
    return re.sub(_UUID, lambda match: numbers.get(match.group().lower(), "UUID"), value)
