"""The CDI specs of a host: their devices by the CDI project's rules, the requested devices, and stale entries.

Rules (`pkg/cdi/spec-dirs.go`, `pkg/cdi/cache.go`): files named `*.json` and `*.yaml` directly in the directories, which
have rising priority. A device in two files of one directory is a conflict: it is unusable even if a directory of higher
priority also has it. A file that cannot be read or is malformed is ignored.

Specs become stale: one is written once and read at every start, while drivers and GPUs change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Optional, Union

from gpubind.errors import FormatError, UsageError
from gpubind.files import Tree
from gpubind.formats.driver.names import driver_version_of
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.model import Finding, Gpu, Missing, PassedOver, Request, Severity, Stat, Vendor, finding, sorted_by_pci
from gpubind.model.findings import with_count
from gpubind.model.layouts import TEGRA_CONTROL
from gpubind.model.vendors import CDI_KINDS

if TYPE_CHECKING:
    from gpubind.formats.driver.cdi import CdiDevice, CdiEdits, CdiName, CdiSpec

SOURCE = "cdi"
DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
SUFFIXES = (".json", ".yaml")
NVIDIA = CDI_KINDS["nvidia"]
ALL = "all"
SPECS_LIMIT = 4 << 20
"""Maximum bytes of all specs together. A host's specs have a few hundred kilobytes."""
CONFLICTS_LIMIT = 100
REGENERATE_HINT = "make it anew: `gpubind plan --format cdi -o FILE`, or `nvidia-ctk cdi generate`"


class LoadedSpec(NamedTuple):
    """A spec and its file."""

    path: str
    spec: CdiSpec

    @property
    def edits(self) -> tuple[CdiEdits, ...]:
        """Its own edits, and those of its devices."""
        return (self.spec.edits, *(device.edits for device in self.spec.devices))


class Registry(NamedTuple):
    """The specs of a host."""

    directories: tuple[str, ...]
    specs: tuple[LoadedSpec, ...]
    devices: dict[str, tuple[LoadedSpec, CdiDevice]]
    """Usable devices, by qualified name."""
    conflicts: dict[str, tuple[str, str]]
    """Unusable devices, each with two files that have it."""
    ignored_files: dict[str, str]
    """Ignored files and directories, with the reasons."""


class AppliedEdits(NamedTuple):
    """Edits of chosen devices, and their location."""

    location: str
    """`/etc/cdi/nvidia.yaml: containerEdits`."""
    edits: CdiEdits


class CdiChoice(NamedTuple):
    """The devices of a request."""

    registry: Registry
    names: tuple[CdiName, ...]
    driver_names: tuple[CdiName, ...]
    """Those that provide NVIDIA's driver."""
    driver: tuple[AppliedEdits, ...]
    """The edits that provide NVIDIA's driver."""
    others: tuple[AppliedEdits, ...]
    """The other edits."""
    has_all_gpus: bool
    """Whether the driver's devices are all those of the host's specs."""


def read_registry(host: Host, directories: Iterable[str] = DIRECTORIES) -> Registry:
    """Return the specs in *directories* of the dev root, by the rules of the CDI project's cache."""
    directories = tuple(directories) or DIRECTORIES
    specs: list[LoadedSpec] = []
    devices: dict[str, tuple[LoadedSpec, CdiDevice]] = {}
    conflicts: dict[str, tuple[str, str]] = {}
    ignored_files: dict[str, str] = {}
    bytes_left = SPECS_LIMIT
    for directory in directories:
        in_this: dict[str, str] = {}
        for path, data in _read_directory(host.dev, directory):
            bytes_left -= len(data) if isinstance(data, bytes) else 0
            too_many = f"all specs together have more than {SPECS_LIMIT} bytes"
            loaded = _load_spec(path, data) if bytes_left >= 0 else too_many
            if isinstance(loaded, str):
                ignored_files[path] = loaded
                continue
            specs.append(loaded)
            for device in loaded.spec.devices:
                name = f"{loaded.spec.kind}={device.name}"
                if name in in_this:
                    conflicts[name] = (in_this[name], path)
                else:
                    devices[name], in_this[name] = (loaded, device), path
    usable = {name: entry for name, entry in devices.items() if name not in conflicts}
    return Registry(directories, tuple(specs), usable, conflicts, ignored_files)


def _read_directory(tree: Tree, directory: str) -> Iterator[tuple[str, Union[bytes, str]]]:
    """Yield the spec files in *directory* with their bytes, or with the reason why they are ignored."""
    names = tree.list(directory)
    if isinstance(names, Missing):
        if names.why not in ("absent", "unrecorded"):
            yield directory, str(names)
        return
    for path in (f"{directory.rstrip('/')}/{name}" for name in names if name.endswith(SUFFIXES)):
        stat = tree.lstat(path)
        if isinstance(stat, Stat) and stat.kind == "dir":
            continue
        data = tree.read(path)
        if not isinstance(data, Missing):
            yield path, data
        elif data.why != "unrecorded":
            yield path, str(data)


