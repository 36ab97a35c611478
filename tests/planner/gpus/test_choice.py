"""What was chosen of a vendor's GPUs: each GPU once, with the MIG devices that were named."""

from __future__ import annotations

from gpubind.planner.gpus.choice import Chosen, each_gpu_once, in_both, mig_enabled, usable, uuids_of
from tests.planner.gpus.hosts import HOSTS, nvidia
from tests.support.driver import uuid

(MIG,) = HOSTS["mig"]
DIVIDED, _, WHOLE = usable(MIG)
FIRST, SECOND = (Chosen(DIVIDED, (device,)) for device in DIVIDED.mig)


def test_gpus_keep_the_order_in_which_they_were_named() -> None:
    assert each_gpu_once([Chosen(WHOLE), SECOND, FIRST]) == (Chosen(WHOLE), Chosen(DIVIDED, SECOND.mig + FIRST.mig))


def test_a_gpu_and_one_of_its_mig_devices_are_the_gpu() -> None:
    assert each_gpu_once([SECOND, Chosen(DIVIDED)]) == each_gpu_once([Chosen(DIVIDED), SECOND]) == (Chosen(DIVIDED),)


def test_what_is_in_both_is_the_smaller_of_the_two() -> None:
    assert in_both(FIRST, [Chosen(DIVIDED)]) == in_both(Chosen(DIVIDED), [FIRST]) == FIRST
    assert in_both(Chosen(WHOLE), [Chosen(WHOLE)]) == Chosen(WHOLE)
    assert in_both(FIRST, [SECOND]) is None
    assert in_both(FIRST, [Chosen(WHOLE)]) is None


def test_a_gpu_in_mig_mode_goes_by_the_names_of_its_mig_devices() -> None:
    assert uuids_of(Chosen(WHOLE)) == (uuid(2),)
    assert uuids_of(SECOND) == (f"MIG-{uuid(0)}/2/0",)
    assert uuids_of(Chosen(DIVIDED)) == (f"MIG-{uuid(0)}/1/0", f"MIG-{uuid(0)}/2/0")
    assert uuids_of(Chosen(usable(nvidia(1, untold=(0,)))[0])) == (None,)


def test_excluded_gpus_are_not_there_to_be_chosen() -> None:
    assert [gpu.index for gpu in usable(nvidia(3, excluded=(1,)))] == [0, 1]
    assert not mig_enabled(nvidia(2))
