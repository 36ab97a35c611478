"""The GPU set-up of docker and podman: settings of dockerd and of NVIDIA's toolkit, and the releases' support of CDI.

Sources: dockerd(8), "daemon configuration file"; moby `daemon/config`, `daemon/devices_nvidia_linux.go` and
`cmd/dockerd/daemon.go`; nvidia-container-toolkit `internal/config`. Sources of the releases are in data/engines.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Optional, Union

from gpubind.errors import Format, FormatError
from gpubind.formats.text.json import parse_json
from gpubind.formats.text.toml import parse_toml
from gpubind.frozen import NamedTuple
from gpubind.model import Missing
from gpubind.model.data import read_data

DOCKER, PODMAN = "docker", "podman"
ENGINE_PROGRAMS = {DOCKER: "dockerd", PODMAN: "podman"}
"""For each engine, the program whose release determines what is supported. docker's client and daemon may differ."""
DAEMON_FILE = "/etc/docker/daemon.json"
TOOLKIT_FILE = "/etc/nvidia-container-runtime/config.toml"
SIZE_LIMIT = 1 << 20
BUILT_IN = ("", "runc", "io.containerd.runc.v2")
"""The runtimes that dockerd has without configuration."""

_KEPT = ("cdi-spec-dirs", "default-runtime", "features", "runtimes", "selinux-enabled")
_FORMAT = Format("bad-config", "malformed configuration of an engine")


class DaemonSettings(NamedTuple):
    """The settings of dockerd that its GPUs depend on."""

    runtimes: Mapping[str, str] = MappingProxyType({})
    """The program of each added runtime, as the configuration has it; empty if it is not a path."""
    default_runtime: str = ""
    features: Mapping[str, Any] = MappingProxyType({})
    cdi_directories: Optional[tuple[str, ...]] = None
    """None if unset."""
    has_selinux: bool = False
    line_numbers: Mapping[str, int] = MappingProxyType({})
    """The line of each setting that is present."""


class RequestPolicy(NamedTuple):
    """The requests of containers that NVIDIA's toolkit grants, by its configuration."""

    by_variable: bool = True
    """Whether an unprivileged container may request GPUs by a variable."""
    by_mounts: bool = False
    """Whether mounts of /dev/null below `REQUEST_MOUNTS` request GPUs."""
    variables: tuple[str, ...] = ()
    """Variables that take precedence over NVIDIA_VISIBLE_DEVICES, as those of Docker Swarm."""
    capabilities: Optional[tuple[str, ...]] = None
    """The driver capabilities that a container may have; None for all."""
    is_legacy: bool = False
    """Whether NVIDIA's hook sets up every container with a GPU, not only those that docker's own option requests."""
    compares_driver: bool = True
    """Whether the hook refuses a container whose NVIDIA_REQUIRE_* the driver does not satisfy."""


REQUEST_MOUNTS = "/var/run/nvidia-container-devices"


class Release(NamedTuple):
    """How an engine supports CDI, from one release on."""

    since: tuple[int, ...]
    reads: str
    """The newest version of CDI that it supports. It ignores specs of newer versions."""
    on: bool = True
    """Whether CDI is enabled by default."""
    cdi_directories: Optional[tuple[str, ...]] = None
    """Its default directories of specs; None: those of the CDI project."""
    gpus_by_cdi: bool = False
    """Whether --gpus uses nvidia-cdi-hook where NVIDIA's older hook is not installed."""


def version_command(engine: str) -> tuple[str, ...]:
    """Return the command that prints the release of *engine*."""
    return (ENGINE_PROGRAMS[engine], "--version")


def releases(engine: str) -> list[Release]:
    """Return the rows of *engine*, the oldest first."""
    rows = json.loads(read_data("model/data/engines.json"))[engine]["releases"]
    return [Release(tuple(map(int, row.pop("since").split("."))), **row) for row in rows]


def release_of(engine: str, version: Optional[tuple[int, ...]]) -> Optional[Release]:
    """Return the row for *version* of *engine*; None if it is unknown, or older than CDI."""
    known_releases = releases(engine) if version is not None else []
    return next((row for row in reversed(known_releases) if version is not None and row.since <= version), None)


