"""NVIDIA_REQUIRE_*: the driver that an image needs.

An expression is alternatives separated by spaces, each of terms joined by commas, each a property, an operator and a
value: `cuda>=12.4 brand=tesla,driver>=535,driver<536`. It is read from the left, and only as far as it takes to answer:
the rest may be anything. Source: libnvidia-container `src/cli/dsl.c` (`dsl_evaluate`, `evaluate_rule`,
`dsl_compare_version`), `src/cli/configure.c` (the properties).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Optional, Union

from gpubind.errors import Format, FormatError
from gpubind.model.cuda import cuda_max, first_drivers, version_key

LENGTH_LIMIT = 1 << 16
_DRIVERS_LIMIT = 256
"""Drivers of an expression that are tried: NVIDIA's images name 40."""
_PROPERTIES = ("cuda", "driver", "arch", "brand")
_FALSE = ("", "0", "false", "no", "f", "n")
_malformed = Format("bad-require", "malformed NVIDIA_REQUIRE_* expression").damaged
_TERM = re.compile(r"([^<>=!]+)(=|!=?|<=?|>=?)([^<>=!].*)", re.DOTALL)
_VERSION = re.compile(r"[0-9]{1,19}(\.+[0-9]{1,19})*\.*", re.ASCII)  # 64 bits hold no more digits for certain


def evaluate(text: str, properties: Mapping[str, str]) -> Optional[bool]:
    """Return whether the requirement in *text* holds where the *properties* have these values.

    A property that is not among them may have any value: None where the answer depends on it. A text without terms
    asks for nothing. Errors: `FormatError` (code `bad-require`) with the place, where a malformed term is reached
    whatever the unknown properties are.
    """
    if len(text) > LENGTH_LIMIT:
        raise _malformed(f"{len(text)} characters", "character 0")
    outcomes = tuple(_outcomes(text, properties))
    faults = [outcome for outcome in outcomes if isinstance(outcome, FormatError)]
    if len(faults) == len(outcomes):
        raise faults[0]
    return None if faults or len(set(outcomes)) > 1 else outcomes[0] is True


def requirements_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *env* that are requirements; none where NVIDIA_DISABLE_REQUIRE is true.

    Source: nvidia-container-toolkit `internal/config/image/cuda_image.go`.
    """
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in _FALSE:
        return {}
    flags = (name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK") for name in env)
    return {name: text for (name, text), is_requirement in zip(env.items(), flags) if is_requirement}


def first_sufficient_driver(text: str, **extra: str) -> Optional[str]:
    """Return the first driver from which on every known one meets the requirement in *text*; None if there is none.

    *extra* are other properties: a brand or an architecture that *extra* lacks may be any. Errors: as `evaluate`.
    """
    least = None
    for driver in reversed(breakpoint_drivers(text)):
        if not evaluate(text, driver_properties(driver, **extra)):
            break
        least = driver
    return least


def breakpoint_drivers(text: str) -> tuple[str, ...]:
    """Return the drivers at which the answer about *text* may change, ascending: those it names, and the first of each
    CUDA version.
    """
    drivers = re.findall(
        r"driver[<>=!]+([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})(?![0-9.])", text[:LENGTH_LIMIT], re.IGNORECASE
    )
    return tuple(
        sorted({*drivers[:_DRIVERS_LIMIT], *first_drivers()}, key=lambda driver: (version_key(driver), driver))
    )


def driver_properties(driver: str, **extra: str) -> dict[str, str]:
    """Return the properties of a host with *driver*, with those *extra*."""
    cuda = cuda_max(driver)
    return {"driver": driver, **({} if cuda is None else {"cuda": cuda}), **extra}


def _outcomes(text: str, properties: Mapping[str, str]) -> Iterator[Union[bool, FormatError]]:
    """Yield each way in which the reading may end, whatever the unknown properties are."""
    so_far = True
    for number, alternative in enumerate(filter(None, text.split(" ")), 1):
        terms = [term for term in alternative.split(",") if term]
        if not terms:
            break  # only commas: they end the reading
        answers = [_term(term, properties, f"alternative {number}") for term in terms]
        ends = [n for n, answer in enumerate(answers) if answer is False or isinstance(answer, FormatError)]
        reached = answers[: ends[0] + 1] if ends else answers
        if reached[-1] is not False:
            yield reached[-1] or True
        if all(reached):
            return
        so_far = False
    yield so_far


def _term(term: str, properties: Mapping[str, str], place: str) -> Union[bool, FormatError, None]:
    """Return the result of one comparison; an error if it is malformed, None if it is not known."""
    match = _TERM.fullmatch(term)
    if match is None:
        return _malformed(f"`{term[:60]}` is not a comparison", place)
    name, operator, value = match[1].lower(), match[2], match[3]
    if name not in _PROPERTIES:
        return _malformed(f"nobody knows a property `{match[1][:60]}`, but {', '.join(_PROPERTIES)}", place)
    actual = properties.get(name)
    if name == "brand":
        if operator not in ("=", "!", "!="):
            return _malformed(f"brand cannot be compared by `{operator}`", place)
        return None if actual is None else (actual.lower() == value.lower()) == (operator == "=")
    if not _VERSION.fullmatch(value):
        return _malformed(f"`{value[:60]}` is not a version", place)
    if actual is None or not _VERSION.fullmatch(actual):
        return None
    actual_key, value_key = version_key(actual), version_key(value)
    order = "<" if actual_key < value_key else ">" if actual_key > value_key else "="
    return order != "=" if operator.startswith("!") else order in operator
