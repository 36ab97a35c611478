"""The values that cross stages. All are frozen; sequences are tuples; absent is None.

NamedTuples, because a class of them costs a fifth of a frozen dataclass at import (docs/decisions/0002).
"""

from __future__ import annotations

import stat
from typing import Any, Literal, NamedTuple, NewType, Optional

from gpubind import __version__
from gpubind.plain import made, malformed, plain, text_of

RootedPath = NewType("RootedPath", str)
"""A path as seen inside a root (driver root, dev root): `/usr/lib64/libcuda.so.1`."""
HostPath = NewType("HostPath", str)
"""A real path on this host, root included: what a bind's source must be."""
ContainerPath = NewType("ContainerPath", str)
"""A path inside the container."""

Vendor = Literal["nvidia", "amd", "other"]
"""`other`: a CDI device of a kind that gpubind knows nothing else about."""
VENDORS: tuple[Vendor, ...] = ("nvidia", "amd")
Capability = Literal["compute", "utility", "video", "graphics", "display", "ngx", "compat32"]
CAPABILITIES: tuple[Capability, ...] = ("compute", "utility", "video", "graphics", "display", "ngx", "compat32")
"""In NVIDIA_DRIVER_CAPABILITIES' sense and spelling."""
DEFAULT_CAPABILITIES: tuple[Capability, ...] = CAPABILITIES[:-1]
"""What `--nv` means: everything but 32-bit libraries."""

Kind = Literal["library", "binary", "file", "manifest", "socket", "directory"]
Verdict = Literal["taken", "left-out", "rejected", "absent"]
Step = Literal["name", "search", "choice", "capability", "side", "place"]
Severity = Literal["error", "warning", "note"]
Side = Literal["auto", "host", "image"]
"""Whose copy of something a container uses."""
Family = Literal["glvnd", "opencl"]
"""Vendor-neutral libraries that go together: libglvnd's, and the OpenCL loader."""
DriverKind = Literal["linux", "wsl", "tegra"]


FileKind = Literal["file", "dir", "link", "char", "block", "socket", "fifo"]
_FILE_KINDS: dict[int, FileKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "fifo",
}


class Missing(NamedTuple):
    """The answer when there is no answer. Absent and forbidden are two things; neither is an error by itself.

    `unrecorded`: a record does not cover the path, and nobody can know.
    """

    why: Literal["absent", "forbidden", "loop", "unreadable", "unrecorded"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why}: {self.detail}" if self.detail else self.why


class Stat(NamedTuple):
    """What lstat(2) says, as far as a plan needs it."""

    kind: FileKind
    mode: int
    """Permission bits with set-id and sticky, e.g. 0o644."""
    uid: int
    gid: int
    size: int
    """Bytes; 0 for what is no regular file."""
    major: int = 0
    minor: int = 0

    @classmethod
    def of(cls, mode: int, uid: int, gid: int, size: int, rdev: tuple[int, int]) -> Stat:
        """From the fields of `os.lstat`."""
        kind = _FILE_KINDS.get(stat.S_IFMT(mode), "fifo")
        return cls(kind, stat.S_IMODE(mode), uid, gid, size if kind == "file" else 0, *rdev)

    def bits_for(self, uid: int, groups: tuple[int, ...]) -> int:
        """The three permission bits that count for user *uid* with *groups*; root is not bound by them."""
        shift = 6 if self.uid == uid else 3 if self.gid in groups else 0
        return self.mode >> shift & 7


class Found(NamedTuple):
    """What is at the end of a path."""

    path: RootedPath
    """Resolved: no link is left in it."""
    stat: Stat


