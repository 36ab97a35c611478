"""CDI specs: the edits by which a container runtime gives a container a device.

The rules are those of the CDI project, version 1.1.0 (`specs-go/config.go`, `specs-go/version.go`, `pkg/cdi/spec.go`,
`pkg/cdi/container-edits.go`, `pkg/parser/parser.go`): one wrong or unknown field rejects the whole file. Annotations
are not checked: the project intends to check their keys, but no release does. Like the project's own parser, this one
ignores the suffix of a file (`.json`, `.yaml`), accepts a number instead of a string, and field names in any case
(sigs.k8s.io/yaml, Go's encoding/json).
"""

from __future__ import annotations

import re
from posixpath import basename, dirname, join, normpath
from typing import Annotated, Literal, Optional

from gpubind.errors import Format, FormatError
from gpubind.frozen import NamedTuple
from gpubind.model.plain import Decoder

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""The versions, in their order. No spec requires one of the first two: see `required_version`."""
_HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
SIZE_LIMIT = 1 << 20
_HOOK_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk", "nvidia-container-toolkit")

_FORMAT = Format("bad-cdi", "malformed CDI spec")
_DECODER = Decoder(
    _FORMAT,
    keys={
        "version": "cdiVersion",
        "edits": "containerEdits",
        "nodes": "deviceNodes",
        "host_name": "hostInterfaceName",
        "timeout_s": "timeout",
        "rdt": "intelRdt",
        "clos_id": "closID",
        "memory_schema": "memBwSchema",
        "gids": "additionalGids",
    },
    allows_nul=False,
    follows_go=True,
)
_Int = Annotated[int, range(-(1 << 63), 1 << 63)]
_Uint32 = Annotated[int, range(1 << 32)]
_Text = Annotated[str, re.compile(".+", re.DOTALL)]
_Variable = Annotated[str, re.compile("[^=]+=.*", re.DOTALL)]
_Permissions = Annotated[str, re.compile("none|[rwm]*")]
_ClosId = Annotated[str, re.compile(r"/|(?!\.{1,2}\Z)[^/\n]{0,4095}")]
_VENDOR_OR_CLASS = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")


class CdiNode(NamedTuple):
    """A device node that the container gets."""

    path: _Text
    host_path: str = ""
    """The path on the host; empty if it equals `path`."""
    type: Literal["", "b", "c", "u", "p"] = ""
    """The type; empty for the type on the host."""
    major: _Int = 0
    """The major number. If it is 0 or `type` is empty, both numbers are those on the host when the container starts."""
    minor: _Int = 0
    file_mode: Optional[_Uint32] = None
    permissions: _Permissions = ""
    """Letters of `rwm`, or `none`; empty for all of them."""
    uid: Optional[_Uint32] = None
    gid: Optional[_Uint32] = None

    @property
    def source(self) -> str:
        """The node's path on the host."""
        return self.host_path or self.path


class CdiNetDevice(NamedTuple):
    """A network interface that moves into the container."""

    host_name: _Text
    name: _Text


class CdiMount(NamedTuple):
    """A mount of the container."""

    host_path: _Text
    container_path: _Text
    options: tuple[str, ...] = ()
    type: str = ""


class CdiHook(NamedTuple):
    """A program of the host that the runtime runs."""

    hook_name: Annotated[str, _HOOK_NAMES]
    path: _Text
    args: tuple[str, ...] = ()
    """The arguments; the first is the program's name."""
    env: tuple[_Variable, ...] = ()
    timeout_s: Optional[_Int] = None


class CdiRdt(NamedTuple):
    """Intel's Resource Director: the class of cache and memory bandwidth of a process."""

    clos_id: _ClosId = ""
    l3_cache_schema: str = ""
    memory_schema: str = ""
    schemata: Optional[tuple[str, ...]] = None
    enable_monitoring: bool = False


