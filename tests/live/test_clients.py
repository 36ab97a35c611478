"""Programs that start containers by themselves, plain and with shims of `gpubind install-shims` in PATH: a client's
container and its exit status are the same, and the driver is there where a GPU is requested.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.clients import (
    CLIENTS,
    CONTAINERS_CONF,
    GPUBIND,
    IMAGE,
    OCI_RUNTIME,
    PROGRAMS,
    SHIMS,
    SMI,
    TOOLS,
    WORK,
    Client,
    Seen,
    integrations,
    seen,
)
from tests.live.containers import CONTAINERS, EXCLUDES
from tests.live.engine_starts import SOCKET, dockerd
from tests.live.machine import CHECKOUT, PYTHON_ENV, ROOT_PATH, Bind, Machine

pytestmark = pytest.mark.live

STARTED = {user: f"uid={1000 if user else 0} arguments=a|b c" for user in (False, True)}
INNER = f"{CHECKOUT}/tests/live/programs/inner.py"
FILES = {
    "gpubind": GPUBIND,
    "oci-runtime": OCI_RUNTIME,
    "smi/nvidia-smi": SMI,
    "containers.conf": CONTAINERS_CONF,
    **{f"image/usr/local/bin/{name}": text for name, text in PROGRAMS.items()},
}
PLACES = {"tools": TOOLS, "work": WORK, "cdi": "/etc/cdi"}
"""What is made for a run of this file, and where the machine has it."""
IMPORT = f"(cd {TOOLS}/image && find * -type f) | tar -C /srv/ct/bookworm {EXCLUDES} -c . -C {TOOLS}/image -T - |"


class Node(NamedTuple):
    """The machine of the clients, with what they need around them."""

    machine: Machine
    place: Path

    def sh(self, script: str, *, user: bool = False, env: Mapping[str, str] = {}) -> str:
        """What *script* prints, on both outputs."""
        own = [Bind(f"{self.place}/{name}", path, readonly=False) for name, path in PLACES.items()]
        binds = [*self.machine.modules, CONTAINERS, *own]
        env = {"DOCKER_HOST": SOCKET, "CONTAINERS_CONF_OVERRIDE": f"{TOOLS}/containers.conf", **env}
        words = ["sh", "-c", f"exec 2>&1; {script}\ntrue"]
        return self.machine.run(words, user=user, driver=True, binds=binds, env=env).stdout

    def seen(self, client: Client, gpu: str, path: Sequence[str] = ()) -> Seen:
        """What *client* shows, in a directory of its own, with *gpu* as its request and *path* first in PATH."""
        smi = [f"{TOOLS}/smi"] if client.needs_smi and gpu else []
        work = Path(tempfile.mkdtemp(prefix=client.room, dir=self.place / "work"))
        for name, text in client.files.items():
            (work / name).write_text(text.replace("{gpu}", gpu))
        shutil.copy(INNER, work)
        for file in (work, *work.iterdir()) if client.user else ():
            os.chown(file, 1000, 1000)
        script = f"cd {WORK}/{work.name} && {client.script.replace('{gpu}', gpu)}"
        home = f"/opt/clients/{client.room}"
        env = {
            "PATH": ":".join((*path, *smi, f"{home}/bin", ROOT_PATH)),
            "PYTHONPATH": f"{home}:{PYTHON_ENV['PYTHONPATH']}",
        }
        return seen(self.sh(script, user=client.user, env=env))


@pytest.fixture(scope="module")
def node(clients: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The machine with a dockerd of its own, shims, and the image in docker's and podman's store."""
    place = tmp_path_factory.mktemp("clients")
    for name, text in FILES.items():
        path = place / "tools" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        path.chmod(0o755)
    shutil.copy(INNER, place / "tools/image")
    for name in ("work", "cdi"):
        (place / name).mkdir()
    node = Node(clients, place)
    binds = [*clients.modules, Bind(f"{place}/tools", TOOLS), Bind(f"{place}/work", WORK, readonly=False)]
    with dockerd(clients, f"--add-runtime=gpubind={TOOLS}/oci-runtime", binds=binds, driver=True):
        node.sh(f"{TOOLS}/gpubind install-shims -q {SHIMS}")
        for program in ("docker", "podman"):
            node.sh(f"{IMPORT} {program} import - {IMAGE}")
        try:
            yield node
        finally:
            node.sh(f"podman rmi --force {IMAGE}")


def hold(client: Client, plain: Seen, wrapped: Seen) -> None:
    """Fails unless gpubind added the driver, and changed nothing else."""
    assert (plain.started, plain.status) == (wrapped.started, wrapped.status) == (STARTED[client.user], client.status)
    assert (wrapped.cuinit, wrapped.nodes) == ("100", client.nodes)
    assert plain.cuinit == ("100" if client.plain else "none")
    if client.plain:
        assert wrapped.libraries > plain.libraries


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_gets_the_driver_and_nothing_else_changes(node: Node, client: Client) -> None:
    hold(client, node.seen(client, client.plain), node.seen(client, client.gpu, [SHIMS, TOOLS]))


@pytest.mark.parametrize("name", ["spython", "cwltool"])
def test_a_client_that_calls_wrap_needs_no_shim(node: Node, name: str) -> None:
    client = integrations(Path(CHECKOUT, "docs/clients.md").read_text())[name]
    hold(client, node.seen(CLIENTS[name], client.plain), node.seen(client, client.gpu))
