"""Find SynapseAI, the software for Gaudi accelerators, in an image, and its release.

Source: Gaudi documentation, "Driver and Software Installation" (habanalabs-graph installs libSynapse in
/usr/lib/habanalabs; the version of the Python packages consists of the release and the build).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.files import Tree
from gpubind.frozen import NamedTuple
from gpubind.model import Missing

HOME = "/usr/lib/habanalabs"
_LIBRARY = "libSynapse.so"
_BEGINS = ("libSynapse", "libsynapse_", "libhl_", "libhl-thunk", "libhlml", "libhcl", "libscal", "libswtools_sdk")
"""Beginnings of the names of its libraries."""
_STATUS, _STATUS_LIMIT = "/var/lib/dpkg/status", 1 << 24
_RELEASE = r"([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})"
_PACKAGE = re.compile(rb"^Package: habanalabs-graph\n((?:.+\n)+)", re.MULTILINE)
_IS_INSTALLED = re.compile(rb"^Status: \w+ ok installed$", re.MULTILINE)
_OF_RELEASE = re.compile(rf"^Version: {_RELEASE}".encode(), re.MULTILINE)
_WHEEL = re.compile(rf"habana[_-](?:torch[_-](?:plugin|dataloader)|tensorflow|horovod)-{_RELEASE}.*\.(?:dist|egg)-info")
_AT_BEGIN = re.compile(rf"{_RELEASE}(?![0-9])")


class Synapse(NamedTuple):
    release: Optional[str]
    """`1.24.0`; None if it is unknown."""
    by: str
    """The file that shows the release, or else the library."""


def parse_synapse_release(version: str) -> Optional[str]:
    """Return the release in a *version* of SynapseAI or of its kernel driver: `1.24.0` of `1.24.0-ee698fb`."""
    match = _AT_BEGIN.match(version)
    return match[1] if match else None


def is_synapse_library(name: str) -> bool:
    """Return whether *name* is the file name of a SynapseAI library."""
    return name.startswith(_BEGINS)


def read_synapse(tree: Tree, packages: Iterable[str]) -> Optional[Synapse]:
    """Return the SynapseAI of the image *tree*, with Python packages in *packages*; None if it has none."""
    library = next((f"{HOME}/{name}" for name in tree.names(HOME) if name.startswith(_LIBRARY)), None)
    candidates = (*(_installed(tree) if library else ()), *_installed_releases(tree, packages))
    return candidates[0] if candidates else Synapse(None, library) if library else None


def _installed(tree: Tree) -> Iterator[Synapse]:
    status = tree.read(_STATUS, _STATUS_LIMIT)
    for package in () if isinstance(status, Missing) else _PACKAGE.finditer(status):
        release = _OF_RELEASE.search(package[1])
        if release and _IS_INSTALLED.search(package[1]):  # dpkg keeps the entry of a removed package
            yield Synapse(release[1].decode(), _STATUS)


def _installed_releases(tree: Tree, packages: Iterable[str]) -> Iterator[Synapse]:
    for directory in packages:
        for name in tree.names(directory):
            match = _WHEEL.fullmatch(name)
            if match:
                yield Synapse(match[1], f"{directory}/{name}")
