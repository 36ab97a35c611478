"""A request and its plan, which can be converted to JSON and back."""

from __future__ import annotations

from typing import Any, Literal, Optional, Union

from gpubind import __version__
from gpubind.errors import FormatError
from gpubind.frozen import NamedTuple
from gpubind.model.digest import plan_digest
from gpubind.model.files import ContainerPath, RootedPath
from gpubind.model.findings import SEVERITIES, with_count
from gpubind.model.host import (
    CAPABILITIES,
    DEFAULT_CAPABILITIES,
    Capability,
    Decision,
    DeviceNode,
    Driver,
    EnvVar,
    Finding,
    Gpu,
    Mount,
    Side,
    SourceUsed,
    Vendor,
)
from gpubind.model.image import ImageFacts
from gpubind.model.plain import DOCUMENT_DECODER, dump_document, to_json_value
from gpubind.model.vendors import VENDOR_ROWS


class Request(NamedTuple):
    """The request for a plan."""

    vendors: tuple[Vendor, ...] = ()
    """The vendors; empty for every vendor with a driver."""
    caps: Union[tuple[Capability, ...], tuple[Literal["all"]], None] = None
    """The capabilities. None: `DEFAULT_CAPABILITIES`; `("all",)`: all. A finding reports a named capability that is
    missing.
    """
    source: str = "auto"
    """`auto`, `nvidia-container-cli`, `liblist`, `driver` or `cdi`."""
    completion: bool = True
    """Whether the shipped list is completed from the driver itself."""
    library_path: tuple[RootedPath, ...] = ()
    """Directories to search after the known driver directories."""
    like: Optional[str] = None
    """The flavour to reproduce (`apptainer-1.4`); None for gpubind's own plan."""
    libdir: Optional[ContainerPath] = None
    """The directory of libraries; None for the layout's own."""
    vendor_neutral: Side = "auto"
    """Which libglvnd and OpenCL loader the container uses."""
    gpus: Optional[str] = None
    """`all`, `none` or a list of GPUs in the syntax of `--gpus`; None: the caller's environment decides."""
    cdi_directories: tuple[str, ...] = ()
    """The directories of CDI specs, in rising priority; empty: /etc/cdi and /var/run/cdi."""
    cdi_devices: tuple[str, ...] = ()
    """Qualified names of CDI devices, `nvidia.com/gpu=0`, which imply `source` cdi; empty with that source: every
    NVIDIA GPU."""
    userspace: Side = "auto"
    """Which ROCm or Level Zero the container uses."""
    cuda_compat: Side = "auto"
    """Which libcuda the container uses, if its image has one of CUDA's forward compatibility package."""
    libc: Side = "image"
    """Which glibc the container's programs use."""

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """Return the requested capabilities, named or by default."""
        caps = self.caps
        return DEFAULT_CAPABILITIES if caps is None else tuple(c for c in CAPABILITIES if c in caps or "all" in caps)

    @property
    def caps_explicit(self) -> bool:
        """Return whether the caller set the capabilities."""
        return self.caps is not None

    @property
    def caps_named(self) -> bool:
        """Return whether the caller named some capabilities, but not all. It is then an error if one of them is not
        served.
        """
        return self.caps is not None and self.capabilities != CAPABILITIES

    @property
    def computes_by_name(self) -> bool:
        """Return whether the caller named compute, or the host's user space, which computes."""
        return self.userspace == "host" or (self.caps_named and "compute" in self.capabilities)

    @property
    def is_without_compute(self) -> bool:
        """Return whether the caller named capabilities without compute, unless the host's user space was requested: it
        computes.
        """
        return self.caps_named and "compute" not in self.capabilities and self.userspace != "host"


class PlannedDriver(NamedTuple):
    """A driver, the source that listed its files, and the directories that were searched."""

    driver: Driver
    source: SourceUsed
    searched: tuple[str, ...]
    """`ld.so.cache` and directories of the driver root, in order."""
    beside: tuple[str, ...] = ()
    """The directories with libcuda; programs and data were also searched for in their prefixes."""

    @property
    def title(self) -> str:
        """Return the driver and its version: `nvidia 550.163.01`."""
        driver = self.driver
        if driver.vendor == "other":
            return self.source.detail or driver.vendor
        version = driver.version or "of unknown version"
        if driver.vendor == "amd":
            version = f"ROCm {version}"
        elif not VENDOR_ROWS[driver.vendor].has_version:
            version = driver.kernel_version or "without its kernel driver"
        assumed = " (assumed)" if driver.version_assumed and driver.version else ""
        return f"{driver.vendor} {version}{assumed}"

    @property
    def title_with_cuda(self) -> str:
        """Return the title with the newest CUDA that the driver serves: `nvidia 550.163.01, CUDA 12.4`."""
        return self.title + (f", CUDA {self.driver.cuda_max}" if self.driver.cuda_max else "")


PLAN_SCHEMA = "gpubind.plan/1"
_CHANGED_FIELDS = ("request", "layout", "isolated", "drivers", "image")
"""The fields to which a document of a plan gives another form."""


