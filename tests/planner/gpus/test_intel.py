"""Which of Intel's GPUs a container sees: nodes where /dev is minimal, else ZE_AFFINITY_MASK; the caller's own stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import pytest

from gpubind.model import Request
from gpubind.planner.gpus.selection import select
from tests.support.intel import INTEGRATED, MAX_1550, gaudi, gpu, intel_host
from tests.support.trees import Spec

PARTS = (gpu("0000:00:02.0", 0, 128, INTEGRATED), gpu("0000:18:00.0", 1, 129, MAX_1550), gpu("0000:2a:00.0", 2, 130))
ORDER = ("set", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1")


def env(gpus: Optional[str], environ: Mapping[str, str], *, isolated: bool) -> list[tuple[str, str, Optional[str]]]:
    from gpubind.inventory.intel.inventory import read_inventory

    host = intel_host(*PARTS, gaudi("0000:90:00.0", 0), environ=environ)
    (selection,) = select([read_inventory(host, Request())], gpus, host.environ, isolated=isolated)
    return [(one.op, one.name, one.value) for one in selection.env]


@pytest.mark.parametrize(
    ("gpus", "environ", "expected"),
    [
        ("0", {}, [("set", "ZE_AFFINITY_MASK", "0"), ORDER]),
        ("1", {}, [("set", "ZE_AFFINITY_MASK", "1,2"), ORDER]),
        ("2,0", {}, [("set", "ZE_AFFINITY_MASK", "0,3"), ORDER]),
        ("2", {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, [("set", "ZE_AFFINITY_MASK", "2"), ORDER]),
        ("2", {"ZE_FLAT_DEVICE_HIERARCHY": "composite"}, [("set", "ZE_AFFINITY_MASK", "3"), ORDER]),
        ("2", {"ZE_AFFINITY_MASK": "0"}, [("set", "ZE_AFFINITY_MASK", "3"), ORDER]),
        ("3", {}, []),
        ("all", {"ZE_AFFINITY_MASK": "0"}, [("unset", "ZE_AFFINITY_MASK", None)]),
        ("all", {}, []),
        ("none", {}, []),
        (None, {"ZE_AFFINITY_MASK": "0", "ONEAPI_DEVICE_SELECTOR": "level_zero:0"}, []),
    ],
)
def test_a_shared_dev_has_a_mask(
    gpus: Optional[str], environ: Mapping[str, str], expected: list[tuple[str, str, Optional[str]]]
) -> None:
    assert env(gpus, environ, isolated=False) == expected


@pytest.mark.parametrize(
    ("gpus", "environ", "expected"),
    [
        ("1", {}, []),
        ("1", {"ZE_AFFINITY_MASK": "0.1"}, [("unset", "ZE_AFFINITY_MASK", None)]),
        (None, {"ZE_AFFINITY_MASK": "0.1"}, [("set", "ZE_AFFINITY_MASK", "0.1")]),
        (
            None,
            {"ONEAPI_DEVICE_SELECTOR": "level_zero:*;!opencl:cpu", "HABANA_VISIBLE_DEVICES": "0"},
            [
                ("set", "ONEAPI_DEVICE_SELECTOR", "level_zero:*;!opencl:cpu"),
                ("set", "HABANA_VISIBLE_DEVICES", "0"),
            ],
        ),
        (None, {"ONEAPI_DEVICE_SELECTOR": "$(id)"}, []),
    ],
)
def test_a_minimal_dev_needs_none_and_the_callers_variables_are_handed_on(
    gpus: Optional[str], environ: Mapping[str, str], expected: list[tuple[str, str, Optional[str]]]
) -> None:
    assert env(gpus, environ, isolated=True) == expected


def test_the_nodes_of_the_others_stay_behind() -> None:
    from gpubind.inventory.intel.inventory import read_inventory

    host = intel_host(*PARTS)
    (selection,) = select([read_inventory(host, Request())], "1", {}, isolated=True)
    assert [node.target for node in selection.inventory.devices] == ["/dev/dri/card1", "/dev/dri/renderD129"]


@pytest.mark.parametrize(
    ("value", "numbers"),
    [("0", "0"), ("1,0", "01"), ("1, 1", "1"), ("all", "01"), ("", "01"), ("0,2", "01"), ("0,x", "01")],
)
def test_habana_visible_devices_chooses_accelerators_by_their_nodes(value: str, numbers: str) -> None:
    from gpubind.inventory.intel.inventory import read_inventory

    host = intel_host(PARTS[0], gaudi("0000:90:00.0", 0), gaudi("0000:91:00.0", 1))
    environ = {"HABANA_VISIBLE_DEVICES": value}
    (selection,) = select([read_inventory(host, Request())], None, environ, isolated=True)
    nodes = [node.target for node in selection.inventory.devices]
    assert [target for target in nodes if "/accel/accel" in target and "_" not in target] == [
        f"/dev/accel/accel{number}" for number in numbers
    ]
    assert "/dev/dri/renderD128" in nodes
    assert [(one.name, one.value) for one in selection.env] == ([("HABANA_VISIBLE_DEVICES", value)] if value else [])


ARCS = tuple(gpu(f"0000:{bus}:00.0", number, 128 + number) for number, bus in enumerate(("03", "04", "4d")))
NINE = tuple(gpu(f"0000:{bus:02x}:00.0", bus, 128 + bus) for bus in range(9))
MAXES = tuple(gpu(f"0000:{bus}:00.0", number, 128 + number, MAX_1550) for number, bus in enumerate(("18", "2a")))
MIXED = (gpu("0000:00:02.0", 0, 128, INTEGRATED), gpu("0000:03:00.0", 1, 129))
MASK, HIERARCHY, PCI_ORDER, SELECTOR = (
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
    "ONEAPI_DEVICE_SELECTOR",
)


def masked(parts: tuple[Spec, ...], environ: Mapping[str, str]) -> tuple[str, dict[str, Optional[str]], list[str]]:
    """The numbers of the cards in a minimal /dev, the variables there, and the findings."""
    from gpubind.inventory.intel.inventory import read_inventory

    host = intel_host(*parts, environ=environ)
    (selection,) = select([read_inventory(host, Request())], None, host.environ, isolated=True)
    cards = [node.target[-1] for node in selection.inventory.devices if "/card" in node.target]
    findings = [f"{one.severity} {one.code}" for one in selection.inventory.findings]
    return "".join(cards), {one.name: one.value for one in selection.env}, findings


@pytest.mark.parametrize(
    ("parts", "environ", "cards", "mask"),
    [
        (ARCS, {MASK: "1"}, "1", "0"),
        (ARCS, {MASK: "2,0"}, "02", "1,0"),
        (ARCS, {MASK: "1", "SLURM_STEP_GPUS": "1", SELECTOR: "level_zero:0"}, "1", "0"),
        (ARCS, {MASK: "1.0", HIERARCHY: "COMPOSITE"}, "1", "0.0"),
        (MAXES, {MASK: "1", HIERARCHY: "COMPOSITE"}, "1", "0"),
        (MAXES, {MASK: "1.1", HIERARCHY: "COMPOSITE"}, "1", "0.1"),
        (MAXES, {MASK: "3", HIERARCHY: "FLAT"}, "1", "1"),
        (MAXES, {MASK: "0,1", HIERARCHY: "COMBINED"}, "0", "0,1"),
        (MIXED, {MASK: "1", PCI_ORDER: "1"}, "1", "0"),
        (MIXED, {MASK: "0,1"}, "01", "0,1"),
        (MAXES, {MASK: "0,2", HIERARCHY: "FLAT"}, "01", "0,2"),
        (ARCS, {MASK: ""}, "012", ""),
        (ARCS, {MASK: "default"}, "012", "default"),
        (ARCS[:1], {MASK: "0"}, "0", "0"),
        (MAXES[:1], {MASK: "1"}, "0", "1"),
        (ARCS, {MASK: "1,"}, "1", "0"),
        (ARCS, {MASK: "0x1"}, "1", "0"),
        (ARCS, {MASK: "1, 2"}, "12", "0,1"),
        (NINE, {MASK: "010"}, "8", "0"),
        (ARCS, {MASK: "1x"}, "1", "0"),
        ((gpu("0000:00:00.0", 0, 128, "0x1234"),), {MASK: "1"}, "0", "1"),
    ],
)
def test_a_mask_chooses_nodes_where_its_numbers_are_certain_and_is_renumbered(
    parts: tuple[Spec, ...], environ: Mapping[str, str], cards: str, mask: str
) -> None:
    others = {name: value for name, value in environ.items() if name in (HIERARCHY, PCI_ORDER, SELECTOR)}
    there = {**others, MASK: mask} if mask else others
    assert masked(parts, environ) == (cards, there, [])


@pytest.mark.parametrize(
    ("parts", "environ", "code"),
    [
        (MIXED, {MASK: "1"}, "note gpu-order-unknown"),
        (MIXED, {MASK: "1", PCI_ORDER: "0"}, "note gpu-order-unknown"),
        (MAXES, {MASK: "1"}, "note gpu-order-unknown"),
        (MAXES, {MASK: "1.0"}, "note gpu-order-unknown"),
        (ARCS, {MASK: "0.1"}, "note gpu-order-unknown"),
        (ARCS, {MASK: "level_zero"}, "warning gpu-order-unknown"),
        (ARCS, {MASK: "1,,2"}, "warning gpu-order-unknown"),
        (ARCS, {MASK: ","}, "warning gpu-order-unknown"),
        (ARCS, {MASK: "9" * 30}, "warning gpu-order-unknown"),
        (ARCS, {MASK: "010"}, "warning visible-devices-unknown"),
        (ARCS, {MASK: "-1"}, "warning visible-devices-unknown"),
        (ARCS[:1], {MASK: "1"}, "warning visible-devices-unknown"),
        (ARCS[:1], {MASK: "garbage"}, "warning gpu-order-unknown"),
        (MAXES[:1], {MASK: "2"}, "warning visible-devices-unknown"),
        (MAXES, {MASK: "1.2", HIERARCHY: "COMPOSITE"}, "warning visible-devices-unknown"),
        (MAXES, {MASK: "1", HIERARCHY: "composite"}, "note gpu-order-unknown"),
        (
            tuple(gpu(f"0000:0{number}:00.0", number, 128 + number, "0x1234") for number in range(2)),
            {MASK: "1"},
            "note gpu-order-unknown",
        ),
        (ARCS, {MASK: "1,3"}, "warning visible-devices-unknown"),
    ],
)
def test_of_a_mask_that_is_not_certain_all_nodes_stay_and_its_value(
    parts: tuple[Spec, ...], environ: Mapping[str, str], code: str
) -> None:
    cards, there, findings = masked(parts, environ)
    assert len(cards) == len(parts)
    assert there.get(MASK) == environ[MASK]
    assert findings == [code]


@pytest.mark.parametrize(
    "environ", [{SELECTOR: "level_zero:1"}, {SELECTOR: "*:gpu;!level_zero:0"}, {"SLURM_STEP_GPUS": "1"}]
)
def test_selectors_of_sycl_and_slurms_places_in_gres_conf_choose_no_nodes(environ: Mapping[str, str]) -> None:
    own = {SELECTOR: environ[SELECTOR]} if SELECTOR in environ else {}
    assert masked(ARCS, environ) == ("012", own, [])


def test_a_mask_counts_the_gpus_that_can_be_opened() -> None:
    closed = gpu("0000:04:00.0", 1, 129, mode=0o600)
    cards, there, findings = masked((ARCS[0], closed, ARCS[2]), {MASK: "1"})
    assert (cards, there[MASK]) == ("2", "0")
    assert "gpu-order-unknown" not in "".join(findings)


def test_a_mask_and_habana_visible_devices_choose_together() -> None:
    from gpubind.inventory.intel.inventory import read_inventory

    environ = {MASK: "1", "HABANA_VISIBLE_DEVICES": "1"}
    host = intel_host(*ARCS, gaudi("0000:90:00.0", 0), gaudi("0000:91:00.0", 1), environ=environ)
    (selection,) = select([read_inventory(host, Request())], None, host.environ, isolated=True)
    nodes = [node.target for node in selection.inventory.devices]
    assert nodes == ["/dev/dri/card1", "/dev/dri/renderD129", "/dev/accel/accel1", "/dev/accel/accel_controlD1"]
    assert {one.name: one.value for one in selection.env} == {MASK: "0", "HABANA_VISIBLE_DEVICES": "1"}


def test_a_shared_dev_keeps_the_callers_mask() -> None:
    from gpubind.inventory.intel.inventory import read_inventory

    host = intel_host(*ARCS, environ={MASK: "1"})
    (selection,) = select([read_inventory(host, Request())], None, host.environ, isolated=False)
    assert selection.env == ()
    assert [gpu.chosen for gpu in selection.inventory.gpus] == [False, True, False]


def test_a_number_that_is_not_there_is_named_as_the_caller_wrote_it() -> None:
    from gpubind.inventory.intel.inventory import read_inventory

    for value, name in (("-1", "`-1`"), ("0, 010", "`010`"), ("1,9", "`9`")):
        host = intel_host(*ARCS, environ={MASK: value})
        (selection,) = select([read_inventory(host, Request())], None, host.environ, isolated=True)
        assert [name in one.what for one in selection.inventory.findings] == [True]
