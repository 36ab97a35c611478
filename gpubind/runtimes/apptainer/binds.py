"""Binds of Apptainer and SingularityCE: the user's, the site's and the program's own, and the option values for a
plan's.

Sources: Apptainer 1.4.5 `internal/pkg/runtime/engine/apptainer/container_linux.go` and `internal/pkg/util/fs/mount/`
(the order of mounts, and what --contain leaves out), `pkg/runtime/engine/apptainer/config/bind.go`, `mount.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename, join, normpath
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.model import ContainerPath, EnvVar, HostPath, Plan
from gpubind.planner.placement import SINGULARITY_LAYOUT
from gpubind.runtimes.apptainer.options import is_contained, is_kept_out, user_value
from gpubind.runtimes.cmdline.values import parse_mount
from gpubind.runtimes.edits import Bind
from gpubind.runtimes.environment import PROGRAM_VARIABLES
from gpubind.runtimes.runtime import UNBOUND_WORKING_DIRECTORIES, Start

_UNREADABLE_OPTIONS = ("app", "data", "fusemount", "overlay", "workdir")
"""Options whose files cannot be read, or that change search paths in other ways."""
_SEARCH_PATHS = (
    ("LD_LIBRARY_PATH", "LD_LIBRARY_PATH", "set"),
    ("LD_PRELOAD", "LD_PRELOAD", "set"),
    ("PATH", "PATH", "set"),
    ("PREPEND_PATH", "PATH", "prepend"),
    ("APPEND_PATH", "PATH", "append"),
)
"""The user's variable, the variable of the container that it changes, and how it changes that."""
_NO_BIND_CHARS = re.compile(r"[,:^\\\"\s]")


def base_mounts(plan: Plan, start: Start) -> UserMounts:
    """Return the mounts and search paths of *start* in addition to *plan*, in the order of the program."""
    options = start.user.options
    unseen = [f"--{name} {value}" for name in _UNREADABLE_OPTIONS for value in options.all(name)]
    if start.facts.directive("mount hostfs") == "yes" and not is_contained(options):
        unseen.append("mount hostfs = yes")
    binds: list[UserBind] = []
    for spec in _binds(start):
        if spec.from_image or not spec.target.startswith("/"):
            unseen.append(f"--bind {spec.source}:{spec.target}")
        else:
            source = normpath(join(start.caller.working_directory or "/", spec.source))
            binds.append(UserBind(HostPath(source), ContainerPath(normpath(spec.target))))
    env: list[EnvVar] = []
    for name, changes, op in _SEARCH_PATHS:
        user_var = user_value(start, name)
        text = user_var.text if user_var is not None else None
        if user_var is None and name == "LD_PRELOAD" and not is_kept_out(options, name):
            text = start.caller.environ.get(name)  # the container gets the caller's variable
        elif user_var is not None and not user_var.is_literal:
            unseen.append(f"{name}={user_var.text}" if user_var.text is not None else f"--env-file ({name})")
            continue
        if text is not None:
            env.append(EnvVar(changes, op, text, ":", "user"))  # type: ignore[arg-type]  # of the table
    return UserMounts(tuple(binds), (*env, *_program_variables(start)), _working_directory(start), tuple(unseen))


def _program_variables(start: Start) -> Iterator[EnvVar]:
    """Yield HOME and `PROGRAM_VARIABLES`. The caller's value is a default where neither user nor image has one."""
    source, _, target = (start.user.options.last("home") or start.caller.home or "").partition(":")
    yield EnvVar("HOME", "set", target or source, None, "runtime")  # also where nothing is bound there
    for name in PROGRAM_VARIABLES:
        user_var = user_value(start, name)
        if user_var is not None and user_var.text is not None:
            yield EnvVar(name, "set", user_var.text, None, "user")
        elif user_var is None and name in start.caller.environ and not is_kept_out(start.user.options, name):
            yield EnvVar(name, "default", start.caller.environ[name], None, "caller")


def _binds(start: Start) -> Iterator[BindSpec]:
    """Yield the binds of the site, the program and the user, in the order in which they are mounted."""
    options, contain = start.user.options, is_contained(start.user.options)
    left_out = options.all("no-mount")
    yield from _site_binds(start)
    if start.facts.directive("mount home", "yes") == "yes":
        yield from _home_bind(start, left_out)
    if start.facts.directive("mount tmp", "yes") == "yes" and not contain and "tmp" not in left_out:
        yield BindSpec("/tmp", "/tmp")
        yield BindSpec("/var/tmp", "/var/tmp")
    directory = start.caller.working_directory
    if not contain and "cwd" not in left_out and directory and directory not in UNBOUND_WORKING_DIRECTORIES:
        yield BindSpec(directory, directory)
    for library in options.all("containlibs"):
        source, _, target = library.partition(":")
        yield BindSpec(source, f"{SINGULARITY_LAYOUT.libdir}/{basename(target or source)}")
    yield from _user_binds(start)


