"""Entries for an OCI runtime in the configuration of an engine: bytes in, bytes out.

Other entries stay unchanged. In daemon.json, all members keep their order. podman gets a separate file. The TOML of
containerd gets a block of text at its end, and its other tables are compared before and after.

Sources: dockerd(8); containers.conf(5), `engine.runtimes`; containerd 1.7 and 2.1 `docs/cri/config.md`. A file of
containerd's `imports` would replace the whole table of its plugin (tried with 1.7.24).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Optional

from gpubind.errors import Format, UsageError
from gpubind.formats.text.json import parse_exact_json, written_like
from gpubind.formats.text.toml import parse_toml
from gpubind.frozen import NamedTuple

SIZE_LIMIT = 1 << 20
HEADER = "# Written by `gpubind setup {engine}`; `gpubind setup {engine} --undo` removes it."
_BEGIN, _END = "# gpubind setup: begin", "# gpubind setup: end"
_FORMAT = Format("bad-config", "malformed configuration of an engine", "correct it first; nothing was changed")
_TOML = (_FORMAT.code, _FORMAT.what)
_BLOCK = re.compile(
    rf"(?:(?<=\n)\r?\n)?^{re.escape(_BEGIN)}\s*?\n.*?^{re.escape(_END)}[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)
"""gpubind's block, with the empty line before it. It also matches if an editor has changed the line ends."""
_PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
"""The plugin that has the runtimes, by the version of containerd's configuration."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Registration(NamedTuple):
    """A runtime of an engine."""

    name: str
    program: str
    """The path of its program."""
    is_default: bool = False
    """Whether the engine uses it for containers that name no runtime."""


def register_in_docker(data: Optional[bytes], entry: Registration) -> bytes:
    """Return *data*, daemon.json or None, with *entry*. Errors: `FormatError`, `UsageError` (`setup-conflict`)."""
    document = _daemon(data)
    runtimes = document.setdefault("runtimes", {})
    registered = runtimes.get(entry.name)
    if registered is not None and _path(registered) != entry.program:
        raise _conflict("docker", entry, _path(registered))
    earlier = [name for name, runtime in runtimes.items() if _path(runtime) == entry.program]
    for name in earlier:
        del runtimes[name]
    runtimes[entry.name] = {"path": entry.program}
    if entry.is_default or document.get("default-runtime") in earlier:
        document["default-runtime"] = entry.name
    return written_like(document, '{\n    "' if data is None else data.decode()).rstrip().encode() + b"\n"


def out_of_docker(data: bytes, before: Optional[bytes], program: str) -> Optional[bytes]:
    """Return *data*, daemon.json, without the runtimes whose program is *program*; None if it then has no members.

    *before* is the earlier file, whose default runtime is restored. Errors: `FormatError`; `UsageError`
    (`setup-conflict`) if another entry names *program*.
    """
    document = _daemon(data)
    runtimes = document.get("runtimes", {})
    names = [name for name, runtime in runtimes.items() if _path(runtime) == program]
    for name in names:
        del runtimes[name]
    _need_unnamed(runtimes, program)
    if not names:
        return data
    if not runtimes:
        document.pop("runtimes")
    if document.get("default-runtime") in names:
        copy = _daemon(before)
        earlier = copy.get("default-runtime")
        if isinstance(earlier, str) and (earlier in runtimes or earlier not in copy.get("runtimes", {})):
            document["default-runtime"] = earlier
        else:
            del document["default-runtime"]  # dockerd does not start if its default runtime is unknown
    if not document and before is None:
        return None
    return written_like(document, data.decode()).encode()


def members(data: bytes) -> dict[str, Any]:
    """Return the members of daemon.json, without an empty `runtimes`. Errors: `FormatError`."""
    document = _daemon(data)
    return {key: value for key, value in document.items() if (key, value) != ("runtimes", {})}


def _daemon(data: Optional[bytes]) -> dict[str, Any]:
    if data is None or not data.strip():
        return {}
    document = parse_exact_json(data, SIZE_LIMIT, _FORMAT)
    if not isinstance(document, dict) or not isinstance(document.get("runtimes", {}), dict):
        raise _FORMAT.damaged("an object is wanted", "key runtimes" if isinstance(document, dict) else "")
    return document


def _path(runtime: Any) -> str:
    path = runtime.get("path") if isinstance(runtime, dict) else None
    return path if isinstance(path, str) else ""


def register_in_containerd(data: Optional[bytes], entry: Registration) -> bytes:
    """Return *data*, config.toml or None, with *entry*. Errors: `FormatError`, `UsageError` (`setup-conflict`)."""
    text = "version = 2\n" if data is None or not data.strip() else data.decode("utf-8", "surrogateescape")
    parse_toml(text.encode("utf-8", "surrogateescape"), *_TOML)
    text = _BLOCK.sub("", text)
    tables = parse_toml(text.encode("utf-8", "surrogateescape"), *_TOML)
    version = tables.get("version", 1)
    plugin = _PLUGINS.get(version) if type(version) is int else None
    if plugin is None:
        why = f"its version is {version!r:.40}, and gpubind writes versions 2 and 3"
        raise _FORMAT.damaged(why, "key version", hint="`containerd config migrate` prints it in a newer version")
    _need_unnamed(tables, entry.program)
    if entry.name in _runtimes(tables, plugin):
        raise _conflict("containerd", entry, "")
    place = f'plugins."{plugin}".containerd.runtimes.{entry.name}'
    block = [f"[{place}]", 'runtime_type = "io.containerd.runc.v2"', f"[{place}.options]"]
    lines = [_BEGIN, *block, f"BinaryName = {json.dumps(entry.program)}", _END]
    new_text = (text if text.endswith("\n") else f"{text}\n") + "\n" + "\n".join(lines) + "\n"
    written = new_text.encode("utf-8", "surrogateescape")
    after = parse_toml(written, *_TOML)
    _runtimes(after, plugin).pop(entry.name, None)
    if _pruned(after) != _pruned(tables):  # the block may create empty tables above its own
        raise _FORMAT.damaged("the entry would change other tables", f"key plugins.{plugin}")
    return written


def out_of_containerd(data: bytes, before: Optional[bytes], program: str) -> Optional[bytes]:
    """Return *data*, config.toml, without gpubind's block; return *before*, the earlier file, if only the version
    remains.

    Errors: `FormatError`; `UsageError` (`setup-conflict`) if another entry names *program*, without which containers of
    that entry would not start.
    """
    text = data.decode("utf-8", "surrogateescape")
    remaining = _BLOCK.sub("", text)
    tables = parse_toml(remaining.encode("utf-8", "surrogateescape"), *_TOML)
    _need_unnamed(tables, program)
    if remaining != text and remaining.strip() == "version = 2" and not (before or b"").strip():
        return before
    return remaining.encode("utf-8", "surrogateescape")


def _need_unnamed(tables: Any, program: str) -> None:
    if isinstance(tables, dict):
        for value in tables.values():
            _need_unnamed(value, program)
    if tables == program:
        hint = f"remove the entry with {program}, then run this again"
        raise UsageError("setup-conflict", "an entry that `gpubind setup` does not recognize names gpubind", hint=hint)


def _runtimes(tables: dict[str, Any], plugin: str) -> dict[str, Any]:
    table: Any = tables
    for key in ("plugins", plugin, "containerd", "runtimes"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise _FORMAT.damaged("a table is wanted", f"key {key}")
    runtimes: dict[str, Any] = table
    return runtimes


def _pruned(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    members = {key: _pruned(member) for key, member in value.items()}
    return {key: member for key, member in members.items() if member != {}}


def is_ours(data: bytes, engine: str) -> bool:
    """Return whether `gpubind setup` wrote the file *data* for *engine*."""
    return HEADER.format(engine=engine).encode() in data.split(b"\n")[:2]


_PODMAN = re.compile(
    re.escape(HEADER.format(engine="podman"))
    + rf'\n\[engine\]\n(?:runtime = "{NAME.pattern}"\n)?\n\[engine\.runtimes\]\n{NAME.pattern} = \["[^"\n]*"\]\n'
)
"""The text that `_register_in_podman` writes."""


def _register_in_podman(data: Optional[bytes], entry: Registration) -> bytes:
    if data is not None:
        _need_unchanged(data)
    lines = [HEADER.format(engine="podman"), "[engine]", *([f'runtime = "{entry.name}"'] if entry.is_default else [])]
    lines += ["", "[engine.runtimes]", f"{entry.name} = [{json.dumps(entry.program)}]"]
    return ("\n".join(lines) + "\n").encode()


def _out_of_podman(data: bytes, before: Optional[bytes], program: str) -> Optional[bytes]:
    _need_unchanged(data)
    return None


def _need_unchanged(data: bytes) -> None:
    if not is_ours(data, "podman"):
        raise not_ours()
    if not _PODMAN.fullmatch(data.decode("utf-8", "surrogateescape")):
        hint = "move your settings to another file of that directory, and remove this file"
        raise UsageError("setup-conflict", "others have changed a file of gpubind's", hint=hint)


def not_ours() -> UsageError:
    """Return the error about a foreign file at the path of one of gpubind's."""
    hint = "move it away, if nothing needs it"
    return UsageError("setup-conflict", "there is a file that gpubind did not write", hint=hint)


