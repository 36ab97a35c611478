"""How LD_LIBRARY_PATH, PATH and all other variables of a container get their values.

A plan has operations on variables (`planner/plan.py`, `_environment`). For runtimes whose options set values, `compose`
computes values from them. Apptainer and bubblewrap leave that to a shell in the container, which first reads the
image's own scripts. The order of precedence is the same: see `apptainer/environment.py` and
`bubblewrap/environment.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.host.base import HSA_VARIABLES, LOADER_VARIABLES
from gpubind.image.environment import DEFAULT_PATH
from gpubind.loader.namespace import PYTHON_VARIABLES
from gpubind.model import EnvVar, Plan

LIBRARY_PATH = "LD_LIBRARY_PATH"
_NONE: Mapping[str, str] = MappingProxyType({})

PROGRAM_VARIABLES = (*PYTHON_VARIABLES, *HSA_VARIABLES, *LOADER_VARIABLES)
"""Variables that decide where Python looks for packages, which code ROCm takes, and which driver a loader opens."""


class BaseEnvironment(NamedTuple):
    """The variables that a container would have without a plan."""

    users: Mapping[str, Optional[str]] = _NONE
    """Variables that the user sets for the container; None for one that the user removes."""
    callers: Mapping[str, str] = _NONE
    """Variables of the caller's environment that are passed on."""
    images: Mapping[str, str] = _NONE
    """Variables that the image sets, and those that the runtime sets if nothing else does."""


def compose(operations: Iterable[EnvVar], values: BaseEnvironment) -> dict[str, Optional[str]]:
    """Return the value of each variable that *operations* change, in their order; None for one that is to be removed.

    Where an operation sets a value, the user's own value takes precedence. A search path consists of the user's or else
    the caller's directories, then those that the plan prepends, then the image's, then those that the plan appends. In
    PATH, the user's or else the image's directories are between the plan's. No element is empty, because that would
    mean the current directory. A directory that the plan adds is removed from the image's.
    """
    by_name: dict[str, list[EnvVar]] = {}
    for operation in operations:
        by_name.setdefault(operation.name, []).append(operation)
    changed: dict[str, Optional[str]] = {}
    for name, var_operations in by_name.items():
        if name in values.users and (values.users[name] is None or not _is_list(var_operations)):
            continue
        if _is_list(var_operations):
            changed[name] = search_path(name, var_operations, values)
        else:
            for operation in var_operations:
                has_value = changed.get(name) or values.callers.get(name) or values.images.get(name)
                if operation.op != "default" or not has_value:
                    changed[name] = operation.value
    return changed


def is_added_to(plan: Plan, name: str) -> bool:
    """Return whether *plan* adds to the value of *name*, rather than replaces it."""
    return _is_list([variable for variable in plan.env if variable.name == name])


def set_variables(env: Mapping[str, Optional[str]]) -> tuple[tuple[str, str], ...]:
    """Return the variables of *env*, except those that are to be removed."""
    return tuple((name, value) for name, value in env.items() if value is not None)


def library_path(plan: Plan) -> dict[str, str]:
    """Return the image's LD_LIBRARY_PATH, for a runtime that sets no other variable of the image."""
    return {LIBRARY_PATH: plan.image.env.get(LIBRARY_PATH, "")} if plan.image is not None else {}


def _is_list(operations: Iterable[EnvVar]) -> bool:
    return any(each.op in ("prepend", "append") or (each.name, each.op) == (LIBRARY_PATH, "set") for each in operations)


def search_path(name: str, operations: Iterable[EnvVar], values: BaseEnvironment) -> str:
    """Return the value of the search path *name*, as `compose` does."""
    user_path, images = values.users.get(name) or values.callers.get(name), values.images.get(name)
    front: list[str] = []
    after: list[str] = []
    for operation in (operation for operation in operations if operation.name == name):
        if operation.op == "prepend" or (operation.op == "set" and name == LIBRARY_PATH):
            front += _elements(operation.value)
        elif operation.op == "append":
            after += _elements(operation.value)
        elif operation.op != "default" or not (user_path or images):
            user_path, images = values.users.get(name), operation.value
    image_directories = [part for part in _elements(images) if part not in (*front, *after)]
    if name == "PATH":
        return ":".join((*front, *(_elements(user_path) or image_directories or _elements(DEFAULT_PATH)), *after))
    return ":".join((*_elements(user_path), *front, *image_directories, *after))


def base_variables(
    operations: Sequence[EnvVar], users: Mapping[str, Optional[str]], passed: Mapping[str, str] = _NONE
) -> tuple[EnvVar, ...]:
    """Return the search paths, HOME and `PROGRAM_VARIABLES` that a container has apart from the plan.

    *users* is as in `BaseEnvironment`, and *passed* has the caller's variables. *operations* are those of the plan,
    which are needed to compute the search paths.
    """
    env: list[EnvVar] = []
    if passed.get("LD_PRELOAD") and "LD_PRELOAD" not in users:
        env.append(EnvVar("LD_PRELOAD", "set", passed["LD_PRELOAD"], None, "caller"))
    for name in (LIBRARY_PATH, "LD_PRELOAD", "PATH"):
        value = users.get(name)
        if value is not None and name == LIBRARY_PATH:
            env.append(EnvVar(name, "prepend", value, ":", "user"))
        elif value is not None:
            env.append(EnvVar(name, "set", search_path(name, operations, BaseEnvironment(users)), None, "user"))
        elif name in users:
            env.append(EnvVar(name, "unset", None, None, "user"))
    for name in ("HOME", *PROGRAM_VARIABLES):
        if name in users:
            env.append(EnvVar(name, "set", users[name] or "", None, "user"))
        elif name in passed:
            env.append(EnvVar(name, "default", passed[name], None, "caller"))
    return tuple(env)


def _elements(value: Optional[str]) -> list[str]:
    return [part for part in (value or "").split(":") if part]
