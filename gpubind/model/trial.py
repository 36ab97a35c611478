"""A check's predictions about a container, and their outcomes in a real one."""

from __future__ import annotations

from typing import Literal, Optional

from gpubind.frozen import NamedTuple


class Prediction(NamedTuple):
    """A question to a container, and the predicted answer."""

    kind: Literal["loads", "program", "driver"]
    """Whether a file loads, whether a program exists and is executable, or what a driver reports."""
    subject: str
    words: tuple[str, ...]
    """The command that answers; for `program`, the program's name."""
    succeeds: Optional[bool]
    """Whether the command succeeds; None if nothing is predicted."""
    why: str = ""
    """Why it does not succeed."""
    reasons: tuple[str, ...] = ()
    """Names, one of which the loader's message contains."""


class TrialOutcome(NamedTuple):
    """A prediction, and the container's answer."""

    prediction: Prediction
    succeeded: Optional[bool]
    """Whether the command succeeded; None if the answer does not confirm or refute the prediction."""
    said: str = ""

    @property
    def is_compared(self) -> bool:
        """Return whether there are both a prediction and an answer."""
        return self.succeeded is not None and self.prediction.succeeds is not None

    @property
    def is_wrong(self) -> bool:
        """Return whether the answer differs from the prediction."""
        return self.is_compared and (self.prediction.succeeds != self.succeeded or self.fails_differently)

    @property
    def fails_differently(self) -> bool:
        """Return whether it fails as predicted, but for another reason."""
        reasons = self.prediction.reasons
        is_told = any(reason in self.said for reason in reasons) or not (reasons and self.said)
        return self.prediction.succeeds is False and self.succeeded is False and not is_told

    @property
    def has_other_reason(self) -> bool:
        """Return `fails_differently`, of which this is the old name."""
        from warnings import warn

        warn("TrialOutcome.has_other_reason is TrialOutcome.fails_differently now", DeprecationWarning, stacklevel=2)
        return self.fails_differently


class Trial(NamedTuple):
    """The outcomes in one container."""

    runtime: str
    tried: tuple[TrialOutcome, ...] = ()
    untried: int = 0
    """The number of predictions not tried: each would require a start."""
    failure: Optional[str] = None
    """Why the container did not answer all questions."""
