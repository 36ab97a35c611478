"""What was seen in a container, and what `check` had predicted, as a table."""

from __future__ import annotations

from gpubind.documents.tables import Column, Row, Table, make_table
from gpubind.model import shorten_list, with_count
from gpubind.model.trial import Trial, TrialOutcome

_COLUMNS = (
    Column("tried", always_shown=True),
    Column("predicted", always_shown=True),
    Column("seen", always_shown=True),
)
_PREDICTED_SUCCESS = {"loads": "loads", "program": "may be executed", "driver": "succeeds"}
_THE_SAME = "the same"
_ABSENT = ": cannot open shared object file: No such file or directory"
_SHOWN = 60
"""Characters of what a driver says; the JSON has all."""


def trial_table(trial: Trial, *, verbose: bool = False) -> Table:
    """Return a row for the subjects of each prediction and answer; *verbose*: a row for each subject."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in sorted(trial.tried, key=lambda one: (not one.is_wrong, one.prediction.kind != "loads")):
        groups.setdefault((_predicted(one), _seen(one)), []).append(_name(one, verbose=verbose))
    rows: list[Row] = []
    for (predicted, seen), names in groups.items():
        if verbose:
            rows += [(name, predicted, seen) for name in names]
        else:
            is_usual = predicted == _PREDICTED_SUCCESS["loads"] and seen == _THE_SAME
            rows.append((with_count(len(names), "file") if is_usual else shorten_list(names), predicted, seen))
    return make_table(_COLUMNS, rows)


def trial_line(trial: Trial) -> str:
    """Return the outcome in one line."""
    wrong = sum(one.is_wrong for one in trial.tried)
    compared = sum(one.is_compared for one in trial.tried)
    parts = [with_count(compared, "prediction"), f"{wrong or 'none'} wrong"] if compared else ["nothing was predicted"]
    parts += [f"{trial.untried} not tried"] if trial.untried else []
    return f"tried by {trial.runtime}: {', '.join(parts)}"


def _name(one: TrialOutcome, *, verbose: bool) -> str:
    subject = one.prediction.subject
    return subject.rpartition("/")[2] if one.prediction.kind == "loads" and not verbose else subject


def _predicted(one: TrialOutcome) -> str:
    return {True: _PREDICTED_SUCCESS[one.prediction.kind], False: _short(one.prediction.why), None: ""}[
        one.prediction.succeeds
    ]


def _seen(one: TrialOutcome) -> str:
    if one.is_compared and not one.is_wrong and one.prediction.kind != "driver":
        return _THE_SAME
    said = (
        _short(one.said)
        if not one.succeeded or one.prediction.kind == "driver"
        else _PREDICTED_SUCCESS[one.prediction.kind]
    )
    is_left = one.succeeded is None and one.prediction.succeeds is not None
    return f"{said} (not compared)" if is_left else said


def _short(said: str) -> str:
    """Return the first line of *said*, in the words of ldd for a library that is missing."""
    first, _, more = said.replace(_ABSENT, " not found").strip().partition("\n")
    is_cut = len(first) > _SHOWN and " " in first[:_SHOWN]
    first = first[:_SHOWN].rpartition(" ")[0] if is_cut else first
    return f"{first} ..." if is_cut or more else first
