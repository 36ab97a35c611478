"""The verdicts about images on several hosts, and a sentence for the users of each image whose verdict changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpubind.documents.diff.comparison import Comparison, Difference, EqualHosts, Fold
from gpubind.documents.diff.snapshot import ImageOutcome
from gpubind.frozen import NamedTuple
from gpubind.model import Finding, shorten_list
from gpubind.model.findings import support_of, with_count
from gpubind.rules.outcome import verdict

_FULL = "full support"
_REASONS = 2
"""Maximum findings that a sentence explains; the others are counted."""


class ImageChange(NamedTuple):
    """An image whose verdict on some hosts differs from that on the reference."""

    image: str
    before: ImageOutcome
    """The outcome on the reference."""
    after: ImageOutcome


def _changes_of(reference: EqualHosts, group: EqualHosts) -> list[ImageChange]:
    """Return the images whose verdicts differ. An image that only one of the two groups checked is left out."""
    before, after = ({outcome.image: outcome for outcome in hosts.images} for hosts in (reference, group))
    pairs = (ImageChange(image, before[image], after[image]) for image in after if image in before)
    return [change for change in pairs if change.before.verdict != change.after.verdict]


def differences_without(changes: Iterable[ImageChange], group: EqualHosts) -> list[Difference]:
    """Return the direct differences of *group*, except those of the images in *changes*."""
    images = {change.image for change in changes}
    return [difference for difference in group.direct if difference.section != "image" or difference.name not in images]


def _verdict_text(outcome: ImageOutcome) -> str:
    """Return the verdict for people: `full support`, `minor-version compatibility`, `error cuda-too-new`."""
    worst = verdict(outcome.findings)
    supports = [] if worst == "error" else [support_of(finding) for finding in outcome.findings]
    codes = (finding.code for finding in outcome.findings if finding.severity != "note")
    text = ", ".join(dict.fromkeys((*codes, *filter(None, supports))))
    return text or _FULL if worst == "ok" else f"{worst} {text}"


def change_text(change: ImageChange) -> str:
    """Return both verdicts: `full support -> minor-version compatibility`."""
    return f"{_verdict_text(change.before)} -> {_verdict_text(change.after)}"


def _sentence_of(change: ImageChange, reference: str, other: str) -> str:
    """Return what works on the *reference*, what works on the *other*, and what users of the image can do.

    *reference* and *other* are times or hosts: `today`, `on gpu001`.
    """
    before, after = (_outcome_text(outcome.findings) for outcome in (change.before, change.after))
    sentence = f"{reference} {before}; {other} {after}."
    hints = dict.fromkeys(finding.hint for finding in _reasons(change.after.findings)[0] if finding.hint)
    todo = f" What to do: {'; or '.join(hints)}." if hints else ""
    return sentence[:1].upper() + sentence[1:] + todo


def _outcome_text(findings: Sequence[Finding]) -> str:
    """Return the outcome of a job: `it fails: the image is for CUDA 12.2, the driver 470.256.02 supports 11.4`."""
    explained, others = _reasons(findings)
    worst = verdict(findings)
    if worst == "ok":
        supports = " and ".join(dict.fromkeys(filter(None, map(support_of, explained)))) or _FULL
        why = "; ".join(finding.why for finding in explained if finding.why)
        return f"it runs with {supports}" + (f": {why}" if why else "")
    reasons = [finding.what for finding in explained] + (
        [f"and {with_count(others, 'other finding')}"] if others else []
    )
    return f"it {'fails' if worst == 'error' else 'may fail'}: {'; '.join(reasons)}"


def _reasons(findings: Sequence[Finding]) -> tuple[list[Finding], int]:
    """Return the first findings of the worst severity, and the number of the others of that severity."""
    severity = {"ok": "note"}.get(verdict(findings), verdict(findings))
    worst = [finding for finding in findings if finding.severity == severity]
    return worst[:_REASONS], len(worst[_REASONS:])


def sentences_of(
    comparison: Comparison, group: EqualHosts, fold: Fold = shorten_list
) -> Iterator[tuple[ImageChange, str]]:
    """Yield each image whose verdict changes on *group*, with its sentence.

    Two hosts with different drivers, if there are no others, are treated as one host before and after an upgrade.
    """
    reference = comparison.groups[0]
    drivers = {each.driver for group in comparison.groups for each in group.drivers}
    is_upgrade = len(drivers) == len(comparison.groups) == sum(len(group.hosts) for group in comparison.groups) == 2
    before, after = f"on {fold(reference.hosts)}", f"on {fold(group.hosts)}"
    times = ("today", "after the change") if is_upgrade else (before, after)
    for change in _changes_of(reference, group):
        yield change, _sentence_of(change, *times)


def unchanged_text(comparison: Comparison) -> str:
    """Return how many images have the same verdict on all hosts: `no verdict changes for 1 image: 1 full support`.

    Empty if there are no such images.
    """
    reference, *others = comparison.groups
    changed = {change.image for group in others for change in _changes_of(reference, group)}
    numbers: dict[str, int] = {}
    for outcome in reference.images:
        if outcome.image not in changed:
            numbers[_verdict_text(outcome)] = numbers.get(_verdict_text(outcome), 0) + 1
    if not numbers:
        return ""
    texts = [f"{number} {text}" for text, number in sorted(numbers.items(), key=lambda item: -item[1])]
    return f"no verdict changes for {with_count(sum(numbers.values()), 'image')}: {shorten_list(texts)}"
