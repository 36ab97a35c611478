"""Linux in Windows (WSL 2), with Windows' driver."""

from __future__ import annotations

from gpubind.formats.driver.nvidia import GPU_QUERY
from gpubind.host.record import RecordedRun
from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import libraries
from tests.support import amd
from tests.support.elf import elf
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import File, Link, Node, Spec

LIB = "/usr/lib/wsl/lib"
DRIVERS = "/usr/lib/wsl/drivers"
STORE, OLD_STORE = "nv_dispi.inf_amd64_7cc7738d8e428783", "nv_dispi.inf_amd64_0a1b2c3d4e5f6071"
SOURCE = "https://github.com/microsoft/WSL/issues/12118"  # and nvidia-container-toolkit, pull request 1890
TOLD = RecordedRun(
    GPU_QUERY, 0, "0, GPU-00000000-1111-2222-3333-444444444444, 00000000:01:00.0, NVIDIA GeForce RTX 4090\n"
)
SEVERAL = {name: f"{name}.1" for name in ("libcuda.so", "libnvcuvid.so", "libnvidia-encode.so")}
IN_LIB = (
    *("libcudadebugger.so.1", "libnvidia-ml.so.1", "libnvidia-opticalflow.so.1", "libnvoptix.so.1"),
    *("libd3d12.so", "libd3d12core.so", "libdxcore.so", "libnvdxdlkernels.so", "libnvwgf2umx.so"),
)
IN_STORE = (
    *("libcuda_loader.so", "libnvidia-ml_loader.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"),
    *("libnvdxgdmal.so.1", "libnvidia-nvvm.so.4", "libnvidia-gpucomp.so", "libnvidia-opticalflow.so.1"),
)
DATA = ("nvcubins.bin", "nvcuda64.dll")
STAYS = ("nv_dispi.inf", "nvlddmkm.sys")
DXG: Spec = {"/dev/dxg": Node("char", 10, 125)}


def store(name: str, size: int = 0) -> Spec:
    """The directory of a driver that Windows keeps: the driver proper."""
    at = f"{DRIVERS}/{name}"
    padding = b"\0" * size
    return {
        f"{at}/libcuda.so.1.1": elf("libcuda.so.1") + b"the driver",
        **{f"{at}/{file}": elf(file) + padding for file in IN_STORE},
        **{f"{at}/{file}": b"\0" for file in (*DATA, *STAYS)},
        f"{at}/nvidia-smi": File(elf(kind=2) + padding, 0o555),
    }


def wsl(*, links: bool = False) -> Spec:
    """The libraries that programs open: under several names, each of which is a file."""
    spec = dict(DXG)
    for name, soname in SEVERAL.items():
        spec[f"{LIB}/{soname}"] = elf(soname)
        spec[f"{LIB}/{name}"] = Link(soname) if links else elf(soname)
    spec[f"{LIB}/libcuda.so.1.1"] = elf("libcuda.so.1")
    if links:
        spec[f"{LIB}/libcuda.so.1"] = Link("libcuda.so.1.1")
    return {
        **spec,
        **{f"{LIB}/{name}": elf(name) for name in IN_LIB},
        f"{LIB}/nvidia-smi": File(elf(kind=2), 0o555),
        f"{DRIVERS}/u0420529.inf_amd64_94ad5a6c4d1a04e2/amdxx64.so": elf("amdxx64.so"),
        "/etc/ld.so.conf.d/ld.wsl.conf": f"{LIB}\n",
    }


def cache(*directories: str) -> Spec:
    """The ld.so.cache: a name for each soname, as ldconfig writes it."""
    names = [entry(name, f"{LIB}/{name}") for name in (*SEVERAL.values(), *IN_LIB)]
    linux = [entry("libcuda.so.1", f"{one}/libcuda.so.1") for one in directories]
    linux += [entry("libnvidia-ptxjitcompiler.so.1", f"{one}/libnvidia-ptxjitcompiler.so.1") for one in directories]
    return {"/etc/ld.so.cache": build_ldcache([*linux, *names])}


