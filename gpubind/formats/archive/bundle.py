"""The config.json of an OCI bundle: the facts that a plan needs, and the same text with a plan's edits.

Unknown members, their order and the indentation stay unchanged. An annotation records the edits. The edits of an
earlier plan are undone first, so that a plan can be put into one file repeatedly.

Source: OCI runtime-spec 1.0 to 1.2, `config.md` and `config-linux.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Optional

from gpubind.errors import Format
from gpubind.formats.archive.oci import parse_env_lines
from gpubind.formats.text.json import parse_exact_json, written_like
from gpubind.frozen import NamedTuple
from gpubind.model import DeviceNode
from gpubind.model.plain import Decoder

SIZE_LIMIT = 4 << 20
"""Bytes of a config.json."""
MEMBERS_LIMIT = 1 << 14
_PLAN_MEMBERS = ("ociVersion", "process", "root", "mounts", "linux", "annotations", "hooks")
"""Members of a config.json that concern a plan."""
ANNOTATION = "gpubind.edits"
_DEVICE_ACCESS = "rw"
"""The access that the device cgroup grants. `m` is not needed, because the runtime creates the nodes."""
_FORMAT = Format("bad-bundle", "malformed config.json of a bundle")
_DECODER = Decoder(
    _FORMAT,
    prefix="key ",
    keys={
        "oci_version": "ociVersion",
        "root": "root.path",
        "args": "process.args",
        "env": "process.env",
        "working_directory": "process.cwd",
        "devices": "linux.devices",
        "namespaces": "linux.namespaces",
        "mappings": "linux.uidMappings",
        "rules": "linux.resources.devices",
        "prestart": "hooks.prestart",
    },
    members_limit=MEMBERS_LIMIT,
    allows_nul=False,
)
_EDITS = Decoder(_FORMAT)
_KEYS = (
    *(*_PLAN_MEMBERS, *_DECODER.keys.values(), "process.user.additionalGids", "process.capabilities.bounding"),
    *("mounts.destination", "mounts.type", "mounts.source", "mounts.options"),
    *("linux.devices.path", "linux.namespaces.type", "hooks.prestart.path"),
)
"""Keys that are read or written; `a.b` is a member of `a`, or of each element of the list `a`."""


class BundleMount(NamedTuple):
    """A mount of a bundle."""

    destination: str
    type: str = ""
    source: str = ""
    """A relative path is below the bundle."""
    options: tuple[str, ...] = ()

    @property
    def is_bind(self) -> bool:
        """Whether its source is a file or directory of the host."""
        return self.type == "bind" or "bind" in self.options or "rbind" in self.options


class _File(NamedTuple):
    """A device node, or the program of a hook."""

    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Bundle(NamedTuple):
    """A bundle without gpubind's edits."""

    oci_version: str
    process: dict[str, Any]
    root: Annotated[str, re.compile(".+", re.DOTALL)]
    """The root file system; a relative path is below the bundle."""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """Lines `NAME=VALUE`."""
    working_directory: str = "/"
    mounts: tuple[BundleMount, ...] = ()
    devices: tuple[_File, ...] = ()
    """Device nodes that the runtime creates."""
    rules: tuple[dict[str, Any], ...] = ()
    """The rules of the device cgroup."""
    namespaces: tuple[dict[str, Any], ...] = ()
    mappings: tuple[dict[str, Any], ...] = ()
    annotations: Optional[dict[str, Any]] = None
    prestart: tuple[_File, ...] = ()
    """Hooks that run before the start, in the host's namespaces."""
    text: str = ""
    """The text of its config.json."""
    directory: str = ""
    """The absolute path of the bundle; empty if only its text is known."""
    is_writable: bool = True
    """Whether the caller may write to the root file system, where the runtime creates mount points."""
    is_engines: bool = False
    """Whether an engine has just written it. An annotation in it then comes from the user or the image, and is
    ignored.
    """

    @property
    def nodes(self) -> tuple[str, ...]:
        """Paths of device nodes that the runtime creates."""
        return tuple(device.path for device in self.devices)

    @property
    def has_user_namespace(self) -> bool:
        """Whether it names a user namespace, or maps users."""
        return bool(self.mappings) or any(namespace.get("type") == "user" for namespace in self.namespaces)

    @property
    def variables(self) -> dict[str, str]:
        """The container's environment. The last value of a variable takes precedence."""
        return parse_env_lines(self.env)


