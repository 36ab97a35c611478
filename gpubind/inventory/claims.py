"""What a source says: a container needs this of the host. Which file that is, and what becomes of it, the locator
decides, and the locator alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, Optional, Union

from gpubind.files import Tree
from gpubind.model import (
    Capability,
    ContainerPath,
    Decision,
    EnvVar,
    FileKind,
    Finding,
    Found,
    HostFile,
    Kind,
    Missing,
    PassedOver,
    Step,
    Vendor,
    Verdict,
)

ClaimKind = Literal["library", "library-name", "library-file", "version", "program", "path", "file", "device"]

_LOST = {"absent": "dangling", "unrecorded": "unreadable"}
BINDABLE: dict[FileKind, Kind] = {"socket": "socket", "dir": "directory", "file": "file"}
"""What can be bound as it is, by what it is on the host."""

Answer = Union[HostFile, Decision]
"""What becomes of a claim."""


class Claim(NamedTuple):
    """A source's word about something of the host."""

    kind: ClaimKind
    """What `name` is. `library`: how names of libraries begin, `libcuda.so`; `library-name`: one whole name; `version`:
    the driver version that names of libraries carry; `library-file`: the path of a library, under whatever names this
    host has it; `program`: looked up in the program directories; `path`: absolute, with wildcards; `file`: the path of
    what is no library; `device`: a path in the dev root.
    """
    name: str
    by: str
    """The source: `liblist`, `driver`, `completion`, `nvidia-container-cli`, `cdi`, `devices`, `closure`."""
    at: str
    """`etc/nvliblist.conf:12`, or the rule."""
    vendor: Vendor = "nvidia"
    section: Optional[str] = None
    """The section of a list file that it stands in; None: the shipped list knows."""
    outside: bool = False
    """True if the list in force is the law and lacks it: then it is told, and not taken."""
    stays: Optional[str] = None
    """Why it has no business in a container; None: it has."""
    target: Optional[ContainerPath] = None
    """Where it must be in the container, if not at its own path."""
    links: tuple[str, ...] = ()
    """Names that a library has in the container besides those on the host."""
    userspace: bool = False
    """Whether it belongs to a user space (ROCm) that may as well be the image's own."""

    def decision(
        self,
        *,
        verdict: Verdict,
        rule: str,
        detail: str,
        subject: Optional[str] = None,
        step: Step = "search",
        path: Optional[str] = None,
        found_by: Optional[str] = None,
    ) -> Decision:
        """Return what became of it; *subject* is its name if nothing else is said."""
        return Decision(
            vendor=self.vendor,
            subject=self.name if subject is None else subject,
            verdict=verdict,
            rule=rule,
            step=step,
            named_by=self.by,
            named_at=self.at,
            path=path,
            found_by=found_by,
            detail=detail,
        )

    def lost(self, missing: Missing, path: Optional[str] = None, detail: Optional[str] = None) -> Decision:
        """That *path*, or else its name, leads to nothing that could be looked at."""
        why = missing.detail if missing.why == "unrecorded" else detail or str(missing)
        rule = _LOST.get(missing.why, f"path-{missing.why}")
        return self.decision(verdict="rejected", rule=rule, path=path or self.name, detail=why)

    def staying(self, path: str, step: Step = "search") -> Decision:
        """That *path* stays on the host."""
        return self.decision(verdict="left-out", rule="host-only", step=step, path=path, detail=self.stays or "")

    def file(
        self, tree: Tree, found: Found, *, kind: Kind, found_by: str, capability: Optional[Capability] = None
    ) -> HostFile:
        """Return the file that it turned out to be, as far as any kind of file goes."""
        return HostFile(
            vendor=self.vendor,
            kind=kind,
            path=found.path,
            names=(),
            target=self.target,
            arch=None,
            soname=None,
            version=None,
            capability=capability,
            size=found.stat.size,
            source=tree.real(found.path),
            named_by=self.by,
            named_at=self.at,
            found_by=found_by,
            userspace=self.userspace,
        )

    def bindable(self, tree: Tree, found: Found, *, found_by: str, capability: Optional[Capability] = None) -> Answer:
        """As `file`, for what is bound as it is; a Decision for what cannot be, such as a device node."""
        kind = BINDABLE.get(found.stat.kind)
        if kind is None:
            detail = f"a {found.stat.kind}"
            return self.decision(verdict="rejected", rule="special-file", path=found_by, detail=detail)
        return self.file(tree, found, kind=kind, found_by=found_by, capability=capability)


def is_clean(path: str) -> bool:
    """Return whether *path* is absolute, without `.`, `..` and doubled or trailing slashes, and not the root."""
    parts = path.split("/")
    return path.startswith("/") and path != "/" and not {"", ".", ".."} & set(parts[1:])


def sorted_out(answers: Iterable[Answer]) -> tuple[tuple[HostFile, ...], tuple[Decision, ...]]:
    """Return the files among *answers*, and the Decisions."""
    answers = tuple(answers)
    files = tuple(answer for answer in answers if isinstance(answer, HostFile))
    return files, tuple(answer for answer in answers if isinstance(answer, Decision))


class Serving(NamedTuple):
    """A source that serves."""

    name: str
    """`liblist`, `driver`, `nvidia-container-cli` or `cdi`."""
    detail: str
    """Which list, or what was asked."""
    claims: tuple[Claim, ...]
    decisions: tuple[Decision, ...] = ()
    findings: tuple[Finding, ...] = ()
    nodes: Optional[tuple[str, ...]] = None
    """The device nodes of the GPUs that it means; None: it means all."""
    env: tuple[EnvVar, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    """Sources that were asked before it and do not serve."""
    exclusive: bool = False
    """Whether it is a list that a user or a site gives: the law, which nothing completes."""
