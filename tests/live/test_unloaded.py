"""A node whose kernel module is not loaded."""

from __future__ import annotations

import pytest

from tests.live.machine import DRIVER, Machine, document, pairs

pytestmark = pytest.mark.live

WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])


@WHO
def test_the_plan_comes_with_an_assumed_version_and_an_error_finding(trixie: Machine, user: bool) -> None:
    plan = document(trixie.gpubind("plan", "--json", user=user))
    (driver,) = plan["drivers"]
    assert (driver["version"], driver["version_assumed"], driver["kernel_version"]) == (DRIVER, True, None)
    findings = {finding["code"]: finding["severity"] for finding in plan["findings"]}
    assert findings.get("driver-not-loaded") == "error"
    loaded = document(trixie.gpubind("plan", "--json", user=user, driver=True))
    assert pairs(plan) == pairs(loaded)


@WHO
def test_strict_makes_the_error_finding_the_exit_status(trixie: Machine, user: bool) -> None:
    trixie.gpubind("plan", "--strict", "--json", user=user, driver=True, status=0)
    lenient = trixie.gpubind("plan", "--json", user=user, status=0)
    assert trixie.gpubind("plan", "--strict", "--json", user=user, status=1) == lenient