class BundleEdits(NamedTuple):
    """Changes to a config.json."""

    mounts: tuple[BundleMount, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    """Nodes that the runtime creates."""
    allowed: tuple[DeviceNode, ...] = ()
    """Nodes that the device cgroup allows."""
    env: tuple[tuple[str, Optional[str]], ...] = ()
    """Each variable's value; None removes it."""
    groups: tuple[int, ...] = ()
    """Additional groups of the process."""
    without_hooks: tuple[str, ...] = ()
    """Names of programs whose prestart hooks are removed."""


class _Annotation(NamedTuple):
    """Edits in the form of the annotation."""

    added: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...]
    """The path of each list, and the items appended to it."""
    env: tuple[tuple[Annotated[int, range(1 << 32)], Optional[str], Optional[str]], ...]
    """For each change of `process.env`: its index, the old line and the new line."""


def parse_bundle(data: bytes, *, is_engines: bool = False) -> Bundle:
    """Return the bundle of a config.json. Errors: `FormatError` (code `bad-bundle`) with the key."""
    text, document = _loads(data)
    bundle = _bundle(document)._replace(is_engines=is_engines)
    if ANNOTATION in (bundle.annotations or {}) and not is_engines:
        _undo_edits(document)
        text = written_like(document, text)
        bundle = _bundle(document)
    return bundle._replace(text=text)


def _bundle(document: dict[str, Any]) -> Bundle:
    return _DECODER.decode(Bundle, {key: document.get(key) for key in _PLAN_MEMBERS})


def apply_edits(bundle: Bundle, edits: BundleEdits) -> str:
    """Return the text of *bundle* with *edits*. It is the same text even if gpubind has edited the bundle before."""
    document = json.loads(bundle.text)
    members = (
        (("mounts",), [mount._asdict() for mount in edits.mounts]),
        (
            ("linux", "devices"),
            [{"path": n.target, **_numbers(n), "fileMode": n.mode, "uid": n.uid, "gid": n.gid} for n in edits.nodes],
        ),
        (
            ("linux", "resources", "devices"),
            [{"allow": True, **_numbers(n), "access": _DEVICE_ACCESS} for n in edits.allowed],
        ),
    )
    added = [[list(path), items] for path, items in members if items]
    for path, items in members:
        if items:
            _list_at(document, path).extend(items)
    lines = _set_variables(_list_at(document, ("process", "env")), edits.env) if edits.env else []
    if bundle.is_engines:
        _edit_engines(document, bundle, edits)
    elif added or lines:
        document["annotations"] = document.get("annotations") or {}
        document["annotations"][ANNOTATION] = json.dumps({"added": added, "env": lines}, separators=(",", ":"))
    return written_like(document, bundle.text)


def _edit_engines(document: dict[str, Any], bundle: Bundle, edits: BundleEdits) -> None:
    """Apply the edits that only an engine's config.json gets. They need not be undone, because each start has a new
    file.
    """
    groups = _list_at(document, ("process", "user", "additionalGids")) if edits.groups else []
    groups.extend(group for group in edits.groups if group not in groups)
    if bundle.prestart and edits.without_hooks:
        hooks = zip(document["hooks"]["prestart"], bundle.prestart)
        document["hooks"]["prestart"] = [hook for hook, file in hooks if file.name not in edits.without_hooks]


