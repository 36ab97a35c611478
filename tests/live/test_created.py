"""Containers of docker and podman that are created before an update of the driver and started after it.

The update is made in a layer over the machine's own driver, which stays as it is: each file gets another version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.live.containers import CONTAINERS, EXCLUDES
from tests.live.engine_starts import LIMITS, RIG_SCRIPTS
from tests.live.machine import PYTHON_ENV, Bind, Machine
from tests.support.commands import gpubind

pytestmark = pytest.mark.live

NEW = "560.35.03"
SCRIPT = """
export PODMAN_IGNORE_CGROUPSV1_WARNING=1 DOCKER_HOST=unix:///srv/store/socket
. /srv/rig/update
dockerd --config-file /srv/store/daemon.json --iptables=false --bridge=none --data-root=/srv/store/data \\
    --exec-root=/srv/store/exec -H $DOCKER_HOST --pidfile=/srv/store/pid > /srv/store/log 2>&1 &
until docker version > /dev/null 2>&1; do sleep 0.2; done
spec() { python3 -m gpubind plan -q --nv --gpus all --strict --format cdi -o /etc/cdi/gpubind.json; }
PROBE="import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
create() {
    program=$1; name=$2; shift 2
    python3 -m gpubind wrap -- $program create --name made-$name --gpus all --network=none --entrypoint "" "$@" \\
        python3 -c "$PROBE" > /dev/null
}
each() {
    $1 podman $2 LIMITS rig:gl
    $1 docker $2 created:bookworm
}
start() { echo "$1 $2: $($1 start -a made-$2 2>&1 | tail -1)"; }
tar -C /srv/ct/bookworm EXCLUDES -c . 2> /dev/null | docker import - created:bookworm > /dev/null
each create paths
spec
each create device
each start device
update OLD NEW
each start paths
spec
each start device
podman rm --force made-paths made-device > /dev/null
docker rm --force made-paths made-device > /dev/null
kill $(cat /srv/store/pid)
wait
"""


@pytest.fixture(scope="module")
def told(trixie: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What the containers print when they are started, and the warnings at their creation."""
    store, specs = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("cdi")
    (store / "daemon.json").write_text(json.dumps({"features": {"cdi": True}}))
    script = SCRIPT.replace("OLD", trixie.version).replace("NEW", NEW).replace("EXCLUDES", EXCLUDES)
    script = script.replace("LIMITS", " ".join(f"--ulimit={word}" for word in LIMITS))
    (store / "script").write_text(script)
    binds = [
        CONTAINERS,
        RIG_SCRIPTS,
        Bind(str(store), "/srv/store", readonly=False),
        Bind(str(specs), "/etc/cdi", readonly=False),
    ]
    done = trixie.run(["bash", "/srv/store/script"], driver=True, binds=[*trixie.modules, *binds], env=PYTHON_ENV)
    yield [*done.stdout.splitlines(), *done.stderr.splitlines()]


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_container_with_a_cdi_device_starts_before_and_after_the_update(told: list[str], engine: str) -> None:
    assert [line for line in told if line.startswith(f"{engine} device: ")] == [f"{engine} device: 100"] * 2


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_without_a_spec_it_does_not_start_and_its_message_is_explained(told: list[str], engine: str) -> None:
    (line,) = [line for line in told if line.startswith(f"{engine} paths: ")]
    message = {"docker": "bind source path does not exist", "podman": "cannot stat"}[engine]
    assert message in line
    assert any("warning: container-outlives-driver: " in one for one in told)
    done = gpubind("explain", line)
    assert (done.returncode, "container-outlives-driver" in done.stdout) == (0, True)
