"""Enroot's files: its settings, the variables of a container, and mounts in the format of fstab. Pure.

Source: Enroot 4.1.2, which was run: `enroot.in` (config::load, config::fini), `src/common.sh` (envsubst, envfmt),
`src/runtime.sh` (_do_environ, _do_mounts_init), `bin/enroot-mount.c` (mount_fstab, ismntopt), `bin/compat.h`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from posixpath import join, normpath
from typing import Optional

from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, HostPath

CONFIG = "/etc/enroot/enroot.conf"
_CONFIGS = (CONFIG, f"{CONFIG}.d/*.conf")
_SETTING = re.compile(r"ENROOT_[A-Z_]+|NVIDIA_.*")
_OFF = re.compile(r"no?|N[oO]?|[fF](alse)?|FALSE")
_SHELL = re.compile(r"\$(?:\{(\w+)\}|(\w+)|\((id -un?)\))")
_HOST_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII)
_QUOTED = re.compile(r"[\"'](.*)[\"']\s*")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|(\\))")
_ESCAPED = re.compile(r"[\s:\\]")
_OPTION = re.compile(
    r"(no)?(atime|auto|dev|diratime|exec|group|iversion|lazytime|mand|owner|relatime|strictatime|suid|users?)|nofail|"
    r"async|(dir)?sync|r?bind|defaults|loud|silent|remount|r[ow]|r?(private|shared|slave|unbindable)|"
    r"x-(create=(auto|dir|file)|detach|move)"
)
"""A field that Enroot takes for mount options if the field before it is missing."""


def patterns(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return patterns of the site's and the user's files, in the order in which Enroot reads them."""
    system = environ.get("ENROOT_SYSCONF_PATH") or "/etc/enroot"
    user_directory = environ.get("ENROOT_CONFIG_PATH") or f"{_xdg(environ, 'XDG_CONFIG_HOME', '.config')}/enroot"
    kinds = ("environ.d/*.env", "mounts.d/*.fstab")
    return (*_CONFIGS, *(f"{directory}/{kind}" for kind in kinds for directory in (system, user_directory)))


def setting(name: str, environ: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """Return the setting *name*: the caller's variable, or else that of the configuration in *texts*; empty if it is
    off.

    UID in *environ* is the caller's. A value that only a shell can evaluate is ignored.
    """
    value = environ.get(name) or _read_settings(environ, texts).get(name, "")
    return "" if name.startswith("ENROOT_") and _OFF.fullmatch(value) is not None else value


def data_path(environ: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """Return the directory of the containers."""
    path = setting("ENROOT_DATA_PATH", environ, texts)
    return path or f"{_xdg(environ, 'XDG_DATA_HOME', '.local/share')}/enroot"


def container_variables(
    environ: Mapping[str, str], texts: Mapping[str, str], images: str, users: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a container: of *images* (/etc/environment), of environ.d, and of *users* (--env).

    `${NAME}` in a file is the variable of the host's *environ*. A later value replaces an earlier one.
    """
    files = (images, *(text for path, text in texts.items() if path.endswith(".env")))
    lines = [_expand_host_variables(line, environ) for text in files for line in text.splitlines()]
    lines += [f"{name}={value}" for name, value in users.items()]
    variables: dict[str, str] = {}
    for line in lines:
        match = _ASSIGNMENT.fullmatch(line.lstrip())
        if match is not None and not match[1].startswith("ENROOT_"):
            variables[match[1]] = unquoted(match[2])
    return variables


def unquoted(value: str) -> str:
    """Return *value* without surrounding quotes, which Enroot removes."""
    match = _QUOTED.fullmatch(value)
    return match[1] if match is not None else value


def site_binds(environ: Mapping[str, str], texts: Mapping[str, str], images: str) -> Iterator[UserBind]:
    """Yield the binds of /etc/fstab in *images* and of mounts.d, in their order."""
    for text in (images, *(text for path, text in texts.items() if path.endswith(".fstab"))):
        for line in text.splitlines():
            if not line.lstrip().startswith("#"):
                yield from _bind(_expand_host_variables(line, environ).split(), "/")


def user_binds(values: Iterable[str], directory: str) -> Iterator[UserBind]:
    """Yield the binds of the *values* of --mount. Relative paths in them are relative to *directory*, the caller's."""
    for value in values:
        yield from _bind(value.replace(":", " ").split(), directory)


def mount_value(source: str, target: str, options: str) -> str:
    """Return the value of --mount for a bind of *source* at *target*: fstab's fields, with colons between them."""
    return f"{_escaped(source)}:{_escaped(target)}:none:{options}"


def _xdg(environ: Mapping[str, str], name: str, default: str) -> str:
    return environ.get(name) or f"{environ.get('HOME', '')}/{default}"


def _read_settings(environ: Mapping[str, str], texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the configuration in *texts*; the first of several values is used."""
    settings: dict[str, str] = {}
    for path, text in texts.items():
        if not any(fnmatchcase(path, pattern) for pattern in _CONFIGS):
            continue
        for line in text.splitlines():
            name, value = (*re.split(r"[ \t=]+", line.strip(" \t="), maxsplit=1), "")[:2]
            if _SETTING.fullmatch(name) and not settings.get(name):
                expanded = _expanded(value, lambda variable: environ.get(variable) or settings.get(variable, ""))
                settings.update({} if expanded is None else {name: expanded})
    return settings


def _expanded(value: str, variable: Callable[[str], str]) -> Optional[str]:
    """Return *value* as a shell's `echo` would print it; None if evaluating it needs more than variables and `id`."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1] or match[2] or {"id -u": "UID", "id -un": "USER"}[match[3]]
        return variable(name)

    text = _SHELL.sub(replaced, value.replace('"', "").replace("'", ""))
    return None if re.search(r"[$`]", text) else text.strip()


def _expand_host_variables(line: str, environ: Mapping[str, str]) -> str:
    return _HOST_VARIABLE.sub(lambda match: environ.get(match[1], ""), line)


def _bind(fields: list[str], directory: str) -> Iterator[UserBind]:
    """Yield the bind that the *fields* of one mount mean to Enroot; nothing for a mount of another file system."""
    source, target, kind, options = (*map(_unescaped, fields[:4]), "", "", "", "")[:4]
    if target and not kind and _is_option(target):
        target, kind, options = "", "none", target
    if kind and not options and _is_option(kind):
        target, kind, options = "" if target == "none" else target, "none", kind
    if not source or source == "tmpfs" or kind not in ("", "none"):
        return
    option_names = (options or "rbind").split(",")
    if {"bind", "rbind"}.intersection(option_names) and "remount" not in option_names:
        target_path = normpath(join("/", target or source))
        yield UserBind(HostPath(normpath(join(directory, source))), ContainerPath(target_path))


def _is_option(text: str) -> bool:
    return "," in text or _OPTION.fullmatch(text) is not None


def _escaped(path: str) -> str:
    return _ESCAPED.sub(lambda match: f"\\{ord(match[0]):03o}", path)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\\" if match[2] else chr(int(match[1], 8) & 0xFF), text)
