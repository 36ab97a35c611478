"""Each rule fires where it should, and not where it almost should."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from build.driver import host, kernel, rhel
from build.elf import elf
from build.images import glibc, image
from build.trees import Item, Spec

from gpubind.facade import plan
from gpubind.image import Image
from gpubind.model import Finding, Request
from gpubind.rules import RULES, check_plan

LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def without(spec: Spec, *paths: str) -> dict[str, Item]:
    return {path: item for path, item in spec.items() if path not in paths}


def check(*parts: Spec, opened: Optional[Image] = None, **request: Any) -> tuple[Finding, ...]:
    made = plan(host(*parts), Request(**request), image=opened)
    return check_plan(made, opened)


FIRES: dict[str, tuple[tuple[Spec, ...], Optional[Image], dict[str, Any]]] = {
    "uvm-missing": ((rhel(), without(kernel(), "/dev/nvidia-uvm")), None, {}),
    "control-node-missing": ((rhel(), without(kernel(), "/dev/nvidiactl")), None, {}),
    "driver-in-image": ((rhel(), kernel()), image(glibc(), {LIBCUDA: elf("libcuda.so.1")}), {}),
}
ALMOST: dict[str, tuple[tuple[Spec, ...], Optional[Image], dict[str, Any]]] = {
    "uvm-missing": ((rhel(), without(kernel(), "/dev/nvidia-uvm")), None, {"caps": ("utility",)}),
    "control-node-missing": ((rhel(), without(kernel(None), "/dev/nvidiactl")), None, {}),
    "driver-in-image": ((rhel(), kernel()), image(glibc(), {LIBCUDA: b""}), {}),
}


@pytest.mark.parametrize("code", [rule.code for rule in RULES])
def test_a_rule_fires_where_it_is_so_and_not_where_it_is_almost_so(code: str) -> None:
    parts, opened, request = FIRES[code]
    found = [finding for finding in check(*parts, opened=opened, **request) if finding.code == code]
    assert len(found) == 1
    assert found[0].hint
    parts, opened, request = ALMOST[code]
    assert code not in [finding.code for finding in check(*parts, opened=opened, **request)]


def test_a_healthy_host_has_no_error() -> None:
    assert [finding.code for finding in check(rhel(), kernel()) if finding.severity != "note"] == []


def test_a_driver_in_the_image_is_an_error_if_the_plan_brings_none() -> None:
    opened = image(glibc(), {LIBCUDA: elf("libcuda.so.1")})
    severities = [f.severity for f in check(kernel(), opened=opened) if f.code == "driver-in-image"]
    assert severities == ["error"]


def test_errors_come_first() -> None:
    found = check(rhel("535.54.03"), without(kernel(), "/dev/nvidia-uvm"))
    ranks = [("error", "warning", "note").index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)
