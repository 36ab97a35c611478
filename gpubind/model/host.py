"""Inventories: files, device nodes and GPUs of a host, and a Decision about each candidate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.files import ContainerPath, HostPath, RootedPath
from gpubind.model.plain import DOCUMENT_DECODER, to_json_value

Vendor = Literal["nvidia", "amd", "intel", "other"]
"""`other`: a CDI device of an unknown kind."""
Capability = Literal["compute", "utility", "video", "graphics", "display", "ngx", "compat32"]
CAPABILITIES: tuple[Capability, ...] = ("compute", "utility", "video", "graphics", "display", "ngx", "compat32")
"""The capabilities, with their names in NVIDIA_DRIVER_CAPABILITIES."""
DEFAULT_CAPABILITIES: tuple[Capability, ...] = CAPABILITIES[:-1]
"""The capabilities of `--nv`: all but 32-bit libraries."""

FileRole = Literal["library", "binary", "file", "manifest", "socket", "directory"]
Verdict = Literal["taken", "left-out", "rejected", "absent"]
Step = Literal["name", "search", "choice", "capability", "side", "place"]
Severity = Literal["error", "warning", "note"]
Side = Literal["auto", "host", "image"]
"""Which copy a container uses."""
FileGroup = Literal["glvnd", "opencl", "rocm", "compute-runtime", "libc"]
"""Files that are used together, and of which an image may have its own copy: libglvnd's libraries, the OpenCL loader,
the user spaces of AMD and Intel, the C library."""
DriverKind = Literal["linux", "wsl", "tegra"]


class Gpu(NamedTuple):
    """One GPU, as the kernel driver reports it."""

    vendor: Vendor
    index: Optional[int]  # type: ignore[assignment]  # shadows tuple.index, which nothing here calls
    """Position among the GPUs that are not excluded, in PCI order; None if excluded."""
    uuid: Optional[str]
    pci: Optional[str]
    minor: Optional[int]
    model: Optional[str]
    render: Optional[RootedPath]
    """`/dev/dri/renderD128`, or an accelerator's node, `/dev/accel/accel0`; None if the host has no such node."""
    chosen: bool
    """Whether the container gets it."""
    mig: tuple[MigDevice, ...] = ()
    """Its MIG devices; if only some are chosen, only those."""
    partition: Optional[str] = None
    """How an AMD GPU and its memory are divided, `CPX/NPS4`, if they can be; each part is a separate GPU."""

    @property
    def node(self) -> Optional[RootedPath]:
        """Return the device node by which programs use it; None if that is not known."""
        if self.vendor != "nvidia":
            return self.render
        return None if self.minor is None else RootedPath(f"/dev/nvidia{self.minor}")

    @property
    def is_gaudi(self) -> bool:
        """Return whether it is an Intel accelerator: its node is not one of DRM's."""
        return self.vendor == "intel" and not (self.render or "").startswith("/dev/dri/")


