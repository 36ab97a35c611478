"""Would a file of the host load in the image?"""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.image.facts import Image
from gpubind.loader.search import newest_version
from gpubind.model import ContainerPath, Plan, Request
from tests.support.driver import V, host, kernel, libraries
from tests.support.elf import elf
from tests.support.images import GCOMPAT, GLVND, MUSL, OWN_PREFIX, STATIC, glibc, image
from tests.support.trees import File, Item, Link, Spec


def needing(version: str, library: str = "libc.so.6") -> bytes:
    return elf(f"libnvidia-new.so.{V}", needs={library: (version,)})


def make(opened: Optional[Image], *parts: Spec, **request: Any) -> Plan:
    return plan(host(libraries("/usr/lib64"), kernel(), *parts), Request(**request), image=opened)


def left_out(made: Plan, rule: str) -> dict[str, str]:
    return {d.subject: d.detail or "" for d in made.decisions if d.rule == rule and d.verdict == "left-out"}


def new_library(content: bytes) -> Spec:
    return {f"/usr/lib64/libnvidia-new.so.{V}": content}


def test_a_library_that_wants_a_newer_glibc_is_left_out_with_the_version_named() -> None:
    made = make(image(glibc("2.36")), new_library(needing("GLIBC_2.38")))
    assert left_out(made, "libc") == {
        f"libnvidia-new.so.{V}": "it needs GLIBC_2.38 of libc.so.6, the image has GLIBC_2.36"
    }
    assert [f.severity for f in made.findings if f.code == "image-libc"] == ["warning"]


def test_a_version_that_the_image_defines_is_fine() -> None:
    assert left_out(make(image(glibc("2.38")), new_library(needing("GLIBC_2.38"))), "libc") == {}


def test_the_newest_of_several_missing_versions_is_named() -> None:
    content = elf(f"libnvidia-new.so.{V}", needs={"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.38", "GLIBC_2.41")})
    assert "GLIBC_2.41" in left_out(make(image(glibc("2.36")), new_library(content)), "libc")[f"libnvidia-new.so.{V}"]


def test_a_marker_version_counts_too() -> None:
    details = left_out(make(image(glibc("2.36")), new_library(needing("GLIBC_ABI_DT_RELR"))), "libc")
    assert "GLIBC_ABI_DT_RELR" in details[f"libnvidia-new.so.{V}"]


def test_libstdcxx_counts_as_the_c_library_does() -> None:
    stdcxx: Spec = {
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6": elf("libstdc++.so.6", defines=("libstdc++.so.6", "GLIBCXX_3.4.28"))
    }
    opened = image(glibc(), stdcxx)
    assert opened.facts.libstdcxx == "3.4.28"
    made = make(opened, new_library(needing("GLIBCXX_3.4.32", "libstdc++.so.6")))
    assert "GLIBCXX_3.4.32" in left_out(made, "libc")[f"libnvidia-new.so.{V}"]


def test_versions_of_a_library_that_the_plan_brings_are_its_own_business() -> None:
    content = elf("x", needs={"libcuda.so.1": ("libcuda_1.0",)})
    assert left_out(make(image(glibc()), new_library(content)), "libc") == {}


def test_libcuda_that_cannot_load_is_an_error() -> None:
    spec: Spec = {f"/usr/lib64/libcuda.so.{V}": elf("libcuda.so.1", needs={"libc.so.6": ("GLIBC_2.41",)})}
    made = make(image(glibc("2.36")), spec)
    assert [f.severity for f in made.findings if f.code == "image-libc"] == ["error"]


def test_what_was_asked_for_by_name_and_cannot_load_is_an_error() -> None:
    spec: Spec = {f"/usr/lib64/libGLX_nvidia.so.{V}": elf("libGLX_nvidia.so.0", needs={"libc.so.6": ("GLIBC_2.41",)})}
    assert [f.severity for f in make(image(glibc()), spec).findings if f.code == "image-libc"] == ["note"]
    asked = make(image(glibc()), spec, caps=("graphics",))
    assert [f.severity for f in asked.findings if f.code == "image-libc"] == ["error"]


