"""The commands with which root recreates a device node that is missing or has a wrong number.

Sources: nvidia-modprobe.c `main` (one run creates nodes of one kind); nvidia-modprobe-utils.c `mknod_helper` (it
replaces a node with another number); NEWS of udev 176 (udev creates no nodes; it sets modes and links).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote

from gpubind.formats.driver.kernel import PROC_CAPABILITIES

_MAKERS = {
    r"/dev/nvidia([0-9]+)": "nvidia-modprobe -c={0}",
    r"/dev/nvidiactl": "nvidia-modprobe -c=255",
    r"/dev/nvidia-modeset": "nvidia-modprobe -m",
    r"/dev/nvidia-uvm(?:-tools)?": "nvidia-modprobe -u -c=0",
    r"/dev/nvidia-caps-imex-channels/channel([0-9]+)": "nvidia-modprobe -i {0}:1",
    r"/dev/nvidia-nvswitch([0-9]+)": "nvidia-modprobe -s -c={0}",
    r"/dev/nvidia-nvswitchctl": "nvidia-modprobe -s -c=255",
    r"/dev/nvidia-nvlink": "nvidia-modprobe -l",
    r"/dev/nvidia-fs[0-9]*": "modprobe -r nvidia-fs && modprobe nvidia-fs",
}
"""The driver's command, by the pattern of a node's path."""
_CLASSES = {
    r"/dev/(kfd)": "kfd",
    r"/dev/dri/((?:card|renderD)[0-9]+)": "drm",
    r"/dev/infiniband/(uverbs[0-9]+)": "infiniband_verbs",
    r"/dev/infiniband/(rdma_cm)": "misc",
}
"""For other nodes, the class in /sys that has their number."""
_CAPABILITY = re.compile(r"/dev/nvidia-caps/nvidia-cap([0-9]+)")


def node_command(path: str, minors: Mapping[str, int]) -> str:
    """Return the command that recreates the node *path*, with the number that the kernel reports.

    *minors* is the content of `MIG_MINORS`. For an unknown node, it removes the node: its driver creates it again.
    """
    capability = _CAPABILITY.fullmatch(path)
    if capability is not None:
        mig_name = next((name for name, minor in minors.items() if minor == int(capability.group(1))), None)
        return f"rm {quote(path)}" if mig_name is None else f"nvidia-modprobe -f {quote(capability_file(mig_name))}"
    for pattern, command in _MAKERS.items():
        if match := re.fullmatch(pattern, path):
            return command.format(*match.groups())
    for pattern, kind in _CLASSES.items():
        if match := re.fullmatch(pattern, path):
            directory = "mkdir -p /dev/dri && " if kind == "drm" else ""
            mknod = f"rm -f {path} && mknod {path} c $(tr : ' ' < /sys/class/{kind}/{match[1]}/dev)"
            return f"{directory}{mknod} && udevadm trigger --action=add --subsystem-match={kind}"
    return f"rm {quote(path)}"


def load_command(gpus: int) -> str:
    """Return the command that loads the driver and creates the nodes of *gpus* GPUs after a boot."""
    nodes = " ".join(f"-c={number}" for number in range(max(gpus, 1)))
    return f"modprobe nvidia && nvidia-modprobe -c=255 {nodes} && nvidia-modprobe -u -c=0"


def capability_file(capability: str) -> str:
    """Return the file that describes a *capability*, `gpu0/gi1/access` or `config`."""
    gpu, _, instance = capability.rpartition("/")[0].partition("/")
    name = capability.rpartition("/")[2]
    return "/".join(part for part in (PROC_CAPABILITIES, gpu, "mig", instance, name) if part)
