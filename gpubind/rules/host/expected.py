"""Rules about what --expect and the site's configuration require of a node: they report what the node lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpubind.model import Finding, finding, with_count
from gpubind.planner.expected import make_expectation
from gpubind.rules.preflight import Preflight


def expected_driver(preflight: Preflight) -> Iterator[Finding]:
    """Report a driver whose version differs from the expected version."""
    for expected in preflight.expected:
        has = make_expectation(preflight.plan).drivers
        for version in expected.drivers:
            if not any(actual == version or actual.startswith(f"{version}.") for actual in has):
                shown = " and ".join(has) or "none"
                yield finding("expected-driver", subject=version, where=expected.source_file, has=shown)


def expected_gpus(preflight: Preflight) -> Iterator[Finding]:
    """Report that the number of GPUs, of one model or in all, is not the expected one. GPUs without nodes are not
    counted.
    """
    usable = (gpu for gpu in preflight.plan.gpus if gpu.index is not None)
    gpus = [gpu for gpu in usable if gpu.node is None or not preflight.host.dev.lacks(gpu.node)]
    for expected in preflight.expected:
        for model, number in expected.gpus:
            has = sum(model in ("", gpu.model) for gpu in gpus)
            if has != number:
                yield finding(
                    "expected-gpus",
                    subject=f"{has} of {number} {model}".strip(),
                    case=("more",) if has > number else (),
                    severity="warning" if has > number else "error",
                    where=expected.source_file,
                    has=has,
                    expected=with_count(number, "GPU"),
                    model=f" of the model {model}" if model else "",
                )


def expected_partition(preflight: Preflight) -> Iterator[Finding]:
    """Report GPUs of AMD that are partitioned in another mode than the expected ones. GPUs without modes are skipped.

    A mode matches an expected one if it equals it or has it as a part: `CPX/NPS4` matches `CPX`.
    """
    gpus = (gpu for gpu in preflight.plan.gpus if gpu.index is not None)
    modes = Counter(gpu.partition for gpu in gpus if gpu.partition)
    for expected in preflight.expected:
        allowed = {*expected.partitions}
        others = {mode: modes[mode] for mode in sorted(modes) if allowed.isdisjoint((mode, *mode.split("/")))}
        if expected.partitions and (others or not modes):
            has = ", ".join(f"{number} in {mode}" for mode, number in others.items()) or "none with such a mode"
            expected_modes = " or ".join(expected.partitions)
            yield finding("expected-partition", subject=expected_modes, where=expected.source_file, has=has)


def expected_capability(preflight: Preflight) -> Iterator[Finding]:
    """Report an expected capability for which the host has no library."""
    for expected in preflight.expected:
        has = make_expectation(preflight.plan).capabilities
        for name in expected.capabilities:
            if name not in has:
                yield finding("expected-capability", subject=name, where=expected.source_file)


def expected_library(preflight: Preflight) -> Iterator[Finding]:
    """Report expected libraries that this node lacks, if its driver has the expected version.

    Drivers of other versions have other libraries.
    """
    for expected in preflight.expected:
        has = make_expectation(preflight.plan)
        gone = [name for name in expected.libraries if name not in has.libraries]
        if gone and has.drivers == expected.drivers:
            where = f"{expected.source_file}: {', '.join(gone)}"
            yield finding("expected-library", subject=gone[0], where=where, number=with_count(len(gone), "library"))
