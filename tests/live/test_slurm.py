"""What contrib/slurm does on a cluster of five nodes, each of which can be broken alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.cluster import Cluster, cluster

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def five(rig: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(str(tmp_path_factory.mktemp("slurm") / "rig"), 5) as made:
        yield made


def test_a_node_is_changed_alone(five: Cluster) -> None:
    five.on("n3", "rm", "/dev/nvidia1")
    seen = five.run("srun", "-N5", "sh", "-c", "echo $(hostname) $(ls /dev/nvidia[0-9])")
    both = "/dev/nvidia0 /dev/nvidia1"
    assert sorted(seen.splitlines()) == [f"n1 {both}", f"n2 {both}", "n3 /dev/nvidia0", f"n4 {both}", f"n5 {both}"]
