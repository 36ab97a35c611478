"""A Slurm cluster of `rig/slurm`, whose nodes are overlays of one host: each can be broken alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.live.machine import CHECKOUT, ROOT_PATH, Bind, checked_run

SLURM = os.path.join(CHECKOUT, "tests/live/rig/slurm")


class Cluster(NamedTuple):
    """A running cluster: nodes n1, n2 and so on, and ctl."""

    directory: str
    """SLURM_RIG of it, with etc/ and log/; its machines see it as /srv/slurm."""

    def run(self, *command: str, status: int = 0) -> str:
        """What *command* writes to standard output on ctl. Fails unless it ends with *status*."""
        return checked_run([SLURM, "run", *command], self._env, status).stdout

    def on(self, node: str, *command: str, status: int = 0) -> str:
        """The same on a node."""
        return checked_run([SLURM, "on", node, *command], self._env, status).stdout

    @property
    def _env(self) -> dict[str, str]:
        return {"PATH": ROOT_PATH, "LC_ALL": "C.UTF-8", "SLURM_RIG": self.directory}


@contextmanager
def cluster(
    directory: str, nodes: int, *, hooks: str = "", settings: Iterable[str] = (), binds: Iterable[Bind] = ()
) -> Iterator[Cluster]:
    """A cluster that is up as long as the context is: what the head of `rig/slurm` says."""
    made = Cluster(directory)
    around = {"HOOKS": hooks, "SETTINGS": "\n".join(settings), "BINDS": " ".join(map(str, binds))}
    checked_run([SLURM, "start", str(nodes)], {**made._env, **around}, 0)
    try:
        yield made
    finally:
        checked_run([SLURM, "stop"], made._env, 0)
