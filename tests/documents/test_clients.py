"""docs/clients.md: each client has its row, with the version that the live test runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/clients.md").read_text()
BUILD = (ROOT / "tests/live/rig/build").read_text()
NOT_RUN = {"Nextflow"}


def test_the_versions_are_those_that_the_live_test_runs() -> None:
    section = BUILD[BUILD.index("make_clients()") : BUILD.index("make_slurm()")]
    pinned = dict(re.findall(r"([@\w/-]+)(?:\[cwl\])?(?:==|@)([0-9.]+)", section))
    assert len(pinned) == 14
    del pinned["connection_pool"]
    assert [name for name, version in pinned.items() if version not in PAGE] == []


def test_each_row_says_with_which_version_it_was_run_or_that_it_was_not() -> None:
    rows = re.findall(r"^\| (.+?) \| .* \| (.+) \|$", PAGE[PAGE.index("## What to set") :], re.MULTILINE)
    told = {client: run for client, run in rows if client not in ("client", "---")}
    assert {client for client, run in told.items() if run == "not run"} == NOT_RUN
    assert all(re.search(r"\d\.\d", run) for client, run in told.items() if client not in NOT_RUN)
