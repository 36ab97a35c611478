"""`check --format slurm`: the errors in one line, as the reason why a node is drained.

`sinfo -R` shows nothing but this line. So it is never empty, and names what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import basename

from gpubind.documents.text import printable
from gpubind.errors import GpubindError
from gpubind.rules.outcome import Report, verdict

LIMIT = 100
"""Maximum characters of the line."""
_MARGIN = len("gpubind: warning  +999 (999 not counted)")
HEAD = "gpubind:"
"""The beginning of the line, by which a script recognizes the reasons that it has set."""


def render_slurm(report: Report) -> str:
    """Return the errors in one line; if there are none, the warnings; else `gpubind: ok`.

    Each error is shown by its code and subject. The first error of each code is shown before other errors, and those
    that do not fit are counted.
    """
    worst = verdict(report.findings)
    pairs = ((finding.code, finding.subject) for finding in report.findings if finding.severity == worst != "ok")
    items = list(dict.fromkeys(pairs))  # a spec may be stale in two ways
    head = {"error": HEAD, "warning": f"{HEAD} warning"}.get(worst, f"{HEAD} {worst}")
    left_out = len(report.not_counted)
    return _line(head, items, f" ({left_out} not counted)" if left_out else "")


def render_slurm_error(error: GpubindError) -> str:
    """Return the line for a check that *error* prevented. It states nothing about the node."""
    return _line(f"{HEAD} not checked", [(error.code, error.where)])


def _line(head: str, items: Sequence[tuple[str, str]], tail: str = "") -> str:
    codes = [code for code, _ in items]
    repeats = [codes[:at].count(code) for at, code in enumerate(codes)]
    line, remaining = head, len(items)
    for number, entry in sorted(zip(repeats, items), key=lambda pair: pair[0]):
        remaining -= 1
        more = f" +{remaining}" if remaining else ""
        # Another finding of the same code is shown only with its subject.
        forms = (_code_with_subject(*entry), *entry[: number == 0])
        item = next((form for form in forms if len(f"{line} {form}{more}{tail}") <= LIMIT), None)
        if item is None:
            return f"{line} +{remaining + 1}{tail}\n"
        line += f" {item}"
    return f"{line}{tail}\n"


def _code_with_subject(code: str, subject: str) -> str:
    """Return *code* with *subject*, or with the base name of a long path; only *code* if neither can fit."""
    forms = [f"{code}({printable(name)})" for name in (subject, basename(subject)) if name]
    fitting = (form for room in (LIMIT // 2, LIMIT - _MARGIN) for form in forms if len(form) <= room)
    return next(fitting, code)
