"""Which versions of the runtimes the live tests run."""

from __future__ import annotations

import re

import pytest

from tests.live.machine import Machine
from tests.live.table import ASKED, Shows

pytestmark = pytest.mark.live

ASKS = {"ch-run": "ch-run --version 2>&1", "udocker": "UDOCKER_DIR=/dev/shm/udocker udocker version"}


@pytest.mark.parametrize("row", ASKED)
def test_a_runtime_tells_its_version(trixie: Machine, row: str, shows: Shows) -> None:
    program = row.partition(",")[0]
    said = trixie.run(["sh", "-c", ASKS.get(program, f"{program} --version")], user=True).stdout
    found = re.search(r"[0-9]+(\.[0-9]+)*", said)
    assert found is not None
    shows(row, "version", found[0])
