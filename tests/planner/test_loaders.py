"""No variable of a plan hides what a loader of the image finds without it.

The rules of the loaders are from their sources: Mesa `src/loader/loader.c` (loader_open_driver_lib) and
`src/gbm/main/backend.c`; libvdpau `src/vdpau_wrapper.c`; libva `va/va.c`; libglvnd `src/EGL/libeglvendor.c`;
Vulkan-Loader `loader/loader.c`.
"""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.documents.links import usage_text
from gpubind.host.open import open_host
from gpubind.image.facts import Image
from gpubind.model import CAPABILITIES, HostPath, Plan, Request
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.runtime import Stage
from tests.support.commands import HOST
from tests.support.driver import host, kernel, libraries, rhel
from tests.support.elf import elf
from tests.support.images import glibc, image, image_with_bytes, sandbox
from tests.support.starts import start_by
from tests.support.trees import Hidden, Link, Spec

DEBIAN = "/usr/lib/x86_64-linux-gnu"
GBM, VDPAU = "GBM_BACKENDS_PATH", "VDPAU_DRIVER_PATH"
REPLACING = (
    *("LIBVA_DRIVERS_PATH", "LIBVA_DRIVER_NAME", "VDPAU_DRIVER", "GBM_BACKEND", "LIBGL_DRIVERS_PATH"),
    *("__EGL_VENDOR_LIBRARY_FILENAMES", "__EGL_VENDOR_LIBRARY_DIRS", "__EGL_EXTERNAL_PLATFORM_CONFIG_FILENAMES"),
    *("__EGL_EXTERNAL_PLATFORM_CONFIG_DIRS", "__GLX_VENDOR_LIBRARY_NAME", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"),
    *("VK_LAYER_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "GST_PLUGIN_PATH"),
)
"""Variables that take the place of what a loader finds by itself, or of its choice."""


def libgbm(directory: str, built_with: Optional[str] = None) -> Spec:
    """A libgbm in *directory*, with the constants of Mesa's if it was *built_with* a directory of backends."""
    constants = f"\0dri\0{built_with}\0_gbm\0GBM_BACKENDS_PATH\0" if built_with else "\0"
    return {f"{directory}/libgbm.so.1": elf("libgbm.so.1", more={".rodata": constants.encode()})}


def made(opened: Optional[Image] = None, **request: Any) -> Plan:
    return plan(host(rhel(), kernel()), Request(**request), image=opened)


def searched(plan: Plan) -> list[str]:
    """The directories in which libgbm looks, in order, where neither image nor caller sets its variable."""
    (variable,) = [one for one in plan.env if one.name == GBM]
    assert variable.op == "append"
    return (variable.value or "").split(":")


@pytest.mark.parametrize(
    ("spec", "env", "directory"),
    [
        (libgbm(DEBIAN, f"{DEBIAN}/gbm"), "", f"{DEBIAN}/gbm"),
        (libgbm("/usr/lib64", "/usr/lib64/gbm"), "", "/usr/lib64/gbm"),
        (libgbm("/usr/lib", "/usr/lib/gbm"), "", "/usr/lib/gbm"),
        (libgbm("/usr/lib/i386-linux-gnu", "/usr/lib/i386-linux-gnu/gbm"), "", "/usr/lib/i386-linux-gnu/gbm"),
        (libgbm("/usr/local/lib64", "/usr/local/lib64/gbm"), "", "/usr/local/lib64/gbm"),
        (libgbm("/nix/lib", "/run/opengl-driver/lib/gbm"), "LD_LIBRARY_PATH=/nix/lib", "/run/opengl-driver/lib/gbm"),
        (libgbm("/opt/mesa/lib", "/built/here/gbm"), "LD_LIBRARY_PATH=/opt/mesa/lib", "/built/here/gbm"),
        (libgbm("/opt/mesa/lib"), "LD_LIBRARY_PATH=/opt/mesa/lib", "/opt/mesa/lib/gbm"),
        (libgbm("/opt/conda/envs/gl/lib", "/opt/conda/envs/gl/lib/gbm"), "", "/opt/conda/envs/gl/lib/gbm"),
        (libgbm("/opt/mesa/lib64", "/opt/mesa/lib64/gbm"), "PATH=/opt/mesa/bin:$PATH", "/opt/mesa/lib64/gbm"),
        ({**libgbm("/opt/own", "/opt/own/gbm"), "/etc/ld.so.conf": "/opt/own\n"}, "", "/opt/own/gbm"),
    ],
    ids=["debian", "fedora", "arch", "32-bit", "local", "nixos", "moved", "stripped", "conda", "PATH", "ld.so.conf"],
)
def test_libgbm_still_looks_into_the_directory_with_which_it_was_built(spec: Spec, env: str, directory: str) -> None:
    opened = image_with_bytes(glibc(), sandbox(f"export {env}" if env else ""), spec)
    assert searched(made(opened))[0] == "/.gpubind/libs"
    assert directory in searched(made(opened))


def test_libgbm_looks_into_the_usual_directories_where_no_image_is_known() -> None:
    for directory in (DEBIAN, "/usr/lib64", "/usr/lib", "/usr/lib/i386-linux-gnu", "/usr/lib32", "/usr/local/lib"):
        assert f"{directory}/gbm" in searched(made())


def test_a_plan_with_the_usual_images_is_the_plan_without_an_image() -> None:
    for directory in (DEBIAN, "/usr/lib64"):
        opened = image_with_bytes(glibc(), libgbm(directory, f"{directory}/gbm"))
        assert sorted(searched(made(opened))) == sorted(searched(made()))


def test_a_directory_that_no_search_path_can_hold_is_left_out() -> None:
    constants = libgbm(DEBIAN, "/a:b/gbm"), libgbm("/usr/lib64", "/$(x)/gbm"), libgbm("/usr/lib", "/\x1b/gbm")
    assert sorted(searched(made(image_with_bytes(glibc(), *constants)))) == sorted(searched(made()))


def test_32_bit_programs_find_their_backend_too() -> None:
    i386 = libraries("/usr/lib/i386-linux-gnu", machine=3, bits=32)
    i386 = {**i386, "/usr/lib/i386-linux-gnu/gbm/nvidia-drm_gbm.so": Link("../libnvidia-allocator.so.1")}
    found = searched(plan(host(rhel(), i386, kernel()), Request(caps=CAPABILITIES)))
    assert found[:2] == ["/.gpubind/libs", "/.gpubind/libs32"]


@pytest.mark.parametrize("name", RUNTIMES)
def test_no_form_names_the_plans_backends_without_those_of_the_image(name: str) -> None:
    opened = image_with_bytes(glibc(), sandbox(), libgbm(DEBIAN, f"{DEBIAN}/gbm"))
    begun = start_by(name, tree=opened.tree, version=(1, 4, 5))
    planned = plan(host(rhel(), kernel()), Request(), image=opened, layout=begun.runtime.layout(begun))
    stage = Stage({mount.target: HostPath("/staged") for mount in planned.mounts if mount.source is None})
    said = begun.runtime.arguments(planned, begun, stage)
    if said is None:  # the variables of the bundle's config.json are composed of these
        text = "\n".join(f"{one.name}={one.value}" for one in planned.env)
    else:
        text = "\n".join((*said.options, *(f"{key}={value}" for key, value in said.env)))
    assert (GBM in text) == (f"{DEBIAN}/gbm:" in text)
    assert GBM in text or any(mount.target.endswith("/gbm/nvidia-drm_gbm.so") for mount in planned.mounts)


@pytest.mark.parametrize("caps", [None, CAPABILITIES], ids=["default", "all"])
def test_no_variable_of_a_plan_replaces_what_another_loader_finds(caps: Any) -> None:
    request = {} if caps is None else {"caps": caps}
    for planned in (made(image(glibc()), **request), plan(open_host(HOST), Request(**request))):
        assert not {one.name for one in planned.env} & set(REPLACING)
        # libvdpau looks into its own directory where that of the variable does not serve.
        assert [one.op for one in planned.env if one.name == VDPAU] == ["default"]


ETC = "/etc/vulkan/icd.d/nvidia_icd.json"
VULKAN, EGL = "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json", "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"
ICD = '{"ICD": {"library_path": "libGLX_nvidia.so.0"}}'


@pytest.mark.parametrize(
    ("variable", "files", "bound"),
    [
        (f"VK_ICD_FILENAMES={ETC}", {}, [ETC]),
        (f"VK_DRIVER_FILES={ETC}:/etc/vulkan/icd.d/other.json", {}, [ETC]),
        ("VK_ICD_FILENAMES=/etc/vulkan/icd.d/nvidia_icd.x86_64.json", {}, ["/etc/vulkan/icd.d/nvidia_icd.x86_64.json"]),
        ("__EGL_VENDOR_LIBRARY_FILENAMES=/etc/glvnd/10_nvidia.json", {}, ["/etc/glvnd/10_nvidia.json"]),
        ("VK_ICD_FILENAMES=/usr/share/vulkan/icd.d/nvidia_icd.json", {}, ["/usr/share/vulkan/icd.d/nvidia_icd.json"]),
        (f"VK_ICD_FILENAMES={VULKAN}", {}, []),
        (f"VK_ICD_FILENAMES={ETC}:{VULKAN}", {}, []),
        (f"VK_ICD_FILENAMES={ETC}", {ETC: ICD}, []),
        ("VK_ICD_FILENAMES=/etc/vulkan/icd.d/lvp_icd.json", {}, []),
        ("VK_ICD_FILENAMES=/home/me/nvidia_icd.json", {}, []),
        ("VK_ICD_FILENAMES=/etc/../home/nvidia_icd.json", {}, []),
        ("VK_ICD_FILENAMES=nvidia_icd.json", {}, []),
        ("VK_ICD_FILENAMES=/etc/f/nvidia_icd.json", {"/etc/f": "a file"}, []),
        ("VK_ICD_FILENAMES=/etc/f/g/nvidia_icd.json", {"/etc/f": "a file"}, []),
        ("VK_ICD_FILENAMES=/etc/f/g/nvidia_icd.json", {"/etc/f": Link("/opt/none")}, []),
        (
            "VK_ICD_FILENAMES=/etc/f/g/nvidia_icd.json",
            {"/etc/f": Link("/opt"), "/opt/a": ""},
            ["/etc/f/g/nvidia_icd.json"],
        ),
        (f"VK_ICD_FILENAMES=/etc/{'f' * 256}/nvidia_icd.json", {}, []),
        ("VK_ICD_FILENAMES=/etc/a,b/nvidia_icd.json", {}, []),
        ("VK_ICD_FILENAMES='/etc/a b/nvidia_icd.json'", {}, []),
    ],
)
@pytest.mark.parametrize("side", ["image", "caller"])
def test_nvidias_manifest_is_bound_where_a_variable_names_it(
    variable: str, files: Spec, bound: list[str], side: str
) -> None:
    name, _, value = variable.partition("=")
    environ = {name: value} if side == "caller" else {}
    opened = image_with_bytes(glibc(), sandbox(f"export {variable}" if side == "image" else ""), files)
    manifest = {EGL: ICD.replace("GLX", "EGL")}
    planned = plan(host(rhel(), kernel(), manifest, environ=environ), Request(), image=opened)
    targets = [mount.target for mount in planned.mounts if mount.target.endswith(".json")]
    assert sorted(targets) == sorted([VULKAN, EGL, *bound])


def test_nvidias_manifest_is_not_bound_into_a_directory_that_could_not_be_inspected() -> None:
    environ = {"VK_ICD_FILENAMES": "/etc/f/g/nvidia_icd.json"}
    opened = image(glibc(), {"/etc/f": Hidden(directory=True)})
    planned = plan(host(rhel(), kernel(), {EGL: ICD}, environ=environ), Request(), image=opened)
    assert environ["VK_ICD_FILENAMES"] not in [mount.target for mount in planned.mounts]


def test_links_for_a_stack_name_the_usual_directories_of_backends() -> None:
    assert f"export GBM_BACKENDS_PATH='/opt/my driver':{DEBIAN}/gbm:" in usage_text(made(), "/opt/my driver")
