"""`gpubind diff` on real nodes: a live node and its record are equal, and another node differs by what it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.machine import Bind, Machine

pytestmark = pytest.mark.live

RECORD, OTHER = "/srv/record.json", "/srv/other.json"


def recorded(node: Machine, path: Path, *options: str, user: bool = False) -> str:
    path.write_text(node.gpubind("record", "-o", "-", *options, user=user, driver=True))
    path.chmod(0o644)
    return str(path)


@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
@pytest.mark.parametrize("options", [(), ("--redact",)], ids=["as-it-is", "redacted"])
def test_a_node_is_equal_to_its_record_also_to_a_redacted_one(
    node: Machine, tmp_path: Path, user: bool, options: tuple[str, ...]
) -> None:
    binds = [Bind(recorded(node, tmp_path / "r.json", *options, user=user), RECORD)]
    for vendor in ("--nv", "--rocm"):
        told = node.gpubind("diff", vendor, "live", RECORD, user=user, driver=True, binds=binds)
        assert told.endswith(", record: equal (2)\n")


def test_in_a_job_a_node_is_equal_to_its_record(trixie: Machine, tmp_path: Path) -> None:
    binds = [Bind(recorded(trixie, tmp_path / "r.json"), RECORD)]
    job = {"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "1", "NVIDIA_GDS": "enabled"}
    assert "equal (2)" in trixie.gpubind("diff", "live", RECORD, driver=True, binds=binds, env=job)


def test_a_record_of_a_node_without_its_module_differs_by_the_driver(trixie: Machine, tmp_path: Path) -> None:
    binds = [Bind(recorded(trixie, tmp_path / "r.json"), RECORD)]
    told = json.loads(trixie.gpubind("diff", "--nv", "--json", RECORD, "live", binds=binds, status=1))["differences"]
    assert [(one["from"], one["to"]) for one in told if one["field"] == "kernel module"] == [("loaded", None)]
    assert not [one for one in told if one["section"] in ("library", "program", "file")]


def test_another_node_has_another_driver_and_what_came_with_it(trixie: Machine, nv535: Machine, tmp_path: Path) -> None:
    binds = [Bind(recorded(trixie, tmp_path / "a.json"), RECORD), Bind(recorded(nv535, tmp_path / "b.json"), OTHER)]
    told = trixie.gpubind("diff", "--nv", RECORD, OTHER, binds=binds, status=1)
    assert told.splitlines()[0] == "other differs from record:"
    assert told.splitlines()[1].split() == ["driver", "nvidia", "550.163.01", "->", "535.261.03"]
    assert "  lacks   nvidia-persistenced\n" in told
