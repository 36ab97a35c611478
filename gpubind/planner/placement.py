"""Layouts: the directories of the host's files in a container."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.model import ContainerPath, architecture, layouts


class Layout(NamedTuple):
    """The directories of the host's files in a runtime's containers."""

    name: str
    libdir: ContainerPath
    libdir32: ContainerPath
    bindir: ContainerPath
    bindir_on_path: bool
    """Whether the container's default PATH already has `bindir`."""
    isolated: bool = True
    """Whether, by default, the container's /dev has only the planned nodes."""
    more_libdirs: tuple[ContainerPath, ...] = ()
    """Further directories, each of which contains every library."""
    more_libdirs32: tuple[ContainerPath, ...] = ()
    searched: bool = False
    """Whether the container's loaders search these directories by default. Then the plan sets no variable, and modules
    of libgbm and libvdpau are in the subdirectories `gbm/` and `vdpau/`, where these libraries look.
    """
    adds_variables: bool = False
    """Whether a plan with `searched` can nevertheless add to the container's search paths."""

    def directories(self, *, compat32: bool = False) -> tuple[ContainerPath, ...]:
        """Return the directories of libraries."""
        return (self.libdir32, *self.more_libdirs32) if compat32 else (self.libdir, *self.more_libdirs)

    def place(self, directory: ContainerPath, name: str) -> ContainerPath:
        """Return the path of the library *name* in *directory*."""
        below = LIBRARY_SUBDIRECTORIES.get(name) if self.searched else None
        return ContainerPath(f"{directory}/{below}/{name}" if below else f"{directory}/{name}")


GBM_BACKEND = "nvidia-drm_gbm.so"
LIBRARY_SUBDIRECTORIES = {GBM_BACKEND: "gbm", "libvdpau_nvidia.so": "vdpau", "libvdpau_nvidia.so.1": "vdpau"}
"""Libraries that libgbm and libvdpau open from private directories."""


SINGULARITY_LAYOUT = Layout(
    "singularity",
    ContainerPath(layouts.APPTAINER_LIBRARIES),
    # Not below the first: Apptainer 1.4 moves all files below it into that directory itself.
    ContainerPath(layouts.GPUBIND_LIBRARIES32),
    ContainerPath("/usr/bin"),
    bindir_on_path=True,
    isolated=False,
)
GPUBIND_LAYOUT = Layout(
    "gpubind",
    ContainerPath(layouts.GPUBIND_LIBRARIES),
    ContainerPath(layouts.GPUBIND_LIBRARIES32),
    ContainerPath(layouts.GPUBIND_PROGRAMS),
    bindir_on_path=False,
)
CDI_LAYOUT_NAME = "cdi"
"""The name of the layout of every document that cannot add to a search path."""


def cdi_layout(arch: str, loader_directories: Optional[Iterable[str]] = None) -> Layout:
    """Return the layout of a CDI spec, which cannot add to a search path: its variables replace the image's.

    Libraries are bound where every loader searches: in Debian's directory and in that of the other distributions, or in
    the one of these that is among the image's *loader_directories*.
    """
    machine = architecture(arch)
    debian, common = ContainerPath(f"/usr/lib/{machine.triplet}"), ContainerPath("/usr/lib64")
    common32 = ContainerPath("/usr/lib")
    debian32 = ContainerPath(f"/usr/lib/{architecture(machine.compat32).triplet}") if machine.compat32 else common32
    searched = tuple(loader_directories or ())
    matching = [path for path in (debian, common) if path in searched or path.replace("/usr", "", 1) in searched]
    first, *more = matching or [debian, common]
    matching32 = [path for path in (debian32, common32) if path in searched]
    first32, *more32 = dict.fromkeys(matching32 or (debian32, common32))
    return Layout(
        CDI_LAYOUT_NAME,
        first,
        first32,
        ContainerPath("/usr/bin"),
        bindir_on_path=True,
        more_libdirs=tuple(more),
        more_libdirs32=tuple(more32),
        searched=True,
    )


def with_libdir(layout: Layout, libdir: Optional[ContainerPath]) -> Layout:
    """Return *layout* with *libdir*, if given, for 64-bit libraries."""
    return layout if libdir is None else layout._replace(libdir=libdir, more_libdirs=(), searched=False)
