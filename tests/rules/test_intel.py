"""Intel: what an image needs of the host and of the GPU, and what it does not need."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.image.facts import Image
from gpubind.model import Finding
from tests.rules.situations import Situation, found
from tests.support.amd import LIB, RENDER, VIDEO
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.intel import BASE, gaudi, gpu, userspace
from tests.support.trees import Spec

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
        {"/opt/venv/lib/python3.11/site-packages/openvino/__init__.py": ""},
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
