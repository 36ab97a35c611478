"""What is planned inside a container is what was planned for it."""

from __future__ import annotations

from typing import Optional

import pytest

import gpubind
from gpubind.host.record import parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.model import CAPABILITIES, Missing, Plan, Request
from gpubind.planner.placement import GPUBIND_LAYOUT, SINGULARITY_LAYOUT, Layout
from tests.support.amd import amd_host, opt
from tests.support.amd import kernel as amd_kernel
from tests.support.driver import V, debian, host, kernel, libraries, rhel, run_directory, ubuntu
from tests.support.elf import elf
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import Item, Spec

HOSTS = {"ubuntu": ubuntu(), "rhel": rhel(), "debian": debian(), "run": run_directory()}
NEW = {
    f"/usr/lib64/libnvidia-new.so.{V}": elf("libnvidia-new.so.1"),
    f"/usr/lib64/nvidia-new.so.{V}": elf(f"nvidia-new.so.{V}"),
}
"""Libraries that no list has."""
ALL = Request(vendors=("nvidia",), caps=CAPABILITIES)
IMAGE: Spec = {
    **libraries("/usr/lib/x86_64-linux-gnu", "470.57.02"),
    "/usr/lib/x86_64-linux-gnu/libGLdispatch.so.0": elf("libGLdispatch.so.0"),
    "/etc/ld.so.cache": build_ldcache([entry("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")]),
}
"""An image whose ld cache names a driver that somebody installed in it."""


def planned(on: RecordedHost, layout: Optional[Layout] = None) -> Plan:
    return gpubind.plan(on, ALL, layout=layout)


def inside(on: RecordedHost, plan: Plan, modules: Spec) -> RecordedHost:
    """The container of *plan*, on a machine with these kernel *modules*: each of its binds is a regular file."""
    spec: dict[str, Item] = dict(IMAGE)
    for mount in plan.mounts:
        content = mount.content or b"data"
        if mount.kind == "manifest" and mount.source:
            content = on.driver.text(mount.source) or ""
        elif mount.kind in ("library", "binary"):
            facts = on.driver.elf(str(mount.source))
            assert not isinstance(facts, Missing)
            kind, of = 3 if mount.kind == "library" else 2, facts.ident
            content = elf(facts.soname, bits=of.bits, machine=of.machine, kind=kind, needed=facts.needed)
        spec[mount.target] = content
    return host(spec, modules)


def got(plan: Plan) -> list[tuple[object, ...]]:
    """What *plan* brings; GBM's module, by which the allocator is opened, may go with either's capability."""
    return [
        (m.target, m.kind, m.required, *(() if m.target.endswith("gbm.so") else (m.soname, m.capability)))
        for m in plan.mounts
    ]


@pytest.mark.parametrize("layout", [SINGULARITY_LAYOUT, GPUBIND_LAYOUT], ids=lambda layout: layout.name)
@pytest.mark.parametrize("name", HOSTS)
def test_a_container_in_a_container_gets_what_the_outer_one_got(name: str, layout: Layout) -> None:
    on = host(HOSTS[name], kernel(), NEW)
    outer = planned(on, layout)
    assert len(outer.mounts) > 10
    for depth in range(2):
        on = inside(on, planned(on, layout), kernel())
        plan = planned(on, layout)
        assert got(plan) == got(outer), depth
        assert not {d.rule for d in plan.decisions} & {"collision"}
        sources = {str(m.source).rpartition("/")[0] for m in plan.mounts if m.kind == "library"}
        assert sources <= {layout.libdir, layout.libdir32}


@pytest.mark.parametrize("layout", [SINGULARITY_LAYOUT, GPUBIND_LAYOUT], ids=lambda layout: layout.name)
def test_a_record_of_a_container_has_what_is_planned_in_it(layout: Layout) -> None:
    outside = host(rhel(), kernel(), NEW)
    on = inside(outside, planned(outside, layout), kernel())
    again = RecordedHost(parse_record(gpubind.record(on).encode()), on.label)
    assert planned(again, layout) == planned(on, layout)


@pytest.mark.parametrize("layout", [SINGULARITY_LAYOUT, GPUBIND_LAYOUT], ids=lambda layout: layout.name)
def test_rocm_that_a_container_got_of_its_host_is_planned_in_it(layout: Layout) -> None:
    request = Request(vendors=("amd",), userspace="host")
    on = amd_host(opt(), amd_kernel())
    outer = gpubind.plan(on, request, layout=layout)
    plan = gpubind.plan(inside(on, outer, amd_kernel()), request, layout=layout)
    assert {m.target for m in plan.mounts} == {m.target for m in outer.mounts}
    assert len(plan.mounts) > 10


def test_two_files_of_one_soname_and_different_sizes_are_not_one_library() -> None:
    directory = GPUBIND_LAYOUT.libdir
    spec: Spec = {
        f"{directory}/libcuda.so.1": elf("libcuda.so.1"),
        f"{directory}/libcuda.so": elf("libcuda.so.1") + b"x",
    }
    assert "collision" in {d.rule for d in planned(host(spec, kernel())).decisions}
