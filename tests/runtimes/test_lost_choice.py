"""Choices of GPUs by the caller's variables that a container does not follow."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind import plan
from gpubind.model import Finding, Request
from gpubind.planner.placement import SINGULARITY_LAYOUT as LAYOUT
from gpubind.runtimes.lost_choice import choice_by_count
from tests.support.driver import host, kernel, rhel
from tests.support.golden import GOLDEN, assert_golden
from tests.support.starts import start, words


def lost(*options: str, gpus: Optional[str] = None, entered: bool = False, **environ: str) -> list[Finding]:
    """What a start by Apptainer says, of a caller with *environ*, on a host with two GPUs."""
    begun = start(*options, environ=environ, on_host=True)._replace(is_entered=entered)
    layout = LAYOUT._replace(isolated=begun.runtime.layout(begun).isolated)
    made = plan(host(rhel(), kernel()), Request(gpus=gpus), layout=layout)
    return [one for one in words(made, begun).findings if one.code == "lost-choice"]


@pytest.mark.parametrize("option", ["--cleanenv", "-e", "--containall", "--compat", "--no-env=CUDA_VISIBLE_DEVICES"])
def test_a_choice_that_stays_outside_is_told(option: str) -> None:
    (found,) = lost(option, CUDA_VISIBLE_DEVICES="1")
    assert found.what == "CUDA_VISIBLE_DEVICES=1 stays outside the container, which gets 2 GPUs"
    assert '`gpubind wrap --gpus "$CUDA_VISIBLE_DEVICES" -- ...`' in (found.hint or "")


def test_a_choice_that_is_followed_or_chooses_all_is_not_told() -> None:
    assert lost(CUDA_VISIBLE_DEVICES="1") == []
    assert lost("--contain", CUDA_VISIBLE_DEVICES="1") == []
    assert lost("--cleanenv") == []
    assert lost("--cleanenv", CUDA_VISIBLE_DEVICES="0,1") == []
    assert lost("--cleanenv", CUDA_VISIBLE_DEVICES="1", gpus="1") == []
    assert lost("--cleanenv", "--env", "CUDA_VISIBLE_DEVICES=1", CUDA_VISIBLE_DEVICES="1") == []
    assert lost("--cleanenv", ROCR_VISIBLE_DEVICES="1") == []


def test_an_instance_with_the_gpus_of_an_option_is_told_of_the_variables_that_later_commands_bring() -> None:
    (found,) = lost("--contain", gpus="1", entered=True, CUDA_VISIBLE_DEVICES="1")
    assert found.what.startswith("commands that enter the instance have CUDA_VISIBLE_DEVICES=1 of their callers")
    assert lost("--contain", gpus="0", entered=True, CUDA_VISIBLE_DEVICES="0") == []
    assert lost("--contain", gpus="1", entered=True) == []
    assert lost(gpus="1", entered=True, CUDA_VISIBLE_DEVICES="1") == []  # its /dev is the host's


@pytest.mark.parametrize(
    ("gpus", "value", "is_other"),
    [
        ("0", "GPU-00000000", False),
        ("1", "GPU-00000001", False),
        ("0,1", "GPU-00000001,GPU-00000000", False),
        ("0,1", "1", False),
        ("0", "0,", False),
        ("0", "7", False),
        ("0", "", False),
        ("0", "GPU-00000001", True),
        ("1", "0", True),
        ("1", "GPU-00000001,0", True),
    ],
)
def test_a_name_that_means_the_same_gpu_inside_an_instance_is_not_told(gpus: str, value: str, is_other: bool) -> None:
    assert bool(lost("--contain", gpus=gpus, entered=True, CUDA_VISIBLE_DEVICES=value)) == is_other


@pytest.mark.parametrize("value", ["", ",", "-1", "NoDevFiles"])
def test_a_choice_of_no_gpu_is_told_with_a_value_that_the_option_takes(value: str) -> None:
    (found,) = lost("--cleanenv", CUDA_VISIBLE_DEVICES=value)
    assert "`gpubind exec --gpus none`" in (found.hint or "")
    made = plan(host(rhel(), kernel()), Request(gpus="0"))
    (counted,) = choice_by_count(made, {"CUDA_VISIBLE_DEVICES": value}, "--gpus 1")
    assert counted.what == f"`--gpus 1` selects GPU 0, but the caller's CUDA_VISIBLE_DEVICES={value} chooses none"
    assert "`gpubind wrap --gpus none -- ...`" in (counted.hint or "")


@pytest.mark.parametrize(
    ("count", "value", "others"),
    [
        ("0", "1", True),
        ("0", "GPU-00000001", True),
        ("0,1", "1", True),
        ("0", "0", False),
        ("0", "1,0", False),
        ("0", "GPU-00000000", False),
        ("0", "first", False),
        ("0", "7", False),
    ],
)
def test_a_count_that_gives_other_gpus_than_the_callers_variable_is_told(count: str, value: str, others: bool) -> None:
    made = plan(host(rhel(), kernel()), Request(gpus=count))
    found = list(choice_by_count(made, {"CUDA_VISIBLE_DEVICES": value}, "--gpus=1"))
    assert [one.what.partition(" selects")[0] for one in found] == (["`--gpus=1`"] if others else [])


def test_each_lost_choice_says_what_is_lost_why_and_what_to_do() -> None:
    found = [
        *lost("--cleanenv", CUDA_VISIBLE_DEVICES="1"),
        *lost("--cleanenv", CUDA_VISIBLE_DEVICES=""),
        *lost("--contain", gpus="0,1", entered=True, CUDA_VISIBLE_DEVICES="GPU-00000001,x", ROCR_VISIBLE_DEVICES="0"),
        *lost("--contain", gpus="1", entered=True, CUDA_VISIBLE_DEVICES="0"),
        *choice_by_count(plan(host(rhel(), kernel()), Request(gpus="0")), {"CUDA_VISIBLE_DEVICES": "1"}, "--gpus 1"),
        *choice_by_count(plan(host(rhel(), kernel()), Request(gpus="0")), {"CUDA_VISIBLE_DEVICES": ""}, "--gpus 1"),
        *choice_by_count(plan(host(rhel(), kernel()), Request(gpus="0,1")), {"CUDA_VISIBLE_DEVICES": "0"}, "--all"),
    ]
    text = "".join("".join(f"{field}: {value}\n" for field, value in one._asdict().items()) + "\n" for one in found)
    assert_golden(GOLDEN / "runtimes" / "lost-choice.txt", text)
