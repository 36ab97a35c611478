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

__all__ = ["INSIDE_CONTAINERS", "INSTALLED", "RIG", "Bind", "Machine", "installed", "measured", "node_for"]


def node_for(what: str) -> Optional[Machine]:
    """The node; None, with a line that says so, where *what* cannot be measured: without root, or without the rig."""
    if os.geteuid() != 0 or not os.path.exists(f"{RIG}/stamps/sandboxes"):
        print(f"\n{what} not measured: that needs root and the rig in {RIG} (make live)")
        return None
    return Machine(f"{RIG}/hosts/trixie", dependencies(RIG, "3.13"), DRIVER)


INSTALLED = "/srv/installed"
"""Where `measured` has the modules of gpubind; its start script is `bin/gpubind` there."""


def installed(node: Machine, place: str, checkout: str = str(REPOSITORY), target: str = INSTALLED) -> Bind:
    """gpubind of *checkout* in the new directory *place*, as pip installs it, with byte code: *target* on *node*."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", place, checkout]
    subprocess.run(pip, check=True)
    script = Path(place, "bin/gpubind")
    script.write_text("#!/usr/bin/python3\n" + script.read_text().partition("\n")[2])
    node.run(["python3", "-m", "compileall", "-q", target], binds=[Bind(place, target, readonly=False)])
    return Bind(place, target)


def measured(node: Machine, timer: str, words: Sequence[str], more: Sequence[Bind] = ()) -> str:
    """What the Python program *timer* prints for *words* on *node*, where the rig's images are, and *more*.

    One of *more* is what is `installed`. No memo serves, unless *timer* turns it on.
    """
    _, dependencies = node.modules
    modules = f"{INSTALLED}:{dependencies.target}"
    env = {"PYTHONPATH": modules, "PYTHONPYCACHEPREFIX": "/tmp/gpubind-bench", "GPUBIND_MEMO": "off"}
    binds = [dependencies, Bind(f"{RIG}/ct", INSIDE_CONTAINERS), *more]
    return node.run(["python3", "-c", timer, *words], user=True, driver=True, binds=binds, env=env).stdout
