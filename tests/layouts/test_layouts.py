"""Each host of `tests/layouts` has the plan that its layout declares, live and from a record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import gpubind
from gpubind.documents.gpus import list_gpus
from gpubind.documents.text import render_tsv
from gpubind.errors import NothingToBindError
from gpubind.host.record import dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.host.survey import look_around
from gpubind.host.surveyed import SurveyedHost
from gpubind.inventory.asked import with_gpus_of_smi
from gpubind.inventory.vendors import read_inventories
from gpubind.model import CAPABILITIES, Request
from gpubind.planner.gpus.selection import select
from gpubind.planner.planning import PlanQuery, plan_or_empty
from tests.law.records import Mounted, Question, answer
from tests.layouts.frame import HostLayout, by_name, host_of, layouts, names_of
from tests.layouts.nvidia import STAYS
from tests.layouts.page import formats_table, hosts_table, plan_in
from tests.support.golden import DOCS, GOLDEN, assert_golden, assert_listed, assert_none, assert_rules_are_documented
from tests.support.trees import Hidden, Node, Socket, Unread, make_tree

MODES = ("ubuntu", "wsl2", "jetson6", "rocm-packages", "intel-arc", "gaudi")
"""A host of each mode of each vendor."""
each = pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)

ELSEWHERE = [layout for layout in layouts() if "LD_LIBRARY_PATH" not in layout.environ]
"""Those that are the same below another root: there the caller's search path means nothing."""


def listed(layout: HostLayout, field: str, found: Iterable[str]) -> None:
    place = f"tests/layouts/families: {field} of the layout `{layout.name}`"
    add, remove = f"{place} have `{{}}`, which gpubind does not give", f"{place} lack `{{}}`"
    assert_listed(sorted(found), sorted(getattr(layout, field)), add=add, remove=remove)


def test_a_name_of_a_layout_is_used_once() -> None:
    used = [layout.name for layout in layouts()]
    assert used == sorted(set(used))


@each
def test_a_plan_has_what_its_layout_declares(layout: HostLayout) -> None:
    has = names_of(plan_in(layout.name).mounts)
    place = f"the plan of the layout `{layout.name}` (tests/layouts/families)"
    for category, wanted in layout.planned.items():
        assert_listed(has, wanted, add=f"{place} lacks `{{}}`, which `planned` has as {category}")
    assert_none(sorted(has.intersection(STAYS)), f"{place} has `{{}}`, which stays on the host")


@each
def test_every_rule_of_a_decision_is_documented_with_its_verdict(layout: HostLayout) -> None:
    assert_rules_are_documented(plan_in(layout.name))


@each
def test_all_that_a_plan_says_is_of_one_of_its_vendors_or_of_none(layout: HostLayout) -> None:
    made = plan_in(layout.name)
    said = {one.vendor for part in (made.mounts, made.devices, made.decisions, made.findings) for one in part}
    assert said - {None} <= {planned.driver.vendor for planned in made.drivers}


@each
def test_a_plan_has_all_that_apptainers_own_flag_binds_of_the_loaded_driver(layout: HostLayout) -> None:
    plan = plan_in(layout.name)
    theirs = plan_or_empty(host_of(layout.name), PlanQuery(Request(vendors=("nvidia",), like="apptainer")))
    others = {decision.subject for decision in plan.decisions if decision.rule == "other-driver-version"}
    lost = sorted(names_of(theirs.mounts) - names_of(plan.mounts) - others)
    assert_none(lost, f"the plan of the layout `{layout.name}` lacks `{{}}`, which `--nv` of Apptainer binds")


@each
def test_what_a_layout_says_is_not_served_is_on_its_host_and_not_in_its_plan(layout: HostLayout) -> None:
    there = {path.rpartition("/")[2] for path in (*layout.spec, *(layout.dev or {}))}
    assert {*layout.not_served} <= there - names_of(plan_in(layout.name).mounts)
    assert all(reason.endswith(".") for reason in (*layout.not_served.values(), layout.remark or "."))


