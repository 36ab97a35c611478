"""diff: how hosts differ. Compares snapshots of plans, records, this machine and driver roots."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from posixpath import basename
from typing import Optional, Union

from gpubind.api.verb import verb
from gpubind.documents.diff.comparison import Comparison, compare
from gpubind.documents.diff.snapshot import FILES, Snapshot, outcome_of, snapshot_of, snapshot_of_images
from gpubind.errors import UsageError, in_file
from gpubind.formats.text.json import parse_json
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.base import ROCM_PATH, SEARCHED
from gpubind.host.live import LiveHost
from gpubind.host.open import host_name, open_host, read_file
from gpubind.host.record import SIZE_LIMIT, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.image.facts import Image
from gpubind.image.open import OpenImages
from gpubind.image.reference import parse_reference
from gpubind.launch.preflight import make_preflight
from gpubind.machine.answers import exists, is_directory
from gpubind.machine.budget import renew
from gpubind.model import Plan
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.model.plain import DOCUMENT_DECODER
from gpubind.planner.planning import PlanQuery
from gpubind.rules.table import check

LIVE, STDIN = "live", "-"
OWN = "gpubind"
"""The name of gpubind's own plan in --like."""
_HOST_VARIABLES = (*SEARCHED, ROCM_PATH)
"""The variables that name the directories of a host's programs and files. All others belong to a job."""
_IS_PLAN = re.compile(rb'"schema"\s*:\s*"gpubind\.plan/')


class Compared(NamedTuple):
    """One of the things to compare."""

    argument: str
    """Its argument on the command line."""
    subject: Union[Host, Plan]
    is_root: bool = False
    """Whether it is a directory with a driver. Then only the driver is compared: everything else is this machine's."""

    @property
    def name(self) -> str:
        """Return the name of the machine if known; else that of the file, without its ending."""
        hostname = self.subject.hostname if isinstance(self.subject, Host) and not self.is_root else None
        return host_name(self.argument, hostname)


def _open_compared(name: str, standard_input: bytes = b"") -> Compared:
    """Open *name*: `live`, a plan, a record or a bundled one, a driver root, or `-` for *standard_input*.

    Errors: as `open_host`; `FormatError` (codes `bad-plan`, `bad-record`, `newer-record`).
    """
    if name == LIVE:
        return Compared(name, LiveHost())
    if name != STDIN and is_directory(name):
        return Compared(name, LiveHost(name, name), is_root=True)
    if name != STDIN and (name in BUNDLED_HOSTS or not exists(name)):
        return Compared(name, open_host(name))
    with in_file("standard input" if name == STDIN else name):
        return Compared(
            name, parse_host_or_plan(name, standard_input if name == STDIN else read_file(name, SIZE_LIMIT))
        )


def parse_host_or_plan(name: str, data: bytes) -> Union[Host, Plan]:
    """Return the plan or the recorded host in *data*, named *name*. Errors: `FormatError`."""
    if _IS_PLAN.search(data) is not None:
        return Plan.from_dict(parse_json(data, SIZE_LIMIT, DOCUMENT_DECODER.format, allow_surrogates=True))
    return RecordedHost(parse_record(data), basename(name))


class DiffRequest(NamedTuple):
    names: tuple[str, ...]
    """The things to compare, as `_open_compared` takes them."""
    query: PlanQuery = PlanQuery()
    flavours: tuple[str, ...] = ()
    """The programs of `--like`: each host is compared as each program would plan it. Empty for gpubind's own plan."""
    images: tuple[str, ...] = ()
    """If there are some, only the findings of checks of these images are compared."""
    standard_input: bytes = b""
    """A plan or record for the name `-`."""


