"""The ROCm of a host: a distribution's packages, or one of AMD's releases below /opt.

AMD's installers put each release into /opt/rocm-X.Y.Z and let /opt/rocm lead to one of them; module systems set
ROCM_PATH. Libraries of two releases do not go together, so one release is chosen, and the others are passed over.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from gpubind.files import Tree, glob
from gpubind.formats.elf.ldcache import LdCache
from gpubind.host import Host
from gpubind.host.base import ROCM_PATH
from gpubind.inventory.nodes import natural
from gpubind.model import Missing, RootedPath
from gpubind.model.layouts import ROCM, ROCM_LIBRARIES

DEFAULT = "/opt/rocm"
HEART = re.compile(r"lib(hsa-runtime64|amdhip64)\.so")
_RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}")


class Rocm(NamedTuple):
    """The ROCm that serves."""

    prefix: Optional[RootedPath]
    """Its directory, resolved; None for a distribution's packages."""
    why: str
    others: tuple[RootedPath, ...]
    """The directories of other releases."""
    refused: Optional[str]
    """Why ROCM_PATH does not serve, if it is set."""

    def directories(self, *names: str) -> tuple[str, ...]:
        """Return the paths of *names* below its directory."""
        return () if self.prefix is None else tuple(f"{self.prefix}/{name}" for name in names)


def choose_rocm(host: Host, cache: Optional[LdCache]) -> Rocm:
    """Return ROCM_PATH, else the one whose runtime ld.so finds first, else /opt/rocm, else the newest /opt/rocm-*."""
    tree = host.driver
    places = (tree.resolve(path) for pattern in ROCM for path in glob(tree, pattern))
    found = tuple(dict.fromkeys(path for path in places if isinstance(path, str) and _has_libraries(tree, path)))

    def chosen(prefix: Optional[RootedPath], why: str) -> Rocm:
        return Rocm(prefix, why, tuple(path for path in found if path != prefix), refused)

    asked, refused = host.variable(ROCM_PATH), None
    if asked:
        real = tree.resolve(asked) if asked.startswith("/") else Missing("absent", "no absolute path")
        if isinstance(real, str) and _has_libraries(tree, real):
            return chosen(real, f"{ROCM_PATH}={asked}")
        refused = str(real) if isinstance(real, Missing) else "no libhsa-runtime64 and no libamdhip64 in its lib"
    for entry in cache.matching(("libhsa-runtime64.so", "libamdhip64.so")) if cache else ():
        real = tree.resolve(entry.path) if entry.path.startswith("/") else Missing("absent")
        if isinstance(real, str):
            return chosen(next((path for path in found if real.startswith(path + "/")), None), "ld.so.cache")
    default = tree.resolve(DEFAULT)
    if default in found and isinstance(default, str):
        return chosen(default, DEFAULT)
    newest = max(found, key=natural, default=None)
    return chosen(newest, "the newest of /opt/rocm-*" if newest else "none")


def release_of(tree: Tree, rocm: Rocm) -> Optional[str]:
    """Return `6.1.2`, as AMD's packages record it; None for a distribution's packages, which do not."""
    texts = (tree.text(path) or "" for path in rocm.directories(".info/version", ".info/version-rocm"))
    return next((match.group() for match in map(_RELEASE.match, texts) if match), None)


def _has_libraries(tree: Tree, prefix: str) -> bool:
    return any(HEART.match(name) for directory in ROCM_LIBRARIES for name in tree.names(f"{prefix}/{directory}"))