def test_a_program_that_cannot_run_is_left_out() -> None:
    spec: Spec = {"/usr/bin/nvidia-smi": elf(kind=2, needs={"libc.so.6": ("GLIBC_2.41",)})}
    assert "nvidia-smi" in left_out(make(image(glibc()), spec), "libc")


def test_a_program_whose_loader_is_not_in_the_image_is_left_out() -> None:
    spec: Spec = {"/usr/bin/nvidia-smi": elf(kind=2, interpreter="/nix/store/x/ld-linux.so.2")}
    assert "nvidia-smi" in left_out(make(image(glibc()), spec), "no-loader")


def test_a_program_that_brings_its_loader_and_c_library_asks_nothing_of_the_images() -> None:
    program = elf(kind=2, interpreter="/nix/store/x/lib/ld-linux.so.2", needs={"libc.so.6": ("GLIBC_2.41",)})
    spec: Spec = {"/usr/bin/nvidia-smi": program, "/nix/store/x/lib/libc.so.6": elf("libc.so.6")}
    made = make(image(glibc()), spec)
    assert left_out(made, "no-loader") == left_out(made, "libc") == {}
    there = {mount.target: mount.options for mount in made.mounts}
    assert there[ContainerPath("/nix/store/x/lib")] == ("ro", "nosuid", "nodev")


@pytest.mark.parametrize("layer", [GCOMPAT, OWN_PREFIX], ids=["gcompat", "own prefix"])
def test_an_image_with_musl_and_what_loads_programs_of_glibc_gets_the_driver(layer: Spec) -> None:
    made = make(image(MUSL, layer), {"/usr/bin/nvidia-smi": elf(kind=2, interpreter="/lib64/ld-linux-x86-64.so.2")})
    assert not [found for found in made.findings if found.code == "image-without-glibc"]
    assert {"libcuda.so.1", "nvidia-smi"} <= {mount.target.rpartition("/")[2] for mount in made.mounts}


@pytest.mark.parametrize("spec", [MUSL, STATIC], ids=["musl", "static"])
def test_an_image_without_glibc_gets_devices_and_one_error(spec: Spec) -> None:
    made = make(image(spec))
    assert not [m for m in made.mounts if m.kind == "library"]
    assert [(f.code, f.severity) for f in made.findings if f.code.startswith("image-")] == [
        ("image-without-glibc", "error")
    ]
    assert made.devices


def test_an_image_of_another_architecture_gets_no_library() -> None:
    made = make(image(glibc(machine=183)))
    assert not [m for m in made.mounts if m.kind == "library"]
    assert [(f.code, f.severity) for f in made.findings if f.code.startswith("image-")] == [
        ("image-architecture", "error")
    ]


def glvnd_host(needs: str = "GLIBC_2.2.5") -> Spec:
    spec: dict[str, Item] = {}
    for name in ("libGL.so.1", "libGLX.so.0", "libGLdispatch.so.0"):
        spec[f"/usr/lib64/{name}"] = elf(name, needs={"libc.so.6": (needs,)})
    return spec


def test_libglvnd_is_the_images_if_it_has_it_whole() -> None:
    made = make(image(glibc(), GLVND), glvnd_host())
    assert left_out(made, "vendor-neutral")["libGL.so.1"] == "the image has its own"


def test_libglvnd_is_the_hosts_if_the_image_has_none_and_can_load_it() -> None:
    targets = {m.target for m in make(image(glibc()), glvnd_host()).mounts}
    assert {"/.gpubind/libs/libGL.so.1", "/.gpubind/libs/libGLdispatch.so.0"} <= targets


