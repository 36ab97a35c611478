"""The names of MIG devices that are in no file: MIG-<uuid>, and numbers.

Source: libnvidia-container `src/cli/list.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.errors import FormatError
from gpubind.formats.driver.gpu_names import parse_gpu_id, split_visible
from gpubind.formats.driver.nvidia_cli import list_argv, parse_list
from gpubind.formats.driver.procfs import PROC_CAPABILITIES
from gpubind.host import Host
from gpubind.inventory.cdi_specs import NVIDIA, read_registry
from gpubind.inventory.nvidia.container_cli import TIMEOUT_S
from gpubind.model import MigName, MigNode, Missing, Request

NAMES_LIMIT = 64
_ACCESS = re.compile(rf"{PROC_CAPABILITIES}/gpu([0-9]{{1,6}})/mig/gi([0-9]{{1,6}})/ci([0-9]{{1,6}})/access", re.ASCII)


def find_mig_names(
    host: Host, request: Request, values: Iterable[str], guards: Iterable[MigNode], *, ask: bool
) -> tuple[MigName, ...]:
    """Return the MIG devices that *values* name: by `nvidia-container-cli`, if it may run, else by the CDI
    specs of *host* that bring one of *guards*.

    A name that is unknown, or that does not mean exactly one part, is left out.
    """
    names = list(dict.fromkeys(_mig_names(values)))[:NAMES_LIMIT]
    found = {name: part for name in names if ask and (part := _asked(host, name)) is not None}
    unknown = [name for name in names if name not in found]
    if unknown:
        found.update(_in_specs(host, request, unknown, tuple(guards)))
    return tuple(found[name] for name in names if name in found)


def _asked(host: Host, name: str) -> Optional[MigName]:
    """Return the answer of `nvidia-container-cli` for *name*, one at a time: an unknown name spoils an answer."""
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
    """Return the parts that `nvidia.com/gpu=NAME` brings by the CDI specs of *host*."""
    devices = read_registry(host.lenient, request.cdi_directories).devices
    found: dict[str, MigName] = {}
    for name in names:
        known = devices.get(f"{NVIDIA}={name}")
        paths = [node.path for node in known[1].edits.nodes] if known else []
        parts = [guard for guard in guards if guard.ci is not None and guard.target in paths]
        if len(parts) == 1 and parts[0].ci is not None:
            found[name] = MigName(name, parts[0].minor, parts[0].gi, parts[0].ci)
    return found


def _mig_names(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        for token in split_visible(value):
            gpu_id = parse_gpu_id(token)
            if gpu_id is not None and gpu_id.spelling in ("mig-uuid", "mig-index"):
                yield token