def parse_daemon(data: bytes) -> DaemonSettings:
    """Return the settings in *data*, the bytes of daemon.json. A setting of the wrong type is treated as unset.

    Errors: `FormatError`.
    """
    document = parse_json(data, SIZE_LIMIT, _FORMAT)
    settings = document if isinstance(document, dict) else {}
    text = data.decode()
    runtimes, features, directories = (settings.get(name) for name in ("runtimes", "features", "cdi-spec-dirs"))
    added = {name: _runtime_path(runtime) for name, runtime in runtimes.items()} if isinstance(runtimes, dict) else {}
    return DaemonSettings(
        runtimes=added,
        default_runtime=str(settings.get("default-runtime") or ""),
        features=features if isinstance(features, dict) else {},
        cdi_directories=tuple(filter(_is_path, directories)) if isinstance(directories, list) else None,
        has_selinux=settings.get("selinux-enabled") is True,
        line_numbers={name: line_of(text, name) for name in _KEPT if name in settings},
    )


def _runtime_path(runtime: Any) -> str:
    path = runtime.get("path") if isinstance(runtime, dict) else None
    return path if isinstance(path, str) and "\0" not in path else ""


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value


def malformed_as_missing(error: FormatError) -> Missing:
    """Return a malformed file as unreadable, with the reason."""
    return Missing("unreadable", ": ".join(filter(None, (error.place, error.why))))


def redact_daemon_config(data: bytes) -> Union[bytes, Missing]:
    """Return *data* with only the settings of `DaemonSettings`, each on its original line; Missing if it is malformed.

    A daemon.json may also name registries and proxies, with passwords.
    """
    try:
        settings = parse_json(data, SIZE_LIMIT, _FORMAT)
        parsed = parse_daemon(data)
    except FormatError as error:
        return malformed_as_missing(error)
    text, line = "{", 1
    for name, at in sorted(parsed.line_numbers.items(), key=lambda item: item[1]):
        value = settings[name] if name != "runtimes" else {key: {"path": path} for key, path in parsed.runtimes.items()}
        text += "," if text.strip() != "{" else ""
        text += "\n" * (at - line) + f"{json.dumps(name)}: {json.dumps(value)}"
        line = at
    return (text + "}\n").encode()


def find_no_cgroups_line(data: bytes) -> Optional[int]:
    """Return the line of `no-cgroups = true` in *data*, the toolkit's config.toml; None without one.

    Errors: `FormatError`.
    """
    tables = parse_toml(data, _FORMAT.code, _FORMAT.what)
    cli_table = tables.get("nvidia-container-cli")
    is_set = isinstance(cli_table, dict) and cli_table.get("no-cgroups") is True
    return line_of(data.decode(), "no-cgroups") if is_set else None


def parse_request_policy(data: bytes) -> RequestPolicy:
    """Return the policy in *data*, the toolkit's config.toml. Errors: `FormatError`, also for a wrong type."""
    tables = parse_toml(data, _FORMAT.code, _FORMAT.what)
    default = RequestPolicy()
    by_variable = tables.get("accept-nvidia-visible-devices-envvar-when-unprivileged", default.by_variable)
    by_mounts = tables.get("accept-nvidia-visible-devices-as-volume-mounts", default.by_mounts)
    swarm, capabilities = (tables.get(key, "") for key in ("swarm-resource", "supported-driver-capabilities"))
    runtime, no_require = tables.get("nvidia-container-runtime", {}), tables.get("disable-require", False)
    is_text = isinstance(swarm, str) and isinstance(capabilities, str)
    flags = (by_variable, by_mounts, no_require)
    is_known = isinstance(runtime, dict) and all(isinstance(flag, bool) for flag in flags)
    if not (is_text and is_known):
        raise _FORMAT.damaged("a setting about requests has a wrong type")
    granted = _names(capabilities)
    allowed = None if not granted or "all" in granted else granted
    is_legacy = runtime.get("mode") == "legacy"
    return RequestPolicy(by_variable, by_mounts, _names(swarm), allowed, is_legacy, not no_require)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def parse_mount_spec_path(data: bytes) -> Optional[str]:
    """Return the directory of a Jetson's lists in *data*, the toolkit's config.toml. Errors: `FormatError`."""
    value: object = parse_toml(data, _FORMAT.code, _FORMAT.what)
    for key in ("nvidia-container-runtime", "modes", "csv", "mount-spec-path"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value.startswith("/") else None


def line_of(text: str, key: str) -> int:
    """Return the line of *text*, JSON, YAML or TOML, in which the value of *key* begins; 1 if it is not found."""
    match = re.search(rf"(?m)^(?:[^#\n]*[\s{{,\"'])?{re.escape(key)}[\"']?\s*[=:]", text)
    return text.count("\n", 0, match.end()) + 1 if match is not None else 1
