"""Rendering without a display: EGL, GBM and the nodes of the kernel's DRM."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.inventory.nodes import PCI_DEVICES
from gpubind.model import Finding
from gpubind.model.findings import finding
from gpubind.rules.preflight import Preflight

GBM_BACKEND = "nvidia-drm_gbm.so"
ALLOCATOR = "libnvidia-allocator.so.1"
MODESET = "/sys/module/nvidia_drm/parameters/modeset"


def gbm_backend_missing(preflight: Preflight) -> Iterator[Finding]:
    """Yield a plan without `nvidia-drm_gbm.so`, which libgbm opens since 495: another name of libnvidia-allocator.

    Source: NVIDIA driver README, chapter "Installed Components" and "GBM".
    """
    if preflight.plan.request.like is not None:
        return  # the imitated program leaves it out, whatever the host has
    names = preflight.libraries
    if preflight.wants("graphics") and "libEGL_nvidia.so.0" in names and GBM_BACKEND not in names:
        yield finding(
            "gbm-backend-missing",
            subject=GBM_BACKEND,
            severity="warning" if preflight.wants_by_name("graphics") else "note",
            where=f"no {GBM_BACKEND} and no {ALLOCATOR} beside {names['libEGL_nvidia.so.0']}",
        )


def render_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Yield a GPU without /dev/dri/renderD*: nvidia-drm is not loaded, or its node is not there."""
    if not preflight.has_linux_driver or not preflight.wants_by_name("graphics"):
        return
    for gpu in preflight.gpus:
        directory = f"{PCI_DEVICES}/{gpu.pci}/drm"
        # If that is unknown, or exists, only the node could be hidden.
        if gpu.pci and gpu.render is None and preflight.host.dev.has_nothing_in(directory):
            yield finding("render-node-missing", subject=gpu.pci, where=f"{directory}, /dev/dri", pci=gpu.pci)


def drm_modeset_off(preflight: Preflight) -> Iterator[Finding]:
    """Yield nvidia-drm without modesetting, which registers no buffers for GBM. Only root can read the parameter.

    Source: open-gpu-kernel-modules kernel-open/nvidia-drm/nvidia-drm-os-interface.c.
    """
    off = preflight.host.dev.text(MODESET) == "N"
    if off and preflight.has_linux_driver and preflight.wants_by_name("graphics"):
        yield finding("drm-modeset-off", subject="nvidia_drm", where=f"{MODESET} = N")
