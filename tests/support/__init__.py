"""Builders: fields in, bytes or trees out. And what a parser must do with bytes that are not as they were built."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpubind.errors import FormatError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_WORDS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\1\0\0\0", b"\0\0\0\1")


def damaged(data: bytes) -> SearchStrategy[bytes]:
    """*data* cut short, with bits turned, words overwritten or bytes put in; or bytes that are nothing like it."""
    from hypothesis import strategies as st  # benchmarks use the builders without it

    at = st.integers(0, max(len(data) - 1, 0))
    return st.one_of(
        at.map(lambda end: data[:end]),
        st.lists(st.tuples(at, st.integers(0, 7)), min_size=1, max_size=4).map(lambda bits: _flipped(data, bits)),
        st.lists(st.tuples(at, st.sampled_from(_WORDS)), min_size=1, max_size=3).map(
            lambda words: _overwritten(data, words)
        ),
        st.tuples(at, st.binary(min_size=1, max_size=8)).map(lambda put: data[: put[0]] + put[1] + data[put[0] :]),
        st.binary(max_size=256),
        st.binary(max_size=64).map(lambda tail: data[:32] + tail),
    )


def answers(parse: Callable[[bytes], object], data: bytes) -> bool:
    """Whether *parse* made a value of *data*. If it refused, it must have said where; any other exception gets out."""
    try:
        parse(data)
    except FormatError as error:
        assert error.place or error.where, f"{error.code} says no place: {error.why}"
        assert error.what
        return False
    return True


def _flipped(data: bytes, bits: list[tuple[int, int]]) -> bytes:
    out = bytearray(data)
    for at, bit in bits if data else ():
        out[at] ^= 1 << bit
    return bytes(out)


def _overwritten(data: bytes, words: list[tuple[int, bytes]]) -> bytes:
    out = bytearray(data)
    for at, word in words:
        out[at : at + 4] = word[: len(out) - at]
    return bytes(out)
