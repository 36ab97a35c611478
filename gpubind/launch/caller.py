"""Read the facts about the caller and this machine that determine the arguments of a runtime: `read_start_facts`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Optional

from gpubind.errors import UsageError
from gpubind.files import glob
from gpubind.host import Host
from gpubind.host.open import read_file
from gpubind.launch.execute import VersionProbe
from gpubind.machine import system
from gpubind.machine.answers import exists, facts, has_access, inspection_error, is_directory, missing_from, real_path
from gpubind.machine.regular import read_regular
from gpubind.machine.trust import acts_as_root
from gpubind.model import HostPath, Plan
from gpubind.runtimes.cmdline.reader import ParsedCommandLine
from gpubind.runtimes.runtime import CallerFacts, Runtime, RuntimeFacts, Start, UserOptions

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
TEXT_LIMIT = 1 << 20
"""The most bytes of an environment file, or of a runtime's configuration, that are read."""


def read_start_facts(
    runtime: Runtime,
    program: Optional[str],
    arguments: tuple[str, ...],
    environ: Mapping[str, str],
    host: Host,
    global_options: Mapping[str, str] = _NO_OPTIONS,
    *,
    allow_writable: bool = False,
    probe: Optional[VersionProbe] = None,
) -> Start:
    """Return a start by *runtime* on *host*, with the facts of this machine.

    *program* is the path of the runtime's program; None if it must not be run. *arguments* are the user's options for
    it, *global_options* those before its subcommand. *environ* is the caller's. *allow_writable*: as in `UserOptions`;
    *probe*: as in `StartTarget`. Errors: `UsageError` (code `incomplete-argument`), `HostReadError` (unreadable file).
    """
    tree, version, site = host.local, None, None
    is_live, is_here = tree is not None, tree is not None and program is not None
    if program is not None and program.startswith("/") and runtime.needs_version:
        runtime, version = runtime.identify((probe or VersionProbe()).version(program))
        site = _site(runtime)
    options = runtime.user_option_values(arguments, environ)
    _require_complete_options(runtime.parse_user_options(arguments))
    cwd = working_directory(environ)
    values, unread = _read_env_files(runtime, options.all("env-file"), environ)
    nodes = (tree.real(path) for pattern in runtime.extra_nodes for path in glob(tree, pattern)) if tree else ()
    caller = CallerFacts(
        environ=environ,
        home=_home(),
        working_directory=cwd,
        directories=frozenset(path for path in (environ.get("HOME"), cwd) if path and is_directory(path)),
        uid=system.effective_user() if is_here else None,
        is_root=host.identity.euid == 0 and (not is_live or acts_as_root()),
        has_terminal=is_here and all(map(system.is_terminal, (0, 1, 2))),
        on_host=is_live,
    )
    runtime_facts = RuntimeFacts(
        version=version,
        site_config=site or {},
        texts=texts_of(runtime, environ, host),
        architecture=host.uname.machine,
        nodes=tuple(nodes),
        files=tuple(HostPath(path) for path in runtime.extra_files if not is_live or exists(path)),
        inits=tuple(HostPath(path) for path in runtime.init_programs if has_access(path, os.X_OK)) if is_live else (),
        tools=tuple(map(HostPath, filter(exists, runtime.required_tools(environ)))) if is_here else None,
        remote=find_remote_daemon(runtime, environ, global_options) if is_live else None,
        has_selinux=is_here and _text_if_there("/sys/fs/selinux/enforce") == "1",
    )
    return Start(runtime, caller, runtime_facts, UserOptions(arguments, options, values, unread, allow_writable))


def _site(runtime: Runtime) -> Optional[Mapping[str, tuple[str, ...]]]:
    if runtime.site_config_path is None or not exists(runtime.site_config_path):
        return None
    return runtime.parse_site(_text(read_file(runtime.site_config_path, TEXT_LIMIT)))


def find_remote_daemon(
    runtime: Runtime, environ: Mapping[str, str], global_options: Mapping[str, str] = _NO_OPTIONS
) -> Optional[str]:
    """Return the setting that selects another machine's daemon for *runtime*, or None.

    *global_options*: as for `read_start_facts`.
    """
    return runtime.remote_daemon(environ, _text_if_there, global_options)


def texts_of(runtime: Runtime, environ: Mapping[str, str], host: Host) -> Mapping[str, str]:
    """Return the texts of the files on this machine that affect a start by *runtime*, by path, in the order read."""
    tree = host.local
    paths = () if tree is None else (path for pattern in runtime.texts(environ) for path in glob(tree, pattern))
    return {path: text for path in paths if (text := _text_if_there(path)) is not None}


def _text_if_there(path: str) -> Optional[str]:
    try:
        return _text(read_regular(path, TEXT_LIMIT))
    except (OSError, ValueError) as error:
        if missing_from(error) is None:
            raise inspection_error(path, error) from error
        return None


def writable_files(plan: Plan) -> frozenset[str]:
    """Return the sources of *plan* that this process may write. A socket is excluded: its users must write to it."""
    sources = (mount.source for mount in plan.mounts if mount.source is not None and mount.kind != "socket")
    return frozenset(source for source in sources if has_access(source, os.W_OK))


def _read_env_files(
    runtime: Runtime, paths: Iterable[str], environ: Mapping[str, str]
) -> tuple[dict[str, Optional[str]], bool]:
    """Return the variables that the files at *paths* set, and whether a file was left unread.

    A pipe such as `<(...)` is left unread, because only one process can read it: the runtime.
    """
    values: dict[str, Optional[str]] = {}
    unread = False
    for path in paths:
        file_facts = facts(path)
        if file_facts is not None and not (stat.S_ISREG(file_facts.st_mode) and file_facts.st_size <= TEXT_LIMIT):
            values, unread = {}, True
        else:
            values.update(runtime.read_env_file(_text(read_file(path, TEXT_LIMIT)), environ))
    return values, unread


def _require_complete_options(line: ParsedCommandLine) -> None:
    """Errors: `UsageError` if a --backend-arg lacks its value or is not an option: the program would misread what
    follows it.
    """
    if line.error is not None:
        problem = f"`{line.argv[line.error.position]}` of --backend-arg lacks its value"
        hint = "give the value in the same argument, --backend-arg=--bind=/a:/b, or in one more --backend-arg after it"
        raise UsageError("incomplete-argument", problem, hint=hint)
    operands = [line.argv[at] for at in line.operand_indexes] or line.argv[line.insert_index :]  # a lone `--`, too
    if operands and not line.skipped_errors:
        problem = f"`{operands[0]}` of --backend-arg is not an option: the program would take it for the image"
        raise UsageError("incomplete-argument", problem, hint="--backend-arg is for options; IMAGE and CMD follow them")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _home() -> Optional[str]:
    """Return the home directory in the user database, or None. Apptainer reads it there, not in HOME."""
    try:
        return system.user(system.real_user()).pw_dir
    except KeyError:
        return None


def working_directory(environ: Mapping[str, str]) -> Optional[str]:
    """Return the working directory, spelled as in PWD; None if it was removed.

    PWD may be stale: Slurm does not change it for a job that starts in another directory.
    """
    try:
        cwd = system.current_directory()
    except OSError as error:
        if missing_from(error) is None:
            raise inspection_error("the working directory", error) from error
        return None
    pwd = environ.get("PWD", "")
    return pwd if pwd.startswith("/") and real_path(pwd) == cwd else cwd
