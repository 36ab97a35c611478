"""Windows' driver in Linux (WSL 2): the files that a container needs at their host paths.

libcuda and NVML in /usr/lib/wsl/lib query Windows for the driver's directory, and load other libraries from there.
Source: nvidia-container-toolkit `pkg/nvcdi/driver-wsl.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubind.files.wsl import driver_stores
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory.claims import Claim, Outcome, partition_outcomes
from gpubind.model import ContainerPath, Decision, Finding, HostFile, Missing, finding
from gpubind.model.layouts import DXG, WSL_DRIVERS, WSL_LIBRARIES

_DXCORE = f"{WSL_LIBRARIES}/libdxcore.so"
"""The interface to Windows' drivers: some programs open it by its path."""


class WslDriver(NamedTuple):
    """The driver that Windows provides."""

    stores: tuple[str, ...]
    files: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]

    def missing_part_findings(self, nodes: Iterable[str], has_libcuda: bool) -> Iterator[Finding]:
        """Yield a finding for each missing part without which libcuda finds no GPU."""
        if DXG not in nodes:
            yield finding("wsl", case="no-node", severity="warning", subject=DXG, where=DXG)
        if has_libcuda and not self.stores:
            yield finding("wsl", case="no-store", severity="warning", subject=WSL_DRIVERS, where=WSL_DRIVERS)


def read_windows(host: Host) -> WslDriver:
    """Return the directories of the driver in use, and their files."""
    stores, others = driver_stores(host.driver)
    files, decisions = partition_outcomes(_files(host, stores))
    detail = "fewer of its files are in /usr/lib/wsl/lib than of the driver in use"
    claims = (Claim("file", store, "driver", WSL_DRIVERS) for store in others)
    rejected = (claim.rejected("other-driver-version", detail, claim.name) for claim in claims)
    return WslDriver(stores, files, (*decisions, *rejected))


def _files(host: Host, stores: tuple[str, ...]) -> Iterator[Outcome]:
    tree = host.driver
    paths = [f"{store}/{name}" for store in stores for name in tree.names(store) if _is_needed(name)]
    for path in (_DXCORE, *paths):
        claim = Claim("file", path, "driver", WSL_DRIVERS, target=ContainerPath(path))
        resolved = tree.find(path)
        if isinstance(resolved, Missing):
            yield claim.unreadable(resolved)
        elif resolved.stat.kind == "file":
            yield claim.to_file(tree, resolved, found_by=path)


def _is_needed(name: str) -> bool:
    return ".so" in name or name.endswith((".bin", ".dll")) or name == "nvidia-smi"
