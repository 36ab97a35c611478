"""The log of an OCI runtime: engines show its last error as the reason why a container does not start.

Sources: containerd `pkg/process/utils.go` (getLastRuntimeError reads the file of --log, which is JSON there); podman
`libpod/oci_conmon_common.go` (ociError); runc `main.go`; crun `src/libcrun/error.c` (the schemes of --log).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence

from gpubind.launch.oci.passing import read
from gpubind.machine import system

_SCHEMES = ("journald:", "syslog:")
"""Values of crun's --log that do not name a file."""


def log(line: Sequence[str], level: str, text: str) -> None:
    """Append *text* to the log file that *line*, the arguments of runc or crun, names, if any."""
    _, values = read(line)
    path = values.get("log", "").removeprefix("file:")
    if not path or path.startswith(_SCHEMES):
        return
    is_json = values.get("log-format") == "json"
    entry = json.dumps({"level": level, "msg": text}) if is_json else f"level={level} msg={json.dumps(text)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError), system.open_file(path, flags, 0o644) as file:  # standard error has the same text
        file.write(entry.encode("ascii", "replace") + b"\n")