class Request(NamedTuple):
    """What the caller asks for."""

    vendors: tuple[Vendor, ...] = ()
    """Empty: every vendor found."""
    caps: Optional[tuple[Capability, ...]] = None
    """None: `DEFAULT_CAPABILITIES`. What is asked for by name must not be missing silently."""
    source: str = "auto"
    """`auto`, `nvidia-container-cli`, `liblist`, `driver` or `cdi`."""
    completion: bool = True
    """Whether the shipped list is completed from the driver itself."""
    library_path: tuple[RootedPath, ...] = ()
    """Directories, searched after the known driver directories."""
    like: Optional[str] = None
    """Flavour to reproduce (`apptainer-1.4`), None for gpubind's own plan."""
    libdir: Optional[ContainerPath] = None
    """Where libraries land, None for the layout's own directory."""
    vendor_neutral: Side = "auto"
    """Whose libglvnd and OpenCL loader the container uses."""
    gpus: Optional[str] = None
    """`all`, `none` or a list of GPUs as `--gpus` spells it; None: the caller's environment decides."""
    cdi_directories: tuple[str, ...] = ()
    """Where CDI specs are, in rising priority; empty: /etc/cdi and /var/run/cdi."""
    cdi_devices: tuple[str, ...] = ()
    """Qualified names of CDI devices, `nvidia.com/gpu=0`, which mean `source` cdi; empty with that: every GPU of
    NVIDIA's."""
    userspace: Side = "auto"
    """Whose ROCm the container uses."""
    cuda_compat: Side = "auto"
    """Whose libcuda the container uses, if its image has one of CUDA's forward compatibility package."""

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """What is asked for, by name or not."""
        return DEFAULT_CAPABILITIES if self.caps is None else self.caps

    @property
    def caps_explicit(self) -> bool:
        """Whether the caller named the capabilities."""
        return self.caps is not None


ImageKind = Literal["directory", "sif", "oci-layout", "oci-archive", "docker-archive", "podman", "docker", "bundle"]


class CudaNote(NamedTuple):
    """What a libcuda says of itself in `.note.cuda.fwd_compatibility`."""

    cuda: str
    """The newest CUDA version that it serves, `13.2`."""
    drivers: tuple[int, ...]
    """Branches of the kernel module that it works with, beside its own: 535, 570."""


class ImageLibrary(NamedTuple):
    """A library in an image that concerns a plan."""

    soname: str
    path: RootedPath
    """The resolved file."""
    version: Optional[str]
    """Driver version in the file's name, if any."""
    note: Optional[CudaNote] = None


class ImageCuda(NamedTuple):
    """A CUDA toolkit or runtime in an image."""

    version: str
    """`12.4.1`, or `12.4` where only that is told."""
    origin: Literal["toolkit", "variable", "pip", "conda", "spack", "easybuild"]
    """Who put it there; `toolkit`: /usr/local/cuda; `variable`: CUDA_VERSION, where there is no toolkit."""
    where: str
    """The file or directory that tells the version, as it is seen in the image; or the name of the variable."""


