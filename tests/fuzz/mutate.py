"""Bytes that are nearly right: of a good input, and of what its format is made of."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

SIZE_LIMIT = 1 << 17
_NUMBERS = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_LARGE = (*_NUMBERS, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_TEXTS = (
    b"\0", b"\n", b"\r", b"\xff", b"\xc2\x9b", b"\xe2\x80\x8f", b"\\ud800", b"\\u0000", b"{", b"}", b"[", b"]", b'"',
    b"'", b"`", b"$(", b"${", b"$((", b"\\", b"/", b"//", b"..", b"/../", b":", b",", b"=", b"=,", b";", b"#", b"*",
    b"[!", b"?", b"&a ", b"*a", b"<<: ", b"!!int ", b"- ", b"1e999", b"-0", b"9" * 5000, b"true", b"null", b"%", b" ",
    b"\t", b"/" * 300, b"a" * 5000,
)  # fmt: skip
"""What some syntax takes for something else."""


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """*data* after a few changes. *others* are good inputs of the same format, *words* what the format has in it."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        _change(rng, out, others, words)
    return bytes(out[:SIZE_LIMIT])


def _change(rng: random.Random, out: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = rng.randrange(len(out) + 1)
    end = min(len(out), at + rng.choice((1, 2, 4, 8, 16, 64, 512)))
    kind = rng.randrange(10)
    if kind == 0 and out:  # a bit
        out[at % len(out)] ^= 1 << rng.randrange(8)
    elif kind == 1:  # a number
        form = rng.choice("BHIQ")
        number = rng.choice(_LARGE) & (1 << 8 * struct.calcsize(form)) - 1
        packed = struct.pack(rng.choice("<>") + form, number)
        out[at : at + len(packed)] = packed
    elif kind == 2 and out:  # a little more, a little less
        place = at % len(out)
        out[place] = (out[place] + rng.choice((-2, -1, 1, 2, 8))) % 256
    elif kind == 3:
        del out[at:end]
    elif kind == 4:  # the same again, somewhere
        to = rng.randrange(len(out) + 1)
        out[to:to] = out[at:end]
    elif kind == 5:
        out[at:at] = rng.choice(_TEXTS)
    elif kind == 6 and words:
        out[at : at if rng.random() < 0.5 else end] = rng.choice(words)
    elif kind == 7 and others:  # a part of another
        other = rng.choice(others)
        start = rng.randrange(len(other) + 1)
        out[at:end] = other[start : start + rng.choice((4, 16, 64, 512))]
    elif kind == 8:
        del out[at:]
    else:  # many times
        out[at:at] = out[at : at + rng.choice((1, 8, 64))] * rng.choice((2, 16, 200))
    del out[SIZE_LIMIT:]
