"""What a program draws and encodes with decides how grave it is that a part of the driver is missing."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.model import Finding
from tests.rules.cases_image import HOST, SELF_MADE
from tests.rules.situations import Situation, found
from tests.support.driver import V
from tests.support.elf import elf
from tests.support.images import GLVND, glibc, image_with_bytes
from tests.support.starts import start_by
from tests.support.trees import File, Spec

LIB = "/usr/lib/x86_64-linux-gnu"
ICD = '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s"}}'
EGL: Spec = {f"{LIB}/libEGL.so.1": elf("libEGL.so.1", needed=("libGLdispatch.so.0",))}
NO_EGL: Spec = {path: item for path, item in GLVND.items() if "EGL" not in path}
VULKAN: Spec = {f"{LIB}/libvulkan.so.1": elf("libvulkan.so.1")}
LAVAPIPE: Spec = {"/usr/share/vulkan/icd.d/lvp_icd.x86_64.json": ICD % "libvulkan_lvp.so"}
MESA: Spec = {"/usr/share/glvnd/egl_vendor.d/50_mesa.json": ICD % "libEGL_mesa.so.0"}
DRIVER: Spec = {
    f"/usr/lib64/libGLX_nvidia.so.{V}": elf("libGLX_nvidia.so.0", needed=("libXext.so.6",)),
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": ICD % "libEGL_nvidia.so.0",
    **{f"/usr/lib64/{name}": elf(name, needs={"libc.so.6": ("GLIBC_2.38",)}) for name in ("libGL.so.1", "libEGL.so.1")},
    "/usr/lib64/libGLESv2.so.2": elf("libGLESv2.so.2"),
    "/usr/lib64/libGLdispatch.so.0": elf("libGLdispatch.so.0"),
}
"""A host with libglvnd that is too new for the image."""


DISPLAY = {"DISPLAY": ":0"}


def program(*opens: str, needed: tuple[str, ...] = ()) -> Spec:
    """A program that is linked with *needed*, and has the names that it *opens* in its constants."""
    constants = "".join(f"\0{name}" for name in opens) + "\0"
    return {SELF_MADE: File(elf(kind=2, needed=needed, more={".rodata": constants.encode()}), 0o755)}


def told(*image: Spec, name: Optional[str] = SELF_MADE, caps: Any = None, **more: Any) -> dict[str, Finding]:
    opened = image_with_bytes(glibc("2.36"), *image)
    request = {} if caps is None else {"caps": caps}
    situation = Situation((*HOST, DRIVER), opened, request, program=name, **more)
    return {f"{one.code} {one.subject}": one for one in found(situation)}


def severity(code: str, *image: Spec, **more: Any) -> Optional[str]:
    one = told(*image, **more).get(code)
    return None if one is None else one.severity


@pytest.mark.parametrize(
    ("used", "image", "wanted"),
    [
        (program("libvulkan.so.1"), EGL, "error"),
        (program("libvulkan.so", "libvulkan.so.1"), EGL, "error"),
        (program(needed=("libvulkan.so.1",)), {**EGL, **VULKAN}, "error"),
        (program(needed=("libGL.so.1",)), EGL, "error"),
        (program("libvulkan.so.1"), {**EGL, **LAVAPIPE}, "warning"),
        (program("libvulkan.so.1", "libcuda.so.1"), EGL, "warning"),
        (program("libvulkan.so.1", "libEGL.so.1"), EGL, "warning"),
        (program("libEGL.so.1"), EGL, "note"),
        (program("libnvoptix.so.1"), EGL, "note"),
        (program(), EGL, "note"),
    ],
    ids=["named", "twice", "linked", "GL", "software", "CUDA", "two loaders", "EGL", "OptiX", "nothing"],
)
def test_a_library_without_which_the_program_does_not_draw_is_as_grave_as_its_use(
    used: Spec, image: Spec, wanted: str
) -> None:
    assert severity("library-missing libXext.so.6", GLVND, image, used) == wanted
    assert severity("library-missing libXext.so.6", GLVND, image, used, caps=("compute", "utility")) is None
    assert severity("library-missing libXext.so.6", GLVND, image, used, caps=("graphics",)) == "error"


def test_a_program_that_is_linked_with_what_opens_a_driver_may_do_without() -> None:
    ffmpeg = (
        program(needed=("libavcodec.so.59",)),
        {
            f"{LIB}/libavcodec.so.59": elf(
                "libavcodec.so.59", more={".rodata": b"\0libnvidia-encode.so.1\0libnvcuvid.so.1\0"}
            )
        },
    )
    made = told(*ffmpeg, caps=("compute", "utility"))["capability-not-asked video"]
    assert (made.severity, made.where) == ("warning", f"{LIB}/libavcodec.so.59")
    assert "libnvcuvid.so.1, libnvidia-encode.so.1" in made.what
    assert made.hint == "add the capability: --caps compute,utility,video"
    assert "capability-not-asked video" not in told(*ffmpeg)


def test_of_two_libraries_that_open_the_driver_the_first_by_name_is_named() -> None:
    opens = {".rodata": b"\0libnvcuvid.so.1\0"}
    codecs = {f"{LIB}/{name}": elf(name, more=opens) for name in ("libavfilter.so.8", "libavcodec.so.59")}
    linked = program(needed=("libavfilter.so.8", "libavcodec.so.59"))
    made = told(linked, codecs, caps=("compute", "utility"))["capability-not-asked video"]
    assert made.where == f"{LIB}/libavcodec.so.59"


@pytest.mark.parametrize(
    ("image", "more", "wanted"),
    [
        ((program("libvulkan.so.1"),), {}, "error"),
        ((program("libvulkan.so.1"),), {"caps": ("graphics",)}, "error"),
        ((program("libEGL.so.1"),), {}, "error"),
        ((program("libvulkan.so.1"), LAVAPIPE), {}, "warning"),
        ((program("libvulkan.so.1", "libcuda.so.1"),), {}, "warning"),
        ((program(needed=("libGL.so.1",)),), {}, "note"),
        ((program(needed=("libGL.so.1",)),), {"caps": ("graphics",)}, "note"),
        ((program(),), {}, "note"),
        ((), {"name": None}, "note"),
        ((), {"name": None, "caps": ("graphics",)}, "warning"),
        ((program("libvulkan.so.1"), EGL), {}, None),
        ((program("libvulkan.so.1"),), {"caps": ("compute",)}, None),
    ],
)
def test_vulkan_without_a_display_needs_libegl_of_the_image(
    image: tuple[Spec, ...], more: dict[str, Any], wanted: Optional[str]
) -> None:
    assert severity("vendor-neutral-missing libEGL.so.1", NO_EGL, *image, **more) == wanted


@pytest.mark.parametrize(
    "begun",
    [{"facts": {"environ": DISPLAY}}, {"backend": "apptainer", "start": start_by("apptainer", environ=DISPLAY)}],
    ids=["check", "a start"],
)
def test_with_a_display_vulkan_may_do_without_libegl(begun: dict[str, Any]) -> None:
    code = "vendor-neutral-missing libEGL.so.1"
    assert severity(code, NO_EGL, program("libvulkan.so.1"), **begun) == "warning"
    assert severity(code, NO_EGL, program("libEGL.so.1"), **begun) == "error"


def test_each_loader_that_is_missing_is_a_finding_with_its_own_place() -> None:
    made = told(name=None, caps=("graphics",))
    shown = {code.partition(" ")[2]: one for code, one in made.items() if one.code == "vendor-neutral-missing"}
    assert {name: (one.severity, one.where) for name, one in shown.items()} == {
        "libEGL.so.1": ("error", "/usr/lib64/libEGL.so.1"),
        "libGL.so.1": ("error", "/usr/lib64/libGL.so.1"),
        "libGLESv2.so.2": ("warning", "/usr/lib64/libGLESv2.so.2"),
    }
    assert "libegl1, libglvnd-egl" in (shown["libEGL.so.1"].hint or "")


def test_of_loaders_that_are_missing_the_programs_own_is_an_error() -> None:
    made = told(program("libvulkan.so.1"))
    shown = {one.subject: one.severity for one in made.values() if one.code == "vendor-neutral-missing"}
    assert shown == {"libEGL.so.1": "error", "libGL.so.1": "note", "libGLESv2.so.2": "note"}


def test_a_libgl_of_the_image_that_is_not_of_libglvnd_is_called_that() -> None:
    made = told({f"{LIB}/libGL.so.1": elf("libGL.so.1")}, program(needed=("libGL.so.1",)))
    other = made["vendor-neutral-missing libGL.so.1"]
    assert (other.severity, other.what) == (
        "warning",
        "the image's libGL.so.1 is not libglvnd's, and does not open NVIDIA's driver",
    )


@pytest.mark.parametrize(
    ("used", "image", "wanted"),
    [
        (program("libvulkan.so.1"), {}, "error"),
        (program("libvulkan.so.1"), LAVAPIPE, "warning"),
        (program("libEGL.so.1", "libOpenGL.so.0"), EGL, "error"),
        (program("libEGL.so.1"), {**EGL, **MESA}, "warning"),
        (program(needed=("libGL.so.1",)), {**GLVND, f"{LIB}/libGLX_mesa.so.0": elf("libGLX_mesa.so.0")}, "warning"),
        (program("libnvoptix.so.1", "libcuda.so.1"), {}, "warning"),
        (program("libcuda.so.1"), {}, None),
        (program(), {}, None),
    ],
    ids=["Vulkan", "lavapipe", "EGL", "Mesa's EGL", "Mesa's GLX", "OptiX", "CUDA", "nothing"],
)
def test_a_capability_that_the_program_uses_and_nobody_requested_is_found(
    used: Spec, image: Spec, wanted: Optional[str]
) -> None:
    assert severity("capability-not-asked graphics", used, image, caps=("compute", "utility")) == wanted
    assert severity("capability-not-asked graphics", used, image) is None
    assert severity("capability-not-asked graphics", used, image, caps=("compute", "graphics")) is None