class ImageFacts(NamedTuple):
    """What a plan must know of an image."""

    kind: ImageKind
    label: str
    """As the user named it; not in any document."""
    arch: Optional[str]
    """`x86_64`; None if nothing in the image tells."""
    libc_family: Literal["glibc", "musl", "none"]
    libc_version: Optional[str]
    """`2.36`, from libc.so.6's version definitions; None for musl and none."""
    libstdcxx: Optional[str]
    """Newest GLIBCXX version that its libstdc++ defines, `3.4.30`."""
    loader_directories: tuple[RootedPath, ...]
    """Where its loader searches, in order."""
    singularity: bool
    """Whether it has `/.singularity.d/env`, which makes Apptainer and SingularityCE set LD_LIBRARY_PATH."""
    env: dict[str, str]
    """What it sets itself, in its configuration or environment files, of what concerns a plan: LD_LIBRARY_PATH, PATH,
    NVIDIA_*, CUDA_VERSION, and the variables that choose GPUs."""
    undecided: tuple[str, ...]
    """Those of the same that it sets in a way that only a shell could tell; `env` does not have them."""
    driver: tuple[ImageLibrary, ...]
    """Libraries of a driver that its loader would find: they should not be there. No stubs, no empty files."""
    vendor_neutral: tuple[str, ...]
    """Which of libglvnd's libraries and the OpenCL loader it has, by soname."""
    cuda: Optional[str]
    """The newest CUDA toolkit or runtime in it, `12.4.1`."""
    compat: tuple[ImageLibrary, ...]
    """libcuda of CUDA's forward compatibility package, in /usr/local/cuda/compat; no empty and no damaged files."""
    rocm: Optional[str]
    """The ROCm release in it, `6.1.2`."""
    own_libcuda: Optional[RootedPath] = None
    """The libcuda to which its own LD_LIBRARY_PATH leads before the host's, resolved; None if to none."""
    every_cuda: tuple[ImageCuda, ...] = ()
    """Every CUDA toolkit or runtime that was found in it, the newest first."""

    def to_dict(self) -> dict[str, Any]:
        """The member `image` of the documents, without what tells where it lies."""
        return {
            "kind": self.kind,
            "arch": self.arch,
            "libc": {"family": self.libc_family, "version": self.libc_version},
            "libstdcxx": self.libstdcxx,
            "env": self.env,
            "undecided": list(self.undecided),
            "driver": [library._asdict() for library in self.driver],
            "vendor_neutral": list(self.vendor_neutral),
            "cuda": self.cuda,
            "compat": plain(self.compat),
            "rocm": self.rocm,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ImageFacts:
        """What `to_dict` gave, with what it leaves out empty. Errors: `FormatError` (code `bad-plan`)."""
        libc = value.get("libc") or {}
        absent = {"label": "", "loader_directories": (), "singularity": False}
        named = {"libc_family": libc.get("family"), "libc_version": libc.get("version")}
        return made(cls, {**value, **named, **absent}, "image")


class Gpu(NamedTuple):
    """One GPU, as the kernel driver tells it."""

    vendor: Vendor
    index: Optional[int]  # type: ignore[assignment]  # shadows tuple.index, which nothing here calls
    """Position among the GPUs that are not excluded, in PCI order; None if excluded."""
    uuid: Optional[str]
    pci: Optional[str]
    minor: Optional[int]
    model: Optional[str]
    render: Optional[RootedPath]
    """`/dev/dri/renderD128`, None if the host has none for it."""
    chosen: bool
    """Whether the container gets it."""
    mig: tuple[MigDevice, ...] = ()
    """Its parts; of a GPU of which parts are chosen, those."""


class MigDevice(NamedTuple):
    """A compute instance of a GPU instance."""

    gi: int
    ci: int
    uuid: Optional[str]


class MigNode(NamedTuple):
    """The node that guards a part of a GPU: opening it takes the right to use that part."""

    target: ContainerPath
    minor: int
    """Of the GPU."""
    gi: int
    ci: Optional[int]
    """None: it guards the GPU instance itself, without which none of its compute instances can be used."""

    def guards(self, device: MigDevice) -> bool:
        """Whether a process needs it for *device*, on the same GPU."""
        return self.gi == device.gi and self.ci in (None, device.ci)


class MigName(NamedTuple):
    """A name of a MIG device that is in no file, and what it means: the driver's own program knows."""

    name: str
    """`MIG-<uuid>`, or `G:M`: the M-th MIG device of the GPU with index G."""
    minor: int
    """Of the GPU."""
    gi: int
    ci: int


class Driver(NamedTuple):
    """The driver of one vendor."""

    vendor: Vendor
    version: Optional[str]
    """V: what the user-space files must match."""
    version_assumed: bool
    """True when no kernel module said V and the file behind libcuda did."""
    kernel_version: Optional[str]
    kind: DriverKind
    cuda_max: Optional[str]
    """Newest CUDA version that this driver branch serves, `12.4`."""
    root: HostPath


class PassedOver(NamedTuple):
    """A source that did not serve, and why."""

    source: str
    code: str
    why: str


class SourceUsed(NamedTuple):
    """Which source served."""

    served: str
    detail: str
    passed_over: tuple[PassedOver, ...] = ()


class HostFile(NamedTuple):
    """A file of the host that a container may get: a library, a binary, a manifest, a socket, ..."""

    vendor: Vendor
    kind: Kind
    path: RootedPath
    """The resolved real file."""
    names: tuple[str, ...]
    """A library's names in the container: its soname and every link the host has for it. Else empty."""
    target: Optional[ContainerPath]
    """Where it must be in the container; None where the layout decides (libraries, binaries)."""
    arch: Optional[str]
    soname: Optional[str]
    version: Optional[str]
    """Driver version in the file's name, if any."""
    capability: Optional[Capability]
    """None: always taken. Never `compat32`, which chooses architectures."""
    size: int
    source: HostPath
    named_by: str
    named_at: str
    found_by: str
    family: Optional[Family] = None
    """Set for a vendor-neutral library: then its side is decided for the whole family."""
    content: Optional[bytes] = None
    """A manifest's bytes: its library paths may have to change with where libraries land."""
    options: Optional[tuple[str, ...]] = None
    """Of its bind, where a CDI spec says so; None: those of its kind."""
    userspace: bool = False
    """Whether it belongs to a user space that may as well be the image's own (ROCm): `--userspace` decides."""
    compat32: bool = False
    """Whether it is a 32-bit library of a 64-bit host."""

    @property
    def name(self) -> str:
        """What it is called: its soname, else its first name, its place in the container, its path."""
        return self.soname or (self.names[0] if self.names else self.target or self.path)

    def decision(
        self,
        subject: str,
        verdict: Verdict,
        rule: str,
        step: Step,
        *,
        target: Optional[ContainerPath] = None,
        detail: Optional[str] = None,
    ) -> Decision:
        """What became of it, or of the name *subject* of it."""
        return Decision(
            vendor=self.vendor,
            subject=subject,
            verdict=verdict,
            rule=rule,
            step=step,
            named_by=self.named_by,
            named_at=self.named_at,
            path=self.path,
            found_by=self.found_by,
            target=target,
            detail=detail,
        )


class DeviceNode(NamedTuple):
    """A device node."""

    vendor: Vendor
    source: HostPath
    target: ContainerPath
    type: Literal["c", "b"]
    major: int
    minor: int
    mode: int
    """Permission bits, e.g. 0o666."""
    uid: int
    gid: int
    group: Optional[str]
    access: str
    """What this process may do with it: `rw`, `r`, `w` or `none`."""
    gpu: Optional[int]
    """Index of the GPU it belongs to."""
    capability: Optional[Capability]

    def decision(self, verdict: Verdict, rule: str, step: Step, *, detail: Optional[str] = None) -> Decision:
        """What became of it."""
        return Decision(
            vendor=self.vendor,
            subject=self.target,
            verdict=verdict,
            rule=rule,
            step=step,
            named_by="devices",
            named_at="/dev",
            path=self.target,
            found_by="/dev",
            target=self.target if verdict == "taken" else None,
            detail=detail,
        )


class Mount(NamedTuple):
    """One bind. It has a `source` or a `content`, never both."""

    vendor: Vendor
    source: Optional[HostPath]
    content: Optional[str]
    target: ContainerPath
    kind: Kind
    arch: Optional[str]
    soname: Optional[str]
    version: Optional[str]
    capability: Optional[Capability]
    options: tuple[str, ...]
    required: bool
    size: int
    """Bytes of the file (or of the content); 0 for sockets and directories."""
    rule: str
    """Why it is in the plan: the source or completion rule that named it."""


class EnvVar(NamedTuple):
    """One operation on a variable of the container."""

    name: str
    op: Literal["set", "default", "prepend", "append", "unset"]
    """`default`: set it where neither the caller nor the image has a value for it."""
    value: Optional[str]
    separator: Optional[str]
    rule: str


class Decision(NamedTuple):
    """What became of one thing that was considered."""

    vendor: Vendor
    subject: str
    """A soname, a file name, a path or a list entry."""
    verdict: Verdict
    rule: str
    """Kebab-case; docs/plan.md explains each."""
    step: Step
    """Which step of the planning decided."""
    named_by: Optional[str] = None
    """The source that named it: `liblist`, `driver`, `completion`."""
    named_at: Optional[str] = None
    """`etc/nvliblist.conf:12`."""
    path: Optional[str] = None
    """The file in question, inside the driver root."""
    found_by: Optional[str] = None
    """`ld.so.cache`, or the directory that held it."""
    target: Optional[str] = None
    detail: Optional[str] = None


class Finding(NamedTuple):
    """Something the user should know, with what to do about it."""

    code: str
    severity: Severity
    vendor: Optional[Vendor]
    subject: str
    what: str
    where: Optional[str] = None
    why: Optional[str] = None
    hint: Optional[str] = None
    command: Optional[str] = None

    def to_dict(self) -> dict[str, Any]:
        """The member of `findings` in the documents."""
        return self._asdict()

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Finding:
        """What `to_dict` gave. Errors: `FormatError` (code `bad-plan`)."""
        return made(cls, value, "finding")


class Inventory(NamedTuple):
    """Everything that the sources found on one host for one vendor."""

    driver: Driver
    source: SourceUsed
    searched: tuple[str, ...]
    files: tuple[HostFile, ...]
    devices: tuple[DeviceNode, ...]
    gpus: tuple[Gpu, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]
    mig_nodes: tuple[MigNode, ...] = ()
    mig_names: tuple[MigName, ...] = ()
    """What could be found out of the names in the request and the environment."""
    confined: bool = False
    """Whether a device cgroup, a mode or a /dev of its own hides some of these GPUs from this process: then programs
    count the others only."""
    hidden: tuple[int, ...] = ()
    """The indexes of the GPUs that this process cannot open, as far as their nodes tell."""
    env: tuple[EnvVar, ...] = ()
    """What a CDI spec sets."""


class PlannedDriver(NamedTuple):
    """A driver, the source that listed its files, and where they were looked for."""

    driver: Driver
    source: SourceUsed
    searched: tuple[str, ...]
    """`ld.so.cache` and directories of the driver root, in order."""


PLAN_SCHEMA = "gpubind.plan/1"
_MEMBERS = ("gpus", "libdir", "libdir32", "mounts", "devices", "env", "decisions", "findings", "digest")
"""What stands in the document of a plan as it is."""


class Plan(NamedTuple):
    """The answer: what a container must get from this host."""

    request: Request
    layout: str
    drivers: tuple[PlannedDriver, ...]
    gpus: tuple[Gpu, ...]
    libdir: Optional[ContainerPath]
    libdir32: Optional[ContainerPath]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceNode, ...]
    env: tuple[EnvVar, ...]
    image: Optional[ImageFacts]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]
    digest: str
    """sha256 over what a container would get, without anything that names the machine."""

    def to_dict(self) -> dict[str, Any]:
        """The document `gpubind.plan/1` (data/plan.schema.json), as `json.loads` would give it."""
        request = self.request
        asked = {
            "vendors": request.vendors,
            "caps": request.capabilities,
            "caps_explicit": request.caps_explicit,
            "gpus": request.gpus,
            "source": request.source,
            "like": request.like,
            "layout": self.layout,
            "vendor_neutral": request.vendor_neutral,
            "userspace": request.userspace,
            "libc": "image",
            "cuda_compat": request.cuda_compat,
        }
        drivers = [{**planned.driver._asdict(), "source": planned.source} for planned in self.drivers]
        members = {name: getattr(self, name) for name in _MEMBERS}
        image = None if self.image is None else self.image.to_dict()
        head = {"schema": PLAN_SCHEMA, "gpubind": __version__, "request": asked, "drivers": drivers, "image": image}
        document: dict[str, Any] = plain({**head, **members})
        return document

    def to_json(self) -> str:
        """The same as text, as `gpubind plan --json` prints it."""
        return text_of(self.to_dict())

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Plan:
        """The plan of a document `gpubind.plan/1`; what no document holds of it is empty or at its default.

        Errors: `FormatError` (code `bad-plan`) that names the place of what is not as gpubind writes it.
        """
        if document.get("schema") != PLAN_SCHEMA:
            raise malformed(f"`schema` is not `{PLAN_SCHEMA}`", "schema")
        asked = document.get("request")
        if not isinstance(asked, dict):
            raise malformed("it is not there, or no object", "request")
        drivers = document.get("drivers")
        if not isinstance(drivers, list) or not all(isinstance(driver, dict) for driver in drivers):
            raise malformed("it is not there, or no list of objects", "drivers")
        image = document.get("image")
        values = {
            **document,
            "request": {**asked, "caps": asked.get("caps") if asked.get("caps_explicit") else None},
            "layout": asked.get("layout"),
            "drivers": [{"driver": driver, "source": driver.get("source"), "searched": []} for driver in drivers],
            "image": None,
        }
        plan = made(cls, values, "")
        return plan if image is None else plan._replace(image=ImageFacts.from_dict(image))

    @property
    def generated(self) -> dict[ContainerPath, str]:
        """The texts of files that no file of the host holds, by their place in the container."""
        return {mount.target: mount.content for mount in self.mounts if mount.content is not None}