def relocated_config(text: str, bundle: Bundle, args: Sequence[str], terminal: Optional[bool]) -> str:
    """Return *text*, the edited config.json of *bundle*, for a bundle in another directory that runs *args*.

    If *terminal* is None, the container has a terminal as in the bundle.
    """
    document = json.loads(text)
    document["process"]["args"] = list(args)
    if terminal is not None:
        document["process"]["terminal"] = terminal
    document["root"]["path"] = absolute_path(bundle, document["root"]["path"])
    for mount in document.get("mounts") or ():
        if _DECODER.decode(BundleMount, mount).is_bind and mount.get("source"):
            mount["source"] = absolute_path(bundle, mount["source"])
    return written_like(document, text)


def absolute_path(bundle: Bundle, path: str) -> str:
    """Return the absolute path of *path*, which may be relative to *bundle*."""
    return path if path.startswith("/") else f"{bundle.directory.rstrip('/')}/{path}"


def _loads(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text of *data*, and its value. Errors: for a document that is ambiguous, or that cannot be written
    again.
    """
    value = _DECODER.decode(dict[str, Any], parse_exact_json(data, SIZE_LIMIT, _FORMAT))
    _need_one_reading(value, _tree_of(_KEYS))
    return data.decode("utf-8"), value


def _tree_of(paths: Iterable[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in paths:
        subtree = tree
        for key in path.split("."):
            subtree = subtree.setdefault(key, {})
    return tree


def _need_one_reading(value: Any, keys: Mapping[str, Any], place: str = "") -> None:
    """Raise an error for a key in *value* that differs from one of *keys* only in case. It is the same key to runc, not
    to crun.

    *place*: the key of *value*.
    """
    if isinstance(value, list):
        for number, element in enumerate(value):
            if isinstance(element, dict):
                _need_one_reading(element, keys, f"{place}[{number}]")
    if not isinstance(value, dict):
        return
    folded_keys = {key.casefold(): key for key in keys}
    for name, member in value.items():
        key, where = folded_keys.get(name.casefold()), f"{place}.{name}".lstrip(".")
        if key is not None and name != key:
            raise _FORMAT.damaged(f"the key `{name}` differs from `{key}` only in case", f"key {where}")
        if key is not None:
            _need_one_reading(member, keys[key], where)


def _numbers(node: DeviceNode) -> dict[str, Any]:
    return {"type": node.type, "major": node.major, "minor": node.minor}


def _list_at(document: dict[str, Any], path: Sequence[str]) -> list[Any]:
    current: Any = document
    for depth, key in enumerate(path, 1):
        if current.get(key) is None:
            current[key] = [] if depth == len(path) else {}
        current = current[key]
    return current if isinstance(current, list) else []


def _set_variables(lines: list[Any], env: Sequence[tuple[str, Optional[str]]]) -> list[list[Any]]:
    """Change *lines* of `process.env`. Return the index of each change, the old and the new line."""
    changes: list[list[Any]] = []
    for name, value in env:
        places = [place for place, line in enumerate(lines) if line.partition("=")[0] == name]
        if value is None:
            changes += [[place, lines.pop(place), None] for place in reversed(places)]
        elif places:
            changes.append([places[-1], lines[places[-1]], f"{name}={value}"])
            lines[places[-1]] = f"{name}={value}"
        else:
            changes.append([len(lines), None, f"{name}={value}"])
            lines.append(f"{name}={value}")
    return changes


def _undo_edits(document: dict[str, Any]) -> None:
    """Remove gpubind's edits from *document*. Later changes by others stay."""
    place = f"key annotations.{ANNOTATION}"
    text = _DECODER.decode(str, document["annotations"].pop(ANNOTATION), place)
    try:
        record = _EDITS.decode(_Annotation, json.loads(text), place)
        for path, items in record.added:
            entries = _list_at(document, path)
            for item in reversed(items):
                if item in entries:
                    del entries[len(entries) - 1 - entries[::-1].index(item)]
    except (ValueError, RecursionError, AttributeError) as error:
        raise _FORMAT.damaged("it is not what gpubind writes there", place) from error
    lines = _list_at(document, ("process", "env"))
    for where, before, after in reversed(record.env):
        if after is None:
            lines[where:where] = [before]
        elif after in lines:
            last = len(lines) - 1 - lines[::-1].index(after)
            lines[last : last + 1] = [] if before is None else [before]
