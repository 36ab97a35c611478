"""A table of what `check` predicted, and what a container showed."""

from __future__ import annotations

from gpubind.documents.tables import Row, Table, always_shown, make_table
from gpubind.model import shorten_list, with_count
from gpubind.model.trial import Trial, TrialOutcome

_PREDICTED_SUCCESS = {"loads": "loads", "program": "may be executed", "driver": "succeeds"}
_THE_SAME = "the same"
_ABSENT = ": cannot open shared object file: No such file or directory"
_SHOWN = 60
"""Maximum characters that are shown of a driver's answer. The JSON document has the whole answer."""


def trial_table(trial: Trial, *, verbose: bool = False) -> Table:
    """Return a row for the subjects of each prediction and answer; *verbose*: a row for each subject."""
    groups: dict[tuple[str, str], list[str]] = {}
    for outcome in sorted(trial.tried, key=lambda outcome: (not outcome.is_wrong, outcome.prediction.kind != "loads")):
        subject = outcome.prediction.subject
        name = subject.rpartition("/")[2] if outcome.prediction.kind == "loads" and not verbose else subject
        groups.setdefault((_predicted(outcome), _seen(outcome)), []).append(name)
    rows: list[Row] = []
    for (predicted, seen), names in groups.items():
        if verbose:
            rows += [(name, predicted, seen) for name in names]
        else:
            is_usual = predicted == _PREDICTED_SUCCESS["loads"] and seen == _THE_SAME
            rows.append((with_count(len(names), "file") if is_usual else shorten_list(names), predicted, seen))
    return make_table(always_shown("tried", "predicted", "seen"), rows)


def trial_line(trial: Trial) -> str:
    """Return the outcome in one line."""
    wrong = sum(outcome.is_wrong for outcome in trial.tried)
    compared = sum(outcome.is_compared for outcome in trial.tried)
    parts = [with_count(compared, "prediction"), f"{wrong or 'none'} wrong"] if compared else ["nothing was predicted"]
    parts += [f"{trial.untried} not tried"] if trial.untried else []
    return f"tried by {trial.runtime}: {', '.join(parts)}"


def _predicted(outcome: TrialOutcome) -> str:
    kind, why = outcome.prediction.kind, outcome.prediction.why
    return {True: _PREDICTED_SUCCESS[kind], False: _short(why), None: ""}[outcome.prediction.succeeds]


def _seen(outcome: TrialOutcome) -> str:
    if outcome.is_compared and not outcome.is_wrong and outcome.prediction.kind != "driver":
        return _THE_SAME
    is_text = not outcome.succeeded or outcome.prediction.kind == "driver"
    answer = _short(outcome.said) if is_text else _PREDICTED_SUCCESS[outcome.prediction.kind]
    is_left = outcome.succeeded is None and outcome.prediction.succeeds is not None
    return f"{answer} (not compared)" if is_left else answer


def _short(text: str) -> str:
    """Return the first line of *text*. A missing library is reported in the words of ldd."""
    first, _, more = text.replace(_ABSENT, " not found").strip().partition("\n")
    is_cut = len(first) > _SHOWN and " " in first[:_SHOWN]
    first = first[:_SHOWN].rpartition(" ")[0] if is_cut else first
    return f"{first} ..." if is_cut or more else first
