"""What a runtime module is told, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Optional

from gpubind.model import ContainerPath, Decision, Finding, HostPath, Mount, Plan
from gpubind.planner.sides import BY_DEFAULT
from gpubind.runtimes.singularity_options import PREFIXES, Options

NO_MOUNT_POINT = "no-mount-point"
Action = Literal["exec", "run", "shell"]
NOT_A_WORKING_DIRECTORY = ("/", "/bin", "/etc", "/lib", "/lib64", "/mnt", "/opt", "/sbin", "/usr", "/var")
"""Working directories that Apptainer does not bind, for the image's own would be hidden: container_linux.go,
addCwdMount."""
_EVALUATED = frozenset("$`\\")
"""What makes the container's shell change a value."""


class Said(NamedTuple):
    """The user's own value for a variable of the container."""

    text: Optional[str]
    """As the user wrote it; None where only the program's shell can tell it."""
    plain: bool
    """Whether it arrives as it is written: nothing evaluates it."""


class Start(NamedTuple):
    """One start of a container, as far as the runtime's words depend on it."""

    program: str = "apptainer"
    """The program that will read the words: `apptainer`, `singularity`, `bwrap`."""
    version: Optional[tuple[int, ...]] = None
    """Its version; None if it could not be asked."""
    arguments: tuple[str, ...] = ()
    """The user's own options for the runtime."""
    environ: Mapping[str, str] = {}
    """The caller's environment."""
    options: Options = Options()
    """What the arguments and the environment ask of Apptainer or SingularityCE."""
    site: Mapping[str, tuple[str, ...]] = {}
    """The runtime's configuration file: directive -> values."""
    env_files: Mapping[str, Optional[str]] = {}
    """What the files of the user's --env-file options set; None for a value that only a shell can tell."""
    has_unread_env_files: bool = False
    """Whether such a file could not be looked at, so that it may set any variable that `env_files` does not have."""
    staged: Mapping[ContainerPath, HostPath] = {}
    """Where generated content was written: container path -> host path."""
    directories: frozenset[str] = frozenset()
    """Those of the caller's home and working directory that are there."""
    home: Optional[str] = None
    """The caller's home, as the user database has it."""
    working_directory: Optional[str] = None
    """Where the caller is; None if that directory is gone."""
    nodes: tuple[HostPath, ...] = ()
    """What this host's /dev has of `bwrap.NODES`."""

    def directive(self, name: str, default: str = "") -> str:
        """The value of directive *name* of the site's configuration; the first one counts."""
        return self.site.get(name, (default,))[0]

    def said(self, name: str) -> Optional[Said]:
        """What the user says for variable *name* of the container; None if the user says nothing.

        --env wins over --env-file, and that over the prefixed variables.
        """
        text: Optional[str]
        if name in self.options.env:
            text = self.options.env[name]
        elif name in self.env_files:
            text = self.env_files[name]
        elif self.has_unread_env_files:
            text = None
        else:
            variables = (f"{prefix}ENV_{name}" for prefix in PREFIXES.get(self.program, ()))
            text = next((self.environ[variable] for variable in variables if variable in self.environ), None)
            if text is None:
                return None
        if text is not None and not is_utf8(text):
            text = None  # not UTF-8: no option can say it again, and the program has it already
        return Said(text, text is not None and (self.options.no_eval or not _EVALUATED & set(text)))


class Words(NamedTuple):
    """A plan in a runtime's words."""

    options: tuple[str, ...]
    """Command-line words, each whole."""
    binds: tuple[Bind, ...] = ()
    """What the options bind, for the forms that say it otherwise."""
    env: tuple[tuple[str, str], ...] = ()
    """What the options set, likewise."""
    decisions: tuple[Decision, ...] = ()
    findings: tuple[Finding, ...] = ()
    unset: tuple[str, ...] = ()
    """Variables of the caller's that the container must not see, where options cannot say it."""


class Bind(NamedTuple):
    """One bind, in any runtime's words."""

    source: str
    target: str
    read_only: bool


def is_utf8(text: str) -> bool:
    """Whether all of *text* was UTF-8: what was not stands there as surrogate escapes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def no_mount_point(mount: Mount, detail: str) -> Decision:
    """The Decision about an optional mount that has no place in the container, and for which none can be made."""
    return Decision(
        mount.vendor, mount.target, "left-out", NO_MOUNT_POINT, "place",
        None, None, mount.source, None, mount.target, detail,
    )  # fmt: skip


def left_out(decisions: Iterable[Decision], plan: Plan) -> Iterator[Finding]:
    """The finding about mounts of *plan* that have no place in the container, if there are any.

    A note if all of them are for capabilities that came by default: nobody asked for them by name. An error if the
    driver is of no use without one of them.
    """
    left = {decision.target or decision.subject: decision for decision in decisions if decision.rule == NO_MOUNT_POINT}
    if not left:
        return
    mounts = [mount for mount in plan.mounts if mount.target in left]
    needed = any(mount.required for mount in mounts)
    by_default = not plan.request.caps_explicit and all(mount.capability in BY_DEFAULT for mount in mounts)
    yield Finding(
        NO_MOUNT_POINT,
        "error" if needed else "note" if by_default else "warning",
        mounts[0].vendor if mounts else None,
        "mounts",
        f"{len(left)} file{'s' if len(left) > 1 else ''} left out: the container has no place for what the plan brings",
        ", ".join(sorted(left)),
        next(iter(left.values())).detail,
        "make the mount points in the image, leave out the bind that covers them, or use a runtime that can make them",
    )