class CdiEdits(NamedTuple):
    """The changes of a container."""

    env: tuple[_Variable, ...] = ()
    """`NAME=value`: replaces the value of the image and of the user."""
    nodes: tuple[CdiNode, ...] = ()
    net_devices: tuple[CdiNetDevice, ...] = ()
    hooks: tuple[CdiHook, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    rdt: Optional[CdiRdt] = None
    gids: tuple[_Uint32, ...] = ()


class CdiDevice(NamedTuple):
    """A device that can be requested."""

    name: str = ""
    annotations: Optional[dict[str, str]] = None
    edits: CdiEdits = CdiEdits()


class CdiSpec(NamedTuple):
    """A file of devices of one kind."""

    version: str = ""
    """Without a leading `v`."""
    kind: str = ""
    """`vendor/class`."""
    annotations: Optional[dict[str, str]] = None
    devices: tuple[CdiDevice, ...] = ()
    edits: CdiEdits = CdiEdits()
    """The edits that are applied once, if any device of the spec is used."""


class CdiName(NamedTuple):
    """A device's qualified name: `nvidia.com/gpu=0`."""

    kind: str
    device: str

    def __str__(self) -> str:
        return f"{self.kind}={self.device}"


def parse_cdi(data: bytes) -> CdiSpec:
    """Return the spec in *data*, JSON or YAML.

    Errors: `FormatError` (code `bad-cdi`) with the location: the file is too large, or neither JSON nor YAML; a field
    is unknown or has a value of the wrong type; the version is unknown, or lacks a feature that is used; a name is
    malformed; a device is given twice, or has no edits.
    """
    from gpubind.formats.text.yaml import parse_yaml  # few hosts have CDI specs

    if len(data) > SIZE_LIMIT:
        raise _FORMAT.damaged(f"{len(data)} bytes; {SIZE_LIMIT} at most")
    try:
        document = parse_yaml(data)
    except FormatError as error:
        raise _FORMAT.damaged(error.why, error.place) from error
    if document is None:
        raise _FORMAT.damaged("no spec in it")
    spec = _DECODER.decode(CdiSpec, document)
    spec = spec._replace(version=spec.version.removeprefix("v"))
    _validate(spec)
    return spec


def parse_cdi_name(text: str) -> CdiName:
    """Return the name `vendor/class=name`. Errors: `FormatError` (code `bad-cdi-name`)."""
    kind, equals, device = text.partition("=")
    why = _kind_fault(kind) or (None if _DEVICE.fullmatch(device) else f"`{device}` is not the name of a device")
    if not equals or why:
        message = f"`{text}` is not a qualified name of a CDI device"
        raise FormatError("bad-cdi-name", message, why=why or "it has no `=`")
    return CdiName(kind, device)


def is_device_name(name: str) -> bool:
    """Return whether CDI allows *name* for a device."""
    return _DEVICE.fullmatch(name) is not None


def required_version(spec: CdiSpec) -> str:
    """Return the oldest version of CDI, from 0.3.0 on, that has every feature of *spec*."""
    edits = [spec.edits, *(device.edits for device in spec.devices)]
    rdts = [e.rdt for e in edits if e.rdt is not None]
    if any(e.net_devices for e in edits) or any(r.schemata is not None or r.enable_monitoring for r in rdts):
        return "1.1.0"
    if rdts or any(e.gids for e in edits):
        return "0.7.0"
    if spec.annotations or any(d.annotations for d in spec.devices) or "." in spec.kind.partition("/")[2]:
        return "0.6.0"
    if any("0" <= d.name[:1] <= "9" for d in spec.devices) or any(n.host_path for e in edits for n in e.nodes):
        return "0.5.0"
    return "0.4.0" if any(m.type for e in edits for m in e.mounts) else "0.3.0"


# Validation, in the project's order.


def _validate(spec: CdiSpec) -> None:
    if spec.version not in VERSIONS:
        raise _FORMAT.damaged(f"invalid version `{spec.version}`", "cdiVersion")
    required = required_version(spec)
    if VERSIONS.index(spec.version) < VERSIONS.index(required):
        raise _FORMAT.damaged(f"the spec version must be at least {required}, not {spec.version}", "cdiVersion")
    fault = _kind_fault(spec.kind)
    if fault:
        raise _FORMAT.damaged(fault, "kind")
    _validate_edits(spec.edits, "containerEdits")
    names: set[str] = set()
    for number, device in enumerate(spec.devices):
        at = f"devices[{number}]"
        if not _DEVICE.fullmatch(device.name):
            raise _FORMAT.damaged(f"`{device.name}` is not the name of a device", f"{at}.name")
        if device.edits == CdiEdits():
            raise _FORMAT.damaged(f"device `{device.name}` has empty edits", f"{at}.containerEdits")
        _validate_edits(device.edits, f"{at}.containerEdits")
        if device.name in names:
            raise _FORMAT.damaged(f"multiple device `{device.name}`", f"{at}.name")
        names.add(device.name)
    if not names:
        raise _FORMAT.damaged("no devices", "devices")


def _kind_fault(kind: str) -> Optional[str]:
    vendor, slash, name = kind.partition("/")
    if not slash or not vendor or not name:
        return f"`{kind}` is not of the form vendor/class"
    for part, text in (("vendor", vendor), ("class", name)):
        if not _VENDOR_OR_CLASS.fullmatch(text):
            return f"`{text}` is no name of a {part}"
    return None


def _validate_edits(edits: CdiEdits, at: str) -> None:
    for names in zip(*edits.net_devices):
        if len(set(names)) < len(names):
            raise _FORMAT.damaged("the same interface twice", f"{at}.netDevices")


# Hooks: nvidia-container-toolkit, `cmd/nvidia-cdi-hook/` (each hook has its directory).


class HookCall(NamedTuple):
    """A call of one of NVIDIA's hooks."""

    name: Optional[str]
    """The name, such as `create-symlinks`; None if the hook is not one of NVIDIA's."""
    links: dict[str, str]
    """Absolute paths in the container, and their absolute targets in it."""
    library_directories: tuple[str, ...]
    """Directories that the container's loader would search."""


def parse_hook(hook: CdiHook) -> HookCall:
    """Return the call of *hook*: `nvidia-cdi-hook NAME ...`, `nvidia-ctk hook NAME ...`. Never raises."""
    args = [arg for arg in hook.args[1:] if arg != "hook"]
    name = args[0] if basename(hook.path).partition(".")[0] in _HOOK_PROGRAMS and args else None
    pairs = [value.partition("::") for value in _values(hook, "--link")]
    links = {
        normpath(link): normpath(join(dirname(link), target))
        for target, separator, link in pairs
        if separator and link.startswith("/") and target
    }
    folders = tuple(folder for folder in _values(hook, "--folder") if folder.startswith("/"))
    return HookCall(name, links, folders)


def _values(hook: CdiHook, option: str) -> list[str]:
    """Return the values of a repeatable option, spelled `--x V` or `--x=V`."""
    values = []
    args = iter(hook.args)
    for arg in args:
        if arg == option:
            values.append(next(args, ""))
        elif arg.startswith(f"{option}="):
            values.append(arg[len(option) + 1 :])
    return values
