"""A library of the plan that the image's loader refuses: how grave that is."""

from __future__ import annotations

from typing import Optional

import pytest

from tests.rules.cases_image import HOST, needing
from tests.rules.situations import Situation, found
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import Spec


@pytest.mark.parametrize(
    ("library", "capability", "by_default", "by_name"),
    [
        ("libcuda", "compute", "error", "error"),
        ("libnvidia-ml", "utility", "error", "error"),
        ("libnvidia-ptxjitcompiler", "compute", "warning", "error"),
        ("libnvidia-cfg", "utility", "warning", "error"),
        ("libnvidia-glcore", "graphics", "note", "error"),
        ("libnvcuvid", "video", "note", "error"),
        ("libcudadebugger", "compute", "note", "note"),
        ("libnvidia-pkcs11-openssl3", "compute", None, None),
        ("libnvidia-gtk3", "display", "note", "warning"),
    ],
)
def test_a_library_that_does_not_load_is_as_grave_as_its_capability_and_graver_where_that_is_requested(
    library: str, capability: str, by_default: Optional[str], by_name: Optional[str]
) -> None:
    parts = (*HOST, needing(library, needed=("libX11.so.6",)))
    severities = [
        [one.severity for one in found(Situation(parts, image(glibc()), request)) if one.code == "library-missing"]
        for request in ({}, {"caps": (capability,)})
    ]
    assert severities == [[by_default] if by_default else [], [by_name] if by_name else []]


def test_a_library_that_hides_a_copy_of_the_images_is_a_warning() -> None:
    copy: Spec = {"/usr/lib/x86_64-linux-gnu/libnvcuvid.so.1": elf("libnvcuvid.so.1")}
    parts = (*HOST, needing("libnvcuvid", needed=("libX11.so.6",)))
    findings = found(Situation(parts, image(glibc(), copy)))
    assert [one.severity for one in findings if one.code == "library-missing"] == ["warning"]
