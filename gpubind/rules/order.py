"""Which libcuda and NVML the programs of a container get: the plan's, or another that the loader finds before it."""

from __future__ import annotations

from posixpath import basename, dirname
from typing import NamedTuple, Optional

from gpubind.ldso.container import Located
from gpubind.rules.preflight import ImagePreflight

LIBCUDAS = ("libcuda.so.1", "libcuda.so")
"""The names by which programs open libcuda."""
FIRST = (*LIBCUDAS, "libnvidia-ml.so.1")
"""What everything else hangs on."""


class Winner(NamedTuple):
    """A library that programs without search paths of their own get in place of the plan's."""

    soname: str
    file: Located
    directory: Optional[str]
    """The element of LD_LIBRARY_PATH that leads to it; None if the loader finds it by itself."""
    is_users: bool
    """Whether the user put that element there."""


def winner(preflight: ImagePreflight, soname: str) -> Optional[Winner]:
    """What programs get for *soname* in place of the plan's file; None if they get that, or the plan has none.

    A libcuda of CUDA's forward compatibility is meant to come first: that it fits is a matter of other rules.
    """
    mounts = [m for m in preflight.plan.mounts if m.kind == "library" and m.capability != "compat32"]
    planned = next((mount for mount in mounts if basename(mount.target) == soname), None)
    found = preflight.container.find(soname) if planned is not None else None
    if planned is None or found is None or found.mount is not None or "/compat/" in found.at:
        return None
    if found.tree.real(found.at) == planned.source:
        return None  # the same file by another way
    directory = dirname(found.path)
    in_path = directory in preflight.container.library_path
    return Winner(soname, found, directory if in_path else None, directory in preflight.container.users_path)