COMPUTE = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libdxcore.so")
PLANNED = {
    "compute": (*COMPUTE, "libcudadebugger.so.1", "libnvidia-nvvm.so.4", "libnvdxgdmal.so.1"),
    "video": ("libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-opticalflow.so.1"),
    "graphics": ("libnvoptix.so.1", "libd3d12.so", "libd3d12core.so"),
    "programs": ("nvidia-smi",),
    "the driver's directory": ("libcuda.so.1.1", *IN_STORE, *DATA),
}


def layout(name: str, who: str, spec: Spec, findings: tuple[str, ...] = ("wsl",), remark: str = "") -> HostLayout:
    return HostLayout(name, who, SOURCE, spec, PLANNED, ("/dev/dxg",), ("0",), findings, runs=(TOLD,), remark=remark)


BRIDGE = ("librocdxg.so", "librocdxg.so.1", "libdxcore.so")
ROCM = amd.merged(
    amd.opt("7.2.0"),
    DXG,
    {
        f"{LIB}/libdxcore.so": elf("libdxcore.so"),
        "/opt/rocm-7.2.0/lib/librocdxg.so.1.1.0": elf("librocdxg.so.1", needed=("libdxcore.so",)),
        "/opt/rocm-7.2.0/lib/librocdxg.so.1": Link("librocdxg.so.1.1.0"),
        "/opt/rocm-7.2.0/lib/librocdxg.so": Link("librocdxg.so.1"),
    },
)
AT = f"{DRIVERS}/{STORE}"
IN_DOCKER = {
    **DXG,
    **{path: item for path, item in store(STORE).items() if not path.endswith(STAYS)},
    f"{AT}/libcuda.so.1": Link("libcuda.so.1.1"),
    f"{LIB}/libdxcore.so": elf("libdxcore.so"),
    "/usr/bin/nvidia-smi": Link(f"{AT}/nvidia-smi"),
    "/etc/ld.so.cache": build_ldcache(
        [entry(name, f"{AT}/{name}") for name in ("libcuda.so.1", *COMPUTE[2:4])]
        + [entry("libdxcore.so", f"{LIB}/libdxcore.so")]
    ),
}
ALL = "/dev/dxg is all GPUs, and none can be chosen: [Linux in Windows](howto.md#linux-in-windows-wsl-2)."
LINUX = "/usr/lib/x86_64-linux-gnu"
LAYOUTS = (
    layout("wsl2", "WSL 2 in Windows 11", {**wsl(), **store(STORE), **cache()}, remark=ALL),
    layout(
        "wsl2-links",
        "WSL 2, where links have replaced the copies of a library",
        {**wsl(links=True), **store(STORE), **cache()},
    ),
    HostLayout(
        "wsl2-rocm",
        "WSL 2 with AMD's GPU, ROCm and librocdxg",
        "https://github.com/ROCm/librocdxg",
        ROCM,
        {"compute": ("libhsa-runtime64.so.1", *BRIDGE), "programs": ("rocminfo",)},
        ("/dev/dxg",),
        (),
        ("userspace-unknown",),
        {"rocm-smi": "A Python script with modules, which must be in the image."},
        main="librocdxg.so.1",
        remark="`HSA_ENABLE_DXG_DETECTION=1` is set, unless you or the image set it.",
    ),
    HostLayout(
        "wsl2-in-docker",
        "WSL 2, inside `docker run --gpus all`",
        "https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/pkg/nvcdi/driver-wsl.go",
        IN_DOCKER,
        {**PLANNED, "compute": COMPUTE, "video": (), "graphics": ()},
        ("/dev/dxg",),
        ("0",),
        ("wsl",),
        runs=(TOLD,),
    ),
    layout("wsl2-no-cache", "WSL 2 with `ldconfig = false`", {**wsl(), **store(STORE)}, ("no-ldcache", "wsl")),
    layout(
        "wsl2-several-drivers",
        "WSL 2 after an update of Windows' driver",
        {**wsl(), **store(OLD_STORE, 64), **store(STORE), **cache()},
        remark="Windows keeps earlier drivers: the one with the files of /usr/lib/wsl/lib is in use.",
    ),
    layout(
        "wsl2-linux-driver",
        "WSL 2 with a driver for Linux installed in it",
        {**libraries(LINUX), **wsl(), **store(STORE), **cache(LINUX)},
        ("other-driver-version", "wsl"),
        remark="Only Windows' driver reaches the GPU.",
    ),
)
