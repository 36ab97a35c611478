"""podman and docker, as far as rules must know them: gpubind does not start them yet."""

from __future__ import annotations

from gpubind.runtimes.record import Limits, Runtime, UserNamespaces

PODMAN = Runtime(
    name="podman",
    title="podman",
    images=("reference", "directory"),
    limits=Limits(
        user_namespaces=UserNamespaces(
            helpers=(),
            moves=False,
            message="it will say `cannot clone: Operation not permitted` or `cannot re-exec process`",
        ),
        drops_groups=True,
        keep_groups="keep-groups",
        systemd_cgroups=True,
    ),
)
DOCKER = Runtime(
    name="docker",
    title="docker",
    images=("reference",),
    limits=Limits(drops_groups=True, systemd_cgroups=True),
)
