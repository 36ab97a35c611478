"""One start of a container, as far as files, options and environment tell it: what a runtime module is told."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Optional

from gpubind.model import ContainerPath, HostPath
from gpubind.runtimes.cmdline.flags import Options

if TYPE_CHECKING:
    from gpubind.formats.archive.bundle import Bundle

Action = Literal["exec", "run", "shell"]
NOT_A_WORKING_DIRECTORY = ("/", "/bin", "/etc", "/lib", "/lib64", "/mnt", "/opt", "/sbin", "/usr", "/var")
"""Working directories that Apptainer does not bind, for the image's own would be hidden: container_linux.go,
addCwdMount."""


class Start(NamedTuple):
    """One start of a container, as far as the runtime's words depend on it."""

    program: str = "apptainer"
    """The runtime that will read the words, by its name in `RUNTIMES`; its program may go by another one's name."""
    version: Optional[tuple[int, ...]] = None
    """Its version; None if it could not be asked."""
    arguments: tuple[str, ...] = ()
    """The user's own options for the runtime."""
    environ: Mapping[str, str] = MappingProxyType({})
    """The caller's environment."""
    options: Options = Options()
    """What the arguments and the environment ask of a program that reads options as `flags` does."""
    site: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The runtime's configuration file: directive -> values."""
    env_files: Mapping[str, Optional[str]] = MappingProxyType({})
    """What the files of the user's --env-file options set; None for a value that only a shell can tell."""
    has_unread_env_files: bool = False
    """Whether such a file could not be looked at, so that it may set any variable that `env_files` does not have."""
    staged: Mapping[ContainerPath, HostPath] = MappingProxyType({})
    """Where generated content was written: container path -> host path."""
    skeleton: Optional[HostPath] = None
    """The directory that holds an empty file for each place of the runtime's `skeleton`."""
    writable: frozenset[str] = frozenset()
    """Those sources of the plan that the caller may write; known for a runtime without a read-only bind."""
    allow_writable: bool = False
    """Whether the user accepts that a container may write them."""
    directories: frozenset[str] = frozenset()
    """Those of the caller's home and working directory that are there."""
    machine: Optional[str] = None
    """What uname says of the host that is planned for."""
    pid: Optional[int] = None
    """The process that becomes the runtime."""
    home: Optional[str] = None
    """The caller's home, as the user database has it."""
    working_directory: Optional[str] = None
    """Where the caller is; None if that directory is gone."""
    nodes: tuple[HostPath, ...] = ()
    """What this host's /dev has of the runtime's `nodes`."""
    files: tuple[HostPath, ...] = ()
    """What this host has of the runtime's `files`; of a recorded one, all."""
    bundle: Optional[Bundle] = None
    """The configuration of the image, if that is an OCI bundle."""
    is_root: bool = True
    """Whether the caller is root of the host; of a recorded one, who recorded it."""
    inits: tuple[HostPath, ...] = ()
    """What this host has of the runtime's `inits`."""
    tools: Optional[tuple[HostPath, ...]] = None
    """What this host has of the runtime's `tools`; None if nobody looked."""
    uid: Optional[int] = None
    """The caller's; None if nobody starts anything here."""
    remote: Optional[str] = None
    """What sends the runtime to another machine's daemon; None if nothing does."""
    has_selinux: bool = False
    """Whether this host's kernel enforces SELinux's rules."""
    has_terminal: bool = False
    """Whether the caller's standard input, output and errors are a terminal."""

    def directive(self, name: str, default: str = "") -> str:
        """Return the value of directive *name* of the site's configuration; the first one counts."""
        return self.site.get(name, (default,))[0]
