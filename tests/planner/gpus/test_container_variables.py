"""How a container is told which GPUs were chosen: laws beside the rows of the table of cases."""

from __future__ import annotations

import pytest

from gpubind.formats.driver.gpu_names import (
    CUDA_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
)
from gpubind.model import EnvVar
from gpubind.planner.gpus.choice import OPTION, Choice, Chosen, usable
from gpubind.planner.gpus.container_variables import container_variables
from tests.planner.gpus.hosts import HOSTS


def told(host: str, choice: Choice, *, isolated: bool = True) -> list[EnvVar]:
    inventories = HOSTS[host]
    choices = [choice, *(Choice() for _ in inventories[1:])]
    return [env for said in container_variables(choices, inventories, {}, isolated=isolated) for env in said]


@pytest.mark.parametrize("host", HOSTS)
def test_nothing_is_said_where_nothing_was_chosen(host: str) -> None:
    assert told(host, Choice()) == []


@pytest.mark.parametrize("host", sorted({*HOSTS} - {"both"}))
def test_a_host_of_one_vendor_has_that_vendors_variables_alone(host: str) -> None:
    gpus = tuple(map(Chosen, usable(HOSTS[host][0])))
    vendors = {ROCR_VISIBLE_DEVICES} if host.startswith("amd") else {CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER}
    assert {env.name for env in told(host, Choice(OPTION, gpus))} <= vendors


def test_hip_counts_in_what_rocr_shows_where_cudas_variable_is_set_for_nvidias() -> None:
    first = usable(HOSTS["both"][0])[0]
    said = {env.name: env.value for env in told("both", Choice(OPTION, (Chosen(first),)))}
    assert said == {CUDA_VISIBLE_DEVICES: "0", HIP_VISIBLE_DEVICES: "0,1"}


@pytest.mark.parametrize("host", ["two", "eight", "minors", "amd"])
def test_numbers_count_the_nodes_that_the_container_has(host: str) -> None:
    last = usable(HOSTS[host][0])[-1]
    choice = Choice(OPTION, (Chosen(last),))
    assert [env.value for env in told(host, choice)] == ["0"]
    assert [env.value for env in told(host, choice, isolated=False)] == [str(last.index)]


def test_a_value_that_some_runtime_would_evaluate_is_not_forwarded() -> None:
    for value in ("$(id)", "`id`", "a\nb", "x" * 5000):
        assert told("two", Choice("CUDA_VISIBLE_DEVICES", None, (("CUDA_VISIBLE_DEVICES", value),))) == []
