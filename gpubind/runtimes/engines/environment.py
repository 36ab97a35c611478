"""The variables of a plan as docker and podman get them.

Neither hands on the caller's environment, and what --env sets takes the place of the image's: so a value that adds to
the image's is composed from the image's configuration.
"""

from __future__ import annotations

from typing import NamedTuple

from gpubind.errors import RuntimeLimitError
from gpubind.formats.driver.gpu_names import CUDA_DEVICE_ORDER, NVIDIA_VISIBLE_DEVICES
from gpubind.model import Plan
from gpubind.runtimes.edits import is_utf8, unsayable_value
from gpubind.runtimes.engines.options import said
from gpubind.runtimes.environment import Values, compose, is_added_to, known
from gpubind.runtimes.runtime import Start

NO_HOOK = "void"
"""With this value NVIDIA's own runtime and its hook bring nothing, where they are the default."""


class Environment(NamedTuple):
    """The variables of a container, as options say them."""

    env: tuple[tuple[str, str], ...]
    """By name."""
    unset: tuple[str, ...]
    """Those that the image sets and the container must not have."""


def environment(plan: Plan, start: Start) -> Environment:
    """Return the variables for the options.

    Errors: `RuntimeLimitError`: code `image-needed` where a value adds to one that is not known, `unsayable-value`.
    """
    operations = [one for one in plan.env if not start.user.has_unread_env_files or is_added_to(plan, one.name)]
    for one in operations:
        if is_added_to(plan, one.name):
            _need_value(one.name, plan, start)
    images = plan.image.env if plan.image is not None else {}
    users = {
        name: value for name, value in {**start.user.env_files, **start.user.options.env}.items() if value is not None
    }
    changed = compose(operations, Values(users, images=images))
    env = {NVIDIA_VISIBLE_DEVICES: NO_HOOK, **dict(known(changed))}
    if any(variable.rule == "handed-on" for variable in plan.env) and CUDA_DEVICE_ORDER in start.caller.environ:
        # The numbers are the caller's, and so is the order that they count in.
        env.setdefault(CUDA_DEVICE_ORDER, start.caller.environ[CUDA_DEVICE_ORDER])
    kept = {name: value for name, value in env.items() if name not in users or name in changed}
    for name, value in kept.items():
        if not is_utf8(name + value) or "\0" in value:
            raise unsayable_value(name, "it is not UTF-8, and this program hands values on as JSON")
    unset = tuple(name for name, value in changed.items() if value is None and name in images)
    return Environment(tuple(sorted(kept.items())), unset)


def _need_value(name: str, plan: Plan, start: Start) -> None:
    """Errors: `RuntimeLimitError` (code `image-needed`) where the own value of variable *name* is not known."""
    if plan.image is None or (said(start, name) is None and start.user.has_unread_env_files):
        why = "the image is not known" if plan.image is None else "a file of --env-file cannot be looked at"
        hint = "name the image: `--image podman:NAME`, `--image docker:NAME`" if plan.image is None else ""
        what = f"the value of {name} in the container is not known, and what an option says takes its place"
        raise RuntimeLimitError("image-needed", what, where=name, why=why, hint=hint)
