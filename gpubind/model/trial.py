"""What a check predicts of a container, and what was seen in one."""

from __future__ import annotations

from typing import Literal, Optional

from gpubind.frozen import NamedTuple


class Prediction(NamedTuple):
    """What a container is asked, and what it is to answer."""

    kind: Literal["loads", "program", "driver"]
    """Whether a file loads, whether a program is there and may be executed, or what a driver says."""
    subject: str
    words: tuple[str, ...]
    """The command that answers; of a program, its name."""
    succeeds: Optional[bool]
    """None if nothing is predicted."""
    why: str = ""
    """Why it does not succeed."""
    reasons: tuple[str, ...] = ()
    """Names of which the loader's message has one."""


class TrialOutcome(NamedTuple):
    """A prediction, and the container's answer."""

    prediction: Prediction
    succeeded: Optional[bool]
    """None if that says nothing about the prediction."""
    said: str = ""

    @property
    def is_compared(self) -> bool:
        """Whether the answer says if the prediction is right."""
        return self.succeeded is not None and self.prediction.succeeds is not None

    @property
    def is_wrong(self) -> bool:
        """Whether something else was seen than was predicted."""
        return self.is_compared and (self.prediction.succeeds != self.succeeded or self.fails_differently)

    @property
    def fails_differently(self) -> bool:
        """Whether it fails as predicted, and for another reason."""
        reasons = self.prediction.reasons
        is_told = any(reason in self.said for reason in reasons) or not (reasons and self.said)
        return self.prediction.succeeds is False and self.succeeded is False and not is_told


class Trial(NamedTuple):
    """What was seen in a container."""

    runtime: str
    tried: tuple[TrialOutcome, ...] = ()
    untried: int = 0
    """The number of predictions that were not tried, as each would take a start."""
    failure: Optional[str] = None
    """Why the container did not answer all that it was asked."""
