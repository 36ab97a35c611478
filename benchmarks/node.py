"""The rig's GPU node, on which benchmarks of whole starts run as the ordinary user. `tests/live/rig/build` makes it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from tests.live.interpreters import dependencies
from tests.live.machine import DRIVER, INSIDE_CONTAINERS, RIG, Bind, Machine

__all__ = ["INSIDE_CONTAINERS", "RIG", "Bind", "Machine", "installed", "measured", "node_for"]


def node_for(what: str) -> Optional[Machine]:
    """The node; None, with a line that says so, where *what* cannot be measured: without root, or without the rig."""
    if os.geteuid() != 0 or not os.path.exists(f"{RIG}/stamps/sandboxes"):
        print(f"\n{what} not measured: that needs root and the rig in {RIG} (make live)")
        return None
    return Machine(f"{RIG}/hosts/trixie", dependencies(RIG, "3.13"), DRIVER)


def installed(node: Machine, checkout: str, place: str, target: str) -> Bind:
    """gpubind of *checkout* in the directory *place*, as pip installs it, with byte code; *target* is there on *node*.

    Its start script is `TARGET/bin/gpubind`.
    """
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", place, checkout]
    subprocess.run(pip, check=True)
    script = Path(place, "bin/gpubind")
    script.write_text("#!/usr/bin/python3\n" + script.read_text().partition("\n")[2])
    node.run(["python3", "-m", "compileall", "-q", target], binds=[Bind(place, target, readonly=False)])
    return Bind(place, target)


def measured(node: Machine, timer: str, words: Sequence[str], more: Sequence[Bind] = ()) -> str:
    """What the Python program *timer* prints for *words* on *node*, where the rig's images are, and *more*.

    No memo serves, unless *timer* turns it on.
    """
    modules = ":".join(bind.target for bind in node.modules)
    env = {"PYTHONPATH": modules, "PYTHONPYCACHEPREFIX": "/tmp/gpubind-bench", "GPUBIND_MEMO": "off"}
    binds = [*node.modules, Bind(f"{RIG}/ct", INSIDE_CONTAINERS), *more]
    return node.run(["python3", "-c", timer, *words], user=True, driver=True, binds=binds, env=env).stdout
