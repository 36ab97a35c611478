"""Findings about the choice of GPUs: every text that there is for one is told somewhere in the table of cases."""

from __future__ import annotations

import re

import pytest

from gpubind.errors import UsageError
from gpubind.model import Finding
from gpubind.model.findings import finding_texts
from gpubind.planner.gpus.selection import select
from tests.planner.gpus.cases import ERRORS, ROWS, Row
from tests.planner.gpus.hosts import HOSTS
from tests.support.golden import GOLDEN, assert_golden

CODES = (
    "gpu-forbidden",
    "gpu-order-unknown",
    "gpu-uuid-unknown",
    "mig-unresolved",
    "rocr-visible-cut",
    "slurm-gpu-ambiguous",
    "visible-devices-none",
    "visible-devices-unknown",
)


def findings() -> list[Finding]:
    rows = [row for row in ROWS.values() if row.devices not in ERRORS]
    made = [one for row in rows for one in select(HOSTS[row.host], row.gpus, row.environ, isolated=row.isolated)]
    return [finding for one in made for finding in one.inventory.findings]


@pytest.mark.parametrize("code", CODES)
def test_every_text_about_the_choice_of_gpus_is_told_in_some_case(code: str) -> None:
    text = finding_texts()[code]
    told = [finding for finding in findings() if finding.code == code]
    for name, case in text.get("cases", {"only": {}}).items():
        variant = {**text, **case}
        fields = {key: re.sub(r"\\\{\w+\\\}", ".*", re.escape(variant[key])) for key in ("what", "why", "hint")}
        assert any(all(re.fullmatch(pattern, getattr(one, key)) for key, pattern in fields.items()) for one in told), (
            name
        )


def told(row: Row) -> list[str]:
    """The findings of *row*, its reasons for nodes that are left out, or its error: every field."""
    if row.devices in ERRORS:
        with pytest.raises(UsageError) as caught:
            select(HOSTS[row.host], row.gpus, row.environ, isolated=row.isolated)
        error = caught.value
        return [f"{error.code}: {error.what}", f"why: {error.why}", f"hint: {error.hint}"]
    lines: dict[str, None] = {}
    for made in select(HOSTS[row.host], row.gpus, row.environ, isolated=row.isolated):
        for one in made.inventory.findings:
            head = f"{one.severity} {one.code} {one.subject} ({one.vendor}): {one.what}"
            lines.update(dict.fromkeys((head, f"why: {one.why}", f"hint: {one.hint}", f"where: {one.where}")))
        for decision in made.decisions:
            reason = re.sub("[0-9]+", "N", decision.detail or "")
            lines[f"{decision.verdict} {decision.rule} {decision.step}: {reason}"] = None
    return list(lines)


def test_every_choice_is_told_in_the_same_words() -> None:
    rows = ("".join(f"{line}\n" for line in (name, *(f"    {one}" for one in told(row)))) for name, row in ROWS.items())
    assert_golden(GOLDEN / "gpus.txt", "\n".join(rows))


def said(host: str, **environ: str) -> list[Finding]:
    return [one for chosen in select(HOSTS[host], None, environ, isolated=False) for one in chosen.inventory.findings]


def test_a_name_that_no_gpu_has_is_told_in_part_where_it_is_long() -> None:
    (unknown,) = said("two", NVIDIA_VISIBLE_DEVICES="GPU-" + "f" * 1000)
    assert unknown.code == "visible-devices-unknown"
    assert "f" * 77 not in f"{unknown.what} {unknown.why}"


def test_one_gpu_is_no_gpus() -> None:
    (order,) = said("eight", SLURM_STEP_GPUS="1", CUDA_VISIBLE_DEVICES="0")
    assert (order.code, "SLURM_STEP_GPUS names 1 GPU;" in (order.why or "")) == ("gpu-order-unknown", True)
