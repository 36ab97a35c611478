"""Apptainer and SingularityCE: their words differ only in LD_LIBRARY_PATH and the names of variables.

A program called singularity may be Apptainer: its own answer to `--version` takes precedence.

Sources: Apptainer 1.4.5 `pkg/runtime/engine/apptainer/config/bind.go`, `mount.go`, `internal/pkg/runtime/launch/`;
SingularityCE 4.5 `pkg/util/bind/`; reference of `--env` in both user guides. Apptainer 1.4.5, 1.5.3 and 1.6 were run;
SingularityCE follows from its sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Optional

from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, Finding, HostPath, Missing, Mount, Plan, finding
from gpubind.model.layouts import STARTER_PREFIXES
from gpubind.planner import placement
from gpubind.planner.placement import Layout
from gpubind.runtimes.apptainer import binds, environment, options
from gpubind.runtimes.apptainer.binds import bind_word, mount_word, named_binds, needs_mount
from gpubind.runtimes.apptainer.environment import BASE_SCRIPT, ENVIRONMENT_SCRIPT, env_word
from gpubind.runtimes.apptainer.exports import changes_for, lines_of, without_gpu_switches, without_variables
from gpubind.runtimes.apptainer.options import dev_of, is_fixed, is_since, specified, stays_outside
from gpubind.runtimes.cmdline.programs import PROGRAMS
from gpubind.runtimes.cmdline.reader import Line, Options
from gpubind.runtimes.edits import (
    Bind,
    RuntimeArguments,
    edits_of,
    is_utf8,
    shared_dev,
    unsayable_path,
    vendor_of,
)
from gpubind.runtimes.lost_choice import choice_of_others, choice_outside
from gpubind.runtimes.runtime import (
    NO_STAGE,
    Call,
    Command,
    Limits,
    Prepared,
    Runtime,
    Stage,
    Start,
    one_line,
    version_in,
)

LAYOUT = placement.SINGULARITY
LIBDIR = LAYOUT.libdir

NO_GPU_FLAGS = ("--no-nv", "--nv=false", "--no-rocm", "--rocm=false")
"""Ours never meet the program's own binds: one of a pair cancels the variable, the other the site's directive."""

NO_PLACE = "the container has no such place, and with --writable, or without overlay and underlay, none can be made"


class Apptainer(Runtime):
    name = "apptainer"
    title = "Apptainer"
    images = ("directory", "sif", "squashfs", "file", "layout", "archive", "registry", "source")
    fetches = True
    asks_version = True
    gpu_flags = MappingProxyType({"nvidia": "--nv", "amd": "--rocm"})
    parse_site = staticmethod(options.parse_site)
    read_env_file = staticmethod(options.read_env_file)
    overrides = staticmethod(options.overrides)
    library_path = staticmethod(options.library_path)
    wants_compat32 = staticmethod(options.wants_compat32)
    generated = staticmethod(environment.generated)
    own_mounts = staticmethod(binds.own_mounts)

    def __init__(self) -> None:
        helpers = tuple(f"{prefix}/{self.name}/bin/starter-suid" for prefix in STARTER_PREFIXES)
        message = "it will say `Failed to create user namespace`"
        self.limits = Limits(message, helpers, moves=True)
        self.site = f"/etc/{self.name}/{self.name}.conf"

    def identify(self, text: str) -> tuple[Runtime, Optional[tuple[int, ...]]]:
        """`apptainer version 1.4.5` -> `APPTAINER`, (1, 4, 5); `singularity-ce version 4.1.0` -> `SINGULARITY`."""
        return APPTAINER if "apptainer" in text else SINGULARITY, version_in(text)

    def options_of(self, arguments: Sequence[str], environ: Mapping[str, str]) -> Options:
        return options.options_of(self.name, self.line_of(arguments), environ)

    def line_of(self, arguments: Sequence[str]) -> Line:
        return PROGRAMS[self.name].read(arguments, "apptainer instance")

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        return LAYOUT._replace(isolated=dev_of(start) == "minimal")

    def words(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        """Return the options that bring *plan* into a container.

        Device binds only where /dev will be minimal: a node that is bound over the whole /dev cannot be opened (nodev).
        An optional file is left out if its place is not there and cannot be made, or lies in what the user or the site
        binds. Errors: `RuntimeLimitError` for a path or a value that no option can say.
        """
        edits = edits_of(plan, stage.files, _own_binds(start), lambda mount, source: _obstacle(mount, start))
        scripts = [script for script in (ENVIRONMENT_SCRIPT, BASE_SCRIPT) if script in stage.files]
        files = (*edits.binds, *(Bind(stage.files[script], script, True) for script in scripts))
        nodes = edits.nodes if dev_of(start) == "minimal" else ()
        devices = (Bind(node.source, node.target, False) for node in nodes)
        planned = tuple(_sayable(bind, start) for bind in (*files, *devices))
        env, env_findings = environment.environment(plan, start, stage)
        line = list(NO_GPU_FLAGS)
        if start.user.options.has("compat32") and is_since(start, (1, 6)):
            line.append("--compat32=false")  # it is served here, and without --nv the program warns of it
        plain = [bind_word(bind) for bind in planned if not needs_mount(bind)]
        if plain:
            line += ["--bind", ",".join(plain)]
        for bind in planned:
            if needs_mount(bind):
                line += ["--mount", mount_word(bind)]
        for name, value in env:
            line += ["--env", env_word(name, value)]
        return RuntimeArguments(
            options=tuple(line),
            binds=planned,
            env=env,
            decisions=edits.decisions,
            findings=(*_start_findings(plan, start), *env_findings, *edits.findings),
            unset=tuple(v.name for v in edits.env if v.op == "unset" and specified(start, v.name) is None),
        )

    def command(self, call: Call, start: Start, words: RuntimeArguments) -> Command:
        """Return the whole command line: the user's own options first, so that ours are not taken back by accident."""
        argv = (call.program, call.action, *start.user.arguments, *words.options, call.image, *call.argv)
        return Command(argv, without_variables(without_gpu_switches(start.caller.environ), words.unset))

    def environ_of(self, form: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return *environ* without the values that the lines for a shell read themselves, when they are evaluated."""
        if form == self.name:
            return environ
        return without_variables(environ, ("LD_LIBRARY_PATH", "PREPEND_LD_LIBRARY_PATH"))

    def findings_of(self, form: str, prepared: Prepared) -> Iterator[Finding]:
        if form != self.name:
            yield from environment.replaced_by_users(prepared.plan, prepared.start)

    def render(self, form: str, prepared: Prepared, *, quoted: bool = False) -> str:
        if form == self.name:
            return one_line(prepared.words, self.name, quoted=quoted, exports=f"{self.name}-env")
        return lines_of(changes_for(prepared))


class Singularity(Apptainer):
    name = "singularity"
    title = "SingularityCE"


def _sayable(bind: Bind, start: Start) -> Bind:
    """Return *bind*. Errors: `RuntimeLimitError` (code `unsayable-path`) if no argument of the program can say it."""
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


def _obstacle(mount: Mount, start: Start) -> Optional[str]:
    """Return why an optional bind would be fatal: its place does not exist and cannot be made.

    Empty for what is in /dev, where the container has the host's.
    """
    if mount.target.startswith("/dev/") and dev_of(start) == "whole":
        return ""  # it has the host's
    if mount.target.startswith(f"{LIBDIR}/"):
        # The program adds another directory, and needs a place for it.
        lacks = start.tree is not None and not start.tree.has(LIBDIR)
    else:
        lacks = not mount.required and (start.tree is None or not start.tree.has(mount.target))
    return NO_PLACE if lacks and is_fixed(start) else None


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
    environ = start.caller.environ if start.caller.on_host else {}
    if start.is_entered:
        yield from choice_of_others(plan, environ)
    else:
        options = start.user.options
        yield from choice_outside(
            plan, environ, lambda name: stays_outside(options, name) and specified(start, name) is None
        )


APPTAINER = Apptainer()
SINGULARITY = Singularity()
