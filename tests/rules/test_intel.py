"""Intel: what an image needs of the host and of the GPU, and what it does not need."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.formats.gpucode.sycl import GENERATED
from gpubind.image.facts import Image
from gpubind.model import Finding
from tests.formats.test_sycl import archive
from tests.rules.cases_image import CUDA_RELEASE, ROCM_RELEASE
from tests.rules.situations import Situation, found
from tests.support.amd import LIB, RENDER, VIDEO, kernel, merged, opt
from tests.support.elf import elf
from tests.support.gpucode import library as gpu_library
from tests.support.images import glibc, image, image_with_bytes
from tests.support.intel import BASE, gaudi, gpu, neo, userspace
from tests.support.trees import Item, Link, Spec

ARC = gpu("0000:03:00.0", 0, 128)
HL = gaudi("0000:19:00.0", 0)


def library(name: str) -> Spec:
    return {f"{LIB}/{name}": elf(name.rpartition("/")[2])}


IHD, VPL, OPENCL_LOADER = library("dri/iHD_drv_video.so"), library("libvpl.so.2"), library("libOpenCL.so.1")
VIDEO_IMAGE = image(glibc("2.31"), IHD, VPL, library("libva.so.2"), OPENCL_LOADER)
JELLYFIN = image(glibc("2.31"), {"/usr/lib/jellyfin-ffmpeg/lib/dri/iHD_drv_video.so": elf("iHD_drv_video.so")})


def told(*parts: Spec, image: Optional[Image] = None, **request: Any) -> list[Finding]:
    facts = {"groups": (VIDEO, RENDER, 1000)}
    situation = Situation((BASE, *parts), image, {"vendors": ("intel",), **request}, facts)
    return list(found(situation))


def codes(*parts: Spec, image: Optional[Image] = None, **request: Any) -> list[tuple[str, str]]:
    every = told(*parts, image=image, **request)
    return [(one.severity, one.code) for one in every if one.code.startswith("userspace")]


def test_an_image_for_two_other_vendors_is_reported_with_both() -> None:
    (finding,) = [
        one
        for one in told(ARC, image=image(glibc(), ROCM_RELEASE, CUDA_RELEASE))
        if one.code == "image-of-other-vendor"
    ]
    assert finding.subject == "CUDA and ROCm"
    assert finding.what == "the image is for CUDA and ROCm, but the container gets only intel i915, Linux 6.12.0"


@pytest.mark.parametrize("opened", [VIDEO_IMAGE, JELLYFIN])
@pytest.mark.parametrize(("host", "code"), [((), "userspace-missing"), ((userspace(),), "userspace-left-out")])
def test_an_image_for_video_needs_no_compute_runtime(opened: Image, host: tuple[Spec, ...], code: str) -> None:
    assert codes(ARC, *host, image=opened) == [("note", code)]
    assert codes(ARC, *host, image=opened, caps=("video",)) == [("note", code)]


@pytest.mark.parametrize(
    "user",
    [
        library("libze_loader.so.1"),
        library("libsycl.so.8"),
        {"/opt/intel/oneapi/setvars.sh": ""},
        *(
            {f"/opt/venv/lib/python3.11/site-packages/{package}/__init__.py": ""}
            for package in ("dpctl", "openvino", "pyopencl", "torch", "onnxruntime")
        ),
        *(
            {f"{prefix}/python3.11/{packages}/torch/__init__.py": ""}
            for prefix in ("/usr/lib", "/usr/local/lib", "/opt/venv/lib", "/opt/conda/envs/x/lib")
            for packages in ("dist-packages", "site-packages")
        ),
    ],
)
def test_an_image_for_video_that_also_computes_needs_it(user: Spec) -> None:
    assert codes(ARC, image=image(glibc("2.36"), IHD, user)) == [("warning", "userspace-missing")]


def test_compute_that_is_asked_for_by_name_needs_it_in_an_image_for_video() -> None:
    assert codes(ARC, image=VIDEO_IMAGE, caps=("compute",)) == [("warning", "userspace-missing")]


def test_an_image_with_neither_is_still_reported() -> None:
    assert codes(ARC, image=image(glibc("2.36"))) == [("warning", "userspace-missing")]


def test_gaudi_needs_no_level_zero() -> None:
    opened = image(glibc("2.36"))
    assert codes(HL, image=opened) == []
    assert codes(HL, userspace(), image=opened) == []
    assert codes(HL, ARC, image=opened) == [("warning", "userspace-missing")]


OLD = "bdw skl kbl cfl glk bxt icllp ehl lkf tgllp rkl adls adlp adln dg1 dg2 pvc"
NEW = "tgllp rkl adls adlp adln dg1 dg2 pvc mtl arl bmg lnl ptl nvls nvlp cri"
BOOKWORM, SID = neo("22.43", OLD, xe=False), neo("26.27", NEW, xe=True)
LOADER = library("libze_loader.so.1")
RADEON = (opt(), kernel(gpus=1))
A770, B580 = ARC, gpu("0000:03:00.0", 0, 128, "0xe20b", "xe")
METEOR, SKYLAKE = gpu("0000:00:02.0", 0, 128, "0x7d55"), gpu("0000:00:02.0", 0, 128, "0x1912")
A770_ON_XE, UNHEARD = gpu("0000:03:00.0", 0, 128, driver="xe"), gpu("0000:03:00.0", 0, 128, "0x1234")
UNKNOWN = "intel-gpu-unknown"


@pytest.mark.parametrize(
    ("host", "runtime", "severity"),
    [
        (A770, BOOKWORM, None),
        (A770, SID, None),
        (B580, BOOKWORM, "error"),
        (B580, SID, None),
        (METEOR, BOOKWORM, "error"),
        (METEOR, SID, None),
        (SKYLAKE, BOOKWORM, None),
        (SKYLAKE, SID, "error"),
        (A770_ON_XE, BOOKWORM, "error"),
        (UNHEARD, BOOKWORM, None),
        (B580, neo("27.01", "tgl-lp battlemage", xe=True), None),  # named in another way: nothing is certain
        (B580, neo("25.01", OLD + " xbmg", xe=True), None),  # two texts with one end
        (merged(B580, gpu("0000:4d:00.0", 1, 129)), BOOKWORM, "warning"),
    ],
)
def test_a_runtime_that_does_not_know_the_gpu_is_an_error_only_where_that_is_certain(
    host: Spec, runtime: Spec, severity: Optional[str]
) -> None:
    opened = image_with_bytes(glibc("2.36"), LOADER, runtime)
    assert [one.severity for one in told(host, image=opened) if one.code == UNKNOWN] == ([severity] if severity else [])


def test_of_two_drivers_one_that_knows_the_gpu_is_enough() -> None:
    opencl = neo("26.27", NEW, xe=True, name="intel-opencl/libigdrcl.so")
    opened = image_with_bytes(glibc("2.36"), LOADER, BOOKWORM, opencl)
    assert not [one for one in told(B580, image=opened) if one.code == UNKNOWN]


def test_video_works_with_a_runtime_that_does_not_know_the_gpu() -> None:
    opened = image_with_bytes(glibc("2.36"), LOADER, BOOKWORM, IHD)
    assert [one.severity for one in told(B580, image=opened) if one.code == UNKNOWN] == ["warning"]


def test_an_image_for_video_does_without_the_host_s_runtime_that_does_not_know_the_gpu() -> None:
    needed = ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libigdgmm.so.12")
    for more, severity in ((IHD, []), ({}, ["error"]), (merged(IHD, library("libsycl.so.8")), ["warning"])):
        opened = image(glibc("2.36"), *map(library, needed), more)
        found = told(B580, host_with_old_runtime(), image=opened)
        assert [one.severity for one in found if one.code == UNKNOWN] == severity
    found = told(
        B580, host_with_old_runtime(), image=image(glibc("2.36"), *map(library, needed), IHD), caps=("compute",)
    )
    assert [one.severity for one in found if one.code == UNKNOWN] == ["warning"]


def host_with_old_runtime() -> Spec:
    """The user space of a host, with the compute runtime of Debian 12."""
    build = "libze_intel_gpu.so.1.3.24595"
    old: dict[str, Item] = {f"{LIB}/libze_intel_gpu.so.1": Link(build), f"{LIB}/{build}": elf("libze_intel_gpu.so.1")}
    return merged(userspace(), old)


def test_the_runtime_of_a_recorded_host_is_known_by_its_build() -> None:
    opened = image(glibc("2.36"), library("libstdc++.so.6"), library("libm.so.6"), library("libgcc_s.so.1"))
    for gpus, severity in ((B580, ["error"]), (A770, [])):
        found = told(gpus, host_with_old_runtime(), image=opened)
        assert [one.severity for one in found if one.code == UNKNOWN] == severity


def sycl(*names: str) -> Image:
    """An image with a package for SYCL that has code for *names* in an archive."""
    code = archive(*names)
    package = "/usr/lib/python3/dist-packages/bitsandbytes/libbitsandbytes_xpu2026.so"
    library = elf("libbitsandbytes_xpu2026.so", more={GENERATED: code})
    return image_with_bytes(glibc("2.36"), {package: library, "/usr/bin/python3": elf(kind=2)})


@pytest.mark.parametrize(
    ("host", "names", "is_reported"),
    [
        (A770, ("64.12.55.8", "64.12.60.7"), False),
        (B580, ("64.12.55.8", "64.12.60.7"), True),
        (B580, ("64.12.55.8", "generic_ir"), False),
        (UNHEARD, ("64.12.55.8",), False),
    ],
)
def test_code_for_other_gpus_of_intels_only_is_reported(host: Spec, names: tuple[str, ...], is_reported: bool) -> None:
    assert ("gpu-code-missing" in [one.code for one in told(host, image=sycl(*names))]) == is_reported


def test_an_image_for_gpus_is_reported_where_there_are_only_gaudi_accelerators() -> None:
    code, other = "image-of-other-vendor", {"/usr/lib/habanalabs/libSynapse.so": elf("libSynapse.so")}
    level_zero = library("libze_loader.so.1")
    for host, specs, is_told in (
        (HL, (level_zero,), True),
        (HL, (IHD,), True),
        (HL, (), False),
        (HL, (level_zero, other), False),
        (merged(HL, ARC), (level_zero,), False),
    ):
        opened = image(glibc("2.36"), *specs)
        found = [one for one in told(host, image=opened) if one.code == code]
        assert [one.severity for one in found] == ["warning"] * is_told
        assert all("which list no Gaudi accelerator, and the image has no SynapseAI" in str(one.why) for one in found)


def test_an_image_without_code_for_the_graphics_of_a_processor_is_right() -> None:
    code = {"/usr/lib/python3/dist-packages/bitsandbytes/libbitsandbytes_cuda128.so": gpu_library("sm_90")}
    opened = image_with_bytes(glibc("2.36"), code, {"/usr/bin/python3": elf(kind=2)})
    assert "gpu-code-missing" not in [one.code for one in told(METEOR, image=opened)]


OPENVINO: Spec = {
    "/usr/lib/python3/dist-packages/openvino/libs/libopenvino_intel_gpu_plugin.so": elf(
        "libopenvino_intel_gpu_plugin.so"
    ),
    "/usr/bin/python3": elf(kind=2),
}


@pytest.mark.parametrize("user", [LOADER, library("libsycl.so.8"), OPENVINO])
@pytest.mark.parametrize("host", [(ARC,), (ARC, userspace())])
def test_an_image_that_computes_gets_a_hint_where_only_nodes_are_planned(user: Spec, host: tuple[Spec, ...]) -> None:
    opened = image(glibc("2.41"), user)
    (one,) = [one for one in told(*host, image=opened, vendors=()) if one.code == "userspace-missing"]
    assert (one.severity, one.vendor, "--intel" in str(one.hint)) == ("warning", "intel", True)


@pytest.mark.parametrize(
    ("host", "specs"),
    [
        ((ARC,), (LOADER, SID)),
        ((ARC,), (OPENVINO, library("intel-opencl/libigdrcl.so"))),
        ((ARC,), ()),
        ((ARC,), (IHD, VPL)),
        ((HL,), (LOADER,)),
        ((ARC, *RADEON), (LOADER,)),
    ],
)
def test_no_hint_about_intel_is_given_where_the_image_or_another_vendor_serves(
    host: tuple[Spec, ...], specs: tuple[Spec, ...]
) -> None:
    opened = image_with_bytes(glibc("2.41"), *specs)
    assert "userspace-missing" not in [code for _, code in codes(*host, image=opened, vendors=())]


PACKAGES = "/usr/lib/python3/dist-packages"


@pytest.mark.parametrize(
    ("runtime", "is_reported"),
    [({}, True), ({f"{PACKAGES}/dpctl/libsycl.so.9": elf("libsycl.so.9")}, False), (library("libsycl.so.9"), False)],
)
def test_a_package_for_sycl_without_its_runtime_is_reported(runtime: Spec, is_reported: bool) -> None:
    code = elf("libDPCTL.so", needed=("libsycl.so.9", "libc.so.6"), more={GENERATED: archive("64.12.55.8")})
    record = f"{PACKAGES}/dpctl-0.22.1.dist-info/RECORD"
    package: Spec = {f"{PACKAGES}/dpctl/libDPCTL.so": code, record: "dpctl/libDPCTL.so,sha256=x,200000\n"}
    opened = image_with_bytes(glibc("2.41"), package, {"/usr/bin/python3": elf(kind=2)}, runtime)
    for vendors in (("intel",), ()):
        found = [one for one in told(ARC, userspace(), image=opened, vendors=vendors) if "framework" in one.code]
        assert [(one.severity, one.subject) for one in found] == [("warning", "libsycl.so.9")] * is_reported
    found = [one for one in told(*RADEON, image=opened, vendors=("amd",)) if "framework" in one.code]
    assert found == []
