"""The daemon of docker or podman: on this machine, or on another one.

The program's own options before its subcommand take precedence over the environment; they also say where its files are.
Source: docker/cli 26.1 `cli/command/cli.go` (resolveContextName), `cli/context/store/metadatastore.go`;
podman-remote(1) 5.4; both were run, and neither reads the other's variables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Optional

from gpubind.runtimes.cmdline.values import parse_bool

_LOCAL_SOCKET = "unix://"
"""The prefix of addresses of sockets on this machine."""
_VM_SOCKET_DIRECTORIES = ("/.docker/desktop/", "/.rd/", "/.colima/", "/.lima/")
"""Directories below a home with the sockets of daemons in virtual machines: Docker Desktop, Rancher Desktop, Colima,
Lima. Source: docker's manual, "Install Docker Desktop on Linux"; the manuals of the others.
"""
_DEFAULT_CONTEXTS = ("", "default")
DOCKER_STORE_OPTIONS = ("config", "context", "host")
PODMAN_STORE_OPTIONS = (
    *("connection", "context", "host", "imagestore", "module", "remote", "root", "runroot", "storage-driver"),
    *("storage-opt", "url"),
)
"""Options before the subcommand that may select another store of images."""


def remote_podman(
    environ: Mapping[str, str], read: Callable[[str], Optional[str]], global_options: Mapping[str, str]
) -> Optional[str]:
    """Return the option in *global_options*, or the variable, that selects a service on another machine; None if none
    does.

    A named connection may be to any machine, and so may the default one that --remote uses.
    """
    address = global_options.get("url") or global_options.get("host")
    if address:
        return _remote_setting("--url" if global_options.get("url") else "--host", address, address)
    for name in ("connection", "context"):
        if global_options.get(name):
            return f"--{name}={global_options[name]}"
    address, connection = environ.get("CONTAINER_HOST"), environ.get("CONTAINER_CONNECTION")
    if address:
        return _remote_setting("CONTAINER_HOST", address, address)
    if parse_bool(global_options.get("remote", "")):
        return "--remote"
    return f"CONTAINER_CONNECTION={connection}" if connection else None


def remote_docker(
    environ: Mapping[str, str], read: Callable[[str], Optional[str]], global_options: Mapping[str, str]
) -> Optional[str]:
    """Return what selects a daemon on another machine: one of *global_options*, a variable, or the current context,
    which `docker context use` sets. None if nothing does.

    *read* returns the text of a file on this machine, or None.
    """
    if global_options.get("config"):
        environ = {**environ, "DOCKER_CONFIG": global_options["config"]}
    address, context = global_options.get("host"), global_options.get("context")
    if address:
        return _remote_setting("--host", address, address)
    if context and context not in _DEFAULT_CONTEXTS:
        return _remote_setting("--context", context, _context_address(context, environ, read))
    address = environ.get("DOCKER_HOST")
    if address:
        return _remote_setting("DOCKER_HOST", address, address)
    context = context or environ.get("DOCKER_CONTEXT")
    if context:
        address = _LOCAL_SOCKET if context in _DEFAULT_CONTEXTS else _context_address(context, environ, read)
        return _remote_setting("DOCKER_CONTEXT", context, address)
    path = f"{_config_directory(environ)}/config.json"
    context = _member(read(path), "currentContext")
    if not isinstance(context, str) or context in _DEFAULT_CONTEXTS:
        return None
    address = _context_address(context, environ, read)
    if _is_local(address):
        return None
    return f"currentContext of {path}: {context}" + (f", {address}" if address else "")


def _remote_setting(name: str, value: str, address: Optional[str]) -> Optional[str]:
    """Return the setting `NAME=VALUE` that selects a daemon at *address*; None if that is a socket of this machine."""
    if _is_local(address):
        return None
    leads = f", {address}" if _is_in_vm(address) and address != value else ""
    return f"{name}={value}{leads}"


def _is_local(address: Optional[str]) -> bool:
    """Return whether *address* is a socket of this machine, and not that of a virtual machine on it."""
    return address is not None and address.startswith(_LOCAL_SOCKET) and not _is_in_vm(address)


def _is_in_vm(address: Optional[str]) -> bool:
    return any(directory in (address or "") for directory in _VM_SOCKET_DIRECTORIES)


def _config_directory(environ: Mapping[str, str]) -> str:
    return environ.get("DOCKER_CONFIG") or f"{environ.get('HOME', '')}/.docker"


def _context_address(context: str, environ: Mapping[str, str], read: Callable[[str], Optional[str]]) -> Optional[str]:
    from gpubind.model.digest import sha256_hex

    text = read(f"{_config_directory(environ)}/contexts/meta/{sha256_hex(context)}/meta.json")
    address = _member(text, "Endpoints", "docker", "Host")
    return address if isinstance(address, str) else None


def _member(text: Optional[str], *names: str) -> Any:
    """Return the value at the path *names* in the JSON document *text*; None if missing, or if *text* is not JSON."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
