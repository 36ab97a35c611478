"""The CDI specs of a host, which podman, docker, containerd and others read at every start, whoever made the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.errors import NotRecordedError
from gpubind.model import Finding
from gpubind.rules.looking import nvidia_driver
from gpubind.rules.preflight import Preflight
from gpubind.sources.cdi.registry import SOURCE, Registry, read_registry, registry_findings
from gpubind.sources.cdi.stale import stale_findings


def bad_cdi(preflight: Preflight) -> Iterator[Finding]:
    """A spec that cannot be read, or that the CDI project's rules refuse."""
    yield from _of_registry(preflight, "bad-cdi")


def cdi_conflict(preflight: Preflight) -> Iterator[Finding]:
    """A device that two specs of one directory have."""
    yield from _of_registry(preflight, "cdi-conflict")


def stale_cdi(preflight: Preflight) -> Iterator[Finding]:
    """A spec whose files, numbers or GPUs are not this host's any more."""
    registry = _registry(preflight)
    if registry is not None:
        driver = nvidia_driver(preflight.plan)
        version = driver.kernel_version if driver is not None else None
        yield from stale_findings(preflight.host, registry.specs, version, preflight.plan.gpus, "warning")


def _of_registry(preflight: Preflight, code: str) -> Iterator[Finding]:
    registry = _registry(preflight)
    if registry is not None:
        yield from (finding for finding in registry_findings(registry) if finding.code == code)


def _registry(preflight: Preflight) -> Optional[Registry]:
    """The specs of the host; None where the plan was made of them and says all this itself, or nobody can know."""
    if any(planned.source.served == SOURCE for planned in preflight.plan.drivers):
        return None
    try:
        return read_registry(preflight.host, preflight.plan.request.cdi_directories)
    except NotRecordedError:
        return None
