"""The tables of docs/hosts.md: what each host has in the plan, and what each format gives of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import gpubind
from gpubind.documents import PERSISTENT_DOCUMENTS
from gpubind.errors import GpubindError
from gpubind.launch.prepare import FilePolicy, layout_of, write_generated, write_start_files
from gpubind.model import Plan
from gpubind.planner.placement import GPUBIND_LAYOUT, Layout
from gpubind.planner.planning import PlanQuery, plan_or_empty
from gpubind.runtimes import RUNTIMES
from tests.layouts.frame import HostLayout, by_name, host_of, layouts, names_of

DOCUMENTS = tuple(form for form, lasting in PERSISTENT_DOCUMENTS.items() if lasting.content == "mounts")
FORMATS = (*RUNTIMES, *DOCUMENTS)
USUAL = "ubuntu"
"""The host on which the formats are compared."""
LIMITS = {
    "no-mount-point": "a file only where the image has a place for it",
    "no-read-only-bind": "files are not read-only: their modes count",
    "udocker-container": "a container that was made before",
}
"""What `check` says of a format on every host, in a few words."""


class Given(NamedTuple):
    """What a format gives of a plan."""

    names: frozenset[str]
    without_place: frozenset[str]
    """Those that an image has to have a place for."""
    error: str = ""
    """The code of the error, where the format cannot say the plan."""


def last(path: str) -> str:
    return path.rpartition("/")[2]


@cache
def plan_in(name: str, layout: Layout = GPUBIND_LAYOUT) -> Plan:
    """Return the plan for the host called *name*."""
    return plan_or_empty(host_of(name), PlanQuery(by_name(name).request), layout=layout)


@cache
def layout_in(form: str) -> Layout:
    """Return where the format *form* has the files, in a container of any image."""
    host = host_of(USUAL)
    return gpubind.open_layout(host, form) if form in DOCUMENTS else layout_of(gpubind.open_runtime(host, form), None)


def contained(form: str) -> Layout:
    """Return the same, with --contain for Apptainer and SingularityCE."""
    arguments = ("--contain",) if form in ("apptainer", "singularity") else ()
    return layout_of(gpubind.open_runtime(host_of(USUAL), form, arguments), None)


@cache
def given(name: str, form: str) -> Given:
    """Return what the format *form* gives on the host of the layout called *name*."""
    plan, files = plan_in(name, layout_in(form)), FilePolicy(write=False)
    names, lost = names_of(plan.mounts), frozenset[str]()
    try:
        if form in DOCUMENTS:
            PERSISTENT_DOCUMENTS[form].document.render(plan, write_generated(plan.generated, {}, files))
        else:
            start = gpubind.open_runtime(host_of(name), form)
            words = start.runtime.arguments(plan, start, write_start_files(plan, start, files))
            lost = frozenset(last(decision.subject) for decision in words.decisions) if words else lost
    except GpubindError as error:
        return Given(frozenset(), lost, error.code)
    return Given(names, lost)


def exceptions(layout: HostLayout) -> str:
    """Return the formats that lack something of *layout*, and what."""
    wanted = {name for names in layout.planned.values() for name in names}
    told = []
    for form in FORMATS:
        here = given(layout.name, form)
        lost = sorted(wanted - here.names)
        if here.error:
            told.append(f"not {form}: [{here.error}](errors.md#{here.error})")
        elif lost:
            told.append(f"not {form}: " + ", ".join(f"`{name}`" for name in lost))
    return "; ".join(told) or "all"


def count(layout: HostLayout, is_one: Callable[[str], bool]) -> str:
    """Return how many of the names that are one of this kind the plan has, and of how many, if some are lost."""
    has = sum(map(is_one, (name for names in layout.planned.values() for name in names)))
    lost = sum(map(is_one, layout.not_served))
    return f"{has} of {has + lost}" if lost else str(has or "none")


def is_library(name: str) -> bool:
    return ".so" in name


def is_manifest(name: str) -> bool:
    return name.endswith((".json", ".icd", ".bin", "-rc"))


def is_program(name: str) -> bool:
    return not is_library(name) and not is_manifest(name) and "socket" not in name


def gpus_of(layout: HostLayout) -> str:
    parts = sum(":" in gpu for gpu in layout.gpus)
    whole = str(len(layout.gpus) - parts or "none")
    return f"{whole}, {parts} MIG devices" if parts else whole


def row(layout: HostLayout) -> str:
    """Return the row of *layout*."""
    lost = [f"`{name}`: {reason}" for name, reason in layout.not_served.items()]
    cells = (
        f"[{layout.who[0].upper()}{layout.who[1:]}]({layout.source})",
        *(count(layout, kind) for kind in (is_library, is_program, is_manifest)),
        str(len(layout.nodes) or "none"),
        gpus_of(layout),
        exceptions(layout),
        ", ".join(f"[{code}](findings.md#{code})" for code in sorted(layout.findings)) or "-",
        " ".join((layout.remark, *lost)).strip() or "-",
    )
    return f"| {' | '.join(cells)} |"


def hosts_table() -> str:
    """Return a row for each host."""
    head = "| host | libraries | programs | manifests, data | nodes | GPUs | formats | check finds | what to know |"
    rule = f"{'| --- ' * (head.count('|') - 1)}|"
    rows = (row(layout) for layout in sorted(layouts(), key=lambda layout: layout.who.lower()))
    return "\n".join((head, rule, *rows, ""))


def formats_table() -> str:
    """Return a row for each format, on the usual host."""
    host, plan = host_of(USUAL), plan_in(USUAL)
    lines = ["| format | files | nodes | what else |", "| --- | --- | --- | --- |"]
    for form in FORMATS:
        names = given(USUAL, form).names - given(USUAL, form).without_place
        made = plan_in(USUAL, layout_in(form))
        codes = {one.code for one in gpubind.check(host, made, backend=None if form in DOCUMENTS else form)}
        files = sum(last(mount.target) in names for mount in plan.mounts)
        nodes = "the planned ones" if made.isolated else "all of the host's /dev, whatever `--gpus` says"
        if form in RUNTIMES and layout_in(form) != contained(form):
            nodes += "; with `--contain` the planned ones"
        limits = "; ".join(text for code, text in LIMITS.items() if code in codes)
        lines.append(f"| {form} | {files} of {len(plan.mounts)} | {nodes} | {limits or '-'} |")
    return "\n".join((*lines, ""))
