"""A host, an image, a request: what a rule is asked about in a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Optional

from gpubind import plan
from gpubind.api.check import not_checked
from gpubind.errors import GpubindError, NothingToBindError
from gpubind.files import Tree
from gpubind.formats.text.requirements import parse_policy
from gpubind.host import ListFile
from gpubind.host.base import Untrusted
from gpubind.image.facts import Image
from gpubind.image.needs import read_needs
from gpubind.inventory.vendors import nothing_to_bind_finding
from gpubind.model import Finding, Plan, Request
from gpubind.model.requirements import Expectation
from gpubind.model.trial import Trial
from gpubind.planner import empty_plan
from gpubind.planner.placement import GPUBIND_LAYOUT, SINGULARITY_LAYOUT
from gpubind.rules.policy import check_policy
from gpubind.rules.preflight import Preflight, preflight
from gpubind.rules.table import check
from gpubind.runtimes.runtime import Start
from tests.support.driver import host, in_cgroup
from tests.support.trees import Item, Spec


class Situation(NamedTuple):
    """What there is, and what is asked of it."""

    parts: tuple[Spec, ...]
    """The host's files; later ones win."""
    image: Optional[Image] = None
    request: Mapping[str, Any] = {}
    """Fields of `Request`."""
    facts: Mapping[str, Any] = {}
    """Other facts of the host: environ, euid, groups, lists, runs, dev."""
    backend: Optional[str] = None
    start: Optional[Start] = None
    """What is known of the runtime, where its words matter."""
    program: Optional[str] = None
    listfile: Optional[ListFile] = None
    untrusted: tuple[Untrusted, ...] = ()
    """What of root's environment does not count."""
    usual: Optional[Start] = None
    """The start whose mounts are assumed where no runtime is named."""
    local: Optional[Tree] = None
    """The machine on which it starts, with what the user binds; None for a host that is elsewhere."""
    typical: str = ""
    """The description of a typical host."""
    assumes_dev_root: bool = False
    """Whether its driver root has no nodes, and no dev root was named."""
    forbidden: tuple[str, ...] = ()
    """Nodes that a device cgroup forbids."""
    may_be_library: bool = False
    """Whether the program may be a library: nothing is started."""
    expected: tuple[Expectation, ...] = ()
    trial: Optional[Trial] = None
    """What was seen in its container."""
    policy: str = ""
    """What the image is compared with, instead of the host."""


class Case(NamedTuple):
    """Where a rule fires, and where it is almost so and must not."""

    fires: Situation
    almost: Situation


def found(situation: Situation) -> tuple[Finding, ...]:
    """Everything that check says."""
    if situation.policy and situation.image is not None:
        return tuple(check_policy(read_needs(situation.image), parse_policy(situation.policy.encode())))
    return check(started(situation))


def in_full(findings: Iterable[Finding]) -> str:
    """Every field of *findings*, a line each, for a golden file."""
    return "".join(
        f"- {name}: {value}\n" if name != "code" else f"\n{value}\n\n"
        for finding in findings
        for name, value in finding._asdict().items()
        if value is not None
    )


def started(situation: Situation) -> Preflight:
    """What the rules look at."""
    layout = SINGULARITY_LAYOUT if situation.backend in ("apptainer", "singularity") else GPUBIND_LAYOUT
    machine = in_cgroup(host(*situation.parts, **situation.facts), *situation.forbidden)
    machine.local, machine.assumes_dev_root = situation.local, situation.assumes_dev_root
    machine.typical = situation.typical
    machine.untrusted = lambda *_: situation.untrusted  # type: ignore[method-assign]
    try:
        made = plan(machine, Request(**situation.request), situation.listfile, situation.image, layout)
    except GpubindError as error:
        made = unplanned(error, situation)
    start = situation.start
    own_mounts = None
    if start is not None and situation.image is not None:
        start = start._replace(tree=situation.image.tree)
    if start is not None and situation.local is not None:
        own_mounts = start.runtime.base_mounts(made, start)
    elif situation.usual is not None:
        own_mounts = situation.usual.runtime.base_mounts(made, situation.usual)
    begun = preflight(
        machine,
        made,
        situation.image,
        backend=situation.backend,
        start=start,
        program=situation.program,
        own_mounts=own_mounts,
        may_be_library=situation.may_be_library,
        expected=situation.expected,
    )
    return begun if situation.trial is None else begun.with_trial(situation.trial)


def unplanned(error: GpubindError, situation: Situation) -> Plan:
    """The empty plan with what is told where there is no other."""
    told = nothing_to_bind_finding(error) if isinstance(error, NothingToBindError) else not_checked(error, "node")
    return empty_plan(vendors=situation.request.get("vendors", ()))._replace(findings=(told,))


def without(spec: Spec, *paths: str) -> dict[str, Item]:
    """*spec* without these paths."""
    return {path: item for path, item in spec.items() if path not in paths}
