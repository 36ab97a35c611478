"""The CDI devices of a host, their locations in files and their states: `list_cdi`."""

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
    """The format of its content. `format`, `version`, `kind` and `devices` are None for an ignored file."""
    version: Optional[str] = None
    kind: Optional[str] = None
    devices: Optional[int] = None
    fault: Optional[str] = None
    """The reason why it is ignored."""
    gone: tuple[str, ...] = ()
    """The missing files and nodes of its common edits."""
    stale: tuple[str, ...] = ()
    """How it differs from the host's current state."""


class ListedCdiDevice(NamedTuple):
    """A device in a spec file."""

    name: str
    """Qualified: `nvidia.com/gpu=0`."""
    path: str
    line: Optional[int]
    """The line with its name; None if that is not found in the text."""
    state: DeviceState
    """`shadowed`: a later directory also has it. `conflict`: two files of one directory have it. `stale`: it or its
    file has `gone` paths.
    """
    by: Optional[str]
    """The other file of a shadowed or conflicting device."""
    gone: tuple[str, ...]
    """The missing files and nodes of its edits, without the common ones."""


class CdiListing(NamedTuple):
    """The files and devices of the directories, in the order of directories and files."""

    directories: tuple[str, ...]
    files: tuple[CdiFile, ...]
    devices: tuple[ListedCdiDevice, ...]


def list_cdi(
    host: Host, directories: Iterable[str] = DIRECTORIES, version: Optional[str] = None, gpus: tuple[Gpu, ...] = ()
) -> CdiListing:
    """Return the CDI devices of *host* in *directories*, including unusable ones.

    *version* is that of the loaded NVIDIA kernel module; *gpus* are those of the host.
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
        common, lines = _missing_sources(host, spec.edits), _lines_by_name(text)
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
    """Return the state of a device of *loaded*, and the other file that causes it."""
    if conflict is not None:
        return "conflict", next(path for path in reversed(conflict) if path != loaded.path)
    if used is None or used[0].path == loaded.path:
        return "usable", None
    return "shadowed", used[0].path


def _missing_sources(host: Host, edits: CdiEdits) -> tuple[str, ...]:
    paths = dict.fromkeys((*(mount.host_path for mount in edits.mounts), *(node.source for node in edits.nodes)))
    return tuple(missing_paths(host, paths))


def _lines_by_name(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        for match in _NAME.finditer(line.partition("#")[0]):
            lines.setdefault(match.group(1), number)
    return lines
