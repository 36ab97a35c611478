"""Host's or image's? Each row of the table is a group, what is asked, what the image has; and whose it is then."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import pytest

from gpubind import plan
from gpubind.host import ListFile
from gpubind.host.recorded import RecordedHost
from gpubind.model import FileGroup, Plan, Request, Side
from gpubind.planner.planning import PlanQuery, plan_host
from tests.support import amd
from tests.support.driver import V, cache, host, kernel, libraries
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_golden
from tests.support.images import GLVND, glibc, image
from tests.support.trees import Spec

MEMBERS: dict[FileGroup, tuple[str, ...]] = {
    "glvnd": ("libGL.so.1", "libGLdispatch.so.0"),
    "opencl": ("libOpenCL.so.1",),
    "rocm": ("libhsa-runtime64.so.1", "librocm_smi64.so.7"),
}
ROCM, LIB = "/opt/rocm/lib", "/usr/lib/x86_64-linux-gnu"
NEEDED = {"libGL.so.1": ("libGLdispatch.so.0",), "librocm_smi64.so.7": ("libhsa-runtime64.so.1",)}
OWN: dict[FileGroup, Spec] = {
    "glvnd": GLVND,
    "opencl": {f"{LIB}/libOpenCL.so.1": elf("libOpenCL.so.1")},
    "rocm": {f"{ROCM}/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1")},
}


def library(name: str, *needed: str, is_new: bool = False) -> bytes:
    """A library of the host that the images here load, unless it is new."""
    needs = {"libc.so.6": ("GLIBC_2.38" if is_new else "GLIBC_2.17",)}
    return elf(name, needed=(*needed, "libc.so.6"), needs=needs)


def driver(*parts: Spec) -> RecordedHost:
    """A host with NVIDIA's driver, and *parts*."""
    spec = {**libraries(LIB, stems=("libcuda",)), **{path: item for part in parts for path, item in part.items()}}
    return host(kernel(), spec, {"/etc/ld.so.cache": cache(spec, [LIB])})


def planned(group: FileGroup, own: Optional[bool], refused: tuple[str, ...] = (), **request: Any) -> Plan:
    """The plan of a host that has the *group* for an image that has its *own*, or not; None: no image is known."""
    made = {name: library(name, *NEEDED.get(name, ()), is_new=name in refused) for name in MEMBERS[group]}
    opened = None if own is None else image(glibc("2.36"), OWN[group] if own else {})
    if group == "rocm":
        on = amd.amd_host(amd.kernel(), {f"{ROCM}/{name}": made[name] for name in made})
        return plan(on, Request(vendors=("amd",), **request), image=opened)
    return plan(driver({f"{LIB}/{name}": made[name] for name in made}), Request(**request), image=opened)


class Row(NamedTuple):
    """One case."""

    group: FileGroup
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
    made = planned(row.group, row.image, row.refused, vendor_neutral=row.asked, userspace=row.asked)
    members = MEMBERS[row.group]
    assert {mount.soname for mount in made.mounts if mount.soname in members} == {*row.hosts}
    told = [f for f in made.findings if f.code.startswith(("vendor-neutral", "userspace"))]
    assert [f"{finding.severity} {finding.code}" for finding in told] == ([row.finding] if row.finding else [])
    left = {one.subject for one in made.decisions if one.step == "side" and one.subject in members}
    assert left == {*members} - {*row.hosts}


def test_a_version_of_which_the_image_has_no_other_is_named_as_such() -> None:
    wants = {f"{LIB}/libcuda.so.{V}": elf("libcuda.so.1", needs={"libz.so.1": ("ZLIB_1.2.9",)})}
    opened = image(glibc(), {f"{LIB}/libz.so.1": elf("libz.so.1", defines=("libz.so.1",))})
    (finding,) = (f for f in plan(driver(wants), Request(), image=opened).findings if f.code == "image-libc")
    assert finding.what == "libcuda.so.1 is left out: it needs ZLIB_1.2.9 of libz.so.1, the image has none of that kind"
    assert finding.why == "the loader fails with: libz.so.1: version `ZLIB_1.2.9' not found (required by libcuda.so.1)"


@pytest.mark.parametrize("place", ["/etc/OpenCL/vendors/amdocl64.icd", "/usr/share/OpenCL/vendors/amdocl64.icd"])
def test_a_manifest_of_rocm_whose_library_stays_behind_stays_too(place: str) -> None:
    opencl = "libamdocl64.so"
    listed = ListFile("/etc/gpubind/rocmliblist.conf", f"{HSA[0]}\n{opencl}\n{place}\n".encode(), shipped=False)
    for is_new in (False, True):
        files = {f"{ROCM}/{opencl}": library(opencl, is_new=is_new), f"{ROCM}/{HSA[0]}": library(HSA[0])}
        on = amd.amd_host(amd.kernel(), files, {place.replace("/usr/share", "/usr/local/share"): f"{opencl}\n"})
        made = plan_host(on, PlanQuery(Request(vendors=("amd",)), listed), image(glibc("2.36")))
        assert (place in [mount.target for mount in made.mounts]) is not is_new
        details = [one.detail for one in made.decisions if one.subject == place and one.verdict == "left-out"]
        assert details == (["libamdocl64.so, which it names, is not brought along"] if is_new else [])


def test_what_rocm_lacks_in_an_image_says_nothing_about_another_vendors_claim_on_the_same_file() -> None:
    shared = {f"{LIB}/libOpenCL.so.1": library("libOpenCL.so.1", "libown.so.1")}
    rocm = {f"{ROCM}/{name}": library(name, *needed) for name, needed in ((HSA[0], ()), (HSA[1], CL))}
    on = amd.amd_host(kernel(), libraries(LIB, stems=("libcuda",)), amd.kernel(), shared, rocm)
    request = Request(vendors=("nvidia", "amd"), vendor_neutral="host")
    made = plan(on, request, image=image(glibc("2.36")))
    decided = [(one.vendor, one.verdict, one.rule) for one in made.decisions if one.subject == CL[0]]
    assert decided[::2] == [("amd", "left-out", "dependency"), ("nvidia", "taken", "liblist")]
    assert CL[0] in [mount.soname for mount in made.mounts]
    assert "vendor-neutral-missing" not in [finding.code for finding in made.findings]


def told(row: Row) -> list[str]:
    """The Decisions and findings about the group of *row*: every field."""
    field = "userspace" if row.group == "rocm" else "vendor_neutral"
    made = planned(row.group, row.image, row.refused, **{field: row.asked})
    lines = [
        f"{one.verdict} {one.rule} {one.step} {one.subject}: {one.detail}"
        for one in made.decisions
        if one.subject.rpartition("/")[2] in MEMBERS[row.group]
    ]
    for one in made.findings:
        head = f"{one.severity} {one.code} {one.subject} ({one.vendor}): {one.what}"
        lines += [head, f"why: {one.why}", f"hint: {one.hint}", f"where: {one.where}"]
    return lines


def test_every_side_is_told_in_the_same_words() -> None:
    rows = ("".join(f"{line}\n" for line in (name, *(f"    {one}" for one in told(row)))) for name, row in ROWS.items())
    assert_golden(GOLDEN / "sides.txt", "\n".join(rows))
