"""Rules about the runtime that will start the container: what it cannot do for this plan."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Decision, Finding, Plan
from gpubind.planner.sides import BY_DEFAULT
from gpubind.rules.looking import counted
from gpubind.rules.preflight import Preflight
from gpubind.runtimes.start import Words


def runtime_limit(preflight: Preflight) -> Iterator[Finding]:
    """The runtime cannot express the plan."""
    error = preflight.limit
    if error is not None:
        what = f"{preflight.backend} cannot start this: {error.what}"
        yield Finding("runtime-limit", "error", None, error.code, what, error.where, error.why, error.hint)


def no_mount_point(preflight: Preflight) -> Iterator[Finding]:
    """Optional files for which the container has no place."""
    if preflight.words is not None:
        yield from left_out(preflight.words, preflight.plan)


def left_out(words: Words, plan: Plan) -> Iterator[Finding]:
    """What *words* leave out of *plan* because the container has no place for it.

    A note if all of it is for capabilities that came by default: nobody asked for them by name.
    """
    left = {decision.target or decision.subject: decision for decision in words.decisions if _has_no_place(decision)}
    if not left:
        return
    mounts = [mount for mount in plan.mounts if mount.target in left]
    by_default = not plan.request.caps_explicit and all(mount.capability in BY_DEFAULT for mount in mounts)
    yield Finding(
        "no-mount-point",
        "note" if by_default else "warning",
        mounts[0].vendor if mounts else None,
        "mounts",
        f"{counted(len(left), 'file')} left out: the container has no place for what the plan brings",
        ", ".join(sorted(left)),
        next(iter(left.values())).detail,
        "make the mount points in the image, or use a runtime that can make them",
    )


def _has_no_place(decision: Decision) -> bool:
    return decision.rule == "no-mount-point"
