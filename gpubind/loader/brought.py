"""What a start brings into a container beside the plan."""

from __future__ import annotations

from typing import NamedTuple, Optional

from gpubind.model import ContainerPath, EnvVar, HostPath

PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUSERBASE")
"""What decides, beside HOME and the place of the interpreter, where Python looks for packages."""


class UserBind(NamedTuple):
    """A bind of a start that is not the plan's: of the user, of the site, or one that the runtime makes by itself."""

    source: HostPath
    """A file or a directory of this host."""
    target: ContainerPath


class Brought(NamedTuple):
    """What a start brings into the container beside the plan."""

    binds: tuple[UserBind, ...] = ()
    """In the order in which the runtime mounts them: a later one covers an earlier one."""
    env: tuple[EnvVar, ...] = ()
    """The user's own operations on the container's LD_LIBRARY_PATH, PATH, LD_PRELOAD and Python's variables: done after
    the image's. `default` counts where the image sets nothing."""
    working_directory: Optional[ContainerPath] = None
    """Where the program starts; None if that is not known."""
    unseen: tuple[str, ...] = ()
    """What is brought and cannot be looked at: the word, variable or directive that brings it (`--overlay x.img`)."""
