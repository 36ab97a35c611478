"""MIG: the nodes that guard the parts of a divided GPU, and the names of parts that are in no file.

Sources: MIG User Guide, "Device Nodes and Capabilities"; libnvidia-container `src/nvc_info.c`, `src/cli/list.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.errors import FormatError, NotRecordedError
from gpubind.formats.nvidia_cli import list_argv, parse_list
from gpubind.formats.procfs import parse_params
from gpubind.host import Host
from gpubind.model import ContainerPath, Gpu, MigName, MigNode, Missing, Request

PROC_CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
TIMEOUT_S = 30.0  # as long as for the program's list of files
NAMES_LIMIT = 64
_ACCESS = re.compile(rf"{PROC_CAPABILITIES}/gpu([0-9]{{1,6}})/mig/gi([0-9]{{1,6}})/ci([0-9]{{1,6}})/access", re.ASCII)


def access_file(minor: Optional[int], gi: int, ci: Optional[int]) -> str:
    """The file that describes the right to use a GPU instance, or a compute instance in it."""
    return f"{PROC_CAPABILITIES}/gpu{minor}/mig/gi{gi}" + ("" if ci is None else f"/ci{ci}") + "/access"


def read_minors(host: Host) -> dict[str, int]:
    """mig-minors, `gpu0/gi1/ci0/access 13` a line, as capability -> minor of its node."""
    found = {}
    for line in _text(host, MIG_MINORS).split("\n"):
        name, _, number = line.strip().partition(" ")
        if number.isascii() and number.isdigit() and len(number) < 10:
            found[name] = int(number)
    return found


def access_minor(host: Host, minors: dict[str, int], minor: Optional[int], gi: int, ci: Optional[int]) -> Optional[int]:
    """The minor of the node that guards a part; its own file counts, the table of all stands in for it."""
    file = access_file(minor, gi, ci)
    told = parse_params(_text(host, file)).get("DeviceFileMinor", "")
    if told.isascii() and told.isdigit() and len(told) < 10:
        return int(told)
    name = file[len(PROC_CAPABILITIES) + 1 :].replace("/mig/", "/")
    return minors.get(name)


def read_mig_nodes(host: Host, gpus: Iterable[Gpu]) -> tuple[MigNode, ...]:
    """The nodes that guard the parts of *gpus*, as far as the driver tells their numbers."""
    divided = [gpu for gpu in gpus if gpu.mig]
    minors = read_minors(host) if divided else {}
    nodes: dict[ContainerPath, MigNode] = {}
    for gpu in divided:
        for device in gpu.mig:
            for ci in (None, device.ci):
                number = access_minor(host, minors, gpu.minor, device.gi, ci)
                if number is not None and gpu.minor is not None:
                    target = ContainerPath(f"/dev/nvidia-caps/nvidia-cap{number}")
                    nodes.setdefault(target, MigNode(target, gpu.minor, device.gi, ci))
    return tuple(nodes.values())


def find_mig_names(host: Host, request: Request, guards: Iterable[MigNode], *, ask: bool) -> tuple[MigName, ...]:
    """What the names of MIG devices in *request*, or in the environment, mean: to `nvidia-container-cli`, if it is to
    be asked, else to the CDI specs of this host, by the nodes in *guards* that they bring.

    A name that nobody knows, or that means no one part, is left out.
    """
    names = list(dict.fromkeys(_mig_names(host, request)))[:NAMES_LIMIT]
    found = {name: part for name in names if ask and (part := _asked(host, name)) is not None}
    unknown = [name for name in names if name not in found]
    if unknown:
        found.update(_in_specs(host, request, unknown, tuple(guards)))
    return tuple(found[name] for name in names if name in found)


def _asked(host: Host, name: str) -> Optional[MigName]:
    """What `nvidia-container-cli` says of *name*, which is asked alone: one unknown name spoils an answer."""
    answer = host.run((*list_argv(host.driver.root), f"--device={name}"), TIMEOUT_S)
    if isinstance(answer, Missing) or answer.status != 0:
        return None
    try:
        matches = [_ACCESS.fullmatch(path) for path in parse_list(answer.stdout).procs]
    except FormatError:
        return None
    parts = [tuple(map(int, match.groups())) for match in matches if match]
    return MigName(name, *parts[0]) if len(parts) == 1 else None


def _in_specs(host: Host, request: Request, names: list[str], guards: tuple[MigNode, ...]) -> dict[str, MigName]:
    """The parts that `nvidia.com/gpu=NAME` brings by the CDI specs of *host*."""
    from gpubind.sources.cdi import read_registry

    try:
        devices = read_registry(host, request.cdi_directories).devices
    except NotRecordedError:
        return {}
    found: dict[str, MigName] = {}
    for name in names:
        known = devices.get(f"nvidia.com/gpu={name}")
        paths = [node.path for node in known[1].edits.nodes] if known else []
        parts = [guard for guard in guards if guard.ci is not None and guard.target in paths]
        if len(parts) == 1 and parts[0].ci is not None:
            found[name] = MigName(name, parts[0].minor, parts[0].gi, parts[0].ci)
    return found


def _mig_names(host: Host, request: Request) -> Iterator[str]:
    values = [request.gpus] if request.gpus is not None else [host.environ.get(name, "") for name in VARIABLES]
    values = [value for value in values if ":" in value or "MIG-" in value.upper()]
    if not values:
        return
    from gpubind.formats.gpu_ids import parse_gpu_id, split_visible

    for value in values:
        for token in split_visible(value):
            gpu_id = parse_gpu_id(token)
            if gpu_id is not None and gpu_id.spelling in ("mig-uuid", "mig-index"):
                yield token


def _text(host: Host, path: str) -> str:
    """A small file's text; empty if it is not there, or outside what an older record covers."""
    try:
        text = host.dev.read_text(path)
    except NotRecordedError:
        return ""
    return "" if isinstance(text, Missing) else text
