"""`gpubind oci-runtime` for a container that requests no GPU: this process becomes runc or crun, with almost no
imports.

An engine calls its runtime several times for every container, so this must be fast. Each request for GPUs contains one
of the names in `MARKS`. A config.json in which a textual search finds none of them is not changed.
"""

from __future__ import annotations

from gpubind.machine.mounts import read_unrecorded
from gpubind.memo.answer import callers_environ, replace_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Optional

CONFIG = "config.json"
RUNTIMES = ("runc", "crun")
"""The programs that start the container, in the order of the search."""
VALUED = frozenset(
    (
        *("b", "bundle", "cgroup-manager", "config", "console-socket", "criu", "f", "log", "log-format", "log-level"),
        *("pid-file", "preserve-fds", "root", "rootless"),
    )
)
"""Options of runc and crun with a value, before `create` and `run` and after it."""
SWITCHES = frozenset(("?", "debug", "help", "h", "systemd-cgroup", "usage", "version", "v", "V"))
"""Their options without a value, before the subcommand."""
STARTS = ("create", "run")
READ_LIMIT = 64 << 20
"""The most bytes of a config.json that are searched."""
MARKS = (
    *(b"NVIDIA_VISIBLE_DEVICES", b"AMD_VISIBLE_DEVICES", b"DOCKER_RESOURCE_"),
    *(b"CUDA_VERSION", b"cdi.k8s.io/", b"/nvidia-container-devices"),
)
"""Each request for GPUs contains at least one of these names."""
_PLAIN_ESCAPES = (b"\\u003c", b"\\u003e", b"\\u0026", b"\\u2028", b"\\u2029")
"""The escapes that Go writes. They hide no name of `MARKS`: none contains these characters."""
_LOG_SCHEMES = ("journald:", "syslog:")
"""Values of crun's --log that do not name a file."""


def hand_over(args: Sequence[str]) -> None:
    """Become the runtime for *args*, the arguments of `gpubind oci-runtime`.

    Return if GPUs may be requested, or if an error must be reported.
    """
    options, line = split(args)
    if (options and (len(options) != 2 or options[0] != "--runtime")) or not line:
        return
    subcommand, values = read(line)
    if subcommand in STARTS and may_request(config_of(values)):
        return
    program = options[1] if options else ""
    path = program if program.startswith("/") else find_runtime(program)
    if path:
        try:
            replace_process(path, (path, *line), callers_environ())
        except OSError:  # the kernel refuses
            return


def with_dashes(args: Sequence[str]) -> list[str]:
    """Return *args*, the arguments of `gpubind oci-runtime`, with `--` before those of the runtime."""
    options, line = split(args)
    return [*options, *(("--", *line) if line else ())]


def split(args: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return gpubind's options in *args*, and the arguments of the runtime, which may follow a `--`."""
    if "--" in args:
        at = list(args).index("--")
        return args[:at], args[at + 1 :]
    if args[:1] == ["--runtime"]:
        return args[:2], args[2:]
    return (args, ()) if list(args) in (["--help"], ["-h"]) else ((), args)


def read(line: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Parse *line*, the arguments of runc or crun. Return its subcommand, and its options that have a value."""
    values: dict[str, str] = {}
    subcommand, is_sure, at = "", True, 0
    while at < len(line):
        arg = line[at]
        at += 1
        if not arg.startswith("-"):
            subcommand = subcommand or arg
            continue
        name, equals, value = arg.lstrip("-").partition("=")
        if arg[:2] == "-b" and name not in VALUED:
            name, equals, value = "b", "=", arg[2:]  # as crun reads it
        if name in VALUED:
            if not equals and at < len(line):
                value = line[at]
                at += 1
            values[name] = value
        elif not subcommand and not equals and name not in SWITCHES:
            is_sure = False  # the next argument may be its value
    if not is_sure and subcommand not in STARTS:
        subcommand = next((arg for arg in line if arg in STARTS), subcommand)
    return subcommand, values


def bundle_of(values: dict[str, str]) -> str:
    """Return the directory of the bundle in *values*, options of runc or crun."""
    return values.get("bundle", values.get("b")) or "."


def config_of(values: dict[str, str]) -> str:
    """Return the path of the configuration by *values*, options of runc or crun."""
    name = values.get("config", values.get("f")) or CONFIG
    return name if name.startswith("/") else f"{bundle_of(values).rstrip('/')}/{name}"


def may_request(path: str) -> bool:
    """Return whether the configuration *path* may request GPUs. One that cannot be read may.

    A missing file requests nothing: the runtime reports that it is missing.
    """
    try:
        data = read_unrecorded(path, READ_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    if len(data) >= READ_LIMIT:
        return True
    plain = data.replace(b"\\/", b"/")
    if any(mark in plain for mark in MARKS):
        return True
    for escape in _PLAIN_ESCAPES:
        plain = plain.replace(escape, b"")
    return b"\\u00" in plain


def find_runtime(name: str) -> Optional[str]:
    """Return the path of the runtime *name*, or of the first of `RUNTIMES`; None if there is none."""
    from gpubind.launch.execute import find_program
    from gpubind.machine import system

    paths = (find_program(each, system.environ()) for each in ((name,) if name else RUNTIMES))
    return next((path for path in paths if path is not None), None)


def log(line: Sequence[str], level: str, text: str) -> None:
    """Append *text* to the log file that is named in *line*, the arguments of runc or crun. Without one, do nothing.

    If a container does not start, engines show the last error in this file as the reason. Sources: containerd
    `pkg/process/utils.go` (getLastRuntimeError reads the file of --log, which is JSON there); podman
    `libpod/oci_conmon_common.go` (ociError); runc `main.go`; crun `src/libcrun/error.c` (the schemes of --log).
    """
    import json
    import os
    from contextlib import suppress

    from gpubind.machine import system

    _, values = read(line)
    path = values.get("log", "").removeprefix("file:")
    if not path or path.startswith(_LOG_SCHEMES):
        return
    is_json = values.get("log-format") == "json"
    entry = json.dumps({"level": level, "msg": text}) if is_json else f"level={level} msg={json.dumps(text)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), system.open_file(path, flags, 0o644) as file:  # standard error has the same text
        file.write(entry.encode("ascii", "replace") + b"\n")
