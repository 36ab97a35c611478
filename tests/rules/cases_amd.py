"""Where each rule about AMD fires, and where it is almost so."""

from __future__ import annotations

from typing import Any, Optional

from gpubind.image.facts import Image
from tests.rules.situations import Case, Situation, without
from tests.support.amd import LIB, RENDER, VIDEO, glibcxx, kernel, opt, rocm, unserved
from tests.support.driver import rhel
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import Hidden, Spec

AMDGPU = "/sys/module/amdgpu/version"
NODES = "/sys/class/kfd/kfd/topology/nodes"


def amd(
    *more: Spec,
    image: Optional[Image] = None,
    environ: Optional[dict[str, str]] = None,
    backend: Optional[str] = None,
    lacks: tuple[str, ...] = (),
    **request: Any,
) -> Situation:
    """A healthy host with 8 GPUs, *more*, and without *lacks*."""
    parts = (without(opt(), *lacks), without(kernel(), *lacks), *more)
    facts = {"groups": (VIDEO, RENDER, 1000), "environ": environ or {}}
    return Situation(parts, image, {"vendors": ("amd",), **request}, facts, backend)


def cxx(newest: str = "2.36", *defines: str, more: Optional[Spec] = None) -> Image:
    """An image with libstdc++ and *more*, and no ROCm."""
    return image(
        glibc(newest),
        more or {},
        {
            f"{LIB}/libm.so.6": elf("libm.so.6"),
            f"{LIB}/libgcc_s.so.1": elf("libgcc_s.so.1"),
            f"{LIB}/libstdc++.so.6": elf("libstdc++.so.6", defines=("libstdc++.so.6", *(defines or glibcxx(30)))),
        },
    )


WITH_ROCM = image(glibc("2.36"), {"/opt/rocm-6.1.0/lib/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1")})

NO_GPU = (opt(), kernel(gpus=0))
MI355X = unserved("0000:05:00.0", "0x75a3")

CASES: dict[str, Case] = {
    "gpu-unserved": Case(
        amd(unserved("0000:06:00.0", "0x75a3")), amd({"/sys/devices/pci0000:00/0000:05:00.0/driver": Hidden()})
    ),
    "amd-groups": Case(amd(backend="podman"), amd(backend="apptainer")),
    "amd-render-missing": Case(amd(lacks=("/dev/dri/renderD136",)), amd(lacks=("/dev/dri/card9",))),
    "hip-visible-composed": Case(
        amd(environ={"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}),
        amd(environ={"HIP_VISIBLE_DEVICES": "1"}),
    ),
    "hsa-override": Case(
        amd(image=WITH_ROCM, environ={"HSA_OVERRIDE_GFX_VERSION": "gfx942"}),
        amd(image=WITH_ROCM, environ={"HSA_OVERRIDE_GFX_VERSION": "9.0.10"}),
    ),
    # A processor's properties say nothing of GPUs.
    "kfd-hidden": Case(amd({f"{NODES}/3/properties": Hidden()}), amd({f"{NODES}/1/properties": Hidden()})),
    "kfd-missing": Case(
        amd(lacks=("/dev/kfd",)),
        Situation((opt(), without(kernel(gpus=0), "/dev/kfd")), request={"vendors": ("amd",)}),
    ),
    "like-one-vendor": Case(
        Situation((rhel(),), request={"vendors": ("nvidia", "amd"), "like": "singularity"}),
        Situation((rhel(),), request={"vendors": ("nvidia", "amd"), "like": "apptainer"}),
    ),
    "rocm-path": Case(amd(environ={"ROCM_PATH": "/opt/rocm-5.0.0"}), amd(environ={"ROCM_PATH": "/opt/rocm-6.2.4"})),
    "rocm-untested": Case(
        amd({AMDGPU: "6.2.4\n"}, image=cxx(more=rocm("/opt/rocm-6.2.4", "6.2.4"))),
        amd({AMDGPU: "6.2.4\n"}, image=cxx(more=rocm("/opt/rocm-6.1.2", "6.1.2"))),
    ),
    "rocr-visible-cut": Case(
        amd(environ={"ROCR_VISIBLE_DEVICES": "0,1,0"}),
        amd(environ={"ROCR_VISIBLE_DEVICES": "0,7,GPU-7e5f0a1b2c3d4e11"}),
    ),
    # The host's libstdc++ has all that the image's has, or not.
    "userspace-conflict": Case(
        amd(image=cxx("2.36", *glibcxx(25), "CXXABI_OF_THE_IMAGE")), amd(image=cxx("2.36", *glibcxx(25)))
    ),
    "userspace-left-out": Case(amd(image=cxx("2.31")), amd(image=cxx("2.34"))),
    "userspace-missing": Case(amd(image=cxx(), userspace="image"), amd(image=WITH_ROCM, userspace="image")),
    "userspace-unknown": Case(amd(), amd(userspace="host")),
}