def named_binds(start: Start) -> tuple[BindSpec, ...]:
    """Return the binds of the site, then those of the user. Targets are normalized absolute paths."""
    specs = (*_site_binds(start), *_user_binds(start))
    return tuple(spec._replace(target=normpath(spec.target)) for spec in specs if spec.target.startswith("/"))


def _site_binds(start: Start) -> Iterator[BindSpec]:
    left_out = start.user.options.all("no-mount")
    if not is_contained(start.user.options) and "bind-paths" not in left_out:
        binds = _parse_binds(start.facts.site_config.get("bind path", ()))
        yield from (spec for spec in binds if spec.target not in left_out)


def _user_binds(start: Start) -> Iterator[BindSpec]:
    if start.facts.directive("user bind control", "yes") == "yes":
        yield from _parse_binds(start.user.options.all("bind"))
        yield from _parse_mounts(start.user.options.all("mount"))


def _home_bind(start: Start, left_out: tuple[str, ...]) -> Iterator[BindSpec]:
    """Yield the bind of the caller's home, or of the directory that --home names.

    With --contain, the home is an empty directory unless --home names one.
    """
    home = start.user.options.last("home")
    if start.user.options.has("no-home") or "home" in left_out or (is_contained(start.user.options) and not home):
        return
    source, _, target = (home or start.caller.home or "").partition(":")
    if source:
        yield BindSpec(source, target or source)


def _working_directory(start: Start) -> Optional[ContainerPath]:
    user_directory = start.user.options.last("cwd") or start.user.options.last("pwd")
    directory = user_directory or (None if is_contained(start.user.options) else start.caller.working_directory)
    return ContainerPath(directory) if directory and directory.startswith("/") else None


class BindSpec(NamedTuple):
    """A bind that the user or the site requests."""

    source: str
    target: str
    from_image: bool = False
    """Whether the source is a file inside another image (`image-src`, `id`)."""


def _parse_binds(texts: Iterable[str]) -> Iterator[BindSpec]:
    """Yield the binds of --bind values, `source[:target[:options]]`. Commas separate binds, and also the options of one
    bind.

    A backslash protects a comma or a colon of the source.
    """
    for text in texts:
        spec: Optional[BindSpec] = None
        for part in re.split(r"(?<!\\),", text):
            if spec is not None and re.fullmatch(r"ro|rw|(image-src|id)=.*", part):
                spec = spec._replace(from_image=spec.from_image or "=" in part)
                continue
            if spec is not None and spec.source:
                yield spec
            source, _, after = _unescaped(part)
            target, _, options = after.partition(":")
            spec = BindSpec(source, target or source, "=" in options)
        if spec is not None and spec.source:
            yield spec


def _unescaped(part: str) -> tuple[str, str, str]:
    """Return *part* up to the first colon that no backslash protects, then that colon, then the rest."""
    source, colon, after = re.sub(r"\\:", "\0", part).partition(":")
    return source.replace("\0", ":").replace("\\,", ","), colon, after.replace("\0", "\\:")


def _parse_mounts(texts: Iterable[str]) -> Iterator[BindSpec]:
    """Yield the binds of --mount values. One value may have several binds, each on a line."""
    for text in texts:
        for line in text.split("\n"):
            mount = parse_mount(line)
            if mount["source"] and mount["target"]:
                yield BindSpec(mount["source"], mount["target"], "image-src" in mount or "id" in mount)


def bind_value(bind: Bind) -> str:
    """Return the value of --bind for *bind*: `source:target:ro`; only the path if it is writable at the same path."""
    if bind.source == bind.target and not bind.read_only:
        return bind.source
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


def mount_value(bind: Bind) -> str:
    """Return the value of --mount for *bind*: comma-separated fields. Quotes protect everything in a path but CR LF."""
    fields = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *(["ro"] if bind.read_only else [])]
    return ",".join('"' + f.replace('"', '""') + '"' if re.search(r'[,"\n\r]', f) else f for f in fields)


def needs_mount(bind: Bind) -> bool:
    """Return whether at least one of the two programs cannot express the paths of *bind* with --bind."""
    return bool(_NO_BIND_CHARS.search(bind.source) or _NO_BIND_CHARS.search(bind.target))