class Engine(NamedTuple):
    """The configuration of an engine's runtimes."""

    runtimes: tuple[str, ...]
    """The runtimes that gpubind calls, in the order in which the engine prefers them."""
    configuration: str
    """The path of its configuration."""
    register: Callable[[Optional[bytes], Registration], bytes]
    """Returns the configuration with a runtime added."""
    remove: Callable[[bytes, Optional[bytes], str], Optional[bytes]]
    """Returns the configuration without the runtimes of a program; None if nothing is left. The second argument is
    an earlier copy of it.
    """
    after: str
    """How to make the engine read the configuration."""
    meaning: Callable[[bytes], Any] = bytes.strip
    """Returns a value that is equal for equivalent configurations."""
    has_users: bool = True
    """Whether an ordinary user may have a configuration."""
    has_default: bool = True
    """Whether `setup` can make a runtime the default."""
    hook: str = ""
    """The name of the program that the engine needs for its own GPU option."""


ENGINES: Mapping[str, Engine] = {
    "docker": Engine(
        ("runc", "crun"),
        "/etc/docker/daemon.json",
        register_in_docker,
        out_of_docker,
        "`systemctl reload docker` makes dockerd read it; for `--gpus`, `systemctl restart docker`",
        members,
        hook="nvidia-container-runtime-hook",
    ),
    "podman": Engine(
        ("crun", "runc"),
        "/etc/containers/containers.conf.d/50-gpubind.conf",
        _register_in_podman,
        _out_of_podman,
        "podman reads it at its next start",
    ),
    "containerd": Engine(
        ("runc", "crun"),
        "/etc/containerd/config.toml",
        register_in_containerd,
        out_of_containerd,
        "`systemctl restart containerd` makes containerd read it",
        has_users=False,
        has_default=False,
    ),
}


def _conflict(engine: str, entry: Registration, path: str) -> UsageError:
    message = f"{engine} has a runtime `{entry.name}` that is not gpubind's"
    hint = "register gpubind with another --name, or remove that runtime first"
    return UsageError("setup-conflict", message, where=path, hint=hint)
