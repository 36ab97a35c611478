"""AMD's kernel driver and the ROCm in an image."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.model.rocm import bounds_of_kernel, is_outside, release_of_kernel, release_with
from tests.rules.cases_amd import amd, cxx
from tests.rules.situations import found
from tests.support.elf import elf
from tests.support.trees import Link, Spec

LIB = "/usr/lib/x86_64-linux-gnu"


def packaged(release: str) -> Spec:
    """AMD's packages of a release."""
    return {
        f"/opt/rocm-{release}/.info/version": f"{release}-1\n",
        f"/opt/rocm-{release}/lib/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1"),
    }


def of_distribution(file: str) -> Spec:
    """A distribution's HIP, whose release only the name of *file* tells."""
    soname = ".".join(file.split(".")[:3])
    return {f"{LIB}/{file}": elf(soname), **({f"{LIB}/{soname}": Link(file)} if soname != file else {})}


@pytest.mark.parametrize(
    ("kernel", "image", "severity"),
    [
        ("6.2.4", packaged("7.2.0"), "warning"),
        ("6.2.4", packaged("6.1.2"), None),
        ("6.2.4", packaged("6.2.0"), "warning"),
        ("6.8.5", packaged("7.0.0"), "warning"),
        ("6.8.5", packaged("6.4.1"), None),
        ("6.8.5", packaged("5.7.1"), "warning"),
        ("6.10.5", packaged("7.0.2"), None),
        ("6.14.14", packaged("5.7.1"), None),
        ("6.16.13", packaged("6.2.4"), "warning"),
        ("6.16.13", packaged("10.0.0"), None),
        ("9.9.9", packaged("5.7.1"), None),
        ("6.3.6", of_distribution("libamdhip64.so.7"), "warning"),
        ("6.10.5", of_distribution("libamdhip64.so.7"), None),
        ("6.10.5", of_distribution("libamdhip64.so.7.1.52802"), "warning"),
        ("6.3.6", {}, None),
        (None, packaged("7.2.0"), "note"),
    ],
)
def test_a_rocm_that_amd_does_not_test_with_the_kernel_driver_is_a_warning(
    kernel: Optional[str], image: Spec, severity: Optional[str]
) -> None:
    version = "/sys/module/amdgpu/version"
    host: Spec = {version: f"{kernel}\n"} if kernel else {}
    situation = amd(host, image=cxx(more=image), lacks=() if kernel else (version,))
    assert [one.severity for one in found(situation) if one.code == "rocm-untested"] == ([severity] if severity else [])


def test_the_finding_names_both_releases_and_those_that_are_tested() -> None:
    situation = amd({"/sys/module/amdgpu/version": "6.2.4\n"}, image=cxx(more=packaged("7.2.0")))
    (one,) = [one for one in found(situation) if one.code == "rocm-untested"]
    assert one.what == "the image has ROCm 7.2.0, but AMD tests amdgpu 6.2.4 of ROCm 5.7 only with ROCm 5.5 to 6.1"


def test_every_kernel_driver_of_the_table_has_a_release_and_known_bounds() -> None:
    assert release_of_kernel("6.14.14") == "7.0"
    assert bounds_of_kernel("7.0") == (None, None)
    assert not is_outside("7", *bounds_of_kernel("7.0"))
    assert release_with(["libm.so.6", "librocblas.so.5", "libamdhip64.so.6"]) == "7"
