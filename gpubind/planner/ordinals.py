"""GPUs by number, where they have told no UUID: a number means another GPU where only some of them are."""

from __future__ import annotations

from collections.abc import Iterable

from gpubind.model import Gpu

ORDINALS = "gpu-ordinals"
"""The rule of a variable that names GPUs by number."""


def renumbered(value: str, gpus: Iterable[Gpu]) -> str:
    """Indexes of GPUs as they count where only the chosen of *gpus* are: places among those, by number."""
    left = sorted(gpu.index for gpu in gpus if gpu.chosen and gpu.index is not None)
    numbers = [int(token) for token in value.split(",") if token.isdigit()]
    return ",".join(str(left.index(number)) for number in numbers if number in left)
