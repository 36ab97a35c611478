"""Host's or image's? Each row of the table is a group, what is asked, what the image has; and whose it is then."""

from __future__ import annotations

from typing import NamedTuple, Optional

import pytest

from gpubind.loader.verdict import ImageFit, Unfit
from gpubind.model import ContainerPath, Group, HostFile, HostPath, ImageFacts, Request, RootedPath, Side
from gpubind.planner.sides import host_side
from gpubind.planner.userspace import with_findings

LIBC = Unfit("libc", "libc.so.6", "GLIBC_2.38", "GLIBC_2.36")
FACTS = ImageFacts(
    "directory", "i", "x86_64", "glibc", "2.36", None, (), False, {}, (), driver=(), vendor_neutral=(), cuda=None,
    compat=(), rocm=None,
)  # fmt: skip
MEMBERS: dict[Group, tuple[str, ...]] = {
    "glvnd": ("libGL.so.1", "libGLdispatch.so.0"),
    "opencl": ("libOpenCL.so.1",),
    "rocm": ("libhsa-runtime64.so.1", "libtinfo.so.6"),
}


def library(name: str, group: Optional[Group] = None) -> HostFile:
    path = f"/usr/lib/{name}"
    return HostFile(
        vendor="amd" if group == "rocm" else "nvidia",
        kind="library",
        path=RootedPath(path),
        names=(name,),
        target=None,
        arch="x86_64",
        soname=name,
        version=None,
        capability="graphics" if group == "glvnd" else "compute",
        size=1,
        source=HostPath(path),
        named_by="liblist",
        named_at="etc/list:1",
        found_by="ld.so.cache",
        group=group,
    )


def files_of(group: Group) -> tuple[HostFile, ...]:
    return tuple(library(name, group) for name in MEMBERS[group])


def fit_of(group: Group, own: bool, refused: tuple[str, ...] = ()) -> ImageFit:
    unfit = {file.path: LIBC for file in files_of(group) if file.names[0] in refused}
    groups = ((group, False),) if own and group != "rocm" else ()
    runtime = RootedPath("/opt/rocm/lib/libhsa-runtime64.so.1")
    return ImageFit(FACTS, unfit, groups, {"rocm": runtime} if own and group == "rocm" else {})


class Row(NamedTuple):
    """One case."""

    group: Group
    asked: Side
    image: Optional[bool]
    """Whether the image has its own; None: no image is known."""
    refused: tuple[str, ...]
    """What of the host's the image cannot load."""
    hosts: tuple[str, ...]
    """What comes from the host."""
    finding: str
    """Severity and code."""


GL = MEMBERS["glvnd"]
CL = MEMBERS["opencl"]
HSA = MEMBERS["rocm"]

ROWS = {
    "no image: what vendors share is the image's": Row("glvnd", "auto", None, (), (), "note vendor-neutral-left-out"),
    "no image: ROCm is the host's": Row("rocm", "auto", None, (), HSA, "warning userspace-unknown"),
    "no image, and the host's was asked for": Row("glvnd", "host", None, (), GL, ""),
    "no image, and the host's ROCm was asked for": Row("rocm", "host", None, (), HSA, ""),
    "no image, and the image's was asked for": Row("opencl", "image", None, (), (), ""),
    "the image has its own": Row("glvnd", "auto", True, (), (), ""),
    "the image has its own ROCm": Row("rocm", "auto", True, (), (), ""),
    "the image has none": Row("glvnd", "auto", False, (), GL, ""),
    "the image has no OpenCL loader": Row("opencl", "auto", False, (), CL, ""),
    "the image has no ROCm": Row("rocm", "auto", False, (), HSA, ""),
    "one of a family cannot be loaded: none of it comes": Row(
        "glvnd", "auto", False, GL[:1], (), "note vendor-neutral-missing"
    ),
    "one of ROCm cannot be loaded: the others come": Row(
        "rocm", "auto", False, HSA[1:], HSA[:1], "warning userspace-left-out"
    ),
    "nothing computes without the runtime": Row("rocm", "auto", False, HSA, (), "error userspace-left-out"),
    "the host's was asked for, over the image's": Row("glvnd", "host", True, (), GL, ""),
    "the host's ROCm was asked for, over the image's": Row("rocm", "host", True, (), HSA, ""),
    "the host's was asked for, and cannot be loaded": Row(
        "glvnd", "host", True, GL[1:], (), "error vendor-neutral-missing"
    ),
    "the image's was asked for, and it has none": Row("glvnd", "image", False, (), (), "note vendor-neutral-missing"),
    "the image's ROCm was asked for, and it has none": Row("rocm", "image", False, (), (), "warning userspace-missing"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_group_is_the_hosts_or_the_images(name: str) -> None:
    row = ROWS[name]
    files = files_of(row.group)
    request = Request(vendor_neutral=row.asked, userspace=row.asked)
    fit = None if row.image is None else fit_of(row.group, row.image, row.refused)
    sided = host_side(files, request, fit)
    if row.group == "rocm":
        sided = with_findings("amd", sided, files, files, request, fit)
    assert tuple(name for file in sided.files for name in file.names) == row.hosts
    assert [f"{finding.severity} {finding.code}" for finding in sided.findings] == (
        [row.finding] if row.finding else []
    )
    left = {decision.subject for decision in sided.decisions}
    assert left == {name for name in MEMBERS[row.group] if name not in row.hosts}


def test_what_is_said_of_a_refused_library_is_made_of_values() -> None:
    file = library("libcuda.so.1")
    fit = fit_of("glvnd", False)._replace(unfit={file.path: LIBC._replace(has=None)})
    (finding,) = host_side((file,), Request(), fit).findings
    assert finding.what == "libcuda.so.1 is left out: it needs GLIBC_2.38 of libc.so.6, the image has none of that kind"
    assert finding.why == "libc.so.6: version `GLIBC_2.38' not found (required by libcuda.so.1)"


def test_a_manifest_of_rocm_whose_library_stays_behind_stays_too() -> None:
    manifest = library("amdocl64.icd", "rocm")._replace(
        kind="manifest", names=(), soname=None, target=ContainerPath("/etc/OpenCL/vendors/amdocl64.icd"),
        content=b"/opt/rocm/lib/libamdocl64.so\n",
    )  # fmt: skip
    files = (library("libamdocl64.so", "rocm"), manifest)
    both = with_findings("amd", host_side(files, Request(), None), files, files, Request(), None)
    alone = with_findings("amd", host_side(files[1:], Request(), None), files, files[1:], Request(), None)
    assert (len(both.files), alone.files) == (2, ())
    assert [decision.detail for decision in alone.decisions] == ["libamdocl64.so, which it names, is not brought along"]


def test_a_host_without_rocm_is_told_where_the_image_has_none() -> None:
    fit = fit_of("rocm", False)
    sided = with_findings("amd", host_side((), Request(), fit), (), (), Request(), fit)
    assert [finding.code for finding in sided.findings] == ["userspace-missing"]


def test_what_rocm_lacks_in_an_image_says_nothing_about_another_vendors_claim_on_the_same_file() -> None:
    nvidias, amds = library("libx.so.1"), library("libx.so.1", "rocm")
    fit = ImageFit(FACTS, {nvidias.path: Unfit("dependency", "libstdc++.so.6")}, ())
    assert host_side((nvidias,), Request(), fit)[::2] == ((nvidias,), ())
    assert host_side((amds,), Request(), fit).files == ()
