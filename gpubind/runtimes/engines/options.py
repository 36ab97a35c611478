"""The options of `docker run` and `podman run`, and what a user's own words among them say.

Sources: `docker run --help` of 26.1.5 and `podman run --help` of 5.4.2, and what both said to options that those hide;
docker/cli `opts/file.go` (files of variables), `opts/mount.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join, normpath
from typing import Optional

from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, HostPath
from gpubind.runtimes.cmdline import values
from gpubind.runtimes.cmdline.values import parse_mount
from gpubind.runtimes.runtime import Start


def assigned(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that --env=*text* sets; to podman, `NAME*` means all of the caller's that begin so."""
    if "=" not in text and text.endswith("*"):
        return {key: value for key, value in environ.items() if key.startswith(text[:-1])}
    return values.assigned(text, environ)


def read_env_file(text: str, environ: Mapping[str, str]) -> dict[str, Optional[str]]:
    """Return the variables that the text of a file of --env-file sets: a line each, nothing is quoted."""
    env: dict[str, Optional[str]] = {}
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.rstrip("\r").lstrip()
        if line and not line.startswith("#"):
            env.update(assigned(line, environ))
    return env


def said(start: Start, name: str) -> Optional[str]:
    """Return the user's own value for variable *name* of the container: --env wins over --env-file."""
    return start.user.options.env.get(name, start.user.env_files.get(name))


def own_mounts(start: Start) -> tuple[UserBind, ...]:
    """Return everything that the user mounts; without a source for volumes and tmpfs, which have none on this host."""
    found: list[tuple[str, str]] = []
    for text in start.user.options.all("volume"):
        source, colon, rest = text.partition(":")
        is_path = bool(colon) and source.startswith(("/", "."))
        found.append((source if is_path else "", rest.partition(":")[0] if colon else source))
    for text in start.user.options.all("mount"):
        mount = parse_mount(text)
        found.append((mount["source"] if mount.get("type") == "bind" else "", mount["target"]))
    found += [("", text.partition(":")[0]) for text in start.user.options.all("tmpfs")]
    here = start.caller.working_directory or "/"
    return tuple(
        UserBind(HostPath(normpath(join(here, source)) if source else ""), ContainerPath(normpath(target)))
        for source, target in found
        if target.startswith("/")
    )
