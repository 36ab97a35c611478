"""Compare snapshots: groups of equal hosts, and how the others differ from the largest group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Optional, get_args

from gpubind.documents.diff.snapshot import FILES, SECTIONS, ImageOutcome, Section, Snapshot, SnapshotFact
from gpubind.frozen import NamedTuple

Cause = Literal["driver", "gpus", "files"]
PRESENCE, PRESENT, ABSENT = "presence", "present", "absent"
_PRESENCE_SECTIONS = (*FILES, "device")
"""Sections in which only the presence of a fact is compared. In all others, values are compared, and a missing one
differs.
"""
_OF_VERSION = ("size", "content")
"""Fields of a file that differ between versions of the driver."""

_Key = tuple[Section, str]
Fold = Callable[[Sequence[str]], str]
"""A function that folds the names of several hosts into one short name."""


class Difference(NamedTuple):
    """One difference of some hosts from the reference."""

    section: Section
    name: str
    field: str
    """The name of the field; `presence` if a whole fact is `present` on one side and `absent` on the other."""
    before: Optional[str]
    """The value of the reference; None if it has no value, or if its value is unknown."""
    after: Optional[str]
    follows: Optional[Cause] = None
    """The cause of which this difference is a consequence: the driver, the number of GPUs, files that are present
    or absent.
    """


class HostsWith(NamedTuple):
    """Hosts with one driver."""

    driver: str
    """The driver, for people: `nvidia 550.163.01, CUDA 12.4`; empty if the hosts have none, or did not report it."""
    hosts: tuple[str, ...]


class EqualHosts(NamedTuple):
    """Hosts whose snapshots are equal."""

    digest: str
    hosts: tuple[str, ...]
    """In the order of the command line."""
    differences: tuple[Difference, ...]
    """How they differ from the reference, in the order of sections; empty for the reference itself."""
    drivers: tuple[HostsWith, ...] = ()
    """The hosts by their drivers. If images were compared, equal hosts may have different drivers."""
    images: tuple[ImageOutcome, ...] = ()
    """The outcomes for the first of the hosts."""

    @property
    def direct(self) -> list[Difference]:
        """Return the differences that have no other difference as cause."""
        return [difference for difference in self.differences if difference.follows is None]

    @property
    def consequences(self) -> dict[Cause, list[str]]:
        """Return the names of the facts that differ as a consequence, by cause, each once."""
        by_cause = {
            cause: [difference.name for difference in self.differences if difference.follows == cause]
            for cause in get_args(Cause)
        }
        return {cause: list(dict.fromkeys(names)) for cause, names in by_cause.items() if names}


class Comparison(NamedTuple):
    """Several hosts, compared."""

    groups: tuple[EqualHosts, ...]
    """The groups, the largest first: it is the reference. Equally large groups are in the order of their first
    hosts.
    """

    @property
    def is_equal(self) -> bool:
        """Return whether all hosts are equal."""
        return len(self.groups) < 2


class _Equal(NamedTuple):
    digest: str
    first: Snapshot
    hosts: list[str]
    drivers: dict[str, list[str]]


def compare(snapshots: Iterable[Snapshot]) -> Comparison:
    """Return the groups of equal *snapshots*, and their differences. Only one snapshot of each group is kept."""
    return compare_hosts((snapshot, (snapshot.name,)) for snapshot in snapshots)


def compare_hosts(snapshots: Iterable[tuple[Snapshot, Iterable[str]]]) -> Comparison:
    """Compare as `compare` does; each snapshot comes with the hosts that have it."""
    groups: dict[str, _Equal] = {}
    for snapshot, hosts in snapshots:
        digest, names = snapshot.digest, tuple(hosts)
        group = groups.setdefault(digest, _Equal(digest, snapshot, [], {}))
        group.hosts.extend(names)
        group.drivers.setdefault(snapshot.driver, []).extend(names)
    largest_first = sorted(groups.values(), key=lambda group: -len(group.hosts))  # stable
    return Comparison(
        tuple(
            EqualHosts(
                group.digest,
                tuple(group.hosts),
                tuple(_differences(largest_first[0].first, group.first)),
                tuple(HostsWith(driver, tuple(hosts)) for driver, hosts in group.drivers.items()),
                group.first.images,
            )
            for group in largest_first
        )
    )


def _differences(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    facts = [{(fact.section, fact.key): fact for fact in snapshot.facts} for snapshot in (before, after)]
    keys = sorted({*facts[0], *facts[1]}, key=lambda key: (SECTIONS.index(key[0]), key[1]))
    follows = _cause_finder(*facts)
    for key in keys:
        old, new = (side.get(key) for side in facts)
        for difference in _field_differences(old, new):
            yield difference._replace(follows=follows(difference, old or new))


def _field_differences(old: Optional[SnapshotFact], new: Optional[SnapshotFact]) -> Iterator[Difference]:
    fact = old or new
    assert fact is not None
    if (old is None or new is None) and fact.section in _PRESENCE_SECTIONS:
        states = (PRESENT, ABSENT) if new is None else (ABSENT, PRESENT)
        yield Difference(fact.section, fact.name, PRESENCE, *states)
        return
    fields = (old.fields if old else {}), (new.fields if new else {})
    names = list(dict.fromkeys((*fields[0], *fields[1])))
    for name in names if old and new else names[:1]:
        if fields[0].get(name) != fields[1].get(name):
            yield Difference(fact.section, fact.name, name, fields[0].get(name), fields[1].get(name))


def _cause_finder(
    old: Mapping[_Key, SnapshotFact], new: Mapping[_Key, SnapshotFact]
) -> Callable[[Difference, Optional[SnapshotFact]], Optional[Cause]]:
    versions = [{k: f.fields.get("version") for (s, k), f in facts.items() if s == "driver"} for facts in (old, new)]
    numbers = [[f.fields.get("number") for (s, _), f in facts.items() if s == "gpus"] for facts in (old, new)]
    files = [{key for key in facts if key[0] in FILES} for facts in (old, new)]

    def cause(difference: Difference, fact: Optional[SnapshotFact]) -> Optional[Cause]:
        vendor, _, kind = fact.vendor_scope.partition(" ") if fact is not None else ("", "", "")
        is_whole = difference.field == PRESENCE
        if is_whole and kind == "GPU" and numbers[0] != numbers[1]:
            return "gpus"
        is_rewritten = difference.field in _OF_VERSION and None in (difference.before, difference.after)
        if files[0] != files[1] and (is_rewritten or difference.section == "variable"):
            return "files"
        before, after = (side.get(vendor) for side in versions)
        may_follow = kind == "driver" or None in (before, after) if is_whole else difference.field in _OF_VERSION
        return "driver" if before != after and may_follow else None

    return cause
