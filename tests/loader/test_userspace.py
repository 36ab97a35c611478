"""Whose copy of each library of the host's ROCm: the image's or the host's, from version definitions."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.image.facts import Image
from gpubind.model import Finding, Plan, Request, Vendor
from tests.support.amd import LIB, amd_host, cached, glibcxx, kernel
from tests.support.elf import elf
from tests.support.images import MUSL, STATIC, glibc, image
from tests.support.trees import Item, Spec

RUNTIME = "libhsa-runtime64.so.1"
AMD: tuple[Vendor, ...] = ("amd",)


def library(soname: str, *needed: str, needs: Optional[dict[str, tuple[str, ...]]] = None, **facts: Any) -> Spec:
    return {f"{LIB}/{soname}": elf(soname, needed=(*needed, "libc.so.6"), needs=needs, **facts)}


def defining(soname: str, *versions: str) -> Spec:
    return library(soname, defines=(soname, *versions))


def host_of(*libraries: Spec) -> Spec:
    spec: dict[str, Item] = {f"{LIB}/libc.so.6": elf("libc.so.6", defines=("libc.so.6", "GLIBC_2.41"))}
    for part in libraries:
        spec.update(part)
    return {**spec, **cached(spec, LIB), **kernel(gpus=1)}


def planned(host: Spec, opened: Optional[Image], **request: Any) -> Plan:
    return plan(amd_host(host), Request(**{"vendors": AMD, **request}), image=opened)


def names(made: Plan) -> set[str]:
    return {mount.target.rpartition("/")[2] for mount in made.mounts if mount.kind == "library"}


def why(made: Plan, soname: str) -> tuple[str, Optional[str]]:
    return next((d.rule, d.detail) for d in made.decisions if d.subject == soname and d.verdict == "left-out")


def finding(made: Plan, code: str) -> Optional[Finding]:
    return next((finding for finding in made.findings if finding.code == code), None)


WANTS_V2 = host_of(library(RUNTIME, "libx.so.1", needs={"libx.so.1": ("V_2",)}), defining("libx.so.1", "V_1", "V_2"))


@pytest.mark.parametrize(
    ("defined", "bound"),
    [
        (None, {RUNTIME, "libx.so.1"}),  # the image has none
        (("V_1", "V_2"), {RUNTIME}),  # good enough
        (("V_1", "V_2", "V_3"), {RUNTIME}),
        ((), {RUNTIME}),  # without definitions it satisfies everybody
        (("V_1",), {RUNTIME, "libx.so.1"}),  # too old, and the host's has all that it has
        (("V_1", "V_OF_THE_IMAGE"), set()),  # neither serves everybody
    ],
)
def test_the_side_of_a_soname(defined: Optional[tuple[str, ...]], bound: set[str]) -> None:
    parts = [] if defined is None else [defining("libx.so.1", *defined) if defined else library("libx.so.1")]
    made = planned(WANTS_V2, image(glibc("2.36"), *parts))
    assert names(made) == bound
    assert (finding(made, "userspace-conflict") is not None) == (not bound)
    assert (finding(made, "userspace-left-out") is not None) == (not bound)


def test_a_conflict_names_both_reasons() -> None:
    made = planned(WANTS_V2, image(glibc("2.36"), defining("libx.so.1", "V_1", "V_OF_THE_IMAGE")))
    conflict = finding(made, "userspace-conflict")
    assert conflict is not None
    assert f"V_2, which {RUNTIME} needs" in conflict.what
    assert "V_OF_THE_IMAGE" in (conflict.why or "")


def test_what_the_images_c_library_cannot_load_goes_with_all_that_needs_it() -> None:
    host = host_of(
        library("libamdhip64.so.6", RUNTIME),
        library(RUNTIME, "libx.so.1"),
        library("libx.so.1", needs={"libc.so.6": ("GLIBC_2.38",)}),
        library("librocm_smi64.so.7", "libonly.so.1"),
        library("libonly.so.1"),
    )
    made = planned(host, image(glibc("2.36")))
    assert names(made) == {"librocm_smi64.so.7", "libonly.so.1"}
    assert why(made, "libx.so.1")[0] == "libc"
    assert why(made, RUNTIME) == ("dependency", "it needs libx.so.1, which is left out")
    assert why(made, "libamdhip64.so.6")[0] == "dependency"
    told = finding(made, "userspace-left-out")
    assert told is not None
    assert told.severity == "error"
    assert "libamdhip64.so.6" in told.what
    assert "GLIBC_2.38" in (told.where or "")


def test_a_library_that_the_image_has_saves_those_who_need_it() -> None:
    host = host_of(library(RUNTIME, "libx.so.1"), library("libx.so.1", needs={"libc.so.6": ("GLIBC_2.38",)}))
    made = planned(host, image(glibc("2.36"), library("libx.so.1")))
    assert names(made) == {RUNTIME}
    assert finding(made, "userspace-left-out") is None


def test_what_only_the_left_out_need_stays_on_the_host() -> None:
    host = host_of(library(RUNTIME, "libx.so.1", needs={"libc.so.6": ("GLIBC_2.38",)}), library("libx.so.1"))
    made = planned(host, image(glibc("2.36")))
    assert names(made) == set()
    assert why(made, "libx.so.1") == ("userspace", "nothing that needs it comes from the host")


def test_what_the_images_own_libraries_need_does_not_count() -> None:
    host = host_of(
        library(RUNTIME, "libx.so.1"),
        library("libx.so.1", "libstdc++.so.6", needs={"libstdc++.so.6": ("GLIBCXX_3.4.30",)}),
        defining("libstdc++.so.6", *glibcxx(30)),
    )
    old = defining("libstdc++.so.6", *glibcxx(20))
    made = planned(host, image(glibc("2.36"), library("libx.so.1"), old))
    assert names(made) == {RUNTIME}


def test_a_host_copy_never_stands_before_a_copy_that_is_good_enough() -> None:
    host = host_of(
        library(RUNTIME, "libstdc++.so.6", "libtinfo.so.6", "libz.so.1", "libzstd.so.1"),
        *(library(name) for name in ("libstdc++.so.6", "libtinfo.so.6", "libz.so.1", "libzstd.so.1")),
    )
    has = [library(name) for name in ("libstdc++.so.6", "libtinfo.so.6", "libz.so.1", "libzstd.so.1")]
    assert names(planned(host, image(glibc("2.36"), *has))) == {RUNTIME}
    assert len(names(planned(host, None))) == 5


def test_an_image_with_rocm_gets_devices_and_data_only() -> None:
    ids: Spec = {"/usr/share/libdrm/amdgpu.ids": "1.0.0\n", "/etc/OpenCL/vendors/amdocl64.icd": "libamdocl64.so\n"}
    host = {**host_of(library(RUNTIME), library("libamdocl64.so")), **ids}
    opened = image(glibc("2.36"), {"/opt/rocm-6.1.0/lib/libhsa-runtime64.so.1": elf(RUNTIME)})
    made = planned(host, opened)
    assert [mount.target for mount in made.mounts] == ["/usr/share/libdrm/amdgpu.ids"]
    assert "/dev/kfd" in {node.target for node in made.devices}
    assert why(made, RUNTIME) == ("userspace", "the image brings its own: /opt/rocm-6.1.0/lib/libhsa-runtime64.so.1")
    assert [f.code for f in made.findings if f.severity != "note"] == []
    forced = planned(host, opened, userspace="host")
    assert names(forced) == {RUNTIME, "libamdocl64.so"}


def test_an_images_rocm_is_found_by_its_own_library_path() -> None:
    spec: Spec = {"/apps/rocm/libhsa-runtime64.so.1": elf(RUNTIME)}
    host = host_of(library(RUNTIME))
    assert names(planned(host, image(glibc("2.36"), spec))) == {RUNTIME}
    env: Spec = {"/.singularity.d/env/90-environment.sh": "export LD_LIBRARY_PATH=/apps/rocm\n"}
    assert names(planned(host, image(glibc("2.36"), spec, env))) == set()


def test_neither_the_image_nor_the_host_has_a_rocm() -> None:
    made = planned(host_of(), image(glibc("2.36")))
    assert names(made) == set()
    assert finding(made, "userspace-missing") is not None


def test_without_an_image_everything_is_planned_with_a_warning_that_names_the_option() -> None:
    made = planned(WANTS_V2, None)
    told = finding(made, "userspace-unknown")
    assert names(made) == {RUNTIME, "libx.so.1"}
    assert told is not None
    assert told.severity == "warning"
    assert "--image" in (told.hint or "")


@pytest.mark.parametrize(("side", "bound"), [("image", set()), ("host", {RUNTIME, "libx.so.1"})])
def test_without_an_image_a_side_can_be_said(side: str, bound: set[str]) -> None:
    made = planned(WANTS_V2, None, userspace=side)
    assert names(made) == bound
    assert finding(made, "userspace-unknown") is None


@pytest.mark.parametrize(
    ("spec", "rule"), [(MUSL, "no-libc"), (STATIC, "no-libc"), (glibc("2.36", machine=183), "architecture")]
)
def test_an_image_that_can_load_nothing_of_it_gets_nothing_of_it(spec: Spec, rule: str) -> None:
    made = planned(WANTS_V2, image(spec))
    assert names(made) == set()
    assert why(made, RUNTIME)[0] == rule
    assert "/dev/kfd" in {node.target for node in made.devices}


def test_a_manifest_goes_with_the_library_that_it_names() -> None:
    icd: Spec = {"/etc/OpenCL/vendors/amdocl64.icd": "/opt/rocm/lib/libamdocl64.so\n"}
    host = {**host_of(library(RUNTIME), library("libamdocl64.so", needs={"libc.so.6": ("GLIBC_2.38",)})), **icd}
    assert [m.target for m in planned(host, image(glibc("2.36"))).mounts if m.kind == "manifest"] == []
    manifest = next(m for m in planned(host, image(glibc("2.38"))).mounts if m.kind == "manifest")
    assert manifest.content == "libamdocl64.so\n"  # the path is the host's
