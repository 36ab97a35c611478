"""The options of `docker run` and `podman run`, and what a user's own words among them say.

Sources: `docker run --help` of 26.1.5 and `podman run --help` of 5.4.2, and what both said to options that those hide;
docker/cli `opts/file.go` (files of variables), `opts/mount.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from posixpath import join, normpath
from typing import Optional

from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, HostPath
from gpubind.runtimes.cmdline import values
from gpubind.runtimes.cmdline.values import parse_list
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


def users_binds(start: Start) -> Iterator[UserBind]:
    """Yield what the user binds by --volume and --mount; volumes of the program's own have no path on this host."""
    for text in start.user.options.all("volume"):
        source, colon, behind = text.partition(":")
        target = behind.partition(":")[0]
        if colon and target.startswith("/") and source.startswith(("/", ".")):
            yield _bind(start, source, target)
    for text in start.user.options.all("mount"):
        fields = {key.lower(): value for key, _, value in (field.partition("=") for field in parse_list(text))}
        source = fields.get("source") or fields.get("src") or ""
        target = fields.get("destination") or fields.get("dst") or fields.get("target") or ""
        if fields.get("type") == "bind" and source and target.startswith("/"):
            yield _bind(start, source, target)


def _bind(start: Start, source: str, target: str) -> UserBind:
    return UserBind(
        HostPath(normpath(join(start.caller.working_directory or "/", source))), ContainerPath(normpath(target))
    )


def users_places(start: Start) -> tuple[str, ...]:
    """Return the places in the container that the user mounts something on, whatever that is."""
    places: list[str] = []
    for text in start.user.options.all("volume"):
        first, colon, behind = text.partition(":")
        places.append(behind.partition(":")[0] if colon else first)
    for text in start.user.options.all("mount"):
        fields = {key.lower(): value for key, _, value in (field.partition("=") for field in parse_list(text))}
        places.append(fields.get("destination") or fields.get("dst") or fields.get("target") or "")
    places += [text.partition(":")[0] for text in start.user.options.all("tmpfs")]
    return tuple(dict.fromkeys(normpath(place) for place in places if place.startswith("/")))


def own_mounts(start: Start) -> tuple[UserBind, ...]:
    """Return everything that the user mounts; volumes and tmpfs have no source on this host."""
    places = (UserBind(HostPath(""), ContainerPath(place)) for place in users_places(start))
    return (*places, *users_binds(start))
