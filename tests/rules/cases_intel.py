"""Where each rule about Intel fires, and where it is almost so."""

from __future__ import annotations

from typing import Any, Optional

from gpubind.image.facts import Image
from tests.rules.situations import Case, Situation
from tests.support.amd import LIB, RENDER, VIDEO
from tests.support.elf import elf
from tests.support.images import glibc, image, image_with_bytes
from tests.support.intel import BASE, gaudi, gpu, habanalabs, ihd, synapse
from tests.support.trees import Spec

TWO = (gpu("0000:03:00.0", 0, 128), gpu("0000:4d:00.0", 1, 129))
OPENCL = {f"{LIB}/intel-opencl/libigdrcl.so": elf("libigdrcl.so")}
IHD = f"{LIB}/dri/iHD_drv_video.so"
OLDER_THAN_DG2 = ("bdw", "skl", "bxt", "glk", "kbl", "cfl", "icllp", "tgllp")
ICD = {"/etc/OpenCL/vendors/intel.icd": f"{LIB}/intel-opencl/libigdrcl.so\n"}


def runtime(platforms: str) -> Spec:
    """The OpenCL driver with the texts that it has in its constants."""
    texts = b"".join(b"\0" + name.encode() for name in platforms.split()) + b"\0"
    return {f"{LIB}/intel-opencl/libigdrcl.so": elf("libigdrcl.so", more={".rodata": texts})}


def intel(
    *more: Spec, image: Optional[Image] = None, backend: Optional[str] = None, lacks: str = "", **request: Any
) -> Situation:
    """A healthy host with two GPUs, *more*, and without the paths that contain *lacks*."""
    parts = [{path: item for path, item in part.items() if not lacks or lacks not in path} for part in TWO]
    facts = {"groups": (VIDEO, RENDER, 1000)}
    return Situation((BASE, *parts, *more), image, {"vendors": ("intel",), **request}, facts, backend)


def accelerators(driver: str, release: str) -> Situation:
    """A host with a Gaudi accelerator and Habana's *driver*, and an image with SynapseAI of *release*."""
    parts = (BASE, gaudi("0000:19:00.0", 0), habanalabs(driver))
    return Situation(parts, image(glibc("2.36"), synapse(release)), {"vendors": ("intel",)})


CASES: dict[str, Case] = {
    "intel-groups": Case(intel(backend="podman"), intel(backend="apptainer")),
    "intel-unusable": Case(intel(lacks="/dev/dri/renderD129"), intel(lacks="/dev/dri/card1")),
    "intel-gpu-unknown": Case(
        intel(image=image_with_bytes(glibc("2.36"), {**ICD, **runtime("bdw skl bxt glk kbl cfl icllp ehl")})),
        intel(image=image_with_bytes(glibc("2.36"), {**ICD, **runtime("tgllp rkl adls dg1 dg2 pvc")})),
    ),
    "intel-video-unknown": Case(
        intel(image=image_with_bytes(glibc("2.36"), {IHD: ihd("20.1.0", *OLDER_THAN_DG2)})),
        intel(image=image_with_bytes(glibc("2.36"), {IHD: ihd("22.1.0", *OLDER_THAN_DG2, "dg2")})),
    ),
    "synapse-mismatch": Case(accelerators("1.22.1-a", "1.24.0"), accelerators("1.24.0-ee698fb", "1.24.0")),
    "level-zero-incomplete": Case(
        intel(image=image(glibc("2.36"), OPENCL)), intel(image=image(glibc("2.36"), {**OPENCL, **ICD}))
    ),
}
