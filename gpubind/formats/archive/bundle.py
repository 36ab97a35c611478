"""The config.json of an OCI bundle: what a plan must know of it, and the same text with a plan's edits.

Everything that the edits do not concern stays as it was: unknown members, their order, the indentation. An annotation
says what was edited, and a text that has been edited before is first made what it was: to edit twice is to edit once.

Source: OCI runtime-spec 1.0 to 1.2, `config.md` and `config-linux.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gpubind.errors import FormatError
from gpubind.formats.text.json import JsonObject, parse_json
from gpubind.model import DeviceNode

SIZE_LIMIT = 4 << 20
"""Bytes of a config.json."""
MEMBERS_LIMIT = 1 << 14
ANNOTATION = "gpubind.edits"
ACCESS = "rw"
"""What the device cgroup allows: the runtime makes the nodes, so the container needs not."""
_INDENT = re.compile(r"\s*\{\r?\n([ \t]+)\"")


class BundleMount(NamedTuple):
    """One of a bundle's mounts."""

    destination: str
    source: str
    """A relative one is below the bundle."""
    type: str
    options: tuple[str, ...]

    @property
    def is_bind(self) -> bool:
        """Whether it brings a file or directory of the host."""
        return self.type == "bind" or "bind" in self.options or "rbind" in self.options


class Bundle(NamedTuple):
    """What a start or a plan must know of a bundle, as it is without gpubind's own edits."""

    text: str
    """Of its config.json."""
    root: str
    """The root file system; a relative path is below the bundle."""
    args: tuple[str, ...]
    env: tuple[str, ...]
    """`NAME=VALUE`, as it has them."""
    working_directory: str
    mounts: tuple[BundleMount, ...]
    nodes: tuple[str, ...]
    """Paths of device nodes that the runtime makes."""
    has_user_namespace: bool
    has_device_rules: bool
    """Whether it has rules for the device cgroup."""
    directory: str = ""
    """Where the bundle is, absolute; empty if only its text is known."""
    is_writable: bool = True
    """Whether the caller may write to the root file system: the runtime makes mount points there."""

    @property
    def variables(self) -> dict[str, str]:
        """The container's environment. Of a variable that is there twice the last value counts."""
        return dict(line.partition("=")[::2] for line in self.env)


