"""A finding that something is missing names the places that were searched."""

from __future__ import annotations

import pytest

from gpubind.model import Finding
from tests.rules.cases_host import GRAPHICS, healthy, lacking
from tests.rules.situations import Situation, found
from tests.support.driver import kernel, libraries
from tests.support.images import glibc, image
from tests.support.trees import Spec

OPERATOR: Spec = libraries("/run/nvidia/driver/usr/lib64")
SMI: Spec = {"/usr/local/bin/nvidia-smi": "#!/bin/sh\n"}


def finding(code: str, situation: Situation, subject: str = "") -> Finding:
    (one,) = [one for one in found(situation) if one.code == code and subject in one.subject]
    return one


def test_a_missing_manifest_was_looked_for_in_the_prefix_of_libcuda_too() -> None:
    where = finding("manifest-missing", Situation((OPERATOR, kernel()), request=GRAPHICS), "Vulkan").where
    assert (where or "").split(", ") == [
        "/run/nvidia/driver/usr/share/vulkan/icd.d/",
        "/usr/share/vulkan/icd.d/",
        "/usr/local/share/vulkan/icd.d/",
        "/run/nvidia/driver/etc/vulkan/icd.d/",
        "/run/nvidia/driver/usr/vulkan/icd.d/",
        "/etc/vulkan/icd.d/",
    ]
    usual = finding("manifest-missing", Situation(healthy(), request=GRAPHICS), "EGL").where
    assert usual == ("/usr/share/glvnd/egl_vendor.d/, /usr/local/share/glvnd/egl_vendor.d/, /etc/glvnd/egl_vendor.d/")


@pytest.mark.parametrize("debian", ["/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/x86_64-linux-gnu"])
def test_a_directory_of_a_distribution_has_its_manifests_in_the_standard_places(debian: str) -> None:
    where = finding("manifest-missing", Situation((libraries(debian), kernel()), request=GRAPHICS), "Vulkan").where
    assert where == "/usr/share/vulkan/icd.d/, /usr/local/share/vulkan/icd.d/, /etc/vulkan/icd.d/"


def test_a_missing_nvidia_smi_was_looked_for_next_to_the_libraries_too() -> None:
    one = finding("nvidia-smi-missing", Situation((OPERATOR, kernel())))
    assert "/run/nvidia/driver/usr/bin, /run/nvidia/driver/usr/sbin" in (one.where or "")
    assert one.severity == "note"


def test_an_nvidia_smi_of_the_image_is_enough() -> None:
    codes = [one.code for one in found(Situation(lacking("/usr/bin/nvidia-smi"), image(glibc("2.36"), SMI)))]
    assert "nvidia-smi-missing" not in codes


def test_a_missing_libcuda_was_looked_for_in_directories_that_exist() -> None:
    there: Spec = {"/usr/lib64/libz.so.1": "", "/usr/lib/libz.so.1": ""}
    where = finding("no-libcuda", Situation((there, kernel()))).where
    assert where == "no usable ld.so.cache, /usr/lib64, /usr/lib, /"
