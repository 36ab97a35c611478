"""What the environment chooses, on every host of the table of cases: laws beside its rows."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES
from gpubind.model import ContainerPath, Inventory
from gpubind.planner.gpus.choice import GpuChoice, usable_gpus
from gpubind.planner.gpus.environment import choose_by_variables
from tests.planner.gpus.hosts import HOSTS

INVENTORIES = [(inventory, inventories) for inventories in HOSTS.values() for inventory in inventories]
VALUES = ("0", "1,0", "0,99", "all", "none", "void", "", "-1", "GPU-00000001", "MIG-aaaa", "0:1", "nvidia.com/gpu=0")


def chosen(choice: GpuChoice, inventory: Inventory) -> set[object]:
    return (
        {gpu.index for gpu in usable_gpus(inventory)} if choice.gpus is None else {one.gpu.index for one in choice.gpus}
    )


def test_an_environment_without_a_variable_chooses_nothing() -> None:
    for inventory, inventories in INVENTORIES:
        assert choose_by_variables(inventory, inventories, {"PATH": "/usr/bin"}) == GpuChoice()


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("cuda", [None, *VALUES])
def test_what_a_container_may_have_at_most_never_adds_a_gpu(cuda: Optional[str], value: str) -> None:
    environ = {} if cuda is None else {CUDA_VISIBLE_DEVICES: cuda}
    for inventory, inventories in INVENTORIES:
        before = chosen(choose_by_variables(inventory, inventories, environ), inventory)
        limited = choose_by_variables(inventory, inventories, {**environ, NVIDIA_VISIBLE_DEVICES: value})
        assert chosen(limited, inventory) <= before


@pytest.mark.parametrize("value", VALUES)
def test_each_gpu_is_chosen_once(value: str) -> None:
    for inventory, inventories in INVENTORIES:
        gpus = choose_by_variables(inventory, inventories, {CUDA_VISIBLE_DEVICES: f"{value},{value}"}).gpus or ()
        assert len({one.gpu for one in gpus}) == len(gpus)


@pytest.mark.parametrize(("host", "name"), [("two", "CUDA_VISIBLE_DEVICES"), ("amd", "ROCR_VISIBLE_DEVICES")])
def test_where_one_node_is_all_gpus_the_variable_is_passed_through(host: str, name: str) -> None:
    (inventory,) = HOSTS[host]
    node = inventory.devices[0]._replace(target=ContainerPath("/dev/dxg"))
    shared, other = inventory._replace(gpus=(), devices=(node,)), inventory._replace(gpus=())
    passed = choose_by_variables(shared, (shared,), {name: "1"})
    assert passed == GpuChoice(name, None, ((name, "1"),), already_set=True)
    hidden = choose_by_variables(shared, (shared,), {name: "-1"})
    assert (hidden.source, hidden.gpus, [one.code for one in hidden.findings]) == (name, (), ["visible-devices-none"])
    assert choose_by_variables(shared, (shared,), {}) == GpuChoice()
    assert choose_by_variables(other, (other,), {name: "1"}) == GpuChoice()
