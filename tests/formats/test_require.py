"""NVIDIA_REQUIRE_*: what libnvidia-container makes of an expression, and what is not known decides nothing by itself.

Each row is a rule of libnvidia-container's `src/cli/dsl.c`; the function that has it stands in the last column.
"""

from __future__ import annotations

from typing import Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.require import evaluate, first_sufficient_driver, requirements_of
from gpubind.model.cuda import version_key

FACTS = {"cuda": "12.4", "driver": "550.163.01"}
EVERY_FACT = {**FACTS, "arch": "8.0", "brand": "Tesla"}

ROWS: dict[str, tuple[str, Union[bool, str, None], str]] = {
    "nothing is asked": ("", True, "dsl_evaluate"),
    "blanks alone": ("   ", True, "dsl_evaluate"),
    "commas alone": (",", True, "dsl_evaluate"),
    # Alternatives and terms.
    "a comma is and": ("cuda=12.4,driver!=550.163.01", False, "dsl_evaluate"),
    "a space is or": ("cuda<9 driver>=550", True, "dsl_evaluate"),
    "and binds tighter": ("cuda>=12.8 brand=tesla,driver>=535,driver<536", False, "dsl_evaluate"),
    "an empty item is none": ("cuda>=12,,driver>=550,", True, "dsl_evaluate"),
    "an item after a comma counts": ("cuda>=12,,driver>=560", False, "dsl_evaluate"),
    "commas alone end it as it stands": ("cuda>=13 , cuda>=12", False, "dsl_evaluate"),
    "what is not reached may be anything": ("cuda>=12 nonsense", True, "dsl_evaluate"),
    "what stands behind a failed term, too": ("cuda>=13,nonsense", False, "dsl_evaluate"),
    "what is reached may not": ("cuda>=13 nonsense", "`nonsense` is not a comparison", "evaluate_rule"),
    "a tab separates nothing": ("cuda>=13\tdriver>=550", "`13\tdriver>=550` is not a version", "dsl_evaluate"),
    # A comparison.
    "no operator": ("cuda", "`cuda` is not a comparison", "evaluate_rule"),
    "no property": (">=12", "`>=12` is not a comparison", "evaluate_rule"),
    "no value": ("cuda>=", "`cuda>=` is not a comparison", "evaluate_rule"),
    "an operator twice": ("cuda>>12", "`cuda>>12` is not a comparison", "evaluate_rule"),
    "an operator the wrong way round": ("cuda=>12", "`cuda=>12` is not a comparison", "evaluate_rule"),
    "no `==`": ("cuda==12.4", "`cuda==12.4` is not a comparison", "evaluate_rule"),
    "a lone `!` is `!=`": ("cuda!12.4", False, "evaluate_rule"),
    "properties in any case": ("CUDA>=99", False, "evaluate_rule"),
    "a property that nobody knows": ("sdk>=1", "nobody knows a property `sdk`, but cuda, driver, arch, brand", "rules"),
    "one that is not reached": ("cuda>=12 sdk>=1", True, "evaluate_rule"),
    # Versions.
    "trailing zeros do not count": ("cuda=12.4.0", True, "dsl_compare_version"),
    "numbers, not letters": ("cuda>=12.10", False, "dsl_compare_version"),
    "zeros in front do not count": ("driver=550.163.1", True, "dsl_compare_version"),
    "a dot at the end": ("cuda>=12.", True, "dsl_compare_version"),
    "two dots are one": ("cuda=12..4", True, "dsl_compare_version"),
    "any number of parts": ("cuda>=12.4.0.0.1", False, "dsl_compare_version"),
    "ten digits": ("driver<=1234567890.1", True, "dsl_compare_version"),
    "a dot in front": ("cuda>=.5", "`.5` is not a version", "dsl_compare_version"),
    "letters": ("cuda>=twelve", "`twelve` is not a version", "dsl_compare_version"),
    "more than 64 bits": (
        "cuda>=99999999999999999999",
        "`99999999999999999999` is not a version",
        "dsl_compare_version",
    ),
    # What no file tells.
    "the architecture": ("arch>=8.0", None, "check_device_arch"),
    "the architecture is a version": ("arch>=volta", "`volta` is not a version", "check_device_arch"),
    "the brand": ("brand!=tesla", None, "check_device_brand"),
    "a brand is not greater": ("brand>tesla", "brand cannot be compared by `>`", "dsl_compare_string"),
    "it does not matter": ("brand=tesla cuda>=12.4", True, "dsl_evaluate"),
    "it matters": ("brand=tesla cuda>=12.8", None, "dsl_evaluate"),
    "nonsense for some brands": ("brand=tesla nonsense", None, "dsl_evaluate"),
    "nonsense for every brand": ("brand=tesla,nonsense nonsense", "`nonsense` is not a comparison", "dsl_evaluate"),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_requirement_is_read_as_libnvidia_container_reads_it(row: tuple[str, Union[bool, str, None], str]) -> None:
    text, wanted, _ = row
    if isinstance(wanted, str):
        with pytest.raises(FormatError) as caught:
            evaluate(text, FACTS)
        assert (caught.value.code, caught.value.why) == ("bad-require", wanted)
        assert caught.value.place
    else:
        assert evaluate(text, FACTS) is wanted


@pytest.mark.parametrize(
    ("text", "answer"), [("brand=TESLA", True), ("brand!=tesla", False), ("arch>=7", True), ("arch>8", False)]
)
def test_what_is_known_of_the_gpu_is_compared(text: str, answer: Optional[bool]) -> None:
    assert evaluate(text, EVERY_FACT) is answer


def test_a_very_long_text_is_refused() -> None:
    with pytest.raises(FormatError) as caught:
        evaluate("x" * 70000, FACTS)
    assert caught.value.why == "70000 characters"


def test_trailing_zeros_do_not_count() -> None:
    assert version_key("12.0") == version_key("12") < version_key("12.0.1")


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        evaluate(text, FACTS)
    except FormatError as error:
        assert error.place


NVIDIAS = (
    "cuda>=12.4 brand=tesla,driver>=470,driver<471 "
    "brand=unknown,driver>=470,driver<471 brand=tesla,driver>=535,driver<536"
)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("cuda>=11.8", "520.61.05"),
        (NVIDIAS, "550.54.14"),
        ("driver>=525.5", "525.5"),
        ("driver>=470,driver<471", None),
        ("brand=tesla", None),
        ("cuda>=99", None),
        ("driver>=470 driver>=535", "470"),
    ],
)
def test_the_least_driver_is_the_first_from_which_on_every_one_will_do(text: str, least: Optional[str]) -> None:
    assert first_sufficient_driver(text) == least


def test_a_known_brand_counts() -> None:
    assert first_sufficient_driver("brand=tesla,driver>=470 driver>=535", brand="tesla") == "470"
    assert first_sufficient_driver("brand=tesla,driver>=470 driver>=535") == "535"


def test_requirements_are_the_variables_that_nvidias_toolkit_reads() -> None:
    env = {"NVIDIA_REQUIRE_CUDA": "cuda>=12", "NVIDIA_REQUIRE_JETPACK": "x", "NVIDIA_VISIBLE_DEVICES": "all"}
    assert requirements_of(env) == {"NVIDIA_REQUIRE_CUDA": "cuda>=12"}
    assert requirements_of({**env, "NVIDIA_DISABLE_REQUIRE": "1"}) == {}
