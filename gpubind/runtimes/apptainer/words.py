"""Apptainer and SingularityCE: their words are the same but for LD_LIBRARY_PATH and the names of variables.

Sources: Apptainer 1.4.5 `pkg/runtime/engine/apptainer/config/bind.go`, `mount.go`, `internal/pkg/runtime/launch/`;
SingularityCE 4.5 `pkg/util/bind/`; reference of `--env` in both user guides. 1.4.5 was run; Apptainer 1.5 and
SingularityCE follow from their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, Finding, HostPath, Missing, Mount, Plan
from gpubind.model.findings import finding
from gpubind.planner.placement import SINGULARITY, Layout
from gpubind.runtimes.apptainer.brought import named_binds
from gpubind.runtimes.apptainer.environment import BASE_SCRIPT, ENVIRONMENT_SCRIPT, env_word, environment
from gpubind.runtimes.apptainer.values import dev_of, is_fixed, said
from gpubind.runtimes.edits import (
    Bind,
    Obstacle,
    Words,
    edits_of,
    is_utf8,
    shared_dev,
    unsayable_path,
    vendor_of,
)
from gpubind.runtimes.runtime import Start

LAYOUT = SINGULARITY
LIBDIR = SINGULARITY.libdir

NO_GPU_FLAGS = ("--no-nv", "--nv=false", "--no-rocm", "--rocm=false")
"""Ours never meet the program's own binds: one of a pair cancels the variable, the other the site's directive."""

NO_PLACE = "the container has no such place, and with --writable, or without overlay and underlay, none can be made"
_NO_BIND_CHARS = re.compile(r"[,:^\\\"\s]")


def layout_of(start: Start) -> Layout:
    """Return where a plan for *start* lands, and whether the container's /dev will hold the planned nodes alone."""
    return LAYOUT._replace(isolated=dev_of(start) == "minimal")


def words(plan: Plan, start: Start) -> Words:
    """Return the options that bring *plan* into a container.

    Device binds only where /dev will be minimal: a node that is bound over the whole /dev cannot be opened (nodev).
    An optional file is left out if its place is not there and cannot be made, or lies in what the user or the site
    binds. Errors: `RuntimeLimitError` for a path or a value that no option can say.
    """
    own = _own_binds(start)
    edits = edits_of(plan, start.stage.files, lambda mount, source: _obstacle(mount, start), own)
    scripts = [script for script in (ENVIRONMENT_SCRIPT, BASE_SCRIPT) if script in start.stage.files]
    files = (*edits.binds, *(Bind(start.stage.files[script], script, True) for script in scripts))
    nodes = edits.nodes if dev_of(start) == "minimal" else ()
    devices = (Bind(node.source, node.target, False) for node in nodes)
    binds = tuple(_sayable(bind, start) for bind in (*files, *devices))
    env, env_findings = environment(plan, start)
    options = list(NO_GPU_FLAGS)
    plain = [bind_word(bind) for bind in binds if not needs_mount(bind)]
    if plain:
        options += ["--bind", ",".join(plain)]
    for bind in binds:
        if needs_mount(bind):
            options += ["--mount", mount_word(bind)]
    for name, value in env:
        options += ["--env", env_word(name, value)]
    return Words(
        options=tuple(options),
        binds=binds,
        env=env,
        decisions=edits.decisions,
        findings=(*_start_findings(plan, start), *env_findings, *edits.findings),
        unset=tuple(v.name for v in edits.env if v.op == "unset" and said(start, v.name) is None),
    )


def bind_word(bind: Bind) -> str:
    """`source:target:ro`, in --bind's syntax; a device node of one name is given once."""
    if bind.source == bind.target and not bind.read_only:
        return bind.source
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


def mount_word(bind: Bind) -> str:
    """One --mount value: a record of comma-separated fields, where quoting can say any path but one with CR LF."""
    fields = ["type=bind", f"source={bind.source}", f"destination={bind.target}", *(["ro"] if bind.read_only else [])]
    return ",".join('"' + f.replace('"', '""') + '"' if re.search(r'[,"\n\r]', f) else f for f in fields)


def needs_mount(bind: Bind) -> bool:
    """Return whether --bind cannot say this path in either program."""
    return bool(_NO_BIND_CHARS.search(bind.source) or _NO_BIND_CHARS.search(bind.target))


def _sayable(bind: Bind, start: Start) -> Bind:
    """*bind*, unless no word of the program's can say it. Errors: `RuntimeLimitError` (code `unsayable-path`)."""
    why = None
    if not is_utf8(bind.source + bind.target):
        why = "it is not UTF-8, and this program hands paths on as JSON"
    elif "\r\n" in bind.source or "\r\n" in bind.target:
        why = "it has a carriage return before a newline, which --mount changes"  # Go's encoding/csv
    elif start.runtime.name == "apptainer" and ":" in bind.source and bind.target.startswith(f"{LIBDIR}/"):
        why = "Apptainer splits the source of a library at a colon, even one that --mount protects"
    if why is not None:
        raise unsayable_path(bind.source, why)
    return bind


def _own_binds(start: Start) -> Iterator[UserBind]:
    """Yield the binds of the user and the site, also where they are once the image's links are followed.

    None covers the libraries: they have a directory of the program's own.
    """
    specs = named_binds(start)
    real = () if start.tree is None else ((spec, start.tree.resolve(spec.target)) for spec in specs)
    found = (*specs, *(spec._replace(target=path) for spec, path in real if not isinstance(path, Missing)))
    for spec in found:
        if not f"{LIBDIR}/".startswith(f"{spec.target.rstrip('/')}/"):
            yield UserBind(HostPath(spec.source), ContainerPath(spec.target))


def _obstacle(mount: Mount, start: Start) -> Optional[Obstacle]:
    """Return the obstacle of an optional bind that would be fatal: its place does not exist and cannot be made."""
    return Obstacle(NO_PLACE) if _impossible(mount, start) else None


def _impossible(mount: Mount, start: Start) -> bool:
    """Return whether an optional bind would be fatal: its place is not there and cannot be made."""
    if not is_fixed(start):
        return False
    if mount.target.startswith(f"{LIBDIR}/"):
        # The program brings a directory of its own, and wants a place for that.
        return start.tree is not None and not start.tree.has(LIBDIR)
    return not mount.required and (start.tree is None or not start.tree.has(mount.target))


def _start_findings(plan: Plan, start: Start) -> Iterator[Finding]:
    """Yield what the site or the user's options mean for the plan's nodes and binds."""
    dev = dev_of(start)
    if dev == "whole":
        yield from shared_dev(plan)
    if plan.devices and dev == "none":
        yield finding("no-dev", subject="/dev", vendor=vendor_of(plan))
    if plan.mounts and plan.image is None:
        yield finding("image-unknown", subject="image")
    if plan.mounts and start.facts.directive("user bind control", "yes") == "no":
        yield finding("binds-forbidden", subject="user bind control", vendor=vendor_of(plan))
