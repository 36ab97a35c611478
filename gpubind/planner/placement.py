"""Where things land in a container."""

from __future__ import annotations

from typing import NamedTuple, Optional

from gpubind.model import ContainerPath


class Layout(NamedTuple):
    """The directories that a runtime's containers have for what comes from the host."""

    name: str
    libdir: ContainerPath
    libdir32: ContainerPath
    bindir: ContainerPath
    bindir_on_path: bool
    """Whether the container's default PATH already has `bindir`."""
    isolated: bool = True
    """Whether the container's /dev has the planned nodes alone, unless it is asked for otherwise."""


SINGULARITY = Layout(
    "singularity",
    ContainerPath("/.singularity.d/libs"),
    # Not below the first: Apptainer 1.4 flattens everything with that prefix by basename.
    ContainerPath("/.gpubind/libs32"),
    ContainerPath("/usr/bin"),
    bindir_on_path=True,
    isolated=False,
)
GPUBIND = Layout(
    "gpubind",
    ContainerPath("/.gpubind/libs"),
    ContainerPath("/.gpubind/libs32"),
    ContainerPath("/.gpubind/bin"),
    bindir_on_path=False,
)


def with_libdir(layout: Layout, libdir: Optional[ContainerPath]) -> Layout:
    """*layout* with another directory for 64-bit libraries, if one is given."""
    return layout if libdir is None else layout._replace(libdir=libdir)
