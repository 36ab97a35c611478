"""The interface of every host, live or recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Optional, TypeVar, Union

from gpubind.errors import UsageError
from gpubind.files import Tree
from gpubind.formats.driver.gpu_names import CUDA_DEVICE_ORDER, GPU_VARIABLES
from gpubind.frozen import NamedTuple
from gpubind.model import VENDOR_ROWS, Finding, Missing, ResolvedFile, Severity, Stat, finding
from gpubind.model.data import read_data

_AnyHost = TypeVar("_AnyHost")

TYPICAL_EXAMPLE = "driver:535,gpu:a100x4"
"""The description of a typical host."""
TYPICAL_PREFIXES = ("driver:", "gpu:")

MPS_PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
ROCM_PATH = "ROCM_PATH"
LIBRARY_PATH = "LD_LIBRARY_PATH"
"""A variable that a cluster's modules also set. It is searched only for a driver that is found nowhere else."""
GPUDIRECT_VARIABLES = ("NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED")
"""Each requests the devices and files of one kind of GPUDirect. Source: nvidia-container-toolkit."""
MIG_VARIABLES = ("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES")
"""Each, with the value `all`, requests the right to configure or to monitor MIG. Source: as above."""
KFD_NODES = 16
"""The number of nodes of KFD's topology, processors included, that have a variable."""
HSA_VARIABLES = (
    "HSA_OVERRIDE_GFX_VERSION",
    *(f"HSA_OVERRIDE_GFX_VERSION_{number}" for number in range(KFD_NODES)),
    "HSA_XNACK",
)
"""Variables that change which code ROCm selects for a GPU."""
VIDEO_VARIABLES = ("LIBVA_DRIVER_NAME", "LIBVA_DRIVERS_PATH")
"""Variables that change which driver libva loads, and from which directories."""
MANIFEST_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES")
"""Lists of manifests: the loaders of Vulkan and EGL then read no others."""
GLX_VENDOR, SOFTWARE = "__GLX_VENDOR_LIBRARY_NAME", "LIBGL_ALWAYS_SOFTWARE"
"""The name of the driver that libGLX opens; whether Mesa draws on the CPU."""
LOADER_VARIABLES = (*VIDEO_VARIABLES, *MANIFEST_VARIABLES, GLX_VENDOR, SOFTWARE)
REQUIRE_JETPACK = "NVIDIA_REQUIRE_JETPACK"
PLAN_VARIABLES = (
    CUDA_DEVICE_ORDER,
    MPS_PIPE_DIRECTORY,
    "NVIDIA_IMEX_CHANNELS",
    *GPUDIRECT_VARIABLES,
    *MIG_VARIABLES,
    *HSA_VARIABLES,
    *LOADER_VARIABLES,
    LIBRARY_PATH,
    REQUIRE_JETPACK,
    "PATH",
    ROCM_PATH,
    *GPU_VARIABLES,
)
"""The variables that a plan or a rule reads; hosts and records contain no others."""

SEARCHED = ("PATH", LIBRARY_PATH)
"""The variables with search paths of a host: a record has its own."""

LIST_FILES = tuple(row.list_name for row in VENDOR_ROWS.values())


def plan_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *environ* that a plan reads."""
    return {name: environ[name] for name in PLAN_VARIABLES if name in environ}


class Uname(NamedTuple):
    """uname(2), without the names of the machine."""

    release: str
    machine: str


class Identity(NamedTuple):
    """The user and the groups of the process."""

    euid: int
    groups: tuple[int, ...]
    """Effective and supplementary group ids, sorted."""


class RunResult(NamedTuple):
    """The result of a program."""

    status: int
    stdout: str
    stderr: str


class ListFile(NamedTuple):
    """A list file in force."""

    label: str
    """Its origin, without a user's name."""
    data: bytes
    shipped: bool
    """Whether it is gpubind's own list, which gpubind may complete. Any other list is used unchanged."""


class Untrusted(NamedTuple):
    """A path that a command of root uses, although other users could change it, or not all of them may read it."""

    kind: Literal["file", "cache", "programs", "variable", "named"]
    """What it is for. A `named` path is used, because root named it with an option; all others are ignored."""
    path: str
    part: str
    """The directory, link or file on the way to it that others can change or may not read."""
    variable: str = ""
    """The variable of a path of the kind `variable`."""
    is_secret: bool = False
    """Whether others may not read it, instead of being able to change it."""


