"""The CDI devices of a host, with their place in a file, and whether they can be used: `list_cdi`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, Optional

from gpubind.formats.driver.cdi import SIZE_LIMIT, CdiDevice, CdiEdits, CdiName
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory.cdi.specs import DIRECTORIES, LoadedSpec, missing_paths, read_registry, stale_findings
from gpubind.model import Gpu, Missing

_NAME = re.compile(r"""\bname["']?\s*:\s*["']?([A-Za-z0-9_.:-]+)""", re.IGNORECASE)
DeviceState = Literal["usable", "stale", "shadowed", "conflict"]


class CdiFile(NamedTuple):
    """A file, or a directory that cannot be listed."""

    path: str
    format: Optional[Literal["json", "yaml"]] = None
    """By its content; None if it cannot be used, as the next three."""
    version: Optional[str] = None
    kind: Optional[str] = None
    devices: Optional[int] = None
    fault: Optional[str] = None
    """Why it is ignored."""
    gone: tuple[str, ...] = ()
    """The files and nodes that every device of it brings and that do not exist on the host."""
    stale: tuple[str, ...] = ()
    """In what it is not of this host as it is now."""


class ListedCdiDevice(NamedTuple):
    """A device of a file."""

    name: str
    """Qualified: `nvidia.com/gpu=0`."""
    path: str
    line: Optional[int]
    """The line that names it; None if that is not written plainly."""
    state: DeviceState
    """`shadowed`: a later directory has it, too; `conflict`: another file of one directory has; `stale`: see `gone`,
    its own and its file's."""
    by: Optional[str]
    """The other file of a shadowed device, or of a conflict."""
    gone: tuple[str, ...]
    """The files and nodes that only it brings and that do not exist on the host."""


class CdiListing(NamedTuple):
    """What the directories have, in their order and that of their files."""

    directories: tuple[str, ...]
    files: tuple[CdiFile, ...]
    devices: tuple[ListedCdiDevice, ...]


def list_cdi(
    host: Host, directories: Iterable[str] = DIRECTORIES, version: Optional[str] = None, gpus: tuple[Gpu, ...] = ()
) -> CdiListing:
    """Return the CDI devices of *host* in *directories*, also those that cannot be used.

    *version* is that of NVIDIA's kernel module, if it is loaded; *gpus* are those of the host.
    """
    registry = read_registry(host, directories)
    files = [CdiFile(path, fault=fault) for path, fault in registry.ignored_files.items()]
    devices: list[ListedCdiDevice] = []
    for loaded in registry.specs:
        data = host.dev.read(loaded.path, SIZE_LIMIT)
        text = "" if isinstance(data, Missing) else data.decode("utf-8", "replace")
        form: Literal["json", "yaml"] = "json" if text.lstrip()[:1] == "{" else "yaml"
        spec = loaded.spec
        stale = tuple(finding.what for finding in stale_findings(host, [loaded], version, gpus, "warning"))
        common, lines = _missing_sources(host, spec.edits), _lines(text)
        files.append(CdiFile(loaded.path, form, spec.version, spec.kind, len(spec.devices), None, common, stale))
        for device in spec.devices:
            name, missing = str(CdiName(spec.kind, device.name)), _missing_sources(host, device.edits)
            state, by = _state(loaded, registry.devices.get(name), registry.conflicts.get(name))
            state = "stale" if state == "usable" and (missing or common) else state
            devices.append(ListedCdiDevice(name, loaded.path, lines.get(device.name), state, by, missing))
    ordered = sorted(files, key=lambda file: _sort_key(file.path, registry.directories))
    return CdiListing(registry.directories, tuple(ordered), tuple(devices))


def _sort_key(path: str, directories: tuple[str, ...]) -> tuple[int, str]:
    directory = path.rpartition("/")[0]
    indexes = [index for index, listed in enumerate(directories) if listed.rstrip("/") in (directory, path)]
    return indexes[0] if indexes else len(directories), path


def _state(
    loaded: LoadedSpec, used: Optional[tuple[LoadedSpec, CdiDevice]], conflict: Optional[tuple[str, str]]
) -> tuple[DeviceState, Optional[str]]:
    """Return the state of a device of *loaded*, and the other file that is the reason."""
    if conflict is not None:
        return "conflict", next(path for path in reversed(conflict) if path != loaded.path)
    if used is None or used[0].path == loaded.path:
        return "usable", None
    return "shadowed", used[0].path


def _missing_sources(host: Host, edits: CdiEdits) -> tuple[str, ...]:
    paths = dict.fromkeys((*(mount.host_path for mount in edits.mounts), *(node.source for node in edits.nodes)))
    return tuple(missing_paths(host, paths))


def _lines(text: str) -> dict[str, int]:
    """Return the first line of *text* that gives something each name."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        for match in _NAME.finditer(line.partition("#")[0]):
            lines.setdefault(match.group(1), number)
    return lines
