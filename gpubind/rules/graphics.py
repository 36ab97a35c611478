"""Rendering without a display: EGL, GBM and the nodes of the kernel's DRM."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Finding
from gpubind.rules.looking import (
    gpus_in_use,
    is_linux_driver,
    is_wanted,
    is_wanted_by_name,
    library_mounts,
    surely_empty,
    text_of,
)
from gpubind.rules.preflight import Preflight

GBM_BACKEND = "nvidia-drm_gbm.so"
ALLOCATOR = "libnvidia-allocator.so.1"
MODESET = "/sys/module/nvidia_drm/parameters/modeset"


def gbm_backend_missing(preflight: Preflight) -> Iterator[Finding]:
    """libgbm opens `nvidia-drm_gbm.so`, which is libnvidia-allocator under another name; since 495.

    Source: NVIDIA driver README, chapter "Installed Components" and "GBM".
    """
    plan = preflight.plan
    if plan.request.like is not None:
        return  # what the imitated program leaves out is not for the host to install
    names = library_mounts(plan)
    if is_wanted(plan, "graphics") and "libEGL_nvidia.so.0" in names and GBM_BACKEND not in names:
        yield Finding(
            "gbm-backend-missing",
            "warning" if is_wanted_by_name(plan, "graphics") else "note",
            "nvidia",
            GBM_BACKEND,
            "the container gets the driver's EGL, but no backend for GBM",
            f"no {GBM_BACKEND} and no {ALLOCATOR} beside {names['libEGL_nvidia.so.0']}",
            "EGL on GBM (headless compositors, browsers, simulators) will say `MESA-LOADER: failed to open nvidia-drm: "
            "/usr/lib/gbm/nvidia-drm_gbm.so: cannot open shared object file`; EGL on a device is not affected",
            "install the driver's package with libnvidia-allocator (libnvidia-allocator1 in Debian's words); "
            "drivers before 495 have no GBM",
        )


def render_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """A GPU without /dev/dri/renderD*: nvidia-drm is not loaded, or its node is not there."""
    plan = preflight.plan
    if not is_linux_driver(plan) or not is_wanted_by_name(plan, "graphics"):
        return
    without = [gpu for gpu in gpus_in_use(plan) if gpu.pci and gpu.render is None]
    for gpu in without:
        directory = f"/sys/bus/pci/devices/{gpu.pci}/drm"
        if not surely_empty(preflight.host.dev, directory):
            continue  # unknown, or there: then only its node could be hidden
        yield Finding(
            "render-node-missing",
            "warning",
            "nvidia",
            gpu.pci or "GPU",
            f"the GPU at {gpu.pci} has no render node in /dev/dri",
            f"{directory}, /dev/dri",
            "GBM, Wayland, VA-API and Vulkan's display extensions need it: `failed to open /dev/dri/renderD128`; CUDA, "
            "and EGL on a device, do not",
            "load nvidia-drm on the host, as root",
            "modprobe nvidia-drm modeset=1",
        )


def drm_modeset_off(preflight: Preflight) -> Iterator[Finding]:
    """nvidia-drm without modesetting: it registers no buffers for GBM. Only root can read the parameter (mode 0400).

    Source: open-gpu-kernel-modules kernel-open/nvidia-drm/nvidia-drm-os-interface.c.
    """
    plan = preflight.plan
    off = text_of(preflight.host.dev, MODESET) == "N"
    if off and is_linux_driver(plan) and is_wanted_by_name(plan, "graphics"):
        yield Finding(
            "drm-modeset-off",
            "warning",
            "nvidia",
            "nvidia_drm",
            "nvidia-drm is loaded without kernel modesetting",
            f"{MODESET} = N",
            "GBM and Wayland do not work on this GPU: eglGetPlatformDisplay finds no display, gbm_create_device fails",
            "load nvidia-drm with modeset=1, as root, and reboot (drivers since 560 may do so by default)",
            "echo 'options nvidia-drm modeset=1' > /etc/modprobe.d/nvidia-drm.conf",
        )