class Host:
    """A host of plans.

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
    """The tree of this machine's root, with the files of users; None if the host is another machine."""
    task: Optional[Mapping[str, str]] = None
    """The environment of the task of the plan, if given."""
    hostname: Optional[str] = None
    """The name of the machine; None if it is unknown."""
    typical = ""
    """The description of a typical host: its driver and GPUs. Empty for a live or recorded host."""
    assumes_dev_root = False
    """Whether /dev, /proc and /sys are those of the running system, because the driver root has no driver nodes."""

    def __repr__(self) -> str:
        roots = {"driver root": self.driver.root, "dev root": self.dev.root}
        details = [f"{name} {root!r}" for name, root in roots.items() if root != "/"]
        if self.is_closed:
            details.append("closed")
        return f"<{', '.join((f'{type(self).__name__} {self.label!r}: {self.uname.machine}', *details))}>"

    @property
    def is_closed(self) -> bool:
        return self.driver.is_closed

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the open directories of this machine. Reading it afterwards is an error."""
        for tree in (self.driver, self.dev, self.local):
            if tree is not None:
                tree.close()

    def variable(self, name: str) -> str:
        """Return the value of *name* in the caller's environment; empty if it is not set.

        Errors: `LookupError` for a name that is not in `PLAN_VARIABLES`, which is a bug of gpubind.
        """
        if name not in PLAN_VARIABLES:
            raise LookupError(f"`{name}` is not in PLAN_VARIABLES")
        return self.environ.get(name, "")

    def copy(self: _AnyHost) -> _AnyHost:
        """Return a copy of this host, to be changed."""
        clone = object.__new__(type(self))  # the module `copy` loads `weakref`
        clone.__dict__.update(self.__dict__)
        return clone

    @property
    def lenient(self) -> Host:
        """Return this host with lenient trees: see `Tree.lenient`."""
        host = self.copy()
        host.driver, host.dev = self.driver.lenient, self.dev.lenient
        return host

    def as_user(self, name: str) -> Host:
        """Return this host with the rights of the user *name*. Errors: `UsageError` (code `unknown-user`)."""
        why = "a record holds no users"
        raise UsageError("unknown-user", f"unknown user `{name}`", why=why, hint="ask on the host itself")

    def user_name(self, uid: int) -> Optional[str]:
        """Return the name of the user *uid*; None if it is unknown, as in a record."""
        return None

    def liblist(self, name: str) -> ListFile:
        """Return the list file *name* in force: the user's, else the site's, else the shipped one."""
        raise NotImplementedError

    def untrusted(self, below: Iterable[str] = (), files: Iterable[str] = ()) -> tuple[Untrusted, ...]:
        """Return the paths that a command of root ignores, and those that it uses although others could change them.

        Options name both *below*, paths inside this host's roots, and *files*, real paths.
        """
        return ()

    def distrusted(self, variable: str, path: str) -> Optional[Untrusted]:
        """Return why a command of root ignores *path*, which *variable* names inside the driver root; None if it
        uses the path.
        """
        return None

    def granted(self, node: Stat) -> str:
        """Return the user's rights to a device node by its mode and access control list, in the form of `access`."""
        bits = 6 if self.identity.euid == 0 else node.permission_bits(*self.identity)
        return ("r" if bits & 4 else "") + ("w" if bits & 2 else "") or "none"

    def access(self, node: ResolvedFile) -> str:
        """Return the user's rights to a device node of `dev`: `rw`, `r`, `w` or `none`.

        For the user of this process, the kernel is queried, whose answer includes device cgroups. A record has no job's
        cgroup.
        """
        return self.granted(node.stat)

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        """Run a helper program from the standard directories; Missing if that is not possible or not safe."""
        raise NotImplementedError


def shipped_liblist(name: str) -> ListFile:
    """Return gpubind's list file *name*."""
    label = f"etc/{name}"
    return ListFile(label, read_data(label), shipped=True)


def assumption_findings(host: Host) -> Iterator[Finding]:
    """Yield a finding for a typical host, and for a driver root without nodes if the caller named no dev root."""
    if host.typical:
        yield finding("typical-host", subject=host.label, description=host.typical)
    if host.assumes_dev_root:
        yield finding("dev-root-assumed", subject=host.driver.root, where=f"{host.driver.root.rstrip('/')}/dev")


def trust_finding(untrusted: Untrusted) -> Finding:
    """Return the finding about *untrusted*."""
    severity: Severity = "note" if untrusted.kind in ("cache", "programs") else "warning"
    case = "secret" if untrusted.is_secret else untrusted.kind
    return finding(
        "writable-by-others",
        subject=untrusted.path,
        case=case,
        severity=severity,
        part=untrusted.part,
        variable=untrusted.variable,
    )


def unreadable_path_findings(host: Host, image: Optional[Tree] = None) -> Iterator[Finding]:
    """Yield a finding for each path of *host* and *image* that could not be read but that a plan can do without."""
    trees = (("host", host.driver), ("host", host.dev), ("image", image))
    unseen = {(of, path): why for of, tree in trees if tree is not None for path, why in sorted(tree.unseen.items())}
    for (of, path), why in unseen.items():
        yield finding("not-looked-at", case=of, subject=path, why=why)
