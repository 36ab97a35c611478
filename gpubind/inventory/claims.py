"""Claims: names of host files that a container needs, by source. Only the locator decides which file a name means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Optional, Union

from gpubind.files import Tree
from gpubind.frozen import NamedTuple
from gpubind.model import Capability, Decision, EnvVar, Finding, HostFile, PassedOver, Vendor
from gpubind.model.files import NOUNS, ContainerPath, FileKind, Missing, ResolvedFile
from gpubind.model.host import FileGroup, FileRole, Step, Verdict

ClaimKind = Literal[
    "library", "library-name", "library-file", "version", "program", "path", "own-path", "file", "device"
]

_UNREADABLE_RULES = {"absent": "dangling", "unrecorded": "unreadable"}
_BINDABLE: dict[FileKind, FileRole] = {"socket": "socket", "dir": "directory", "file": "file"}
"""Kinds of files that are bound unchanged."""

Outcome = Union[HostFile, Decision]
"""The outcome of a claim."""


class Claim(NamedTuple):
    """A name of a host file that a container needs, according to a source."""

    kind: ClaimKind
    """The kind of `name`. `library`: the beginning of library names, `libcuda.so`; `library-name`: one whole name;
    `version`: the driver version in library names; `library-file`: the path of a library, which the container gets
    under all names that this host has for it; `program`: a file in the program directories; `path`: absolute, with
    wildcards; `own-path`: one that is bound there even if it is a library; `file`: the path of anything but a library;
    `device`: a path in the dev root.
    """
    name: str
    source: str
    """The source: `liblist`, `driver`, `completion`, `nvidia-container-cli`, `cdi`, `devices`, `closure`."""
    location: str
    """`etc/nvliblist.conf:12`, or the rule."""
    vendor: Vendor = "nvidia"
    section: Optional[str] = None
    """Its section of a list file; None: the section in the shipped list applies."""
    not_in_list: bool = False
    """Whether the list in force is exclusive and does not contain it. It is then reported instead of taken."""
    host_only_reason: Optional[str] = None
    """The reason why it stays on the host; None: a container may get it."""
    target: Optional[ContainerPath] = None
    """Its path in the container, if that is not its host path."""
    extra_names: tuple[str, ...] = ()
    """Names of a library in the container in addition to those on the host."""
    group: Optional[FileGroup] = None

    def decision(
        self,
        verdict: Verdict,
        rule: str,
        detail: Optional[str],
        *,
        path: Optional[str] = None,
        found_by: Optional[str] = None,
        subject: str = "",
        step: Step = "search",
    ) -> Decision:
        """Return the Decision about its name, or about *subject*, one of several names that it means."""
        claim = (self.source, self.location, path, found_by)
        return Decision(self.vendor, subject or self.name, verdict, rule, step, *claim, None, detail)

    def absent(self, detail: str, path: Optional[str] = None) -> Decision:
        """Return the Decision that nothing on this host matches."""
        return self.decision("absent", "no-match", detail, path=path)

    def rejected(self, rule: str, detail: Optional[str], path: Optional[str] = None) -> Decision:
        """Return the Decision that a container cannot use *path*."""
        return self.decision("rejected", rule, detail, path=path)

    def unreadable(self, missing: Missing, path: Optional[str] = None, detail: Optional[str] = None) -> Decision:
        """Return the Decision that *path*, by default the name, cannot be read; *missing* is the reason."""
        why = missing.detail if missing.why == "unrecorded" else detail or str(missing)
        return self.rejected(_UNREADABLE_RULES.get(missing.why, f"path-{missing.why}"), why, path or self.name)

    def left_on_host(self, path: str, step: Step = "search") -> Decision:
        """Return the Decision that *path* stays on the host."""
        return self.decision("left-out", "host-only", self.host_only_reason or "", path=path, step=step)

    def file(
        self,
        tree: Tree,
        resolved: ResolvedFile,
        *,
        kind: FileRole,
        found_by: str,
        capability: Optional[Capability] = None,
    ) -> HostFile:
        """Return *resolved* as the claimed file; the caller adds the fields of its kind."""
        return HostFile(
            vendor=self.vendor,
            kind=kind,
            path=resolved.path,
            target=self.target,
            capability=capability,
            size=resolved.stat.size,
            source=tree.real(resolved.path),
            named_by=self.source,
            named_at=self.location,
            found_by=found_by,
            group=self.group,
        )

    def to_file(
        self, tree: Tree, resolved: ResolvedFile, *, found_by: str, capability: Optional[Capability] = None
    ) -> Outcome:
        """Return *resolved* as a file that is bound unchanged, or a Decision for other kinds, such as device nodes."""
        kind = _BINDABLE.get(resolved.stat.kind)
        if kind is None:
            return self.rejected("special-file", NOUNS[resolved.stat.kind], found_by)
        return self.file(tree, resolved, kind=kind, found_by=found_by, capability=capability)


def is_clean(path: str) -> bool:
    """Return whether *path* is absolute, without `.`, `..` and doubled or trailing slashes, and not the root."""
    parts = path.split("/")
    return path.startswith("/") and path != "/" and not {"", ".", ".."} & set(parts[1:])


def partition_outcomes(outcomes: Iterable[Outcome]) -> tuple[tuple[HostFile, ...], tuple[Decision, ...]]:
    """Return the files among *outcomes*, and the Decisions."""
    outcomes = tuple(outcomes)
    files = tuple(outcome for outcome in outcomes if isinstance(outcome, HostFile))
    return files, tuple(outcome for outcome in outcomes if isinstance(outcome, Decision))


class SourceResult(NamedTuple):
    """What a usable source of the file list provides. An unusable source gives a `PassedOver` instead."""

    name: str
    """`liblist`, `driver`, `nvidia-container-cli` or `cdi`."""
    detail: str
    """The list file, the command or the devices."""
    claims: tuple[Claim, ...]
    decisions: tuple[Decision, ...] = ()
    findings: tuple[Finding, ...] = ()
    nodes: Optional[tuple[str, ...]] = None
    """The device nodes of its GPUs; None if the container gets those of all GPUs."""
    env: tuple[EnvVar, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    """Sources that were queried before it and do not serve."""
    exclusive: bool = False
    """Set for a list of a user or a site: completion adds nothing to it."""
