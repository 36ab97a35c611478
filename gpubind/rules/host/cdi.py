"""The CDI specs of a host, which podman, docker, containerd and others read at every start, whoever made the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.formats.driver.cdi import SIZE_LIMIT
from gpubind.inventory.cdi.stale import stale_findings
from gpubind.inventory.cdi_specs import SOURCE, Registry, read_registry, registry_findings
from gpubind.model import Finding, Missing
from gpubind.rules.preflight import Preflight


def bad_cdi(preflight: Preflight) -> Iterator[Finding]:
    """A spec that cannot be read, or that the CDI project's rules refuse."""
    yield from _of_registry(preflight, "bad-cdi")


def cdi_conflict(preflight: Preflight) -> Iterator[Finding]:
    """A device that two specs of one directory have."""
    yield from _of_registry(preflight, "cdi-conflict")


def stale_cdi(preflight: Preflight) -> Iterator[Finding]:
    """Yield a spec whose files, numbers or GPUs are not this host's any more."""
    registry = _registry(preflight)
    if registry is not None:
        version = preflight.driver.kernel_version if preflight.driver is not None else None
        yield from stale_findings(preflight.host, registry.specs, version, preflight.plan.gpus, "warning")


def _of_registry(preflight: Preflight, code: str) -> Iterator[Finding]:
    registry = _registry(preflight)
    if registry is not None:
        yield from (finding for finding in registry_findings(registry) if finding.code == code)


def _registry(preflight: Preflight) -> Optional[Registry]:
    """The specs of the host; None where the plan was made of them and says all this itself, or nobody can know."""
    if any(planned.source.served == SOURCE for planned in preflight.plan.drivers):
        return None
    registry = read_registry(preflight.host, preflight.plan.request.cdi_directories)
    return None if any(_is_unrecorded(preflight, registry, path) for path in registry.broken) else registry


def _is_unrecorded(preflight: Preflight, registry: Registry, path: str) -> bool:
    """Return whether *path* counts for nothing only because a record does not cover it."""
    tree = preflight.host.dev
    answer = tree.list(path) if path in registry.directories else tree.read(path, SIZE_LIMIT)
    return isinstance(answer, Missing) and answer.why == "unrecorded"
