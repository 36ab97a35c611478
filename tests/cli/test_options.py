"""What the options of a line make of a request."""

from __future__ import annotations

import json

import pytest

from gpubind.cli.reader import run_line


@pytest.mark.parametrize("caps", ["utility,compute", " compute ,utility", "utility,,compute,", ",compute,utility"])
def test_capabilities_are_a_set_however_they_are_spelled(caps: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    run_line(["plan", "--nv", "--host", "debian13-nvidia550", "--caps", caps, "--json", "--quiet"])
    assert json.loads(capfdbinary.readouterr().out)["request"]["caps"] == ["compute", "utility"]
