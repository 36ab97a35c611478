"""--gpus: what cannot be chosen is an error of usage that says what can be."""

from __future__ import annotations

import pytest

from gpubind.errors import UsageError
from gpubind.planner.gpus.option import choose_by_option
from tests.planner.gpus.cases import ERRORS, ROWS, Row
from tests.planner.gpus.hosts import HOSTS


def refusal(host: str, gpus: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        choose_by_option(gpus, HOSTS[host])
    return error.value


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.devices in ERRORS], ids=lambda row: row.gpus)
def test_what_cannot_be_chosen_is_an_error_of_usage(row: Row) -> None:
    assert row.gpus is not None
    error = refusal(row.host, row.gpus)
    assert (error.code, error.exit_code) == (row.devices, 2)
    assert error.hint


@pytest.mark.parametrize(
    ("host", "gpus", "why"),
    [
        ("mig", "0:7/0", "that GPU has the MIG devices 1/0, 2/0"),
        ("mig", "2:1/0", "that GPU is not divided (MIG)"),
        ("two", "MIG-aaaa", "no GPU here is divided (MIG)"),
        ("excluded", "minor:1", "it is excluded from use (NVreg_ExcludedGpus)"),
        ("both", "0", "there are GPUs of two vendors here, and both count from 0"),
        ("two", "2", "a number is an index that begins with 0, not a count; all GPUs are `--gpus 0,1`"),
    ],
)
def test_an_error_says_why_if_that_is_known(host: str, gpus: str, why: str) -> None:
    assert refusal(host, gpus).why == why


def test_an_error_names_every_gpu_that_could_be_named() -> None:
    hint = refusal("mig", "9").hint
    assert hint.startswith("there are: 0 (GPU-00000000-")
    assert ", 0:1/0, 0:2/0, 1 (" in hint
    assert refusal("none", "0").hint == "there is no GPU that could be named"
