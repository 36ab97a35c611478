"""Does a CDI spec still fit its host? It is written once and read at every start; drivers and GPUs change between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional, Union

from gpubind.errors import NotRecordedError
from gpubind.formats.cdi import CdiEdits
from gpubind.host import Host
from gpubind.model import Finding, Gpu, Missing, Severity, Stat
from gpubind.sources.cdi.registry import ALL, NVIDIA, Loaded, in_driver_root
from gpubind.sources.liblist import driver_version_of

REFRESH = "make it anew: `gpubind plan --format cdi -o FILE`, or `nvidia-ctk cdi generate`"


def stale_findings(
    host: Host, specs: Iterable[Loaded], version: Optional[str], gpus: tuple[Gpu, ...], severity: Severity
) -> list[Finding]:
    """What in *specs* is not so on *host* any more, each entry named; *version* is that of the kernel module."""
    findings = []
    for loaded in specs:
        for subject, what, entries, why in _stale(host, loaded, version, gpus):
            where = f"{loaded.path}: {', '.join(entries)}"
            findings.append(
                Finding(
                    code="stale-cdi",
                    severity=severity,
                    vendor=None,
                    subject=subject,
                    what=what,
                    where=where,
                    why=why,
                    hint=REFRESH,
                )
            )
    return findings


def _stale(
    host: Host, loaded: Loaded, version: Optional[str], gpus: tuple[Gpu, ...]
) -> Iterator[tuple[str, str, list[str], str]]:
    mounts = list(dict.fromkeys(mount.host_path for edits in _edits(loaded) for mount in edits.mounts))
    gone = [path for path in mounts if _is_absent(host, path)]
    if gone:
        what = f"the CDI spec {loaded.path} mounts {_files(len(gone))} not on this host"
        yield loaded.path, what, gone, "every container that gets one of its devices fails to start"
    other = [path for path in mounts if version and (driver_version_of(path) or version) != version]
    if other:
        carried = ", ".join(sorted({driver_version_of(path) or "" for path in other}))
        what = f"the CDI spec {loaded.path} is for driver {carried}, the kernel module is {version}"
        yield loaded.path, what, other, "programs would say `Driver/library version mismatch`"
    yield from _stale_nodes(host, loaded)
    if loaded.spec.kind == NVIDIA:
        yield from _stale_gpus(loaded, gpus)


def _stale_nodes(host: Host, loaded: Loaded) -> Iterator[tuple[str, str, list[str], str]]:
    nodes = dict.fromkeys(node for edits in _edits(loaded) for node in edits.nodes)
    for node in nodes:
        found = _node(host, node.source)
        if isinstance(found, Missing):
            if found.why == "absent":
                what = f"the CDI spec {loaded.path} gives {node.path}, which is not on this host"
                why = f'`failed to stat CDI host device "{node.source}"`'
                yield node.path, what, [node.source], why
            continue
        numbers = f"{node.major}:{node.minor}"
        # Without a major number in the spec, the runtime looks at the node itself.
        if node.major and node.type != "p" and numbers != f"{found.major}:{found.minor}":
            what = f"the CDI spec {loaded.path} remembers {node.path} as {numbers}, it is {found.major}:{found.minor}"
            why = "as root the container gets the remembered number: ENXIO at open, or another device"
            yield node.path, what, [node.source], why


def _stale_gpus(loaded: Loaded, gpus: tuple[Gpu, ...]) -> Iterator[tuple[str, str, list[str], str]]:
    """GPUs that the spec has and the host has not, and the other way round. Nothing where the driver tells of none."""
    here = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.index is not None]
    uuids = [gpu.uuid for gpu in here if gpu.uuid and "?" not in gpu.uuid]
    names = [device.name for device in loaded.spec.devices]
    if not here:
        return
    gone = [name for name in names if name.startswith("GPU-") and len(uuids) == len(here) and name not in uuids]
    gone += [name for name in names if name.isascii() and name.isdigit() and int(name[:9]) >= len(here)]
    if gone:
        what = f"the CDI spec {loaded.path} has GPUs that this host has not"
        yield gone[0], what, gone, "GPUs were taken out, replaced, or are lost; their nodes lead nowhere"
    new = [str(gpu.index) for gpu in here if not {str(gpu.index), gpu.uuid, f"gpu{gpu.index}"} & set(names)]
    parts = [name for name in names if ":" in name or name.startswith("MIG-")]
    if new and not parts and names != [ALL]:
        what = f"the CDI spec {loaded.path} lacks {len(new)} of this host's GPUs"
        yield new[0], what, new, f"`unresolvable CDI devices {NVIDIA}={new[0]}`, and `{ALL}` may not mean all"


def _edits(loaded: Loaded) -> tuple[CdiEdits, ...]:
    return (loaded.spec.edits, *(device.edits for device in loaded.spec.devices))


def _files(number: int) -> str:
    return "a file that is" if number == 1 else f"{number} files that are"


def _is_absent(host: Host, path: str) -> bool:
    found = _node(host, path)
    return isinstance(found, Missing) and found.why == "absent"


def _node(host: Host, path: str) -> Union[Stat, Missing]:
    """What is at *path*; where a record does not cover it, `unreadable`."""
    if not path.startswith("/"):
        return Missing("unreadable", "a relative path")
    try:
        inside = in_driver_root(host, path)
        return host.dev.stat(path) if inside is None else host.driver.stat(inside)
    except NotRecordedError as error:
        return Missing("unreadable", error.what)
