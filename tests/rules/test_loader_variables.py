"""A variable by which a loader of graphics finds no driver is reported, with what happens then."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from tests.rules.cases_amd import amd
from tests.rules.situations import found
from tests.rules.test_uses import EGL, ICD, LIB, program, told
from tests.support.elf import elf
from tests.support.images import GLVND, glibc, image, sandbox
from tests.support.trees import Spec

OWN, ABSENT, CODE = "/opt/own.json", "/opt/absent.json", "loader-variable"
NVIDIAS: Spec = {OWN: ICD % "libGLX_nvidia.so.0"}
MESAS: Spec = {OWN: ICD % "libvulkan_lvp.so"}
OTHERS = "because of {}, libGLX.so.0 does not open NVIDIA's driver"
VENDOR, LISTED = "__GLX_VENDOR_LIBRARY_NAME", "__EGL_VENDOR_LIBRARY_FILENAMES"


def severity(variables: str, *specs: Spec, **more: Any) -> Optional[str]:
    made = told({**GLVND, **EGL}, sandbox(f"export {variables}"), *specs, **more)
    return next((one.severity for name, one in made.items() if name.startswith(CODE)), None)


@pytest.mark.parametrize(
    ("variables", "files", "wanted"),
    [
        (f"VK_ICD_FILENAMES={ABSENT}", {}, "error"),
        (f"VK_DRIVER_FILES={ABSENT}:/opt/second.json", {}, "error"),
        (f"VK_DRIVER_FILES={ABSENT}:{OWN}", NVIDIAS, None),
        (f"VK_DRIVER_FILES={ABSENT} VK_ICD_FILENAMES={OWN}", NVIDIAS, None),
        (f"VK_ICD_FILENAMES={OWN}", NVIDIAS, None),
        (f"VK_ICD_FILENAMES={OWN}", MESAS, "warning"),
        (f"VK_ICD_FILENAMES={ABSENT}:{OWN}", MESAS, "warning"),
        ("VK_ICD_FILENAMES=own.json", {}, None),
        ("VK_ICD_FILENAMES=/opt", MESAS, None),
        ("VK_ICD_FILENAMES=/home/me/icd.json", {}, "warning"),
        ("VK_ICD_FILENAMES=", {}, None),
    ],
)
def test_a_list_of_manifests_must_lead_to_a_driver(variables: str, files: Spec, wanted: Optional[str]) -> None:
    assert severity(variables, files, program("libvulkan.so.1")) == wanted
    as_note = "note" if wanted else None
    assert severity(variables, files, program("libEGL.so.1")) == as_note
    assert severity(variables, files, name=None) == as_note
    assert severity(variables, files, name=None, caps=("graphics",)) == ("warning" if wanted else None)
    assert severity(variables, files, name=None, caps=("compute",)) is None


def test_a_manifest_that_a_plan_generates_is_a_driver() -> None:
    path = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"
    assert severity(f"{LISTED}={path}", program("libEGL.so.1")) is None


def test_a_value_of_the_caller_may_not_reach_the_container() -> None:
    environ = {"VK_ICD_FILENAMES": ABSENT}
    made = told({**GLVND, **EGL}, program("libvulkan.so.1"), facts={"environ": environ})[f"{CODE} VK_ICD_FILENAMES"]
    assert (made.severity, made.where) == ("warning", f"VK_ICD_FILENAMES={ABSENT}")


@pytest.mark.parametrize(
    ("value", "files", "wanted"),
    [
        ("nvidia", {}, None),
        (
            "mesa",
            {f"{LIB}/libGLX_mesa.so.0": elf("libGLX_mesa.so.0")},
            OTHERS,
        ),
        ("nvdia", {}, "{} leads to nothing in the container"),
    ],
)
def test_libglx_opens_the_driver_that_the_variable_names(value: str, files: Spec, wanted: Optional[str]) -> None:
    made = told(GLVND, sandbox(f"export {VENDOR}={value}"), files, name=None).get(f"{CODE} {VENDOR}")
    assert (made and made.what) == (wanted and wanted.format(VENDOR))


@pytest.mark.parametrize(("value", "is_software"), [("1", True), ("TRUE", True), ("0", False), ("perhaps", False)])
def test_only_mesas_gpus_are_drawn_with_on_the_cpu(value: str, is_software: bool) -> None:
    opened = image(glibc(), sandbox(f"export LIBGL_ALWAYS_SOFTWARE={value}"))
    codes = [one.subject for one in found(amd()._replace(image=opened)) if one.code == CODE]
    assert codes == (["LIBGL_ALWAYS_SOFTWARE"] if is_software else [])
    assert severity(f"LIBGL_ALWAYS_SOFTWARE={value}", name=None) is None
