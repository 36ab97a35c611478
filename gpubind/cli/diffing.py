"""Take the snapshots that `diff` compares: of plans, records, this machine and driver roots."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Optional, Union

from gpubind.documents.diff.snapshot import FILES, Snapshot, snapshot_of
from gpubind.errors import UsageError, in_file
from gpubind.formats.text.json import parse_json
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.live import LiveHost
from gpubind.host.open import host_name, open_host, read_file
from gpubind.host.record import SIZE_LIMIT, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.image.open import OpenImages
from gpubind.image.reference import parse_reference
from gpubind.launch.comparing import check_images, take_snapshot
from gpubind.machine.answers import exists, is_directory
from gpubind.machine.budget import renew
from gpubind.machine.listener import cannot_sign
from gpubind.model import Plan
from gpubind.model.data import HOSTS
from gpubind.model.plain import PLAN
from gpubind.planner.planning import Query

LIVE, STDIN = "live", "-"
OWN = "gpubind"
"""The name of the plan that is not --like another program's."""
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


def open_compared(given: str) -> Compared:
    """Return what *given* names: `live`, a plan, a record or a bundled one, a driver root, or `-`, standard input.

    Errors: as `open_host`; `FormatError` (codes `bad-plan`, `bad-record`, `newer-record`).
    """
    if given == LIVE:
        return Compared(given, LiveHost())
    if given != STDIN and is_directory(given):
        return Compared(given, LiveHost(given, given), is_root=True)
    if given != STDIN and (given in HOSTS or not exists(given)):
        return Compared(given, open_host(given))
    with in_file("standard input" if given == STDIN else given):
        return Compared(given, parsed(given, _stdin() if given == STDIN else read_file(given, SIZE_LIMIT)))


def _stdin() -> bytes:
    cannot_sign("standard input is read")
    return b"" if sys.stdin is None else sys.stdin.buffer.read(SIZE_LIMIT + 1)


def parsed(given: str, data: bytes) -> Union[Host, Plan]:
    """Return the plan or the recorded host in *data*, called *given*. Errors: `FormatError`."""
    if _IS_PLAN.search(data) is not None:
        return Plan.from_dict(parse_json(data, SIZE_LIMIT, PLAN.format, keeps_halves=True))
    return RecordedHost(parse_record(data), os.path.basename(given))


def snapshots_of(
    words: Sequence[str], query: Query, flavours: Sequence[str], images: Sequence[str], *, is_compared: bool = True
) -> list[Snapshot]:
    """Return a snapshot of each thing that *words* name: as each of *flavours* sees it, if there are some.

    One host and one flavour are compared with each other. With *images* only what a check says of these is in a
    snapshot. One thing is enough if it is not *is_compared*.

    Errors: as `open_compared`, `plan_host`; `UsageError` (codes `nothing-to-compare`, `plan-not-host`).
    """
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
            with open_compared(word) as compared:
                has_plan, roots = has_plan or isinstance(compared.of, Plan), roots + compared.is_root
                if isinstance(compared.of, Plan) and (flavours or images):
                    why = "it answers one request, and --like and --image make others"
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


def _snapshot(of: Union[Host, Plan], query: Query, images: Sequence[str], opened: OpenImages) -> Snapshot:
    if isinstance(of, Plan):
        return snapshot_of("", of)
    if images:
        machine = of.uname.machine
        of_each = ((image, opened.image(parse_reference(image), machine)) for image in images)
        return check_images("", of, query, of_each)
    return take_snapshot("", of, query)