class BundleEdits(NamedTuple):
    """What is changed in a config.json."""

    mounts: tuple[BundleMount, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    """Made by the runtime."""
    allowed: tuple[DeviceNode, ...] = ()
    """Allowed by the device cgroup."""
    env: tuple[tuple[str, Optional[str]], ...] = ()
    """Each variable's value; None takes it away."""


class Process(NamedTuple):
    """What a start changes of a bundle's process."""

    args: tuple[str, ...]
    terminal: Optional[bool]
    """None: as the bundle has it."""


def parse_bundle(data: bytes) -> Bundle:
    """Return what *data*, a config.json, says. Errors: `FormatError` (code `bad-bundle`) with the key."""
    text, document = _loads(data)
    found = _BundleObject(document)
    found.text("ociVersion")
    if ANNOTATION in found.child("annotations", {}).value:
        _take_back(document)
        text = _dumps(document, text)
    root = found.child("root").text("path")
    if not root:
        raise _malformed("the path is empty", "key root.path")
    process, linux = found.child("process"), found.child("linux", {})
    namespaces = linux.children("namespaces", [], MEMBERS_LIMIT)
    resources = linux.child("resources", {})
    mappings = linux.children("uidMappings", [], MEMBERS_LIMIT)
    return Bundle(
        text=text,
        root=root,
        args=process.strings("args", (), limit=MEMBERS_LIMIT),
        env=process.strings("env", (), limit=MEMBERS_LIMIT),
        working_directory=process.text("cwd", "/"),
        mounts=tuple(map(_mount, found.children("mounts", [], MEMBERS_LIMIT))),
        nodes=tuple(node.text("path") for node in linux.children("devices", [], MEMBERS_LIMIT)),
        has_user_namespace=bool(mappings) or any(item.text("type") == "user" for item in namespaces),
        has_device_rules=bool(resources.children("devices", [], MEMBERS_LIMIT)),
    )


def edited(bundle: Bundle, edits: BundleEdits) -> str:
    """Return the text of *bundle* with *edits*: equal edits give equal text, whatever gpubind had edited before."""
    document = json.loads(bundle.text)
    members = (
        (("mounts",), [_mount_member(mount) for mount in edits.mounts]),
        (("linux", "devices"), [_node_member(node) for node in edits.nodes]),
        (("linux", "resources", "devices"), [_rule_member(node) for node in edits.allowed]),
    )
    added = [[list(path), items] for path, items in members if items]
    paths = [path for path, items in members if items] + ([("process", "env")] if edits.env else [])
    made = [step for path in paths for step in _make(document, path)]
    for path, items in members:
        _list_at(document, path).extend(items)
    lines = _set_variables(_list_at(document, ("process", "env")), edits.env)
    if added or lines:
        made += _make(document, ("annotations",), dict)
        record = {"added": added, "env": lines, "made": made}
        document["annotations"][ANNOTATION] = json.dumps(record, separators=(",", ":"))
    return _dumps(document, bundle.text)


def for_start(text: str, bundle: Bundle, process: Process) -> str:
    """*text*, the edited config.json of *bundle*, as that of a bundle elsewhere that runs *process*."""
    document = json.loads(text)
    document["process"]["args"] = list(process.args)
    if process.terminal is not None:
        document["process"]["terminal"] = process.terminal
    document["root"]["path"] = absolute(bundle, document["root"]["path"])
    for mount in document.get("mounts") or ():
        if _mount(_BundleObject(mount)).is_bind and mount.get("source"):
            mount["source"] = absolute(bundle, mount["source"])
    return _dumps(document, text)


def absolute(bundle: Bundle, path: str) -> str:
    """*path*, which may be below *bundle*, as an absolute one."""
    return path if path.startswith("/") else f"{bundle.directory.rstrip('/')}/{path}"


def _loads(data: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text, and its value. Errors: what a reader may take in two ways, and what no writer can say again."""
    parse_json(data, SIZE_LIMIT, _malformed)
    text = data.decode("utf-8")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise _malformed("half of a surrogate pair in a string", "") from error
    except ValueError as error:
        raise _malformed(str(error)[:200], "") from error
    return text, _BundleObject(value).value


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _malformed("it is there twice", f"key {twice[:100]}")
    return value


def _no_number(word: str) -> Any:
    raise _malformed(f"{word} is not a number of JSON", "")


def _dumps(document: Mapping[str, Any], like: str) -> str:
    """Return *document* with the indentation of the text *like*."""
    indent = _INDENT.match(like)
    end = like[len(like.rstrip()) :]
    separators = None if indent or like.find('": ') >= 0 else (",", ":")
    space = indent.group(1) if indent else None
    return json.dumps(document, ensure_ascii=False, indent=space, separators=separators) + end


def _mount(found: _BundleObject) -> BundleMount:
    source, kind = found.optional_text("source"), found.optional_text("type")
    return BundleMount(found.text("destination"), source or "", kind or "", found.strings("options", ()))


def _mount_member(mount: BundleMount) -> dict[str, Any]:
    return {
        "destination": mount.destination,
        "type": mount.type,
        "source": mount.source,
        "options": list(mount.options),
    }


def _node_member(node: DeviceNode) -> dict[str, Any]:
    where = {"path": node.target, "type": node.type, "major": node.major, "minor": node.minor}
    return {**where, "fileMode": node.mode, "uid": node.uid, "gid": node.gid}


def _rule_member(node: DeviceNode) -> dict[str, Any]:
    return {"allow": True, "type": node.type, "major": node.major, "minor": node.minor, "access": ACCESS}


def _make(document: dict[str, Any], path: Sequence[str], kind: type = list) -> list[list[Any]]:
    """Make the *kind* of value at *path*, and what leads to it, where *document* has none: the path of each that had
    to be made, and whether it was there as null.
    """
    made = []
    here: Any = document
    for depth, key in enumerate(path, 1):
        if here.get(key) is None:
            made.append([list(path[:depth]), key in here])
            here[key] = kind() if depth == len(path) else {}
        here = here[key]
    return made


def _list_at(document: dict[str, Any], path: Sequence[str]) -> list[Any]:
    """Return the list at *path*; an empty one if there is none."""
    here: Any = document
    for key in path:
        here = here.get(key) if here else None
    return here if isinstance(here, list) else []


def _set_variables(lines: list[Any], env: Sequence[tuple[str, Optional[str]]]) -> list[list[Any]]:
    """Change *lines* of `process.env`: of each change its place, the line before and the line after it."""
    done: list[list[Any]] = []
    for name, value in env:
        places = [place for place, line in enumerate(lines) if line.partition("=")[0] == name]
        if value is None:
            done += [[place, lines.pop(place), None] for place in reversed(places)]
        elif places:
            done.append([places[-1], lines[places[-1]], f"{name}={value}"])
            lines[places[-1]] = f"{name}={value}"
        else:
            done.append([len(lines), None, f"{name}={value}"])
            lines.append(f"{name}={value}")
    return done


def _take_back(document: dict[str, Any]) -> None:
    """Make *document* what it was before gpubind edited it. What somebody else changed since then stays changed."""
    place = f"key annotations.{ANNOTATION}"
    text = document["annotations"].pop(ANNOTATION)
    if not isinstance(text, str):
        raise _malformed("a string is wanted", place)
    try:
        record = json.loads(text)
        for path, items in record["added"]:
            there = _list_at(document, path)
            for item in reversed(items):
                _remove_last(there, item)
        for where, before, after in reversed(record["env"]):
            _restore(_list_at(document, ["process", "env"]), where, before, after)
        for path, was_null in reversed(record["made"]):
            _unmake(document, path, was_null)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _malformed("it is not what gpubind writes there", place) from error


def _remove_last(items: list[Any], item: Any) -> None:
    for place in range(len(items) - 1, -1, -1):
        if items[place] == item:
            del items[place]
            return


def _restore(lines: list[Any], where: int, before: Optional[str], after: Optional[str]) -> None:
    if not isinstance(before, (str, type(None))):
        raise TypeError(before)
    if after is None:
        lines.insert(where, before)
    elif after in lines:
        place = len(lines) - 1 - lines[::-1].index(after)
        lines[place : place + 1] = [] if before is None else [before]


def _unmake(document: dict[str, Any], path: Sequence[str], was_null: bool) -> None:
    """Take away what had to be made at *path*, if it is empty."""
    here: Any = document
    for key in path[:-1]:
        here = here.get(key) or {}
    if here.get(path[-1]) in ([], {}):
        if was_null:
            here[path[-1]] = None
        else:
            del here[path[-1]]


def _malformed(why: str, place: str) -> FormatError:
    return FormatError("bad-bundle", "malformed config.json of a bundle", place=place or "byte 0", why=why)


class _BundleObject(JsonObject):
    __slots__ = ()
    malformed = staticmethod(_malformed)
    prefix = "key "
    allows_nul = False
