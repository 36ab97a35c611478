"""Apptainer and SingularityCE: their arguments differ only in LD_LIBRARY_PATH and the names of variables.

A program called singularity may be Apptainer: the output of `--version` decides.

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
from gpubind.planner.placement import SINGULARITY_LAYOUT, Layout
from gpubind.runtimes.apptainer import binds, environment, options
from gpubind.runtimes.apptainer.binds import bind_value, mount_value, named_binds, needs_mount
from gpubind.runtimes.apptainer.environment import BASE_SCRIPT, ENVIRONMENT_SCRIPT, LIBDIR, env_value
from gpubind.runtimes.apptainer.exports import changes_for, render_shell_lines, without_gpu_switches, without_variables
from gpubind.runtimes.apptainer.options import dev_kind, has_fixed_mount_points, is_kept_out, is_since, user_value
from gpubind.runtimes.cmdline.reader import ParsedCommandLine, UserOptionValues
from gpubind.runtimes.edits import (
    Bind,
    RuntimeArguments,
    is_utf8,
    make_edits,
    shared_dev_findings,
    unsupported_path,
    vendor_of,
)
from gpubind.runtimes.lost_choice import choice_of_others, choice_outside
from gpubind.runtimes.runtime import (
    NO_STAGE,
    Command,
    PreparedStart,
    Runtime,
    RuntimeLimits,
    Stage,
    Start,
    StartCall,
    format_arguments,
    parse_version,
)

NO_GPU_FLAGS = ("--no-nv", "--nv=false", "--no-rocm", "--rocm=false")
"""Options that prevent the program's own GPU binds. In each pair, one cancels a variable, the other the site's."""

_NO_PLACE = "the container has no such place, and with --writable, or without overlay and underlay, none can be made"


class Apptainer(Runtime):
    name = "apptainer"
    title = "Apptainer"
    program = options.PROGRAM
    image_forms = ("directory", "sif", "squashfs", "file", "layout", "archive", "registry", "source")
    can_pull = True
    needs_version = True
    gpu_flags = MappingProxyType({"nvidia": "--nv", "amd": "--rocm"})
    parse_site = staticmethod(options.parse_site)
    read_env_file = staticmethod(options.read_env_file)
    hides_caller_variable = staticmethod(options.hides_caller_variable)
    site_library_path = staticmethod(options.library_path)
    wants_compat32 = staticmethod(options.wants_compat32)
    generated_files = staticmethod(environment.generated_files)
    base_mounts = staticmethod(binds.base_mounts)

    def __init__(self) -> None:
        setuid_programs = tuple(f"{prefix}/{self.name}/bin/starter-suid" for prefix in STARTER_PREFIXES)
        message = "it will say `Failed to create user namespace`"
        self.limits = RuntimeLimits(message, setuid_programs, module_may_split=True)
        self.site_config_path = f"/etc/{self.name}/{self.name}.conf"

    def identify(self, text: str) -> tuple[Runtime, Optional[tuple[int, ...]]]:
        """`apptainer version 1.4.5` -> `APPTAINER`, (1, 4, 5); `singularity-ce version 4.1.0` -> `SINGULARITY`."""
        return APPTAINER if "apptainer" in text else SINGULARITY, parse_version(text)

    def user_option_values(self, arguments: Sequence[str], environ: Mapping[str, str]) -> UserOptionValues:
        return options.user_option_values(self.name, self.parse_user_options(arguments), environ)

    def parse_user_options(self, arguments: Sequence[str]) -> ParsedCommandLine:
        return self.program.read(arguments, options.INSTANCE_OPTIONS)

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        return SINGULARITY_LAYOUT._replace(isolated=dev_kind(start) == "minimal")

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        """Return the options for *plan*.

        Nodes are bound only into a minimal /dev. If the container has the host's whole /dev, no node is bound over it:
        the bind would be mounted with nodev, so that the node could not be opened. An optional file is left out if its
        mount point is missing and cannot be made, or is inside a bind of the user or the site. Errors:
        `RuntimeLimitError` for a path or a value that no option can express.
        """
        edits = make_edits(plan, stage.files, _user_and_site_binds(start), lambda mount, _: _obstacle(mount, start))
        scripts = [script for script in (ENVIRONMENT_SCRIPT, BASE_SCRIPT) if script in stage.files]
        files = (*edits.binds, *(Bind(stage.files[script], script, True) for script in scripts))
        nodes = edits.devices if dev_kind(start) == "minimal" else ()
        devices = (Bind(node.source, node.target, False) for node in nodes)
        planned = tuple(_require_supported_path(bind, start) for bind in (*files, *devices))
        env, env_findings = environment.environment(plan, start, stage)
        line = list(NO_GPU_FLAGS)
        if start.user.options.has("compat32") and is_since(start, (1, 6)):
            line.append("--compat32=false")  # gpubind provides it, and without --nv the program warns
        plain = [bind_value(bind) for bind in planned if not needs_mount(bind)]
        if plain:
            line += ["--bind", ",".join(plain)]
        for bind in planned:
            if needs_mount(bind):
                line += ["--mount", mount_value(bind)]
        for name, value in env:
            line += ["--env", env_value(name, value)]
        return RuntimeArguments(
            options=tuple(line),
            binds=planned,
            env=env,
            decisions=edits.decisions,
            findings=(*_start_findings(plan, start), *env_findings, *edits.findings),
            unset=tuple(v.name for v in edits.env if v.op == "unset" and user_value(start, v.name) is None),
        )

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the command line. The user's options precede the plan's, so that none overrides it by accident."""
        argv = (call.program, call.action, *start.user.arguments, *arguments.options, call.image, *call.argv)
        return Command(argv, without_variables(without_gpu_switches(start.caller.environ), arguments.unset))

    def render_environ(self, form: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return *environ* without the variables that the printed lines read when a shell evaluates them."""
        if form == self.name:
            return environ
        return without_variables(environ, ("LD_LIBRARY_PATH", "PREPEND_LD_LIBRARY_PATH"))

    def format_findings(self, form: str, prepared: PreparedStart) -> Iterator[Finding]:
        if form != self.name:
            yield from environment.user_override_findings(prepared.plan, prepared.start)

    def render(self, form: str, prepared: PreparedStart, *, quoted: bool = False) -> str:
        if form == self.name:
            return format_arguments(prepared.arguments, self.name, quoted=quoted, exports=f"{self.name}-env")
        return render_shell_lines(changes_for(prepared))


class Singularity(Apptainer):
    name = "singularity"
    title = "SingularityCE"


def _require_supported_path(bind: Bind, start: Start) -> Bind:
    """Return *bind*. Errors: `RuntimeLimitError` (code `unsupported-path`) if no argument can express it."""
    why = None
    if not is_utf8(bind.source + bind.target):
        why = "it is not UTF-8, and this program hands paths on as JSON"
    elif "\r\n" in bind.source or "\r\n" in bind.target:
        why = "it has a carriage return before a newline, which --mount changes"  # Go's encoding/csv
    elif start.runtime.name == "apptainer" and ":" in bind.source and bind.target.startswith(f"{LIBDIR}/"):
        why = "Apptainer splits the source of a library at a colon, even one that --mount protects"
    if why is not None:
        raise unsupported_path(bind.source, why)
    return bind


def _user_and_site_binds(start: Start) -> Iterator[UserBind]:
    """Yield the binds of the user and the site, at their targets and again at the targets that the image's links lead
    to.

    Binds that contain `LIBDIR` are left out, because the program itself mounts that directory.
    """
    specs = named_binds(start)
    resolved = () if start.tree is None else ((spec, start.tree.resolve(spec.target)) for spec in specs)
    all_specs = (*specs, *(spec._replace(target=path) for spec, path in resolved if not isinstance(path, Missing)))
    for spec in all_specs:
        if not f"{LIBDIR}/".startswith(f"{spec.target.rstrip('/')}/"):
            yield UserBind(HostPath(spec.source), ContainerPath(spec.target))


def _obstacle(mount: Mount, start: Start) -> Optional[str]:
    """Return why *mount* would end the start: its mount point is missing and cannot be created. None if it would not.

    The reason is empty for a path in /dev if the container has the host's /dev.
    """
    if mount.target.startswith("/dev/") and dev_kind(start) == "whole":
        return ""
    if mount.target.startswith(f"{LIBDIR}/"):
        # The program mounts this directory, and needs a mount point for it.
        lacks = start.tree is not None and not start.tree.has(LIBDIR)
    else:
        lacks = not mount.required and (start.tree is None or not start.tree.has(mount.target))
    return _NO_PLACE if lacks and has_fixed_mount_points(start) else None


def _start_findings(plan: Plan, start: Start) -> Iterator[Finding]:
    dev = dev_kind(start)
    if dev == "whole":
        yield from shared_dev_findings(plan)
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
        yield from choice_outside(
            plan, environ, lambda name: is_kept_out(start.user.options, name) and user_value(start, name) is None
        )


APPTAINER = Apptainer()
SINGULARITY = Singularity()
