"""A typical host and a node with the same driver have the same verdict for every image."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.machine import RIG, Machine
from tests.support.typical import findings_of, severe

pytestmark = pytest.mark.live

IMAGES = (
    "bookworm",
    "bookworm-gl",
    "bullseye",
    "bullseye-gl",
    "busybox",
    "trixie",
    "trixie-gl",
    "bookworm.sif",
    "bullseye-gl.sif",
    "bookworm-gl.oci.tar",
    "bookworm-gl.docker.tar",
)


@pytest.mark.parametrize("name", ["nv535", "trixie"])
def test_a_typical_host_has_the_verdicts_of_a_node_with_its_driver(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    node: Machine = request.getfixturevalue(name)
    version = {"nv535": "535.261.03", "trixie": "550.163.01"}[name]
    record = tmp_path / "record.json"
    record.write_text(node.gpubind("record", "-o", "-", driver=True))
    for image in IMAGES:
        path = Path(RIG, "ct", image)
        assert severe(findings_of(f"driver:{version},gpu:t4x2", path)) == severe(findings_of(str(record), path)), image
