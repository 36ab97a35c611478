"""GPUDirect: what GPUs exchange data with, beside each other. NVIDIA's own variables ask for it.

Sources: nvidia-container-toolkit `internal/modifier/gated.go`, `internal/discover/gds.go`, `gdrcopy.go`, `mofed.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.host import Host
from gpubind.model import ContainerPath, HostFile, Missing
from gpubind.sources.claims import Answer, Claim
from gpubind.sources.nodes import Wanted
from gpubind.tree import glob

NODES: dict[str, dict[str, str]] = {
    "NVIDIA_GDRCOPY": {"/dev/gdrdrv": "gdrdrv"},
    "NVIDIA_MOFED": {"/dev/infiniband/uverbs*": "infiniband_verbs", "/dev/infiniband/rdma_cm": "misc"},
}
"""The variable that asks; the nodes, and the driver in /proc/devices whose major number each has."""
STORAGE = "NVIDIA_GDS"
STORAGE_FILES = ("/run/udev", "/etc/cufile.json")
"""What libcufile reads. Its nodes, /dev/nvidia-fs*, need no request: they are the driver's."""


def is_asked(host: Host, variable: str) -> bool:
    """Whether the caller asks for what *variable* stands for."""
    return host.environ.get(variable) == "enabled"


def nodes_of(host: Host, variable: str) -> Iterator[Wanted]:
    """The nodes that *variable* stands for, as far as they are there."""
    for pattern, driver in NODES[variable].items():
        yield from (Wanted(path, (driver,), "compute", None) for path in glob(host.lenient.dev, pattern))


def storage_files(host: Host) -> Iterator[Answer]:
    """What a container needs of the driver root's files for GPUDirect Storage, if that is asked for."""
    for path in STORAGE_FILES if is_asked(host, STORAGE) else ():
        claim = Claim("file", path, "devices", STORAGE, target=ContainerPath(path))
        found = host.lenient.driver.find(path)
        if isinstance(found, Missing):
            yield claim.decision(verdict="absent", rule="no-match", path=path, detail=str(found))
            continue
        made = claim.bindable(host.driver, found, found_by=path, capability="compute")
        yield made._replace(options=("ro", "nosuid", "nodev")) if isinstance(made, HostFile) else made
