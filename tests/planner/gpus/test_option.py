"""--gpus: what cannot be chosen is an error of usage that says what can be."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.errors import UsageError
from gpubind.model import ContainerPath
from gpubind.planner.gpus.choice import GpuChoice
from gpubind.planner.gpus.option import choose_by_option
from tests.planner.gpus.cases import ERRORS, ROWS, Row
from tests.planner.gpus.hosts import HOSTS, hexid
from tests.support.driver import uuid


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
        ("excluded", "7", "a number is an index that begins with 0, not a count; all GPUs are `--gpus 0,1`"),
        (
            "untold",
            "GPU-deadbeef",
            "the driver has not told every UUID yet: until its first use, name a GPU by its PCI address",
        ),
        ("two", "GPU-deadbeef", ""),
        ("two", "0000:99:00.0", ""),
        ("none", "0", ""),
        ("eight", "GPU-0000000", "it fits " + ", ".join(map(uuid, range(8)))),
    ],
)
def test_an_error_says_why_if_that_is_known(host: str, gpus: str, why: str) -> None:
    assert refusal(host, gpus).why == why


def test_an_error_names_every_gpu_that_could_be_named() -> None:
    known = [f"{number} ({uuid(number)}, 0000:0{number + 1}:00.0)" for number in range(3)]
    known[1:1] = ["0:1/0", "0:2/0"]
    known[4:4] = ["1:5/0", "1:5/1"]
    assert refusal("mig", "9").hint == f"there are: {', '.join(known)}"
    assert refusal("amd", "9").hint.startswith(f"there are: 0 ({hexid(0)}, 0000:")
    assert refusal("amd", "9").hint.count("renderD") == 4
    assert refusal("untold", "9").hint.count("GPU-") == 2
    assert refusal("none", "0").hint == "there is no GPU that could be named"


@pytest.mark.parametrize(
    ("host", "gpus", "what", "hint"),
    [
        ("two", "9", "--gpus: this host has no `9`", None),
        ("both", "1", "--gpus: `1` may be either's", None),
        ("eight", "GPU-0000000", "--gpus: `GPU-0000000` names 8 GPUs", "write more of it, or name the PCI address"),
    ],
)
def test_an_error_says_what_is_wrong_and_what_would_do(host: str, gpus: str, what: str, hint: Optional[str]) -> None:
    error = refusal(host, gpus)
    assert error.what == what
    assert error.hint == (error.hint if hint is None else hint)


@pytest.mark.parametrize(("host", "variable"), [("two", "CUDA_VISIBLE_DEVICES"), ("amd", "ROCR_VISIBLE_DEVICES")])
def test_what_is_one_node_for_all_gpus_cannot_be_chosen(host: str, variable: str) -> None:
    (inventory,) = HOSTS[host]
    shared = inventory._replace(devices=(inventory.devices[0]._replace(target=ContainerPath("/dev/dxg")),))
    with pytest.raises(UsageError) as error:
        choose_by_option("0", (shared,))
    assert error.value.what == "--gpus: `0` cannot be chosen: /dev/dxg is all GPUs of this host"
    hint = f"`--gpus all`, with {variable} in the container for the GPUs that programs are to use"
    assert (error.value.code, error.value.hint) == ("inseparable-gpus", hint)
    assert choose_by_option("all", (shared,)) == (GpuChoice("--gpus", is_all=True),)
    assert choose_by_option("none", (shared,)) == (GpuChoice("--gpus", ()),)
