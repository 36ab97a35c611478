"""How docker and podman are told a plan's variables.

Neither hands on the caller's environment, and what --env sets takes the place of the image's: so a value that adds to
the image's is made here, from the image's configuration.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.formats.driver.gpu_variables import CUDA_DEVICE_ORDER, NVIDIA_VISIBLE_DEVICES
from gpubind.image.environment import DEFAULT_PATH
from gpubind.model import Plan
from gpubind.runtimes.edits import is_utf8, unsayable_value
from gpubind.runtimes.engines.options import said
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
    """Return what the options have to say of variables. Errors: `RuntimeLimitError`, as `_added`."""
    env = {NVIDIA_VISIBLE_DEVICES: NO_HOOK}
    unset: list[str] = []
    own = plan.image.env if plan.image is not None else {}
    for name in dict.fromkeys(variable.name for variable in plan.env):
        operations = [variable for variable in plan.env if variable.name == name]
        last = operations[-1]
        if any(variable.op in ("prepend", "append") for variable in operations):
            env[name] = _added(name, plan, start)
        elif said(start, name) is not None or start.has_unread_env_files:
            continue
        elif last.op == "unset":
            unset += [name] if name in own else []
        elif last.value is not None and not (last.op == "default" and own.get(name)):
            env[name] = last.value
    if any(variable.rule == "handed-on" for variable in plan.env) and CUDA_DEVICE_ORDER in start.environ:
        # The numbers are the caller's, and so is the order that they count in.
        env.setdefault(CUDA_DEVICE_ORDER, start.environ[CUDA_DEVICE_ORDER])
    kept = {name: value for name, value in env.items() if said(start, name) is None or name in _lists(plan)}
    for name, value in kept.items():
        if not is_utf8(name + value) or "\0" in value:
            why = "it is not UTF-8, and this program hands values on as JSON"
            raise unsayable_value(name, why)
    return Environment(tuple(sorted(kept.items())), tuple(unset))


def _lists(plan: Plan) -> frozenset[str]:
    """Return the variables to which the plan adds."""
    return frozenset(variable.name for variable in plan.env if variable.op in ("prepend", "append"))


def _added(name: str, plan: Plan, start: Start) -> str:
    """Return the whole value of variable *name*.

    Errors: `RuntimeLimitError` (`image-needed`) where the image's own value is not known.
    """
    users = said(start, name)
    if plan.image is None or (users is None and start.has_unread_env_files):
        why = "the image is not known" if plan.image is None else "a file of --env-file cannot be looked at"
        hint = "name the image: `--image podman:NAME`, `--image docker:NAME`" if plan.image is None else ""
        what = f"the value of {name} in the container is not known, and what an option says takes its place"
        raise RuntimeLimitError("image-needed", what, where=name, why=why, hint=hint)
    return joined(name, plan, users, plan.image.env.get(name))


def joined(name: str, plan: Plan, users: Optional[str], own: Optional[str]) -> str:
    """The user's value of variable *name*, then what *plan* has in front, then the image's *own* value, then the rest.

    PATH is the user's or else the image's, as without gpubind: nobody wants both. No element is empty, for that would
    mean the current directory.
    """
    front = [v.value for v in plan.env if v.name == name and v.op == "prepend"]
    behind = [v.value for v in plan.env if v.name == name and v.op == "append"]
    if name == "PATH":
        parts = [*front, users or own or DEFAULT_PATH, *behind]
    else:
        parts = [users, *front, own, *behind]
    elements = (element for part in parts for element in (part or "").split(":"))
    return ":".join(element for element in elements if element)