def snapshots(request: DiffRequest, *, is_compared: bool = True) -> list[Snapshot]:
    """Return a snapshot of each named thing; if there are flavours, one for each flavour.

    One host and one flavour are compared with each other. One thing is enough if it is not *is_compared*. Errors: as
    `_open_compared`, `plan_host`; `UsageError` (codes `nothing-to-compare`, `plan-not-host`).
    """
    arguments, query, flavours, images, standard_input = request
    views: list[Optional[str]] = [*flavours] or [None]
    if len(arguments) == len(flavours) == 1 and is_compared:
        views = [None, *views]
    if len(arguments) * len(views) < 2 and is_compared:
        hint = "name two or more of: a plan, a record, `live`, a directory; or one of them with --like"
        raise UsageError("nothing-to-compare", "there is one thing only, and nothing to compare it with", hint=hint)
    queries = [query._replace(request=query.request._replace(like=view)) for view in views]
    if None in views:  # the options apply to gpubind's own plan
        queries = [view_query._replace(own_only=frozenset(query.request._fields)) for view_query in queries]
    names, snapshot_list, has_plan, roots = [], [], False, 0
    with OpenImages() as opened:
        for argument in arguments:
            compared = _open_compared(argument, standard_input)
            with compared.subject if isinstance(compared.subject, Host) else nullcontext():
                has_plan, roots = has_plan or isinstance(compared.subject, Plan), roots + compared.is_root
                if isinstance(compared.subject, Plan) and (flavours or images):
                    why = "a plan answers one request, and --like and --image need a new plan of a host"
                    raise UsageError("plan-not-host", "a plan takes the place of a host", where=argument, why=why)
                names.append(compared.name)
                for view_query in queries:
                    renew()  # each host has the bounds of a separate command
                    snapshot_list.append(_snapshot(compared.subject, view_query, images, opened))
    if len(views) > 1 and None in views:  # other programs plan no drivers and nodes
        snapshot_list = [snapshot.only((*FILES, "variable")) for snapshot in snapshot_list]
    snapshot_list = [snapshot.as_of_root for snapshot in snapshot_list] if 0 < roots < len(arguments) else snapshot_list
    snapshot_list = [snapshot.as_of_plan for snapshot in snapshot_list] if has_plan else snapshot_list
    return [
        snapshot._replace(name=name) for snapshot, name in zip(snapshot_list, _unique_names(arguments, names, views))
    ]


def _unique_names(arguments: Sequence[str], names: Sequence[str], views: Sequence[Optional[str]]) -> list[str]:
    """Return the names of snapshots. Equal names are replaced by the arguments."""
    number = Counter(names)
    unique = [name if number[name] == 1 else argument for argument, name in zip(arguments, names)]
    return [name if len(views) == 1 else f"{name} ({view or OWN})" for name in unique for view in views]


def _snapshot(of: Union[Host, Plan], query: PlanQuery, images: Sequence[str], opened: OpenImages) -> Snapshot:
    if isinstance(of, Plan):
        return snapshot_of("", of)
    if images:
        machine = of.uname.machine
        of_each = ((image, opened.image(parse_reference(image), machine)) for image in images)
        return _check_images(of, query, of_each)
    return take_snapshot("", of, query)


def without_job(host: Host) -> Host:
    """Return *host* without the variables of the current job."""
    host_copy = copy(host)
    host_copy.environ = {name: value for name, value in host.environ.items() if name in _HOST_VARIABLES}
    return host_copy


def take_snapshot(name: str, host: Host, query: PlanQuery) -> Snapshot:
    """Return the snapshot of *host*, named *name*, with the findings of its check. Errors: as `plan_host`."""
    preflight = make_preflight(without_job(host), query)
    return snapshot_of(name, preflight.plan, check(preflight), host.uname.release)


def _check_images(host: Host, query: PlanQuery, images: Iterable[tuple[str, Image]]) -> Snapshot:
    """Errors: as `plan_host`."""
    host = without_job(host)
    preflight = make_preflight(host, query)
    of_host = check(preflight)
    outcomes = []
    for reference, image in images:
        findings = check(make_preflight(host, query, image))
        outcomes.append(outcome_of(reference, (finding for finding in findings if finding not in of_host)))
    return snapshot_of_images("", preflight.plan, of_host, outcomes)


@verb
def diff(plans: Mapping[str, Plan]) -> Comparison:
    """Return the groups of equal *plans*, by the names of their hosts, and how the other plans differ.

    It compares the same members as `gpubind diff` on documents of plans.
    """
    return compare(snapshot_of(name, plan) for name, plan in plans.items())
