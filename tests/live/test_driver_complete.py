"""The default plan against the driver's packages, as the package manager knows them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.live.machine import DRIVER, Machine, document

pytestmark = pytest.mark.live

DRIVER_SOURCES = (
    "nvidia-graphics-drivers",
    "nvidia-egl-gbm",
    "egl-wayland",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-support",
)
"""The source packages of the driver: whatever they are built into is the driver's."""

DRIVER_PACKAGES = ("glx-alternative-nvidia",)
"""Packages of others that stand for the driver alone."""

DOCUMENTATION = tuple(f"/usr/share/{name}/" for name in ("bug", "doc", "lintian", "man", "reportbug"))

USABLE = (
    "libEGL_nvidia.so.0",
    "libGLESv1_CM_nvidia.so.1",
    "libGLESv2_nvidia.so.2",
    "libGLX_nvidia.so.0",
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvcuvid.so.1",
    "libnvidia-allocator.so.1",
    "libnvidia-api.so.1",
    "libnvidia-cfg.so.1",
    "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1",
    f"libnvidia-eglcore.so.{DRIVER}",
    "libnvidia-encode.so.1",
    "libnvidia-fbc.so.1",
    f"libnvidia-glcore.so.{DRIVER}",
    f"libnvidia-glsi.so.{DRIVER}",
    f"libnvidia-glvkspirv.so.{DRIVER}",
    f"libnvidia-gpucomp.so.{DRIVER}",
    "libnvidia-ml.so.1",
    "libnvidia-ngx.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-opencl.so.1",
    "libnvidia-opticalflow.so.1",
    f"libnvidia-pkcs11-openssl3.so.{DRIVER}",
    "libnvidia-ptxjitcompiler.so.1",
    f"libnvidia-rtcore.so.{DRIVER}",
    f"libnvidia-tls.so.{DRIVER}",
    "libnvoptix.so.1",
    "libvdpau_nvidia.so.1",
    "nvidia-drm_gbm.so",
)
"""The names by which programs in a container open the libraries of driver 550 that the node has."""

FILES = (
    "/etc/OpenCL/vendors/nvidia.icd",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
)

VENDOR_NEUTRAL = ("libEGL", "libGL", "libGLESv1_CM", "libGLESv2", "libGLX", "libGLdispatch", "libOpenCL", "libOpenGL")


@pytest.fixture(scope="module", params=[False, True], ids=["root", "user"])
def plan(trixie: Machine, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The default plan, with the kernel module loaded."""
    return document(trixie.gpubind("plan", "--json", driver=True, user=request.param))


def test_the_driver_is_the_one_that_the_kernel_has(plan: dict[str, Any]) -> None:
    (driver,) = plan["drivers"]
    assert (driver["version"], driver["version_assumed"], driver["kernel_version"]) == (DRIVER, False, DRIVER)
    assert not [finding for finding in plan["findings"] if finding["severity"] == "error"]


def test_every_library_that_a_container_can_use_is_bound(plan: dict[str, Any]) -> None:
    targets = {os.path.basename(mount["target"]) for mount in plan["mounts"] if mount["kind"] == "library"}
    assert sorted(set(USABLE) - targets) == []


def test_every_file_that_a_library_needs_is_bound_at_its_own_path(plan: dict[str, Any]) -> None:
    assert sorted(set(FILES) - {mount["target"] for mount in plan["mounts"]}) == []


def test_no_vendor_neutral_loader_is_bound(plan: dict[str, Any]) -> None:
    paths = {path for mount in plan["mounts"] for path in (mount["source"] or "", mount["target"])}
    stems = {os.path.basename(path).partition(".so")[0] for path in paths}
    assert sorted(stems & set(VENDOR_NEUTRAL)) == []


def test_every_vendor_neutral_loader_of_the_host_has_a_decision(plan: dict[str, Any]) -> None:
    left_out = {d["subject"].partition(".so")[0] for d in plan["decisions"] if d["verdict"] == "left-out"}
    assert sorted(set(VENDOR_NEUTRAL) - left_out) == []


@pytest.mark.parametrize("arguments", [(), ("--caps", "all"), ("--source", "driver")], ids=["default", "all", "driver"])
def test_every_file_of_the_drivers_packages_is_bound_or_decided_upon(node: Machine, arguments: tuple[str, ...]) -> None:
    plan = document(node.gpubind("plan", "--json", *arguments, driver=True))
    files = driver_files(node)
    assert len(files) > 80
    known = {mount["source"] for mount in plan["mounts"]} | {decision["path"] for decision in plan["decisions"]}
    assert [path for path, real in files.items() if not {path, real} & known] == []


def driver_files(machine: Machine) -> dict[str, str]:
    """Each file and link of the driver's packages but their documentation, with the file that it leads to."""
    shown = machine.run(["dpkg-query", "-W", "-f", "${binary:Package} ${source:Package}\n"]).stdout
    packages = [line.split() for line in shown.splitlines()]
    chosen = [name for name, source in packages if source in DRIVER_SOURCES or name in DRIVER_PACKAGES]
    assert "libcuda1:amd64" in chosen
    listed = set(machine.run(["dpkg", "-L", *chosen]).stdout.splitlines())
    paths = sorted(path for path in listed if path.startswith("/") and not path.startswith(DOCUMENTATION))
    script = 'for p; do if [ -L "$p" ] || [ -f "$p" ]; then echo "$p $(readlink -f "$p")"; fi; done'
    lines = machine.run(["sh", "-c", script, "sh", *paths]).stdout.splitlines()
    return {path: real for path, _, real in (line.partition(" ") for line in lines)}
