"""Rules that apply only to a start that has what they are about."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.launch.preflight import make_preflight
from gpubind.model import Request
from gpubind.model.findings import finding_texts
from gpubind.planner.planning import PlanQuery
from gpubind.rules.subjects import SUBJECTS
from gpubind.rules.table import applicable_rules
from tests.support.driver import host, kernel, rhel
from tests.support.images import MUSL, glibc, image, sandbox
from tests.support.trees import Node, Spec

CODES = {
    subject: {code for code, text in finding_texts().items() if text.get("when") == subject} for subject in SUBJECTS
}


def applied(
    spec: Optional[Spec] = None,
    *,
    of: Optional[Spec] = None,
    libc: Any = "image",
    environ: Optional[dict[str, str]] = None,
) -> set[str]:
    """The codes of the rules that apply to an image on an ordinary host that also has *spec* and *environ*."""
    there = host(rhel(), kernel(), spec or {}, environ=environ)
    preflight = make_preflight(there, PlanQuery(Request(libc=libc)), image(of or glibc()))
    return {rule.code for rule in applicable_rules(preflight)}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_on_an_ordinary_host_no_rule_applies_that_has_a_subject(subject: str) -> None:
    assert CODES[subject]
    assert CODES[subject] & applied() == set()


HAVING: dict[str, dict[str, Any]] = {
    "cdi": {"spec": {"/etc/cdi/nvidia.yaml": "x"}},
    "engines": {"spec": {"/usr/bin/podman": ""}},
    "nvswitch": {"spec": {"/dev/nvidia-nvswitchctl": Node("char", 234, 255)}},
    "imex": {"spec": {"/etc/nvidia-imex/nodes_config.cfg": ""}},
    "gpudirect": {"spec": {"/sys/module/nvidia_fs/initstate": "live"}},
    "mps": {"spec": {"/tmp/nvidia-mps/control": ""}},
    "snap": {"spec": {"/snap/bin/docker": ""}},
    "slurm": {"environ": {"SLURM_JOB_GPUS": "0"}},
    "gpu-variables": {"environ": {"CUDA_VISIBLE_DEVICES": "0"}},
    "require": {"of": {**glibc(), **sandbox('export NVIDIA_REQUIRE_CUDA="${NVIDIA_REQUIRE_CUDA:-"cuda>=12.0"}"')}},
    "musl": {"of": MUSL},
    "libc-host": {"libc": "host"},
}


@pytest.mark.parametrize("subject", HAVING)
def test_a_rule_applies_where_its_subject_is(subject: str) -> None:
    assert CODES[subject] <= applied(**HAVING[subject])
