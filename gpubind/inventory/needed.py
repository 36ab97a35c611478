"""The dependencies of a user space's libraries (DT_NEEDED), as the host's loader resolves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

from gpubind.inventory.claims import Claim
from gpubind.inventory.search import Search
from gpubind.loader.container import Dependency, host_closure
from gpubind.model import CAPABILITIES, Capability, Decision, FileGroup, HostFile, Request, Vendor
from gpubind.model.files import Missing, ResolvedFile, RootedPath


def needed_files(
    search: Search, request: Request, files: Iterable[HostFile], vendor: Vendor, group: FileGroup
) -> tuple[tuple[HostFile, ...], list[Decision]]:
    """Return the files that the loader opens for those of *files* that are in *group*, a group of *vendor*.

    Each is claimed by its first consumer. Names of *files* are not searched again.
    """
    loaded = [file for file in files if file.kind in ("library", "binary") and file.group in (None, group)]
    names = {name for file in loaded for name in file.names if file.kind == "library"}
    capabilities = {file.path: file.capability for file in loaded}
    decisions: list[Decision] = []
    more: dict[str, HostFile] = {}
    for needed in host_closure(search.tree, search.arch, capabilities, search.preferred_directories):
        if needed.name in names:
            continue
        location = f"needed by {needed.first_consumer.rpartition('/')[2]}"
        claim = Claim("library-name", needed.name, "closure", location, vendor, group=group)
        resolved = needed.path and search.tree.find(needed.path)
        if not isinstance(resolved, ResolvedFile):
            decisions.append(claim.absent("this host has no such library; the image may have one"))
        elif search.other_release(resolved.path):
            decisions.append(claim.rejected("other-rocm", "of another ROCm than the one that serves", resolved.path))
        elif resolved.path in more:  # one file under two names
            before = more[resolved.path]
            more[resolved.path] = before._replace(names=tuple(sorted({*before.names, needed.name})))
        else:
            capability = _capability(needed, capabilities, request)
            by = needed.found_by
            file = claim.file(search.tree, resolved, kind="library", found_by=by, capability=capability)
            elf = search.tree.elf(resolved.path)
            soname = needed.name if isinstance(elf, Missing) or elf.soname is None else elf.soname
            more[resolved.path] = file._replace(names=(needed.name,), arch=search.arch, soname=soname)
    return tuple(more.values()), decisions


def _capability(
    needed: Dependency, capabilities: Mapping[RootedPath, Optional[Capability]], request: Request
) -> Optional[Capability]:
    """Return a capability of the consumers, preferably a requested one; None if a consumer has none."""
    consumers = [capabilities[root] for root in needed.needed_by]
    if None in consumers:
        return None
    ordered = [capability for capability in CAPABILITIES if capability in consumers]
    return next((capability for capability in ordered if capability in request.capabilities), ordered[0])