@lru_cache(maxsize=64)
def _load_spec(path: str, data: Union[bytes, str]) -> Union[LoadedSpec, str]:
    """Return the spec of *data*, or the reason why it is ignored. It is cached: several rules read it, and parsing is
    slow.
    """
    from gpubind.formats.driver.cdi import parse_cdi

    try:
        return data if isinstance(data, str) else LoadedSpec(path, parse_cdi(data))
    except FormatError as error:
        return f"{error.place}: {error.why}" if error.place else error.why


def choose_devices(host: Host, request: Request) -> Union[CdiChoice, PassedOver]:
    """Return the devices that *request* names, else all GPUs of NVIDIA.

    Errors: `FormatError` (code `bad-cdi-name`), `UsageError` (code `unknown-cdi-device`) for a named device that is in
    no spec. Without names: `PassedOver` (codes `absent`, `no-device`) if the specs have no NVIDIA device.
    """
    from gpubind.formats.driver.cdi import parse_cdi_name

    registry = read_registry(host, request.cdi_directories)
    names = tuple(parse_cdi_name(text) for text in request.cdi_devices)
    for name in names:
        if str(name) not in registry.devices:
            raise _unknown_device(registry, name)
    if not names:  # `nvidia.com/gpu=all`, or every device of that kind
        every = sorted(parse_cdi_name(text) for text in registry.devices if text.startswith(f"{NVIDIA}="))
        names = tuple([name for name in every if name.device == ALL] or every)
    if not names:
        where = ", ".join(registry.directories)
        if not registry.specs and not registry.ignored_files:
            return PassedOver(SOURCE, "absent", f"there is no CDI spec in {where}")
        faults = [f"{path}: {why}" for path, why in registry.ignored_files.items()]
        faults += [f"{name} is in {a} and {b}" for name, (a, b) in registry.conflicts.items()]
        why = f"no spec in {where} has a usable device of {NVIDIA}" + (f" ({'; '.join(faults)})" if faults else "")
        return PassedOver(SOURCE, "no-device", why)
    driver: list[AppliedEdits] = []
    others: list[AppliedEdits] = []
    driver_names: list[CdiName] = []
    has_all_gpus = not request.cdi_devices
    for kind in dict.fromkeys(name.kind for name in names):
        of_kind = [name for name in names if name.kind == kind]
        applied = _applied(registry, of_kind)
        if any("/libcuda.so" in mount.host_path for part in applied for mount in part.edits.mounts):
            driver += applied
            driver_names += of_kind
            has_all_gpus = has_all_gpus or any(name.device == ALL for name in of_kind)
        else:
            others += applied
    return CdiChoice(registry, names, tuple(driver_names), tuple(driver), tuple(others), has_all_gpus)


def in_driver_root(host: Host, path: str) -> Optional[str]:
    """Return the host path *path* relative to the driver root; None if the root is `/`, or the path is outside it."""
    is_apart = host.driver is not host.dev and host.driver.root != "/"
    return host.driver.rooted(path) if is_apart else None


def registry_findings(registry: Registry, used: Iterable[CdiName] = ()) -> list[Finding]:
    """Return the findings about ignored files and conflicts; *used* are the devices of a plan."""
    kinds = {name.kind for name in used}
    findings = [finding("bad-cdi", subject=path, where=path, why=why) for path, why in registry.ignored_files.items()]
    for name, (first, second) in islice(registry.conflicts.items(), CONFLICTS_LIMIT):
        severity: Severity = "error" if name.partition("=")[0] in kinds else "warning"
        findings.append(finding("cdi-conflict", severity=severity, subject=name, where=f"{first}, {second}"))
    return findings


def _applied(registry: Registry, names: Iterable[CdiName]) -> list[AppliedEdits]:
    """Return the edits of *names* in the order of a runtime: the common edits of each file once."""
    applied: list[AppliedEdits] = []
    files: list[str] = []
    for name in dict.fromkeys(names):
        loaded, device = registry.devices[str(name)]
        if loaded.path not in files:
            files.append(loaded.path)
            applied.append(AppliedEdits(f"{loaded.path}: containerEdits", loaded.spec.edits))
        applied.append(AppliedEdits(f"{loaded.path}: device {device.name}", device.edits))
    return applied


def _unknown_device(registry: Registry, name: CdiName) -> UsageError:
    text = str(name)
    why: Optional[str] = None
    if text in registry.conflicts:
        why = "it is in both {} and {}, and so in neither".format(*registry.conflicts[text])
    elif registry.ignored_files:
        why = "; ".join(f"{path}: {fault}" for path, fault in registry.ignored_files.items())
    known_names = [name for name in registry.devices if name.startswith(f"{text.partition('=')[0]}=")]
    return UsageError(
        "unknown-cdi-device",
        f"no CDI spec has the device `{text}`",
        where=", ".join(registry.directories),
        why=why or ("" if registry.specs else "there is no spec in these directories"),
        hint="known: " + ", ".join(known_names or sorted(registry.devices) or ["none"]),
    )


