"""diff: how hosts differ. Snapshots of plans, records, this machine and driver roots are compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from gpubind.launch.prepare import preflight_on
from gpubind.machine.answers import exists, is_directory
from gpubind.machine.budget import renew
from gpubind.model import Plan
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.model.plain import DOCUMENT_DECODER
from gpubind.planner.planning import PlanQuery
from gpubind.rules.table import check

LIVE, STDIN = "live", "-"
OWN = "gpubind"
"""The name of the plan that is not --like another program's."""
_OF_A_HOST = (*SEARCHED, ROCM_PATH)
"""The variables that say where a host has its programs and files; all others are those of a job."""
_IS_PLAN = re.compile(rb'"schema"\s*:\s*"gpubind\.plan/')


class Compared(NamedTuple):
    """One of the things to compare."""

    given: str
    """On the command line."""
    of: Union[Host, Plan]
    is_root: bool = False
    """Whether it is a directory with a driver: the rest is of this machine, and is not compared."""

    def __enter__(self) -> Compared:
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(self.of, Host):
            self.of.close()

    @property
    def name(self) -> str:
        """Return the name of the machine, if it is known; else that of the file, without its ending."""
        known = self.of.hostname if isinstance(self.of, Host) and not self.is_root else None
        return host_name(self.given, known)


def _open_compared(given: str, standard_input: bytes = b"") -> Compared:
    """Return what *given* names: `live`, a plan, a record or a bundled one, a driver root, or `-`, *standard_input*.

    Errors: as `open_host`; `FormatError` (codes `bad-plan`, `bad-record`, `newer-record`).
    """
    if given == LIVE:
        return Compared(given, LiveHost())
    if given != STDIN and is_directory(given):
        return Compared(given, LiveHost(given, given), is_root=True)
    if given != STDIN and (given in BUNDLED_HOSTS or not exists(given)):
        return Compared(given, open_host(given))
    with in_file("standard input" if given == STDIN else given):
        return Compared(given, parsed(given, standard_input if given == STDIN else read_file(given, SIZE_LIMIT)))


def parsed(given: str, data: bytes) -> Union[Host, Plan]:
    """Return the plan or the recorded host in *data*, called *given*. Errors: `FormatError`."""
    if _IS_PLAN.search(data) is not None:
        return Plan.from_dict(parse_json(data, SIZE_LIMIT, DOCUMENT_DECODER.format, allow_surrogates=True))
    return RecordedHost(parse_record(data), basename(given))


class DiffRequest(NamedTuple):
    """What is to be compared."""

    names: tuple[str, ...]
    """As `_open_compared` takes them."""
    query: PlanQuery = PlanQuery()
    flavours: tuple[str, ...] = ()
    """The programs of `--like`, as each of which each host is seen; empty for gpubind's own plan."""
    images: tuple[str, ...] = ()
    """If there are some, only what a check says of these is compared."""
    standard_input: bytes = b""
    """A plan or record for the name `-`."""


def compare_named(request: DiffRequest) -> Comparison:
    """Return the groups of equal things, and how the others differ. Errors: as `snapshots`."""
    return compare(snapshots(request))


def snapshots(request: DiffRequest, *, is_compared: bool = True) -> list[Snapshot]:
    """Return a snapshot of each named thing, as each of the flavours sees it, if there are some.

    One host and one flavour are compared with each other. One thing is enough if it is not *is_compared*.

    Errors: as `_open_compared`, `plan_host`; `UsageError` (codes `nothing-to-compare`, `plan-not-host`).
    """
    words, query, flavours, images, standard_input = request
    views: list[Optional[str]] = [*flavours] or [None]
    if len(words) == len(flavours) == 1 and is_compared:
        views = [None, *views]
    if len(words) * len(views) < 2 and is_compared:
        hint = "name two or more of: a plan, a record, `live`, a directory; or one of them with --like"
        raise UsageError("nothing-to-compare", "there is one thing only, and nothing to compare it with", hint=hint)
    queries = [query._replace(request=query.request._replace(like=view)) for view in views]
    if None in views:  # the options are about gpubind's own plan
        queries = [asked._replace(own_only=frozenset(query.request._fields)) for asked in queries]
    names, taken, has_plan, roots = [], [], False, 0
    with OpenImages() as opened:
        for word in words:
            with _open_compared(word, standard_input) as compared:
                has_plan, roots = has_plan or isinstance(compared.of, Plan), roots + compared.is_root
                if isinstance(compared.of, Plan) and (flavours or images):
                    why = "a plan answers one request, and --like and --image need a new plan of a host"
                    raise UsageError("plan-not-host", "a plan takes the place of a host", where=word, why=why)
                names.append(compared.name)
                for asked in queries:
                    renew()  # each has the bounds of a separate command
                    taken.append(_snapshot(compared.of, asked, images, opened))
    if len(views) > 1 and None in views:  # other programs have no plan of drivers and nodes
        taken = [one.only((*FILES, "variable")) for one in taken]
    taken = [one.as_of_root for one in taken] if 0 < roots < len(words) else taken
    taken = [one.as_of_plan for one in taken] if has_plan else taken
    return [one._replace(name=name) for one, name in zip(taken, _called(words, names, views))]


def _called(words: Sequence[str], names: Sequence[str], views: Sequence[Optional[str]]) -> list[str]:
    """Return the names of snapshots; of things that have the same name, what was given."""
    number = Counter(names)
    unique = [name if number[name] == 1 else word for word, name in zip(words, names)]
    return [name if len(views) == 1 else f"{name} ({view or OWN})" for name in unique for view in views]


def _snapshot(of: Union[Host, Plan], query: PlanQuery, images: Sequence[str], opened: OpenImages) -> Snapshot:
    if isinstance(of, Plan):
        return snapshot_of("", of)
    if images:
        machine = of.uname.machine
        of_each = ((image, opened.image(parse_reference(image), machine)) for image in images)
        return _check_images("", of, query, of_each)
    return take_snapshot("", of, query)


def without_job(host: Host) -> Host:
    """Return *host* without the variables of the job that asks."""
    other = copy(host)
    other.environ = {name: value for name, value in host.environ.items() if name in _OF_A_HOST}
    return other


def take_snapshot(name: str, host: Host, query: PlanQuery) -> Snapshot:
    """Return the snapshot of *host*, called *name*, with what a check of it finds. Errors: as `plan_host`."""
    found = preflight_on(without_job(host), query)
    return snapshot_of(name, found.plan, check(found), host.uname.release)


def _check_images(name: str, host: Host, query: PlanQuery, images: Iterable[tuple[str, Image]]) -> Snapshot:
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


@verb
def diff(plans: Mapping[str, Plan]) -> Comparison:
    """Return the groups of equal *plans*, by the names of their hosts, and in what the others differ.

    What is compared is what `gpubind diff` compares of documents of plans.
    """
    return compare(snapshot_of(name, plan) for name, plan in plans.items())
