"""Where the daemon of docker or podman is: on this machine, or on another one.

What the program's own options say, before its subcommand, counts before the environment; so does what they say of
where its files are. Source: docker/cli 26.1 `cli/command/cli.go` (resolveContextName),
`cli/context/store/metadatastore.go`; podman-remote(1) 5.4; both were run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Optional

from gpubind.runtimes.flags import parse_bool

HERE = "unix://"
"""How the address of a socket of this machine begins."""
NO_CONTEXT = ("", "default")
DOCKER_STORES = ("config", "context", "host")
PODMAN_STORES = (
    *("connection", "context", "host", "imagestore", "module", "remote", "root", "runroot", "storage-driver"),
    *("storage-opt", "url"),
)
"""Own options with which the program may have other images than without them."""


def remote_podman(
    environ: Mapping[str, str], read: Callable[[str], Optional[str]], own: Mapping[str, str]
) -> Optional[str]:
    """What sends podman to another machine's service: an option of *own*, or a variable; None if nothing does.

    A connection by name, also the default one of --remote, may lead anywhere.
    """
    address = own.get("url") or own.get("host")
    if address:
        return None if address.startswith(HERE) else f"--{'url' if own.get('url') else 'host'}={address}"
    for name in ("connection", "context"):
        if own.get(name):
            return f"--{name}={own[name]}"
    if parse_bool(own.get("remote", "")) and not environ.get("CONTAINER_HOST"):
        return "--remote"
    return remote_by_variable(environ, read)


def remote_by_variable(environ: Mapping[str, str], read: Callable[[str], Optional[str]]) -> Optional[str]:
    """The variable, with its value, that sends the program to another machine's daemon; None if none does."""
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        value = environ.get(name, "")
        if value and not value.startswith(HERE):
            return f"{name}={value}"
    connection = environ.get("CONTAINER_CONNECTION", "")
    if connection and not environ.get("CONTAINER_HOST"):
        return f"CONTAINER_CONNECTION={connection}"
    context = "" if environ.get("DOCKER_HOST") else environ.get("DOCKER_CONTEXT", "")
    is_here = context in NO_CONTEXT or (_address(context, environ, read) or "").startswith(HERE)
    return None if is_here else f"DOCKER_CONTEXT={context}"


def remote_docker(
    environ: Mapping[str, str], read: Callable[[str], Optional[str]], own: Mapping[str, str]
) -> Optional[str]:
    """What sends docker to another machine's daemon: an option of *own*, a variable, or the context that
    `docker context use` has chosen; None if nothing does.

    *read* gives the text of a file of this machine, or None.
    """
    address, context = own.get("host"), own.get("context")
    if address:
        return None if address.startswith(HERE) else f"--host={address}"
    if own.get("config"):
        environ = {**environ, "DOCKER_CONFIG": own["config"]}
    if context and context not in NO_CONTEXT:
        is_here = (_address(context, environ, read) or "").startswith(HERE)
        return None if is_here else f"--context={context}"
    if context:
        environ = {**environ, "DOCKER_CONTEXT": context}
    by_variable = remote_by_variable(environ, read)
    if by_variable is not None or environ.get("DOCKER_HOST") or environ.get("DOCKER_CONTEXT"):
        return by_variable
    path = f"{_directory(environ)}/config.json"
    context = _member(read(path), "currentContext")
    if not isinstance(context, str) or context in NO_CONTEXT:
        return None
    address = _address(context, environ, read)
    if address is not None and address.startswith(HERE):
        return None
    return f"currentContext of {path}: {context}" + (f", {address}" if address else "")


def _directory(environ: Mapping[str, str]) -> str:
    return environ.get("DOCKER_CONFIG") or f"{environ.get('HOME', '')}/.docker"


def _address(context: str, environ: Mapping[str, str], read: Callable[[str], Optional[str]]) -> Optional[str]:
    """Where the daemon of *context* is; None if its file does not tell."""
    from hashlib import sha256

    name = sha256(context.encode("utf-8", "surrogateescape")).hexdigest()
    text = read(f"{_directory(environ)}/contexts/meta/{name}/meta.json")
    address = _member(text, "Endpoints", "docker", "Host")
    return address if isinstance(address, str) else None


def _member(text: Optional[str], *names: str) -> Any:
    """What the JSON document *text* has by these names; None if it has nothing there, or is no JSON."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