GPU_NODES: dict[Vendor, re.Pattern[str]] = {
    "nvidia": re.compile(rf"/dev/(nvidia[0-9]+|dxg)|{TEGRA_CONTROL}"),
    "amd": re.compile(r"/dev/dri/renderD[0-9]+"),
}
"""The GPU nodes of the vendors whose toolkits number CDI devices."""
_StaleEntry = tuple[str, str, list[str], dict[str, Any]]
"""The case of the finding `stale-cdi`, its subject, the stale entries of the spec, and the facts."""


def stale_findings(
    host: Host, specs: Iterable[LoadedSpec], version: Optional[str], gpus: tuple[Gpu, ...], severity: Severity
) -> list[Finding]:
    """Return a finding for each stale entry of *specs* on *host*; *version* is that of the kernel module."""
    return [
        finding(
            "stale-cdi",
            case=case,
            severity=severity,
            subject=subject,
            where=f"{loaded.path}: {', '.join(entries)}",
            spec=loaded.path,
            **facts,
        )
        for loaded in specs
        for case, subject, entries, facts in (
            *_stale_mounts(host, loaded, version),
            *_stale_nodes(host, loaded),
            *_stale_gpus(loaded, gpus),
        )
    ]


def _stale_mounts(host: Host, loaded: LoadedSpec, version: Optional[str]) -> Iterator[_StaleEntry]:
    mounts = list(dict.fromkeys(mount.host_path for edits in loaded.edits for mount in edits.mounts))
    absent = missing_paths(host, mounts)
    if absent:
        yield "file" if len(absent) == 1 else "files", loaded.path, absent, {"count": len(absent)}
    mismatched = [path for path in mounts if version and (driver_version_of(path) or version) != version]
    if mismatched:
        carried = ", ".join(sorted({driver_version_of(path) or "" for path in mismatched}))
        yield "version", loaded.path, mismatched, {"carried": carried, "version": version}


def _stale_nodes(host: Host, loaded: LoadedSpec) -> Iterator[_StaleEntry]:
    for node in dict.fromkeys(node for edits in loaded.edits for node in edits.nodes):
        stat = _stat(host, node.source)
        if isinstance(stat, Missing):
            if stat.why == "absent":
                yield "node", node.path, [node.source], {"source": node.source}
            continue
        then, now = f"{node.major}:{node.minor}", f"{stat.major}:{stat.minor}"
        # Without a major number in the spec, the runtime uses the node's own.
        if node.major and node.type != "p" and then != now:
            yield "number", node.path, [node.source], {"numbers": then, "now": now}


def _stale_gpus(loaded: LoadedSpec, gpus: tuple[Gpu, ...]) -> Iterator[_StaleEntry]:
    """Yield entries for the GPUs that only the spec or only the host has; none if the driver reports no GPU."""
    vendor = next((vendor for vendor in GPU_NODES if CDI_KINDS[vendor] == loaded.spec.kind), None)
    host_gpus = tuple(gpu for gpu in gpus if gpu.vendor == vendor and gpu.index is not None)
    host_gpus = sorted_by_pci(host_gpus) if vendor == "amd" else host_gpus
    uuids = [gpu.uuid for gpu in host_gpus if gpu.uuid and "?" not in gpu.uuid]
    names = [device.name for device in loaded.spec.devices]
    if vendor is None or not host_gpus:
        return
    if not any(GPU_NODES[vendor].fullmatch(node.path) for edits in loaded.edits for node in edits.nodes):
        yield "no-gpus", ", ".join(names[:4]), names, {"count": with_count(len(host_gpus), "GPU")}
        return
    gone = [name for name in names if name.startswith("GPU-") and len(uuids) == len(host_gpus) and name not in uuids]
    gone += [name for name in names if name.isascii() and name.isdigit() and int(name[:9]) >= len(host_gpus)]
    if gone:
        yield "gpus-gone", gone[0], gone, {}
    numbered = [(str(index if vendor == "amd" else gpu.index), gpu) for index, gpu in enumerate(host_gpus)]
    new = [number for number, gpu in numbered if not {number, gpu.uuid, f"gpu{number}"} & set(names)]
    parts = [name for name in names if ":" in name or name.startswith("MIG-")]
    if new and not parts and names != [ALL]:
        yield "gpus-new", new[0], new, {"count": len(new), "kind": loaded.spec.kind}


def missing_paths(host: Host, paths: Iterable[str]) -> list[str]:
    """Return those of *paths* that do not exist on *host*."""
    stats = ((path, _stat(host, path)) for path in paths)
    return [path for path, stat in stats if isinstance(stat, Missing) and stat.why == "absent"]


def _stat(host: Host, path: str) -> Union[Stat, Missing]:
    if not path.startswith("/"):
        return Missing("unreadable", "a relative path")
    inside = in_driver_root(host, path)
    return host.lenient.dev.stat(path) if inside is None else host.lenient.driver.stat(inside)
