"""distrobox hands the plan of docs/clients.md on to podman. A box is made, and not entered: it would fetch packages."""

from __future__ import annotations

import json
import os
import shlex

import pytest

from tests.live.machine import PYTHON_ENV, RIG, Bind, Machine, document, pairs

pytestmark = pytest.mark.live

IMAGE = "localhost/rig:gl"
CREATE = """
gpubind() {{ python3 -m gpubind "$@"; }}
PATH=/srv/distrobox/usr/bin:$PATH DBX_CONTAINER_MANAGER=podman
export PATH DBX_CONTAINER_MANAGER
trap 'podman rm --force {name} > /dev/null 2>&1' EXIT
distrobox create --yes --no-entry --name {name} --image {image} \\
  --additional-flags "$(gpubind plan -q --nv --image podman:{image} --format podman)" >&2
podman container inspect {name}
"""


def test_a_box_has_every_mount_node_and_variable_of_the_plan(trixie: Machine) -> None:
    name = f"gpubind-{os.getpid()}"
    script = CREATE.format(name=name, image=shlex.quote(IMAGE))
    binds = [*trixie.modules, Bind(f"{RIG}/distrobox", "/srv/distrobox")]
    made = trixie.run(["sh", "-ec", script], driver=True, binds=binds, env=PYTHON_ENV)
    (box,) = json.loads(made.stdout)
    plan = document(trixie.gpubind("plan", "-q", "--nv", "--image", f"podman:{IMAGE}", "--json", driver=True))
    assert pairs(plan) <= {(mount["Source"], mount["Destination"]) for mount in box["Mounts"]}
    assert {node["target"] for node in plan["devices"]} <= {
        node["PathInContainer"] for node in box["HostConfig"]["Devices"]
    } or box["HostConfig"]["Privileged"]
    path = next(value for value in box["Config"]["Env"] if value.startswith("LD_LIBRARY_PATH="))
    assert path.startswith("LD_LIBRARY_PATH=/.gpubind/libs")
