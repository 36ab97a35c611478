"""What a runtime module is told, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Optional

from gpubind.model import Decision, Finding, HostPath, Mount

Action = Literal["exec", "run", "shell"]


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
    site: Mapping[str, str] = {}
    """The runtime's configuration file: directive -> value."""
    env_files: Mapping[str, str] = {}
    """What the files of the user's --env-file options set, where they do so in plain words."""
    staged: Mapping[str, HostPath] = {}
    """Where generated content was written: container path -> host path."""
    directories: frozenset[str] = frozenset()
    """Those of the caller's home and working directory that are there."""
    nodes: tuple[HostPath, ...] = ()
    """What this host's /dev has of `bwrap.NODES`."""


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


def no_mount_point(mount: Mount, detail: str) -> Decision:
    """The Decision about an optional mount that has no place in the container, and for which none can be made."""
    return Decision(
        mount.vendor, mount.target, "left-out", "no-mount-point", "place",
        None, None, mount.source, None, mount.target, detail,
    )  # fmt: skip


def left_out(decisions: Iterable[Decision]) -> Iterator[Finding]:
    """The finding about mounts that have no place in the container, if there are any."""
    left = [decision for decision in decisions if decision.rule == "no-mount-point"]
    if left:
        names = ", ".join(sorted({decision.target or decision.subject for decision in left}))
        files = "1 file is" if len(left) == 1 else f"{len(left)} files are"
        what = f"{files} left out: the container has no place for them"
        hint = "make the mount points in the image, or use a runtime that can make them"
        yield Finding("no-mount-point", "warning", left[0].vendor, "mounts", what, names, left[0].detail, hint)
