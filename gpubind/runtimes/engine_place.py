"""Where the daemon of docker or podman is: on this machine, or on another one.

Source: docker/cli 26.1 `cli/command/cli.go` (resolveContextName), `cli/context/store/metadatastore.go`;
podman-remote(1) 5.4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Optional

HERE = "unix://"
"""How the address of a socket of this machine begins."""
NO_CONTEXT = ("", "default")


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


def remote_of(environ: Mapping[str, str], read: Callable[[str], Optional[str]]) -> Optional[str]:
    """As `remote_by_variable`, or the context that `docker context use` has chosen.

    *read* gives the text of a file of this machine, or None.
    """
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
