"""How a container is told which GPUs were chosen: laws beside the rows of the table of cases."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.formats.driver.gpu_names import (
    CUDA_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    ZE_AFFINITY_MASK,
    ZE_PCI_ORDER,
)
from gpubind.planner.gpus.choice import usable_gpus
from gpubind.planner.gpus.selection import select
from tests.planner.gpus.hosts import HOSTS

VENDORS = {
    "nvidia": {CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER},
    "amd": {ROCR_VISIBLE_DEVICES},
    "intel": {ZE_AFFINITY_MASK, ZE_PCI_ORDER},
}


def told(host: str, gpus: Optional[str], *, isolated: bool = True, **environ: str) -> dict[str, Optional[str]]:
    return {env.name: env.value for one in select(HOSTS[host], gpus, environ, isolated=isolated) for env in one.env}


@pytest.mark.parametrize("host", HOSTS)
def test_nothing_is_said_where_nothing_was_chosen(host: str) -> None:
    assert told(host, None) == {}


@pytest.mark.parametrize("host", sorted({*HOSTS} - {"both", "none"}))
@pytest.mark.parametrize("isolated", [True, False])
def test_a_host_of_one_vendor_has_that_vendors_variables_alone(host: str, isolated: bool) -> None:
    (inventory,) = HOSTS[host]
    first = str(usable_gpus(inventory)[0].index)
    assert told(host, first, isolated=isolated).keys() <= VENDORS[inventory.driver.vendor]


def test_hip_counts_in_what_rocr_shows_where_cudas_variable_is_set_for_nvidias() -> None:
    assert told("both", None, CUDA_VISIBLE_DEVICES="0") == {CUDA_VISIBLE_DEVICES: "0", HIP_VISIBLE_DEVICES: "0,1"}


@pytest.mark.parametrize("host", ["two", "eight", "minors", "amd"])
def test_numbers_count_the_nodes_that_the_container_has(host: str) -> None:
    last = str(usable_gpus(HOSTS[host][0])[-1].index)
    assert [*told(host, last).values()] == ["0"]
    assert [*told(host, last, isolated=False).values()] == [last]


def test_a_value_that_some_runtime_would_evaluate_is_not_forwarded() -> None:
    for value in ("$(id)", "`id`", "a\nb", "x" * 5000):
        assert told("two", None, CUDA_VISIBLE_DEVICES=value) == {}
