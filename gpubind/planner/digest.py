"""The digest: equal for nodes whose containers would get the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from gpubind.model import DeviceNode, EnvVar, Mount


def digest(mounts: Iterable[Mount], devices: Iterable[DeviceNode], env: Iterable[EnvVar]) -> str:
    """sha256 (hex) over what a container would get.

    Left out is what names the machine or the way here: source paths (a driver root's prefix), device numbers, owners,
    modes, UUIDs, and which source named a file.
    """
    document = [
        [
            [
                m.vendor,
                m.target,
                m.kind,
                m.arch,
                m.soname,
                m.version,
                m.capability,
                m.options,
                m.required,
                m.size,
                m.content,
            ]
            for m in mounts
        ],
        [[d.vendor, d.target, d.type, d.gpu, d.capability] for d in devices],
        [[e.name, e.op, e.value, e.separator] for e in env],
    ]
    return hashlib.sha256(json.dumps(document, separators=(",", ":")).encode("ascii")).hexdigest()
