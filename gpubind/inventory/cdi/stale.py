"""Does a CDI spec still fit its host? It is written once and read at every start; drivers and GPUs change between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional, Union

from gpubind.formats.driver.cdi import CdiEdits
from gpubind.formats.driver.names import driver_version_of
from gpubind.host import Host
from gpubind.inventory.cdi_specs import ALL, NVIDIA, LoadedSpec, in_driver_root
from gpubind.model import Finding, Gpu, Missing, Severity, Stat
from gpubind.model.findings import finding

REFRESH = "make it anew: `gpubind plan --format cdi -o FILE`, or `nvidia-ctk cdi generate`"


class _Stale(NamedTuple):
    """An entry of a spec that is no longer right."""

    case: str
    """Of the finding `stale-cdi`."""
    subject: str
    entries: list[str]
    """The entries concerned."""
    facts: dict[str, object]


def stale_findings(
    host: Host, specs: Iterable[LoadedSpec], version: Optional[str], gpus: tuple[Gpu, ...], severity: Severity
) -> list[Finding]:
    """Return what in *specs* is not so on *host* any more, each entry named; *version* is that of the kernel module."""
    return [
        finding(
            "stale-cdi",
            case=stale.case,
            severity=severity,
            subject=stale.subject,
            where=f"{loaded.path}: {', '.join(stale.entries)}",
            spec=loaded.path,
            **stale.facts,
        )
        for loaded in specs
        for stale in (
            *_stale_mounts(host, loaded, version),
            *_stale_nodes(host, loaded),
            *(_stale_gpus(loaded, gpus) if loaded.spec.kind == NVIDIA else ()),
        )
    ]


def _stale_mounts(host: Host, loaded: LoadedSpec, version: Optional[str]) -> Iterator[_Stale]:
    mounts = list(dict.fromkeys(mount.host_path for edits in _edits(loaded) for mount in edits.mounts))
    gone = [path for path in mounts if _is_absent(_look(host, path))]
    if gone:
        yield _Stale("file" if len(gone) == 1 else "files", loaded.path, gone, {"count": len(gone)})
    other = [path for path in mounts if version and (driver_version_of(path) or version) != version]
    if other:
        carried = ", ".join(sorted({driver_version_of(path) or "" for path in other}))
        yield _Stale("version", loaded.path, other, {"carried": carried, "version": version})


def _stale_nodes(host: Host, loaded: LoadedSpec) -> Iterator[_Stale]:
    for node in dict.fromkeys(node for edits in _edits(loaded) for node in edits.nodes):
        found = _look(host, node.source)
        if isinstance(found, Missing):
            if _is_absent(found):
                yield _Stale("node", node.path, [node.source], {"source": node.source})
            continue
        then, now = f"{node.major}:{node.minor}", f"{found.major}:{found.minor}"
        # Without a major number in the spec, the runtime looks at the node itself.
        if node.major and node.type != "p" and then != now:
            yield _Stale("number", node.path, [node.source], {"numbers": then, "now": now})


def _stale_gpus(loaded: LoadedSpec, gpus: tuple[Gpu, ...]) -> Iterator[_Stale]:
    """Yield the GPUs that only the spec or only the host has. Nothing where the driver reports no GPU."""
    here = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.index is not None]
    uuids = [gpu.uuid for gpu in here if gpu.uuid and "?" not in gpu.uuid]
    names = [device.name for device in loaded.spec.devices]
    if not here:
        return
    gone = [name for name in names if name.startswith("GPU-") and len(uuids) == len(here) and name not in uuids]
    gone += [name for name in names if name.isascii() and name.isdigit() and int(name[:9]) >= len(here)]
    if gone:
        yield _Stale("gpus-gone", gone[0], gone, {})
    new = [str(gpu.index) for gpu in here if not {str(gpu.index), gpu.uuid, f"gpu{gpu.index}"} & set(names)]
    parts = [name for name in names if ":" in name or name.startswith("MIG-")]
    if new and not parts and names != [ALL]:
        yield _Stale("gpus-new", new[0], new, {"count": len(new)})


def _edits(loaded: LoadedSpec) -> tuple[CdiEdits, ...]:
    return (loaded.spec.edits, *(device.edits for device in loaded.spec.devices))


def _is_absent(found: Union[Stat, Missing]) -> bool:
    return isinstance(found, Missing) and found.why == "absent"


def _look(host: Host, path: str) -> Union[Stat, Missing]:
    """Return what is at *path*."""
    if not path.startswith("/"):
        return Missing("unreadable", "a relative path")
    inside = in_driver_root(host, path)
    return host.lenient.dev.stat(path) if inside is None else host.lenient.driver.stat(inside)
