"""Which command makes which device node."""

from __future__ import annotations

import pytest

from gpubind.formats.driver.mknod import capability_file, node_command

MINORS = {"config": 1, "monitor": 2, "gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13}
CAPABILITIES = "/proc/driver/nvidia/capabilities"
DRM = "&& udevadm trigger --action=add --subsystem-match=drm"


@pytest.mark.parametrize(
    ("node", "command"),
    [
        # nvidia-modprobe.c: one run makes GPUs' nodes, or those of the unified memory driver, or of switches.
        ("nvidia0", "nvidia-modprobe -c=0"),
        ("nvidia12", "nvidia-modprobe -c=12"),
        ("nvidiactl", "nvidia-modprobe -c=255"),
        ("nvidia-modeset", "nvidia-modprobe -m"),
        ("nvidia-uvm", "nvidia-modprobe -u -c=0"),
        ("nvidia-uvm-tools", "nvidia-modprobe -u -c=0"),
        ("nvidia-caps/nvidia-cap1", f"nvidia-modprobe -f {CAPABILITIES}/mig/config"),
        ("nvidia-caps/nvidia-cap12", f"nvidia-modprobe -f {CAPABILITIES}/gpu0/mig/gi1/access"),
        ("nvidia-caps/nvidia-cap13", f"nvidia-modprobe -f {CAPABILITIES}/gpu0/mig/gi1/ci0/access"),
        ("nvidia-caps-imex-channels/channel3", "nvidia-modprobe -i 3:1"),
        ("nvidia-nvswitchctl", "nvidia-modprobe -s -c=255"),
        ("nvidia-nvswitch5", "nvidia-modprobe -s -c=5"),
        ("nvidia-nvlink", "nvidia-modprobe -l"),
        ("nvidia-fs0", "modprobe -r nvidia-fs && modprobe nvidia-fs"),
        # udev makes no nodes since 176: the kernel says the number.
        (
            "dri/card0",
            "mkdir -p /dev/dri && rm -f /dev/dri/card0 && mknod /dev/dri/card0 c "
            f"$(tr : ' ' < /sys/class/drm/card0/dev) {DRM}",
        ),
        (
            "dri/renderD128",
            "mkdir -p /dev/dri && rm -f /dev/dri/renderD128 && mknod /dev/dri/renderD128 c "
            f"$(tr : ' ' < /sys/class/drm/renderD128/dev) {DRM}",
        ),
        (
            "infiniband/uverbs0",
            "rm -f /dev/infiniband/uverbs0 && mknod /dev/infiniband/uverbs0 c "
            "$(tr : ' ' < /sys/class/infiniband_verbs/uverbs0/dev)"
            " && udevadm trigger --action=add --subsystem-match=infiniband_verbs",
        ),
        # Nobody here knows them.
        ("nvidia-caps/nvidia-cap99", "rm /dev/nvidia-caps/nvidia-cap99"),
        ("nvidia-x; reboot", "rm '/dev/nvidia-x; reboot'"),
    ],
)
def test_each_command_makes_the_node_that_it_is_for(node: str, command: str) -> None:
    assert node_command(f"/dev/{node}", MINORS) == command


@pytest.mark.parametrize(
    ("capability", "file"),
    [
        ("config", "mig/config"),
        ("gpu1/gi2/access", "gpu1/mig/gi2/access"),
        ("gpu1/gi2/ci0/access", "gpu1/mig/gi2/ci0/access"),
    ],
)
def test_a_capability_has_a_file(capability: str, file: str) -> None:
    assert capability_file(capability) == f"{CAPABILITIES}/{file}"