class Plan(NamedTuple):
    """A plan: what a container must get from this host."""

    request: Request
    layout: str
    isolated: bool
    """Whether the containers' /dev has only the planned nodes: then their GPUs are renumbered."""
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
    """SHA-256 of what a container would get, without any name of the machine."""
    node_digest: Optional[str] = None
    """SHA-256 of the node's facts, without its name; no choice of a job changes it. None if it is unknown: with --like,
    or from a document of an earlier gpubind."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document `gpubind.plan/1` (data/plan.schema.json), as `json.loads` would return it."""
        request = self.request
        requested = {
            "vendors": request.vendors,
            "caps": request.capabilities,
            "caps_explicit": request.caps_explicit,
            "gpus": request.gpus,
            "source": request.source,
            "like": request.like,
            "layout": self.layout,
            "isolated": self.isolated,
            "vendor_neutral": request.vendor_neutral,
            "userspace": request.userspace,
            "libc": request.libc,
            "cuda_compat": request.cuda_compat,
        }
        drivers = [{**planned.driver._asdict(), "source": planned.source} for planned in self.drivers]
        members = {name: value for name, value in self._asdict().items() if name not in _CHANGED_FIELDS}
        image = None if self.image is None else self.image.to_dict()
        head = {"schema": PLAN_SCHEMA, "gpubind": __version__, "request": requested, "drivers": drivers, "image": image}
        document: dict[str, Any] = to_json_value({**head, **members})
        return document

    def to_json(self) -> str:
        """Return the document as text, as `gpubind plan --json` prints it."""
        return dump_document(self.to_dict())

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Plan:
        """Return the plan in a document `gpubind.plan/1`; fields that it never contains are empty or at their defaults.

        Errors: `FormatError` (code `bad-plan`), with the location in the document.
        """
        if not isinstance(document, dict):
            raise DOCUMENT_DECODER.format.damaged("it is not an object")
        schema = document.get("schema")
        if schema != PLAN_SCHEMA:
            raise _other_schema(str(schema))
        request = document.get("request")
        if not isinstance(request, dict):
            raise DOCUMENT_DECODER.format.damaged("it is not there, or no object", "request")
        drivers = document.get("drivers")
        if not isinstance(drivers, list) or not all(isinstance(driver, dict) for driver in drivers):
            raise DOCUMENT_DECODER.format.damaged("it is not there, or no list of objects", "drivers")
        image = document.get("image")
        values = {
            **document,
            "request": {**request, "caps": request.get("caps") if request.get("caps_explicit") else None},
            "layout": request.get("layout"),
            "isolated": request.get("isolated"),
            "drivers": [{"driver": driver, "source": driver.get("source"), "searched": []} for driver in drivers],
            "image": None,
        }
        plan = DOCUMENT_DECODER.decode(cls, values, "")
        is_ours = document.get("gpubind") == __version__  # another version may hash more, or less
        if is_ours and plan.digest != plan_digest(plan.mounts, plan.devices, plan.env, plan.gpus):
            why = "it is not that of these mounts, devices and variables: the document was changed"
            raise DOCUMENT_DECODER.format.damaged(why, "digest")
        return plan if image is None else plan._replace(image=ImageFacts.from_dict(image))

    def __repr__(self) -> str:
        from gpubind.model.message import printable  # few plans are printed so

        return f"<Plan: {printable(self.summary)}>"

    @property
    def summary(self) -> str:
        """Return the plan in one line: drivers, binds, GPUs, nodes, findings, digest."""
        parts = [planned.title_with_cuda for planned in self.drivers]
        if self.request.like:
            parts = [f"like {self.request.like}"] * bool(parts)
        sizes = {mount.source or mount.target: mount.size for mount in self.mounts}
        total = sum(sizes.values()) / 2**20
        parts.append(f"{with_count(len(self.mounts), 'bind')} of {with_count(len(sizes), 'file')} ({total:.0f} MiB)")
        if self.gpus:
            parts.append(with_count(len([gpu for gpu in self.gpus if gpu.chosen]), "GPU"))
        parts.append(with_count(len(self.devices), "device node"))
        severities = [finding.severity for finding in self.findings]
        parts += [with_count(severities.count(s), s) for s in SEVERITIES if s in severities]
        return f"{'; '.join(parts)}; digest {self.digest[:12]}"

    @property
    def generated(self) -> dict[ContainerPath, str]:
        """Return the contents of files that exist only in the plan, by their paths in the container."""
        return {mount.target: mount.content for mount in self.mounts if mount.content is not None}


def _other_schema(schema: str) -> FormatError:
    head, _, number = schema.partition("/")
    if head != PLAN_SCHEMA.partition("/")[0] or not (number.isascii() and number.isdigit()):
        return DOCUMENT_DECODER.format.damaged(f"`schema` is not `{PLAN_SCHEMA}`", "schema")
    why = f"it is of the schema `{schema}`, and this one reads `{PLAN_SCHEMA}`"
    later = DOCUMENT_DECODER.format._replace(what="a later gpubind made this document")
    return later.damaged(why, "schema", "update gpubind")
