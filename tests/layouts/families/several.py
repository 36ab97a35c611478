"""Hosts with two drivers, parts of one, or none."""

from __future__ import annotations

from gpubind.model import Request
from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, Places, cached, driver, libraries, nodes, planned, whole_host
from tests.support.driver import kernel
from tests.support.trees import Dir, Link, Spec

LIB = "/usr/lib/x86_64-linux-gnu"
OLD = "535.183.01"
UBUNTU, OTHER = driver(Places(lib=LIB)), libraries("/usr/lib64", OLD)
SOURCE = "https://docs.nvidia.com/deploy/pdf/CUDA_Compatibility.pdf"
PCI: Spec = {
    f"/sys/bus/pci/devices/0000:0{number}:00.0/{name}": text
    for number in (1, 2)
    for name, text in (("vendor", "0x10de\n"), ("class", "0x030200\n"))
}
KEPLER: Spec = {f"/sys/bus/pci/devices/0000:0{number}:00.0/device": "0x102d\n" for number in (1, 2)}
"""The two chips of a Tesla K80."""
NODES, GPUS = nodes(), ("0", "1")
LEFT_BY_UPGRADE: Spec = {f"{LIB}/libnvidia-glsi.so.{OLD}": Link(f"/opt/none/libnvidia-glsi.so.{OLD}")}


def extracted() -> Spec:
    """Return the driver's files at the top of a directory, without links: as the installer has them."""
    files = {path.rpartition("/")[2]: item for path, item in UBUNTU.items() if not isinstance(item, Link)}
    del files["ld.so.cache"]
    return {f"/{name}": item for name, item in files.items()}


LAYOUTS = (
    whole_host(
        name="two-drivers",
        who="two drivers side by side, a package's and an installer's",
        source=SOURCE,
        spec={**MERGED, **OTHER, **UBUNTU, **cached({**OTHER, **UBUNTU}, "/usr/lib64", LIB), **kernel()},
        findings=("other-driver-version",),
        remark="The files of the loaded module's version are used, whichever the ld cache has first.",
    ),
    whole_host(
        name="stale-links",
        who="links of an earlier driver, left by an upgrade",
        source=SOURCE,
        spec={**MERGED, **UBUNTU, **LEFT_BY_UPGRADE, f"{LIB}/libcuda.so": Link(f"libcuda.so.{OLD}"), **kernel()},
        findings=("stale-ldcache",),
    ),
    HostLayout(
        name="driver-mismatch",
        who="a driver that was updated, and its module was not loaded again",
        source=SOURCE,
        spec={**MERGED, **UBUNTU, **kernel(OLD)},
        planned={},
        nodes=NODES,
        gpus=GPUS,
        findings=("driver-mismatch",),
        remark="No library fits the loaded module: reboot.",
    ),
    HostLayout(
        name="nouveau",
        who="nouveau owns the GPUs, NVIDIA's libraries are installed",
        source="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#disabling-nouveau",
        spec={**MERGED, **UBUNTU, **PCI, "/sys/module/nouveau": Dir()},
        planned=planned(),
        nodes=(),
        gpus=(),
        findings=("nouveau",),
        remark="CUDA cannot work with nouveau: load NVIDIA's module.",
    ),
    HostLayout(
        name="gpu-too-old",
        who="a Tesla K80 and a newer driver, whose module does not load",
        source="https://github.com/siderolabs/talos/issues/8764",
        spec={**MERGED, **UBUNTU, **PCI, **KEPLER, "/proc/devices": "Character devices:\n  1 mem\n"},
        planned=planned(),
        nodes=(),
        gpus=(),
        findings=("gpu-unsupported",),
        remark="Branch 470 is the last for Kepler.",
    ),
    HostLayout(
        name="no-driver",
        who="a GPU and no driver",
        source="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
        spec={**MERGED, **cached({}), **PCI, "/proc/devices": "Character devices:\n  1 mem\n"},
        planned={},
        nodes=(),
        gpus=(),
        findings=("gpu-without-driver",),
        request=Request(vendors=("nvidia",)),
    ),
    whole_host(
        name="run-extracted",
        who="NVIDIA's .run file after `--extract-only`, named with `--root`",
        source="https://download.nvidia.com/XFree86/Linux-x86_64/550.54.14/README/commonproblems.html",
        spec=extracted(),
        dev=kernel(),
        root="/opt/NVIDIA-Linux-x86_64-550.54.14",
        findings=("no-ldcache",),
    ),
    HostLayout(
        name="libraries-only",
        who="a login node: the driver's libraries and no GPU",
        source="https://slurm.schedmd.com/gres.html",
        spec={**MERGED, **UBUNTU, "/proc/devices": "Character devices:\n  1 mem\n"},
        planned=planned(),
        nodes=(),
        gpus=(),
        findings=("driver-not-loaded",),
    ),
    HostLayout(
        name="nothing",
        who="a login node without a driver",
        source="https://slurm.schedmd.com/gres.html",
        spec={**MERGED, **cached({}), "/proc/devices": "Character devices:\n  1 mem\n"},
        planned={},
        nodes=(),
        gpus=(),
        findings=("nothing-to-bind",),
        request=Request(vendors=("nvidia",)),
        remark="A container starts without a GPU; `--require-gpu` makes that an error.",
    ),
)
