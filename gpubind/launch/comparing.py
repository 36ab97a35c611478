"""Take the snapshot of a host, which is compared with those of others."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from gpubind.documents.diff.snapshot import Snapshot, outcome_of, snapshot_of, snapshot_of_images
from gpubind.host import Host
from gpubind.host.base import ROCM_PATH, SEARCHED
from gpubind.image.facts import Image
from gpubind.launch.prepare import preflight_on
from gpubind.planner.planning import Query
from gpubind.rules.table import check

OF_A_HOST = (*SEARCHED, ROCM_PATH)
"""The variables that say where a host has its programs and files; all others are those of a job."""


def without_job(host: Host) -> Host:
    """Return *host* without the variables of the job that asks."""
    other = copy(host)
    other.environ = {name: value for name, value in host.environ.items() if name in OF_A_HOST}
    return other


def take_snapshot(name: str, host: Host, query: Query) -> Snapshot:
    """Return the snapshot of *host*, called *name*, with what a check of it finds. Errors: as `plan_host`."""
    found = preflight_on(without_job(host), query)
    return snapshot_of(name, found.plan, check(found), host.uname.release)


def check_images(name: str, host: Host, query: Query, images: Iterable[tuple[str, Image]]) -> Snapshot:
    """Return what a check says of *host*, and what in addition of each of *images*, taken one after the other.

    Errors: as `plan_host`.
    """
    host = without_job(host)
    found = preflight_on(host, query)
    of_host = check(found)
    outcomes = [
        outcome_of(reference, (one for one in check(preflight_on(host, query, image)) if one not in of_host))
        for reference, image in images
    ]
    return snapshot_of_images(name, found.plan, of_host, outcomes)
