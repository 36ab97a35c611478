"""What a Host answers, live or recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Literal, NamedTuple, Optional, Union

from gpubind.errors import UsageError
from gpubind.files import Tree
from gpubind.formats.driver.gpu_names import CUDA_DEVICE_ORDER, GPU_VARIABLES
from gpubind.model import Finding, HostPath, Missing
from gpubind.model.data import read_data
from gpubind.model.findings import finding

MPS_PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
ROCM_PATH = "ROCM_PATH"
GPUDIRECT_VARIABLES = ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")
"""Each asks for the devices and files of one kind of GPUDirect. Source: nvidia-container-toolkit."""
PLAN_VARIABLES = (
    CUDA_DEVICE_ORDER,
    MPS_PIPE_DIRECTORY,
    "NVIDIA_IMEX_CHANNELS",
    *GPUDIRECT_VARIABLES,
    "PATH",
    ROCM_PATH,
    *GPU_VARIABLES,
)
"""The variables that a plan or a rule reads, and the only ones that a record may hold."""

LIST_FILES = ("nvliblist.conf", "rocmliblist.conf")
SHIPPED_LABEL = "etc/{name}"


def plan_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those variables of *environ* that a plan reads."""
    return {name: environ[name] for name in PLAN_VARIABLES if name in environ}


class Uname(NamedTuple):
    """uname(2), without the names of the machine."""

    release: str
    machine: str


class Identity(NamedTuple):
    """Who asks, in numbers."""

    euid: int
    groups: tuple[int, ...]
    """Effective and supplementary group ids, sorted."""


class RunResult(NamedTuple):
    """What a program answered."""

    status: int
    stdout: str
    stderr: str


class ListFile(NamedTuple):
    """A list file in force."""

    label: str
    """Where it came from, without anything that names a user."""
    data: bytes
    shipped: bool
    """Whether it is gpubind's own, which may be completed; any other list is the law."""


class Untrusted(NamedTuple):
    """A path of root's command that users other than root could change, or that not everybody may read."""

    kind: Literal["file", "cache", "programs", "variable", "named"]
    """What it is for. `named` is used, since root named it with an option; everything else is ignored."""
    path: str
    part: str
    """The path itself, or the directory or link on the way to it, that others could change or may not read."""
    variable: str = ""
    """The variable that names it, for the kind `variable`."""
    is_secret: bool = False
    """Whether others may not read it, and not that they could change it."""


class Host:
    """A host that plans can be made for.

    `driver` is the tree of the driver root (libraries, ld cache, binaries, manifests), `dev` that of the dev root
    (/dev, /proc, /sys, sockets, site configuration). Often they are the same tree.
    """

    label: str
    driver: Tree
    dev: Tree
    environ: Mapping[str, str]
    uname: Uname
    identity: Identity
    local: Optional[Tree] = None
    """The tree of this machine's own root, where the files of users lie; None if the host is another machine."""
    task: Optional[Mapping[str, str]] = None
    """The environment of the task that is planned for, if it was given."""

    @property
    def is_closed(self) -> bool:
        return self.driver.is_closed

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the directories of this machine that are open. The host cannot be asked any more."""
        for tree in (self.driver, self.dev, self.local):
            if tree is not None:
                tree.close()

    def variable(self, name: str) -> str:
        """Return the value of *name*, one of `PLAN_VARIABLES`, in the caller's environment; empty if it is not set.

        Any other name is a fault of gpubind: live hosts and records have no other variables.
        """
        if name not in PLAN_VARIABLES:
            raise LookupError(f"`{name}` is not in PLAN_VARIABLES")
        return self.environ.get(name, "")

    @property
    def lenient(self) -> Host:
        """This host, with trees that answer `unrecorded` where a record does not cover a path: see `Tree.lenient`."""
        host = copy(self)
        host.driver, host.dev = self.driver.lenient, self.dev.lenient
        return host

    def as_user(self, name: str) -> Host:
        """This host, as the user called *name* may open its files and nodes. Errors: `UsageError`."""
        why = "a record holds no users"
        raise UsageError("unknown-user", f"unknown user `{name}`", why=why, hint="ask on the host itself")

    def liblist(self, name: str) -> ListFile:
        """Return the list file *name* in force: the user's, else the site's, else the shipped one."""
        raise NotImplementedError

    def untrusted(self, below: Iterable[str] = (), files: Iterable[str] = ()) -> tuple[Untrusted, ...]:
        """Return what root's command ignores, since others could change it, and what it uses although they could.

        *below*: paths inside this host's roots, *files*: real paths, that options name. Other users' commands, and
        those for a recorded host, have none.
        """
        return ()

    def may_open(self, path: HostPath) -> bool:
        """Return whether this process may open the device node *path*, as the kernel itself would answer.

        Device cgroups forbid what modes allow. A record does not tell: it describes the host, not a job on it.
        """
        return True

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        """Run a helper program found in the standard directories; Missing if that is not possible or not safe."""
        raise NotImplementedError


def shipped_liblist(name: str) -> ListFile:
    """gpubind's own list file *name*."""
    return ListFile(SHIPPED_LABEL.format(name=name), read_data(f"etc/{name}"), shipped=True)


def not_looked_at(host: Host, image: Optional[Tree] = None) -> Iterator[Finding]:
    """Yield a finding for each path of *host* and *image* that could not be read and that a plan does not require."""
    trees = (("host", host.driver), ("host", host.dev), ("image", image))
    unseen = {(of, path): why for of, tree in trees if tree is not None for path, why in sorted(tree.unseen.items())}
    for (of, path), why in unseen.items():
        yield finding("not-looked-at", case=of, subject=path, why=why)
