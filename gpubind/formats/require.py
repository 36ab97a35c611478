"""NVIDIA_REQUIRE_*: what an image says it needs of a driver.

An expression is alternatives separated by spaces, each of terms joined by commas, each a property, an operator and a
value: `cuda>=12.4 brand=tesla,driver>=535,driver<536`. Source: libnvidia-container `src/cli/dsl.c`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Optional

from gpubind.errors import FormatError

LENGTH_LIMIT = 1 << 16
_TERM = re.compile(r"([a-z_]+)(!=|<=|>=|=|<|>)([^\s,=<>!]+)")
_NUMBERS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")


class Term(NamedTuple):
    """One comparison."""

    property: str
    operator: str
    value: str


Requirement = tuple[tuple[Term, ...], ...]
"""Alternatives, one of which must hold; of each, every term."""


def parse_require(text: str) -> Requirement:
    """The requirement in *text*; empty for a text without terms, which asks for nothing.

    Errors: `FormatError` (code `bad-require`) with the term.
    """
    if len(text) > LENGTH_LIMIT:
        raise _malformed(f"{len(text)} characters", "character 0")
    alternatives = []
    for number, alternative in enumerate(text.split(), 1):
        terms = []
        for word in alternative.split(","):
            match = _TERM.fullmatch(word)
            if match is None:
                raise _malformed(f"`{word[:60]}` is no comparison", f"alternative {number}")
            term = Term(*match.groups())
            numeric = term.property in ("cuda", "driver", "arch")
            if numeric and not _NUMBERS.fullmatch(term.value):
                raise _malformed(f"`{term.value[:60]}` is no version", f"alternative {number}")
            if term.property == "brand" and term.operator not in ("=", "!="):
                raise _malformed(f"brand cannot be compared by `{term.operator}`", f"alternative {number}")
            terms.append(term)
        alternatives.append(tuple(terms))
    return tuple(alternatives)


def holds(requirement: Requirement, facts: Mapping[str, str]) -> Optional[bool]:
    """Whether *requirement* holds where the properties have the values in *facts*; None if that decides it not.

    A property that *facts* lacks may be anything.
    """
    answers = [_all(tuple(_term(term, facts) for term in terms)) for terms in requirement]
    if True in answers or not answers:
        return True
    return None if None in answers else False


def version_key(text: str) -> tuple[int, ...]:
    """A dotted version for comparison; trailing zeros do not count."""
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _all(answers: tuple[Optional[bool], ...]) -> Optional[bool]:
    if False in answers:
        return False
    return None if None in answers else True


def _term(term: Term, facts: Mapping[str, str]) -> Optional[bool]:
    actual = facts.get(term.property)
    if actual is None:
        return None
    if term.property == "brand":
        return (actual.lower() == term.value.lower()) == (term.operator == "=")
    if not (_NUMBERS.fullmatch(actual) and _NUMBERS.fullmatch(term.value)):
        return None
    ours, theirs = version_key(actual), version_key(term.value)
    return {
        "=": ours == theirs,
        "!=": ours != theirs,
        "<": ours < theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        ">=": ours >= theirs,
    }[term.operator]


def _malformed(why: str, place: str) -> FormatError:
    return FormatError("bad-require", "malformed NVIDIA_REQUIRE_* expression", place=place, why=why)
