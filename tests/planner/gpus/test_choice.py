"""What was chosen of a vendor's GPUs: each GPU once, with the MIG devices that were named."""

from __future__ import annotations

from gpubind.planner.gpus.choice import (
    ChosenGpu,
    GpuChoice,
    each_gpu_once,
    gpus_with_mig,
    intersect,
    usable_gpus,
    uuids_of,
)
from tests.planner.gpus.hosts import HOSTS, nvidia
from tests.support.driver import uuid

(MIG,) = HOSTS["mig"]
DIVIDED, _, WHOLE = usable_gpus(MIG)
FIRST, SECOND = (ChosenGpu(DIVIDED, (device,)) for device in DIVIDED.mig)


def test_gpus_keep_the_order_in_which_they_were_named() -> None:
    assert each_gpu_once([ChosenGpu(WHOLE), SECOND, FIRST]) == (
        ChosenGpu(WHOLE),
        ChosenGpu(DIVIDED, SECOND.mig + FIRST.mig),
    )


def test_a_gpu_and_one_of_its_mig_devices_are_the_gpu() -> None:
    assert (
        each_gpu_once([SECOND, ChosenGpu(DIVIDED)])
        == each_gpu_once([ChosenGpu(DIVIDED), SECOND])
        == (ChosenGpu(DIVIDED),)
    )


def test_what_is_in_both_is_the_smaller_of_the_two() -> None:
    assert intersect(FIRST, [ChosenGpu(DIVIDED)]) == intersect(ChosenGpu(DIVIDED), [FIRST]) == FIRST
    assert intersect(ChosenGpu(WHOLE), [ChosenGpu(WHOLE)]) == ChosenGpu(WHOLE)
    assert intersect(FIRST, [SECOND]) is None
    assert intersect(FIRST, [ChosenGpu(WHOLE)]) is None


def test_a_gpu_in_mig_mode_goes_by_the_names_of_its_mig_devices() -> None:
    assert uuids_of(ChosenGpu(WHOLE)) == (uuid(2),)
    assert uuids_of(SECOND) == (f"MIG-{uuid(0)}/2/0",)
    assert uuids_of(ChosenGpu(DIVIDED)) == (f"MIG-{uuid(0)}/1/0", f"MIG-{uuid(0)}/2/0")
    assert uuids_of(ChosenGpu(usable_gpus(nvidia(1, untold=(0,)))[0])) == (None,)


def test_excluded_gpus_are_not_there_to_be_chosen() -> None:
    assert [gpu.index for gpu in usable_gpus(nvidia(3, excluded=(1,)))] == [0, 1]
    assert not gpus_with_mig(nvidia(2))


def test_a_choice_that_says_nothing_chooses_nothing() -> None:
    assert tuple(GpuChoice()) == ("", None, (), False, False, False, ())