@each
def test_a_plan_has_the_nodes_of_its_layout_and_no_others(layout: HostLayout) -> None:
    listed(layout, "nodes", (device.source for device in plan_in(layout.name).devices))


@each
def test_check_finds_what_its_layout_declares(layout: HostLayout) -> None:
    findings = gpubind.check(host_of(layout.name), plan_in(layout.name))
    listed(layout, "findings", sorted({one.code for one in findings}))


@each
def test_explain_tells_of_the_library_of_a_layout(layout: HostLayout) -> None:
    told = gpubind.explain(plan_in(layout.name), layout.main)
    decided = [decision.verdict for _, decisions in told.subjects for decision in decisions]
    has_it = any(layout.main in wanted for wanted in layout.planned.values())
    assert ("taken" in decided) == has_it
    assert bool(decided) == bool(plan_in(layout.name).decisions)


@each
def test_the_gpus_of_a_layout_are_listed(layout: HostLayout) -> None:
    host = host_of(layout.name)
    try:
        found = with_gpus_of_smi(host, read_inventories(host, layout.request).inventories)
    except NothingToBindError:
        found = ()
    listed = list_gpus(found, select(found, layout.request.gpus, host.environ, isolated=True))
    told: list[str] = []
    for one in listed:
        name = "-" if one.gpu.index is None else str(one.gpu.index)
        told += [name, *(f"{name}:{part.gi}/{part.ci}" for part in one.gpu.mig)]
    assert tuple(told) == layout.gpus


@each
def test_a_record_of_a_layout_answers_as_the_host_does(layout: HostLayout) -> None:
    host = host_of(layout.name)
    requests = dict.fromkeys((layout.request, Request(caps=CAPABILITIES, libc="host"), Request(like="apptainer")))
    asked = [Question(one, None, None, None, layout.main, None, None, may_be_refused=False) for one in requests]
    surveyed = SurveyedHost(host)
    look_around(surveyed)
    answers = [answer(surveyed.anew(), one) for one in asked]
    recorded = RecordedHost(parse_record(dump_record(surveyed.recorded("", None), "").encode()), host.label)
    assert [answer(recorded, one) for one in asked] == answers


@pytest.mark.parametrize("layout", ELSEWHERE, ids=lambda layout: layout.name)
def test_real_files_of_a_layout_are_planned_as_those_of_its_record(layout: HostLayout, tmp_path: Path) -> None:
    like = host_of(layout.name)
    files = {path: item for path, item in layout.spec.items() if not isinstance(item, (Node, Hidden, Unread, Socket))}
    machine = Mounted(make_tree(tmp_path, files).root, like)
    machine.dev, machine.uname, machine.identity = like.dev, like.uname, like.identity  # any user makes files alone
    made = plan_or_empty(machine, PlanQuery(layout.request))
    bound = {mount.target: (mount.source or "").replace(str(tmp_path), "") for mount in made.mounts}
    root = layout.root.rstrip("/")
    assert bound == {mount.target: (mount.source or "").removeprefix(root) for mount in plan_in(layout.name).mounts}


@pytest.mark.parametrize("name", ["ubuntu", "gpu-operator-root-rhel", "rocm-packages", "nothing"])
def test_the_command_makes_a_record_of_a_layout(name: str) -> None:
    assert parse_record(gpubind.record(host_of(name), request=by_name(name).request).encode())


@pytest.mark.parametrize("name", MODES)
def test_the_plan_of_a_mode_is_what_its_golden_file_says(name: str) -> None:
    assert_golden(GOLDEN / "layouts" / f"{name}.tsv", render_tsv(plan_in(name)).rpartition("# ")[0])


def test_the_page_has_a_row_for_each_host() -> None:
    assert_golden(DOCS / "hosts.md", hosts_table(), part="hosts")


def test_the_page_says_what_each_format_gives() -> None:
    assert_golden(DOCS / "hosts.md", formats_table(), part="formats")
