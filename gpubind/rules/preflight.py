"""What a rule may look at, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.host import Host
from gpubind.image import Image
from gpubind.image.facts import DEFAULT_PATH
from gpubind.ldso.container import Container
from gpubind.model import Brought, Finding, Plan, Severity
from gpubind.rules.execve import Caller, Chain, follow
from gpubind.rules.looking import processor
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.edits import NO_MOUNT_POINT, Words
from gpubind.runtimes.record import Limits
from gpubind.runtimes.start import Start

Needs = Literal["host", "image", "runtime", "program"]


class Preflight(NamedTuple):
    """A job that is about to start, as far as files tell."""

    host: Host
    plan: Plan
    """What its container would get; nothing where the host has nothing to bind."""
    image: Optional[Image] = None
    backend: Optional[str] = None
    """The runtime that will start it, by name."""
    program: Optional[str] = None
    """What will run in it: a path, or a name that is looked for in the image's PATH."""
    container: Optional[Container] = None
    """The image with the plan in place; with an image only."""
    chain: Optional[Chain] = None
    """What starting *program* comes to; with both only."""
    brought: Optional[Brought] = None
    """What comes into the container beside the plan; None if nothing is known of that."""
    words: Optional[Words] = None
    """The plan in the runtime's words; with what is known of the runtime only."""
    limit: Optional[RuntimeLimitError] = None
    """Why there are none."""

    @property
    def limits(self) -> Limits:
        """The limits of the runtime that will start it; none if that is not known."""
        return Limits() if self.backend is None else RUNTIMES[self.backend].limits


def preflight(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    *,
    backend: Optional[str] = None,
    start: Optional[Start] = None,
    program: Optional[str] = None,
    brought: Optional[Brought] = None,
    words: Optional[Words] = None,
) -> Preflight:
    """The start of *program* in *image* with *plan* by *backend*, with what is *brought* beside it; what is None is not
    known. *words* are made of *start*, unless they are there already.
    """
    limit = None
    if start is not None and words is None:
        try:
            words = RUNTIMES[start.program].words(plan, start, None if image is None else image.tree)
        except RuntimeLimitError as error:
            limit = error
    container = None
    if image is not None:
        own = image.facts.env.get("LD_LIBRARY_PATH", "")
        beside, cpu = brought or Brought(), lambda: processor(host)
        left_out = {d.target for d in words.decisions if d.rule == NO_MOUNT_POINT} if words is not None else ()
        mounts = [mount for mount in plan.mounts if mount.target not in left_out]
        container = Container(image.loader, host.driver, mounts, plan.env, own, beside, host.local, cpu)
    chain = None
    if container is not None and program is not None and image is not None:
        caller = Caller(host.uname.machine, host.identity, image.facts.kind == "directory")
        chain = follow(container, program, search_path(image, plan, brought), caller)
    return Preflight(host, plan, image, backend, program, container, chain, brought, words, limit)


def search_path(image: Optional[Image], plan: Plan, brought: Optional[Brought] = None) -> str:
    """PATH in the container of *plan*: what the user sets, else the image's own; then what others put around it."""
    own = image.facts.env.get("PATH") if image is not None else None
    path = own or DEFAULT_PATH
    for variable in (*(brought.env if brought else ()), *plan.env):
        if variable.name == "PATH" and variable.value:
            parts = {"set": (variable.value,), "prepend": (variable.value, path)}
            path = ":".join(parts.get(variable.op, (path, variable.value)))
    return path


class Rule(NamedTuple):
    """One thing that can be wrong. docs/findings.md has a section for each code."""

    code: str
    severities: tuple[Severity, ...]
    """What its findings may be, worst first."""
    needs: Needs
    """`host`: the host and the plan; `image`: also an open image; `runtime`, `program`: also the name of one."""
    find: Optional[Callable[[Preflight], Iterable[Finding]]] = None
    """None: planning itself comes across it, and it is in the plan's findings already."""