def test_libglvnd_is_one_unit_what_one_member_cannot_the_others_do_not() -> None:
    spec = {**glvnd_host(), "/usr/lib64/libGLdispatch.so.0": elf("x", needs={"libc.so.6": ("GLIBC_2.38",)})}
    made = make(image(glibc("2.36")), spec)
    assert set(left_out(made, "vendor-neutral")) == {"libGL.so.1", "libGLX.so.0", "libGLdispatch.so.0"}
    assert [(f.code, f.severity) for f in made.findings if "neutral" in f.code] == [("vendor-neutral-missing", "note")]


def test_a_mesa_libgl_in_the_image_is_no_libglvnd() -> None:
    mesa: Spec = {"/usr/lib/x86_64-linux-gnu/libGL.so.1": elf("libGL.so.1")}
    assert image(glibc(), mesa, {"/usr/lib/x86_64-linux-gnu/libGLdispatch.so.0": elf("x")}).facts.libc_family == "glibc"
    targets = {m.target for m in make(image(glibc(), mesa), glvnd_host()).mounts}
    assert "/.gpubind/libs/libGL.so.1" in targets


@pytest.mark.parametrize(("caps", "severity"), [(("graphics",), "error"), (("all",), "note"), (None, "note")], ids=str)
def test_graphics_without_any_libglvnd_is_an_error_where_it_is_asked_for_by_name(caps: Any, severity: str) -> None:
    made = make(image(glibc("2.36")), glvnd_host("GLIBC_2.38"), caps=caps)
    assert [(f.code, f.severity) for f in made.findings if "neutral" in f.code] == [
        ("vendor-neutral-missing", severity)
    ]


def test_the_opencl_loader_is_decided_on_its_own() -> None:
    opencl: Spec = {"/usr/lib64/libOpenCL.so.1": elf("libOpenCL.so.1")}
    made = make(image(glibc(), GLVND), glvnd_host(), opencl)
    targets = {m.target for m in made.mounts}
    assert "/.gpubind/libs/libOpenCL.so.1" in targets
    assert "/.gpubind/libs/libGL.so.1" not in targets


@pytest.mark.parametrize(("side", "bound"), [("host", True), ("image", False)])
def test_a_side_that_is_asked_for_is_taken(side: str, bound: bool) -> None:
    for opened in (None, image(glibc(), GLVND)):
        targets = {m.target for m in make(opened, glvnd_host(), vendor_neutral=side).mounts}
        assert ("/.gpubind/libs/libGL.so.1" in targets) is bound


def test_a_family_that_is_asked_for_is_one_unit_too_and_an_error_if_it_cannot_be_loaded() -> None:
    spec = {**glvnd_host(), "/usr/lib64/libGLdispatch.so.0": elf("x", needs={"libc.so.6": ("GLIBC_2.38",)})}
    made = make(image(glibc("2.36"), GLVND), spec, vendor_neutral="host")
    assert set(left_out(made, "vendor-neutral")) == {"libGL.so.1", "libGLX.so.0", "libGLdispatch.so.0"}
    assert [(f.code, f.severity) for f in made.findings if "neutral" in f.code] == [("vendor-neutral-missing", "error")]


def test_without_an_image_shared_loaders_are_left_out_with_a_note() -> None:
    made = make(None, glvnd_host())
    assert "libGL.so.1" in left_out(made, "vendor-neutral")
    assert ("vendor-neutral-left-out", "note") in [(f.code, f.severity) for f in made.findings]


@pytest.mark.parametrize(
    ("definitions", "version"),
    [
        (("GLIBC_2.9", "GLIBC_2.10"), "2.10"),
        (("GLIBC_PRIVATE",), None),
        (("GLIBCXX_3.4.30", "CXXABI_1.3"), None),
        ((), None),
    ],
)
def test_versions_compare_as_numbers(definitions: tuple[str, ...], version: Optional[str]) -> None:
    assert newest_version(definitions, "GLIBC") == version


def test_a_link_loop_in_an_image_is_no_library() -> None:
    loop: Spec = {"/usr/lib/x86_64-linux-gnu/libOpenCL.so.1": Link("libOpenCL.so.1"), "/usr/bin/x": File(b"")}
    assert image(glibc(), loop).loader.find("libOpenCL.so.1") is None
