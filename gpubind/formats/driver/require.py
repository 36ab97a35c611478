"""NVIDIA_REQUIRE_*: the driver that an image needs.

An expression has alternatives, separated by spaces; an alternative has terms, separated by commas. A term is a
property, an operator and a value: `cuda>=12.4 brand=tesla,driver>=535,driver<536`. Parsing goes from left to right and
stops as soon as the result is known; the rest is not checked. Source: libnvidia-container `src/cli/dsl.c`
(`dsl_evaluate`, `evaluate_rule`, `dsl_compare_version`), `src/cli/configure.c` (the properties).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Optional, Union

from gpubind.errors import Format, FormatError
from gpubind.model.cuda import cuda_max, first_drivers, version_key

LENGTH_LIMIT = 1 << 16
_DRIVERS_LIMIT = 256
"""Maximum drivers that are tried for one expression. NVIDIA's images name 40."""
_PROPERTIES = ("cuda", "driver", "arch", "brand")
_FALSE = ("", "0", "false", "no", "f", "n")
_malformed = Format("bad-require", "malformed NVIDIA_REQUIRE_* expression").damaged
_TERM = re.compile(r"([^<>=!]+)(=|!=?|<=?|>=?)([^<>=!].*)", re.DOTALL)
_VERSION = re.compile(r"[0-9]{1,19}(\.+[0-9]{1,19})*\.*", re.ASCII)  # 64 bits hold any number of 19 digits


def evaluate(text: str, properties: Mapping[str, str]) -> Optional[bool]:
    """Return whether the requirement in *text* holds for the values of *properties*.

    A property that is missing from them may have any value; None is returned if the answer depends on it. A text
    without terms holds. Errors: `FormatError` (code `bad-require`) with the location, if parsing reaches a malformed
    term whatever the values of the missing properties are.
    """
    if len(text) > LENGTH_LIMIT:
        raise _malformed(f"{len(text)} characters", "character 0")
    outcomes = tuple(_outcomes(text, properties))
    faults = [outcome for outcome in outcomes if isinstance(outcome, FormatError)]
    if len(faults) == len(outcomes):
        raise faults[0]
    return None if faults or len(set(outcomes)) > 1 else outcomes[0] is True


def requirements_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return the requirements among the variables *env*; none if NVIDIA_DISABLE_REQUIRE is true.

    Source: nvidia-container-toolkit `internal/config/image/cuda_image.go`.
    """
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in _FALSE:
        return {}
    flags = (name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK") for name in env)
    return {name: text for (name, text), is_requirement in zip(env.items(), flags) if is_requirement}


def first_sufficient_driver(text: str, **extra: str) -> Optional[str]:
    """Return the oldest known driver such that it and all newer ones meet the requirement in *text*; None without one.

    *extra*: values of other properties. If it has no brand or architecture, these may have any value. Errors: as
    `evaluate`.
    """
    least = None
    for driver in reversed(breakpoint_drivers(text)):
        if not evaluate(text, driver_properties(driver, **extra)):
            break
        least = driver
    return least


def breakpoint_drivers(text: str) -> tuple[str, ...]:
    """Return the driver versions from which the requirement *text* may have another result, in ascending order.

    They are the versions in *text*, and the first driver of each CUDA version.
    """
    drivers = re.findall(
        r"driver[<>=!]+([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})(?![0-9.])", text[:LENGTH_LIMIT], re.IGNORECASE
    )
    every = {*drivers[:_DRIVERS_LIMIT], *first_drivers()}
    return tuple(sorted(every, key=lambda driver: (version_key(driver), driver)))


def driver_properties(driver: str, **extra: str) -> dict[str, str]:
    """Return the properties of a host with *driver*, and *extra*."""
    cuda = cuda_max(driver)
    return {"driver": driver, **({} if cuda is None else {"cuda": cuda}), **extra}


def _outcomes(text: str, properties: Mapping[str, str]) -> Iterator[Union[bool, FormatError]]:
    """Yield each result that is possible for some values of the unknown properties."""
    so_far = True
    for number, alternative in enumerate(filter(None, text.split(" ")), 1):
        terms = [term for term in alternative.split(",") if term]
        if not terms:
            break  # an alternative of only commas ends the expression
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
    """Return the result of one comparison; an error if it is malformed, None if unknown."""
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
