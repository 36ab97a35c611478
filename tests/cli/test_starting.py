"""The request of a start: what options and configuration files make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.starting import start_request
from gpubind.launch.target import StartRequest

CONFIGURATION = "[ignore]\nuvm-missing = 'ticket 7'\n[severity]\ncuda-too-new = 'note'\n"


def made(*, host: Optional[str] = None, check: bool = False, dry_run: bool = False) -> StartRequest:
    options = PlanOptions(host)
    return start_request(
        options, dry_run=dry_run, require_gpu=True, check=check, allow_writable=False, quiet=True, verbose=0
    )


def test_findings_are_configured_for_a_start_that_checks_first_and_read_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gpubind" / "config.toml"
    file.parent.mkdir()
    file.write_text(CONFIGURATION)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    request, unchecked = made(check=True), made()
    assert request.reasons == {("uvm-missing", None): "ticket 7"}
    assert request.severities == {("cuda-too-new", None): ("note", str(file))}
    assert (unchecked.reasons, unchecked.severities) == ({}, {})
    assert (request.check, unchecked.check, request.require_gpu, request.allow_writable) == (True, False, True, False)
    assert (request.arguments, request.elsewhere, request.dry_run) == ((), False, False)


def test_only_a_dry_run_is_for_a_recorded_host() -> None:
    request = made(host="debian13-nvidia550", dry_run=True)
    assert (request.elsewhere, request.dry_run) == (True, True)
