"""Open a host: this machine, a record in a file, or one of the bundled records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Optional, Union

from gpubind.errors import UsageError, in_file, suggest_known
from gpubind.host.base import TYPICAL_EXAMPLE, TYPICAL_PREFIXES, Host, ListFile
from gpubind.machine.answers import exists, inspection_error
from gpubind.machine.regular import read_regular
from gpubind.model.data import BUNDLED_HOSTS, read_data

FILE_LIMIT = 1 << 20

StrPath = Union[str, os.PathLike[str]]


def open_host(
    host: Optional[StrPath] = None,
    root: Optional[StrPath] = None,
    dev_root: Optional[StrPath] = None,
    *,
    environ: Optional[Mapping[str, str]] = None,
) -> Host:
    """Return the host *host*: a file, a bundled record or a typical host (`driver:535,gpu:a100x4`); None: this machine.

    *environ* is the environment of the plan's task; the default is this process's, or the recorded one.
    Errors: `UsageError`, `HostReadError`, `FormatError`, each naming the file.
    """
    if host is None:
        from gpubind.host.live import LiveHost

        driver_root = "/" if root is None else os.fspath(root)
        return LiveHost(driver_root, None if dev_root is None else os.fspath(dev_root), environ)
    if root is not None or dev_root is not None:
        message = "--root and --dev-root cannot be used with --host"
        raise UsageError("host-with-root", message, why="a record has the roots that it was made with")
    host = os.fspath(host)
    from gpubind.host.record import SIZE_LIMIT, parse_record
    from gpubind.host.recorded import RecordedHost

    if host.startswith(TYPICAL_PREFIXES) and not exists(host):
        from gpubind.host.typical import TypicalHost

        return TypicalHost(host, environ)
    if host in BUNDLED_HOSTS:
        return RecordedHost(parse_record(read_data(f"model/data/hosts/{host}.json")), host, environ)
    if not exists(host) and "/" not in host:
        why = "there is no such file, and no record of that name ships"
        hint = f"{suggest_known(BUNDLED_HOSTS, host)}; or describe one: {TYPICAL_EXAMPLE}"
        raise UsageError("unknown-host", f"unknown host `{host}`", why=why, hint=hint)
    with in_file(host):
        return RecordedHost(parse_record(read_file(host, SIZE_LIMIT)), os.path.basename(host), environ)


def host_name(host: str, hostname: Optional[str] = None) -> str:
    """Return the name of *host* for messages: its *hostname*, else that of its file, without `.json`."""
    return hostname or os.path.basename(host.rstrip("/")).rpartition(".json")[0] or host


def read_listfile(path: str) -> ListFile:
    """Return the list file of --list."""
    return ListFile(path, read_file(path, FILE_LIMIT), shipped=False)


def read_file(path: str, limit: int) -> bytes:
    """Return the bytes of a file that an option names. Errors: `HostReadError` (code `unreadable-file`)."""
    try:
        return read_regular(path, limit)
    except (OSError, ValueError) as error:
        raise inspection_error(path, error) from error
