"""Intel's GPUs and accelerators, alone and beside NVIDIA's."""

from __future__ import annotations

from gpubind.model import Request
from tests.layouts.families.debian import MULTIARCH
from tests.layouts.frame import HostLayout
from tests.layouts.nvidia import MERGED, driver, nodes, planned, whole_host
from tests.support.amd import RENDER, VIDEO, merged
from tests.support.driver import kernel
from tests.support.intel import BASE, FLEX, INTEGRATED, gaudi, gpu, npu, userspace

USERSPACE = ("libze_loader.so.1", "libze_intel_gpu.so.1", "libigdrcl.so", "libigc.so.2", "libigdgmm.so.12")
LAPTOP = merged(gpu("0000:00:02.0", 0, 128, INTEGRATED), npu())
MEMBER = (VIDEO, RENDER, 1000)


def dri(*numbers: int) -> tuple[str, ...]:
    """Return the nodes of GPUs by number."""
    return tuple(f"/dev/dri/{name}" for number in numbers for name in (f"card{number}", f"renderD{128 + number}"))


LAYOUTS = (
    HostLayout(
        name="intel-arc",
        who="Debian with two Arc or Flex GPUs; Debian's packages; --intel",
        request=Request(vendors=("intel",)),
        source="https://packages.debian.org/sid/libze-intel-gpu1",
        spec=merged(BASE, userspace(), gpu("0000:03:00.0", 0, 128), gpu("0000:4d:00.0", 1, 129, FLEX, "xe")),
        planned={"compute": USERSPACE, "manifests": ("intel.icd",)},
        nodes=dri(0, 1),
        gpus=("0", "1"),
        findings=("userspace-unknown",),
        groups=MEMBER,
        main="libze_intel_gpu.so.1",
    ),
    HostLayout(
        name="intel-laptop",
        who="Laptops with Intel's graphics and NPU alone",
        source="https://docs.kernel.org/accel/introduction.html",
        spec=merged(MERGED, BASE, LAPTOP),
        planned={"links": ("by-path",)},
        nodes=(*dri(0), "/dev/accel/accel0"),
        gpus=("0",),
        groups=MEMBER,
        main="libze_intel_gpu.so.1",
        remark="The user space is the image's, or with --intel the host's: [Intel](intel.md).",
    ),
    whole_host(
        name="intel-nvidia",
        who="Laptops with NVIDIA's GPU beside Intel's graphics",
        source="https://docs.kernel.org/gpu/i915.html",
        spec={**MERGED, **driver(MULTIARCH), **LAPTOP, **kernel()},
        groups=MEMBER,
        remark="The processor's graphics are planned with --intel only.",
    ),
    HostLayout(
        name="intel-and-nvidia",
        who="Laptops with NVIDIA's GPU beside Intel's graphics, with --nv and --intel",
        source="https://docs.kernel.org/gpu/i915.html",
        spec={**MERGED, **driver(MULTIARCH), **LAPTOP, **kernel()},
        planned=planned(),
        nodes=(*nodes(), *dri(0), "/dev/accel/accel0"),
        gpus=("0", "1", "0"),
        groups=MEMBER,
        request=Request(vendors=("nvidia", "intel")),
    ),
    HostLayout(
        name="gaudi",
        who="Servers with Gaudi 2 accelerators",
        source="https://github.com/intel/intel-resource-drivers-for-kubernetes",
        spec=merged(MERGED, BASE, gaudi("0000:19:00.0", 1, uverbs=1), gaudi("0000:1a:00.0", 0, uverbs=0)),
        planned={},
        nodes=(
            *(f"/dev/accel/accel{part}{number}" for number in (0, 1) for part in ("", "_controlD")),
            *(f"/dev/infiniband/uverbs{number}" for number in (0, 1)),
        ),
        gpus=("0", "1"),
        main="libze_intel_gpu.so.1",
        remark="The software is the image's.",
    ),
    HostLayout(
        name="gaudi-older",
        who="Servers with Gaudi accelerators, Habana's driver before Linux 6.2",
        source="https://docs.habana.ai/en/latest/Installation_Guide/",
        spec=merged(MERGED, BASE, gaudi("0000:19:00.0", 0, older=True)),
        planned={},
        nodes=("/dev/hl0", "/dev/hl_controlD0"),
        gpus=("0",),
        main="libze_intel_gpu.so.1",
    ),
)
