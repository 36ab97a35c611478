"""How much work something is, on any machine: its processor time, held against a piece of work in the same run."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable

TIMES = 1
"""How often the piece of work is done before and after what is measured: a machine may become busy in between."""
LITTLE_S = 0.02
"""Processor time that is little work on any machine, and is not measured further."""
_DATA = bytes(range(256)) * 256


def piece_of_work() -> float:
    """Return the processor time of a fixed piece of work, in seconds: about 0.01.

    It is what parsers do: small records are unpacked, what they name is kept, and the bytes are hashed.
    """
    began = time.process_time()
    named: dict[str, tuple[int, int]] = {}
    for number, (first, second, _) in enumerate(struct.iter_unpack("<IQI", _DATA * 2)):
        name = f"{first:08x}.{number % 4096}"
        if name.partition(".")[2]:
            named[name] = (second & 0xFFFF, number)
    hashlib.sha256(_DATA * 16).hexdigest()
    return time.process_time() - began


def pieces_in(act: Callable[[], object]) -> tuple[float, float]:
    """Return how many pieces of work *act* is, and its processor time in seconds."""
    pieces = [piece_of_work() for _ in range(TIMES)]
    began = time.process_time()
    act()
    seconds = time.process_time() - began
    pieces += [piece_of_work() for _ in range(TIMES)]
    return seconds * len(pieces) / sum(pieces), seconds


def is_less_work(act: Callable[[], object], pieces: int) -> bool:
    """Return whether *act* is less work than so many *pieces*."""
    return pieces_in(act)[0] < pieces
