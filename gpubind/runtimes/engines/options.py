"""The user's own options for `docker run` and `podman run`: variables and mounts; and the plan's variables with them.

Neither program passes on the caller's environment, and --env replaces the image's value. If a value of the plan is to
be added to the image's, the sum is therefore made from the image's configuration.

Sources: `docker run --help` of 26.1.5 and `podman run --help` of 5.4.2, and the answers of both to hidden options;
docker/cli `opts/file.go` (files of variables), `opts/mount.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import join, normpath
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.formats.driver.gpu_names import CUDA_DEVICE_ORDER, NVIDIA_VISIBLE_DEVICES
from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, HostPath, Plan
from gpubind.runtimes.cmdline import values
from gpubind.runtimes.cmdline.values import parse_mount
from gpubind.runtimes.edits import is_utf8, unsupported_value
from gpubind.runtimes.environment import BaseEnvironment, compose, is_added_to, set_variables
from gpubind.runtimes.runtime import Start

_DISABLE_HOOK_VALUE = "void"
"""The value with which NVIDIA's runtime and its hook add nothing, even if they are the default."""


def parse_env_option(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that --env=*text* sets. For podman, `NAME*` means all of the caller's that begin so."""
    if "=" not in text and text.endswith("*"):
        return {key: value for key, value in environ.items() if key.startswith(text[:-1])}
    return values.parse_assignment(text, environ)


def read_env_file(text: str, environ: Mapping[str, str]) -> dict[str, Optional[str]]:
    """Return the variables that the text of a file for --env-file sets. It has one on each line, and no quoting."""
    env: dict[str, Optional[str]] = {}
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.rstrip("\r").lstrip()
        if line and not line.startswith("#"):
            env.update(parse_env_option(line, environ))
    return env


def user_value(start: Start, name: str) -> Optional[str]:
    """Return the user's own value for variable *name* of the container: --env takes precedence over --env-file."""
    return start.user.options.env.get(name, start.user.env_files.get(name))


def user_mounts(start: Start) -> tuple[UserBind, ...]:
    """Return the user's mounts. The source of a volume or a tmpfs is empty, because it is not on this host."""
    mounts: list[tuple[str, str]] = []
    for text in start.user.options.all("volume"):
        source, colon, remainder = text.partition(":")
        is_path = bool(colon) and source.startswith(("/", "."))
        mounts.append((source if is_path else "", remainder.partition(":")[0] if colon else source))
    for text in start.user.options.all("mount"):
        mount = parse_mount(text)
        mounts.append((mount["source"] if mount.get("type") == "bind" else "", mount["target"]))
    mounts += [("", text.partition(":")[0]) for text in start.user.options.all("tmpfs")]
    directory = start.caller.working_directory or "/"
    return tuple(
        UserBind(HostPath(normpath(join(directory, source)) if source else ""), ContainerPath(normpath(target)))
        for source, target in mounts
        if target.startswith("/")
    )


def environment(plan: Plan, start: Start) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the variables for the options, sorted by name, and the names of the image's variables that are to be
    removed.

    Errors: `RuntimeLimitError`: code `image-needed` if a value must be added to one that is unknown;
    `unsupported-value`.
    """
    operations = [
        operation for operation in plan.env if not start.user.has_unread_env_files or is_added_to(plan, operation.name)
    ]
    for name in (operation.name for operation in operations if is_added_to(plan, operation.name)):
        if plan.image is None or (user_value(start, name) is None and start.user.has_unread_env_files):
            why = "the image is not known" if plan.image is None else "a file of --env-file cannot be looked at"
            hint = "name the image: `--image podman:NAME`, `--image docker:NAME`" if plan.image is None else ""
            message = f"the value of {name} in the container is not known, and what an option says takes its place"
            raise RuntimeLimitError("image-needed", message, where=name, why=why, hint=hint)
    images = plan.image.env if plan.image is not None else {}
    users = dict(set_variables({**start.user.env_files, **start.user.options.env}))
    changed = compose(operations, BaseEnvironment(users, images=images))
    env = {NVIDIA_VISIBLE_DEVICES: _DISABLE_HOOK_VALUE, **dict(set_variables(changed))}
    if any(variable.rule == "handed-on" for variable in plan.env) and CUDA_DEVICE_ORDER in start.caller.environ:
        # The numbers are the caller's, so the container needs the caller's order.
        env.setdefault(CUDA_DEVICE_ORDER, start.caller.environ[CUDA_DEVICE_ORDER])
    option_values = {name: value for name, value in env.items() if name not in users or name in changed}
    for name, value in option_values.items():
        if not is_utf8(name + value) or "\0" in value:
            raise unsupported_value(name, "it is not UTF-8, and this program hands values on as JSON")
    unset = tuple(name for name, value in changed.items() if value is None and name in images)
    return tuple(sorted(option_values.items())), unset
