"""Which of Intel's GPUs a container sees: nodes where /dev is minimal, else ZE_AFFINITY_MASK; the caller's own stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import pytest

from gpubind.model import Request
from gpubind.planner.gpus.selection import select
from tests.support.intel import INTEGRATED, MAX_1550, gaudi, gpu, intel_host

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
