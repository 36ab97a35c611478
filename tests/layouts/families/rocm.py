"""AMD's GPUs: ROCm from AMD's packages, from a distribution, from wheels, or in the image alone."""

from __future__ import annotations

from tests.layouts.frame import HostLayout
from tests.support import amd
from tests.support.trees import Spec

NODES = tuple(path for path in amd.kernel(2) if path.startswith("/dev/") and path != "/dev/dri/card0")
GROUPS = (amd.VIDEO, amd.RENDER, 1000)
ROCM = ("libamdhip64.so.6", "libhsa-runtime64.so.1", "libamd_comgr.so.2", "librocm_smi64.so.7", "libhiprtc.so.6")
WHEEL = "/home/user/venv/lib/python3.12/site-packages/_rocm_sdk_core"


def rocm(name: str, who: str, source: str, spec: Spec, libraries: tuple[str, ...], **more: object) -> HostLayout:
    has = bool(libraries)
    codes = (*("no-ldcache",) * ("/etc/ld.so.cache" not in spec), *("userspace-unknown",) * has)
    fields = {
        "planned": {"compute": libraries, "programs": ("rocminfo",) * has},
        "nodes": NODES,
        "gpus": ("0", "1"),
        "groups": GROUPS,
        "findings": codes,
        "remark": "" if has else "ROCm has to be in the image.",
        "not_served": {"rocm-smi": "A Python script with modules, which must be in the image."} if has else {},
        "main": "libamdhip64.so.6",
        "spec": amd.merged(spec, amd.kernel(2)),
    }
    return HostLayout(name=name, who=who, source=source, **{**fields, **more})  # type: ignore[arg-type]


DOCS = "https://rocm.docs.amd.com"
INSTALL = f"{DOCS}/projects/install-on-linux/en/latest/install/install-overview.html"
WHEELS = f"{DOCS}/en/develop/about/transition-guide-TheRock.html"
SYSTEM = amd.system()
TAR, IN_WHEEL = (amd.merged(SYSTEM, amd.rocm(prefix, "6.2.4")) for prefix in ("/opt/rocm-6.2.4", WHEEL))

LAYOUTS = (
    rocm("rocm-packages", "ROCm: AMD's packages, several releases", INSTALL, amd.opt("6.2.4", "5.7.0"), ROCM),
    rocm("rocm-tar", "ROCm: a tar file below /opt, without a link", INSTALL, TAR, ROCM),
    rocm(
        "rocm-debian",
        "ROCm: Debian's or Ubuntu's packages",
        "https://packages.debian.org/trixie/libamdhip64-5",
        amd.debian(),
        ("libamdhip64.so.5", "libhsa-runtime64.so.1", "libamd_comgr.so.2"),
        main="libamdhip64.so.5",
    ),
    rocm("rocm-wheels", "ROCm: Python wheels, nothing else on the host", WHEELS, IN_WHEEL, ()),
    rocm("riscv64", "RISC-V with AMD's kernel driver, ROCm in the image", DOCS, {}, (), machine="riscv64"),
)
