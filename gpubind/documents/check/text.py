"""`gpubind check` for people: what was checked and the verdict, then errors and warnings, then notes by theme.

A terminal and a log get the same text, but only a terminal gets colours.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpubind.documents.check.report import excluded_text, fold_findings
from gpubind.documents.text import printable, render_finding, wrapped
from gpubind.model import Finding, ImageFacts
from gpubind.model.findings import finding_texts, shorten_list, with_count
from gpubind.rules.outcome import Checked, Report, verdict

WIDTH = 100
"""Columns of a line in a log."""
THEMES = {
    "access": "devices",
    "cuda": "CUDA",
    "extras": "missing, or not usable in the container",
    "host": "this host",
    "image": "the image",
    "runtime": "the runtime",
    "program": "the program",
}
"""The themes of notes in data/findings.json, and the beginning of a line about each."""
_COLOURS = {"ok": "32", "error": "31", "warning": "33", "note": "36", "ignored": "2"}
_INDENT = " " * 9


def render_check_text(report: Report, *, verbose: bool = False, width: int = WIDTH, colour: bool = False) -> str:
    """Return the report in lines of *width* columns. *verbose*: each finding in full, with notes."""
    lines = wrapped(printable(f"{verdict(report.findings)}: {subject_line(report)}"), width, "  ")
    notes = [finding for finding in report.findings if finding.severity == "note"]
    for finding in report.findings if verbose else fold_findings(report.findings, brief=True):
        if verbose or finding.severity != "note":
            for line in render_finding(finding).splitlines():
                lines += [line] if line.lstrip().startswith("$ ") else wrapped(printable(line), width, _INDENT)
    for finding, was, by in report.changed if verbose else ():
        text = f"changed: {finding.code}: {finding.subject}: {finding.severity}, it was {was} ({by})"
        lines += wrapped(printable(text), width, _INDENT)
    for finding, reason in report.ignored:
        text = f"ignored: {finding.code}: {finding.what} ({reason})"
        lines += wrapped(printable(text), width, _INDENT)
    if notes and not verbose:
        is_bare = report.checked.image is None and report.checked.program is not None
        titles = {**THEMES, "image": THEMES["program"]} if is_bare else THEMES
        for theme, title in titles.items():
            # Notes that another option of the command would remove are last.
            of_theme = sorted(
                (note for note in notes if theme_of(note) == theme),
                key=lambda note: finding_texts()[note.code]["by"] == "option",
            )
            # If the user names a runtime, each of its notes is shown.
            parts = [[note] for note in of_theme] if theme == "runtime" and report.checked.runtime else [of_theme]
            for part in parts:
                lines += _folded(theme, title, part, width)
        lines.append(f"{with_count(len(notes), 'note')} in full with -v")
    if report.not_counted:
        lines += wrapped(printable(excluded_text(report)), width, "  ")
    return "".join((_coloured(line) if colour else line) + "\n" for line in lines)


def theme_of(note: Finding) -> str:
    """Return the theme of *note*, one of `THEMES`."""
    theme: str = finding_texts()[note.code].get("theme", "host")
    return theme


def subject_line(report: Report) -> str:
    """Return the subject of the check: the program and image on the driver and GPUs of the host."""
    plan, checked = report.plan, report.checked
    if plan is None:
        target = f"the hosts of {checked.policy}"
        return _image(checked, report.image, target) if report.image is not None else "not checked"
    drivers = []
    for planned in () if plan.request.like else plan.drivers:
        cuda = planned.driver.cuda_max
        drivers.append(planned.title + (f" (CUDA {cuda})" if cuda else ""))
    gpus = sum(gpu.chosen for gpu in plan.gpus)
    target = " and ".join(drivers) or (f"like {plan.request.like}" if plan.drivers else "a host without a GPU driver")
    target += f", {with_count(gpus, 'GPU')}" if gpus else ""
    target += f", by {checked.runtime}" if checked.runtime else ""
    target += f", as {checked.user}" if checked.user else ""
    if plan.image is None:
        facts = ", ".join(filter(None, (checked.system, checked.glibc and f"glibc {checked.glibc}")))
        return f"{checked.program} on this machine ({facts}) with {target}" if checked.program else target
    return _image(checked, plan.image, target)


def _image(checked: Checked, facts: ImageFacts, target: str) -> str:
    program = f"{checked.program} in " if checked.program else ""
    return f"{program}{checked.image or 'the image'} ({_facts(facts, checked)}) on {target}"


def _facts(image: ImageFacts, checked: Checked) -> str:
    glibc = f"glibc {checked.glibc or image.libc_version}"
    none = "no C library" if image.libc_fault is None else "a damaged C library"
    libc = {"glibc": glibc, "musl": "musl", "none": none if image.has_root else "no root file system"}
    cuda = "no CUDA"
    if image.cuda is not None:
        origin = next((each.origin for each in image.every_cuda if each.version == image.cuda), "toolkit")
        by = {"toolkit": "", "variable": " by CUDA_VERSION", "code": " by its GPU code"}.get(origin, f" from {origin}")
        cuda = f"CUDA {image.cuda}{by}"
    rocm = (f"ROCm {image.rocm}",) if image.rocm else ()
    return ", ".join((*([checked.system] if checked.system else ()), libc[image.libc_family], cuda, *rocm))


def _folded(theme: str, title: str, notes: list[Finding], width: int) -> Iterable[str]:
    if not notes:
        return ()
    if theme == "extras":
        subjects = list(dict.fromkeys(note.subject.rpartition("/")[2] for note in notes))
        them = "it" if len(subjects) == 1 else "them"
        text = f"{title}: {shorten_list(subjects)}; most jobs do not need {them}"
    else:
        more = len(notes) - 1
        text = f"{title}: {notes[0].what}" + (f"; and {with_count(more, 'other note')}" if more else "")
    return wrapped(printable(f"note: {text}"), width, "  ")


def _coloured(line: str) -> str:
    prefix, colon, message = line.partition(":")
    return f"\x1b[{_COLOURS[prefix]}m{prefix}{colon}\x1b[0m{message}" if colon and prefix in _COLOURS else line