def sorted_by_pci(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return *gpus* as AMD's toolkit counts them: by PCI address, the partitions of a GPU by render node.

    Source: amd-ctk `internal/amdgpu/amdgpu.go` (GetAMDGPUs).
    """
    return tuple(sorted(gpus, key=lambda gpu: (gpu.pci or "", gpu.minor or 0)))


class MigDevice(NamedTuple):
    """A compute instance of a GPU instance."""

    gi: int
    ci: int
    uuid: Optional[str]


class MigNode(NamedTuple):
    """The node that guards a part of a GPU: opening it requires the right to use that part."""

    target: ContainerPath
    minor: int
    """The minor number of the GPU."""
    gi: int
    ci: Optional[int]
    """The compute instance; None if it guards the GPU instance itself, which all of its compute instances require."""

    def guards(self, device: MigDevice) -> bool:
        """Return whether a process that uses *device* also needs this node, of the same GPU."""
        return self.gi == device.gi and self.ci in (None, device.ci)


class MigName(NamedTuple):
    """A name of a MIG device that no file contains, and its meaning according to the driver's own program."""

    name: str
    """`MIG-<uuid>`, or `G:M`: the M-th MIG device of the GPU with index G."""
    minor: int
    """The minor number of the GPU."""
    gi: int
    ci: int


class Driver(NamedTuple):
    """The driver of one vendor."""

    vendor: Vendor
    version: Optional[str]
    """The version that the user-space files must match."""
    version_assumed: bool
    """Whether `version` is that of the resolved libcuda instead of the kernel module's."""
    kernel_version: Optional[str]
    kind: DriverKind
    cuda_max: Optional[str]
    """Newest CUDA version that this driver branch serves, `12.4`."""
    root: HostPath


class PassedOver(NamedTuple):
    """A source that could not be used, and why."""

    source: str
    code: str
    why: str


class SourceUsed(NamedTuple):
    """The source in use."""

    served: str
    detail: str
    passed_over: tuple[PassedOver, ...] = ()


READ_ONLY_OPTIONS = ("ro", "nosuid", "nodev")
"""The options of the bind of a driver's file."""


class HostFile(NamedTuple):
    """A file of the host that a container may get: a library, a binary, a manifest, a socket, ..."""

    vendor: Vendor
    kind: FileRole
    path: RootedPath
    """The resolved real file."""
    size: int
    source: HostPath
    named_by: str
    named_at: str
    found_by: str
    names: tuple[str, ...] = ()
    """A library's names in the container: its soname and the names of all links to it on the host. Else empty."""
    target: Optional[ContainerPath] = None
    """Its path in the container; None where the layout decides (libraries, binaries)."""
    arch: Optional[str] = None
    soname: Optional[str] = None
    version: Optional[str] = None
    """Driver version in the file's name, if any."""
    capability: Optional[Capability] = None
    """The capability to which it belongs; None if it is always taken. Never `compat32`, which selects architectures."""
    group: Optional[FileGroup] = None
    """The group of files of which a container uses either the host's or the image's. None: a driver file, always the
    host's.
    """
    content: Optional[bytes] = None
    """A manifest's bytes: its library paths may have to be changed to those in the container."""
    options: Optional[tuple[str, ...]] = None
    """The options of its bind, if its source sets them; None: those of its kind."""
    compat32: bool = False
    """Whether it is a 32-bit library of a 64-bit host."""

    @property
    def name(self) -> str:
        """Return its soname, else its first name, its path in the container, its path."""
        return self.soname or (self.names[0] if self.names else self.target or self.path)

    def decision(
        self,
        subject: str,
        verdict: Verdict,
        rule: str,
        step: Step,
        target: Optional[ContainerPath] = None,
        detail: Optional[str] = None,
    ) -> Decision:
        """Return the outcome for the file, or for its name *subject*."""
        claim = (self.named_by, self.named_at, self.path, self.found_by)
        return Decision(self.vendor, subject, verdict, rule, step, *claim, target, detail)


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
    """The rights of this process: `rw`, `r`, `w` or `none`."""
    gpu: Optional[int]
    """The index of its GPU."""
    capability: Optional[Capability]

    def decision(self, verdict: Verdict, rule: str, step: Step, detail: Optional[str] = None) -> Decision:
        """Return the outcome for the node."""
        claim = ("devices", "/dev", self.target, "/dev")
        target = self.target if verdict == "taken" else None
        return Decision(self.vendor, self.target, verdict, rule, step, *claim, target, detail)


class EnvVar(NamedTuple):
    """One operation on a variable of the container."""

    name: str
    op: Literal["set", "default", "prepend", "append", "unset"]
    """`default`: set it if neither the caller nor the image sets it."""
    value: Optional[str]
    separator: Optional[str]
    rule: str


def values_of(env: Iterable[EnvVar], name: str, *ops: str) -> tuple[str, ...]:
    """Return the values that the operations *ops* of *env* give the variable *name*, without empty ones."""
    return tuple(variable.value for variable in env if variable.name == name and variable.op in ops and variable.value)


class Decision(NamedTuple):
    """The outcome for one candidate."""

    vendor: Vendor
    subject: str
    """A soname, a file name, a path or a list entry."""
    verdict: Verdict
    rule: str
    """Kebab-case; docs/plan.md explains each."""
    step: Step
    """The step of planning that decided."""
    named_by: Optional[str] = None
    """The source that named it: `liblist`, `driver`, `completion`."""
    named_at: Optional[str] = None
    """`etc/nvliblist.conf:12`."""
    path: Optional[str] = None
    """The file, inside the driver root."""
    found_by: Optional[str] = None
    """Where the file was found: `ld.so.cache`, or its directory."""
    target: Optional[str] = None
    detail: Optional[str] = None


class Finding(NamedTuple):
    """Something that the user should know, and the remedy."""

    code: str
    severity: Severity
    vendor: Optional[Vendor]
    subject: str
    what: str
    where: Optional[str] = None
    why: Optional[str] = None
    hint: Optional[str] = None
    command: Optional[str] = None

    def __str__(self) -> str:
        """Return the message as `gpubind check` prints it, with each command on a line."""
        from gpubind.model.message import message_lines, printable  # many plans are not printed

        lines = message_lines(self.severity, self.code, self.what, self.where, self.why, self.hint)
        commands = [f"         $ {printable(line)}" for line in (self.command or "").split("\n") if line]
        return "\n".join((*lines, *commands))

    def to_dict(self) -> dict[str, Any]:
        """Return the member of `findings` in the documents."""
        document: dict[str, Any] = to_json_value(self)
        return document

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Finding:
        """Return the finding that `to_dict` encoded. Errors: `FormatError` (code `bad-plan`)."""
        return DOCUMENT_DECODER.decode(cls, value, "finding")


class Inventory(NamedTuple):
    """Everything of one vendor on one host."""

    driver: Driver
    source: SourceUsed
    searched: tuple[str, ...] = ()
    files: tuple[HostFile, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    decisions: tuple[Decision, ...] = ()
    findings: tuple[Finding, ...] = ()
    mig_nodes: tuple[MigNode, ...] = ()
    mig_names: tuple[MigName, ...] = ()
    """The resolved names of the request and the environment."""
    hides_gpus: bool = False
    """Whether a device cgroup, a mode or a private /dev hides some of these GPUs. Programs number only visible ones."""
    hidden_gpu_indexes: tuple[int, ...] = ()
    """The indexes of the GPUs whose nodes this process cannot open."""
    forbidden: tuple[str, ...] = ()
    """The nodes that only a device cgroup forbids to this process: mode and access control list allow them."""
    env: tuple[EnvVar, ...] = ()
    """The variables of a CDI spec."""
    libcuda_directories: tuple[str, ...] = ()
    """The directories with libcuda; programs and data are also searched for in their prefixes."""
    devices_only: bool = False
    """Whether its user space was not requested: then libraries missing in an image are not a finding."""
    devices_per_gpu: tuple[int, ...] = ()
    """The number of devices in a vendor's library for each GPU; empty: one for each."""


class Mount(NamedTuple):
    """One bind. It has a `source` or a `content`, never both."""

    vendor: Vendor
    source: Optional[HostPath]
    content: Optional[str]
    target: ContainerPath
    kind: FileRole
    arch: Optional[str]
    soname: Optional[str]
    version: Optional[str]
    capability: Optional[Capability]
    options: tuple[str, ...]
    required: bool
    size: int
    """Bytes of the file (or of the content); 0 for sockets and directories."""
    rule: str
    """The source or completion rule that named it."""
