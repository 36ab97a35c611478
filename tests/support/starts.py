"""Starts by a runtime, with the facts that a test is about."""

from __future__ import annotations

from typing import Any, Optional

from gpubind.files import Tree
from gpubind.model import Plan
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.runtime import NO_STAGE, Stage, Start


def start_by(name: str, **facts: Any) -> Start:
    """Return a start by the runtime called *name*; *facts* are fields of its parts, or `tree` and `bundle`."""
    made = Start(RUNTIMES[name], tree=facts.pop("tree", None), bundle=facts.pop("bundle", None))
    return with_facts(made, **facts)


def with_facts(start: Start, **facts: Any) -> Start:
    """Return *start* with other *facts*, fields of its parts."""
    for part in ("caller", "facts", "user"):
        value = getattr(start, part)
        fields = {name: facts.pop(name) for name in value._fields if name in facts}
        start = start._replace(**{part: value._replace(**fields)})
    assert not facts, facts
    return start


def stage_of(facts: dict[str, Any]) -> Stage:
    """Return the stage of those of *facts* that are its fields, and take them out; `staged` are its files."""
    fields = {field: facts.pop(name) for name, field in _OF_STAGE.items() if name in facts}
    return Stage(**fields)


_OF_STAGE = {"staged": "files", "skeleton": "skeleton", "writable": "writable"}


def start(*arguments: str, program: str = "apptainer", **facts: Any) -> Start:
    """Return a start with the user's *arguments*, read as the runtime reads them."""
    begun = start_by(program, **{"version": (1, 4, 5), **facts, "arguments": arguments})
    return with_facts(begun, options=begun.runtime.user_option_values(arguments, begun.caller.environ))


def bringing(*binds: str, options: tuple[str, ...] = (), caller: Optional[dict[str, Any]] = None, **env: str) -> Start:
    """Return a start by Apptainer with the user's *binds*, *options* and variables *env*, and facts of the *caller*."""
    words = [word for bind in binds for word in ("--bind", bind)]
    words += [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    return start(*words, *options, **(caller or {}))


def words(plan: Plan, start: Start, tree: Optional[Tree] = None, stage: Stage = NO_STAGE) -> RuntimeArguments:
    """Return *plan* in the words of the runtime of *start* with *stage*, for an image with the files of *tree*."""
    made = start.runtime.arguments(plan, start._replace(tree=tree), stage)
    assert made is not None
    return made
