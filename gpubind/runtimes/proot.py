"""PRoot: needs no privilege and no namespace, because it rewrites the paths of a program's system calls.

`-R` provides the host's /dev, /proc, /sys, /tmp, home and user database. PRoot has no read-only bind, cannot restrict
/dev to single nodes, and has no option for variables: the program inherits PRoot's environment.

Source: `proot --help` of 5.1.0, which was run; `src/path/binding.c` (a colon always ends the source).
"""

from __future__ import annotations

from posixpath import normpath
from typing import Optional

from gpubind.loader.namespace import UserMounts
from gpubind.model import HostPath, Mount, Plan
from gpubind.model.environ import changed
from gpubind.runtimes.cmdline import reader
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.edits import (
    HOST_DIRECTORIES,
    RuntimeArguments,
    binds_at_same_path,
    format_bind,
    in_host_directory,
    make_base_mounts,
    make_edits,
    parse_user_binds,
    shared_dev_findings,
)
from gpubind.runtimes.environment import BaseEnvironment, compose, library_path, set_variables
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
)

HOST_FILES = ("/etc/hosts", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/localtime")

_OPTIONS = """
    about|version/V bind|mount/bm= change-id/i= help|usage/h kernel-release/k= qemu/q= cwd|pwd/w= root-id/0 rootfs/r=
    verbose/v= /R= /S=
"""


class Proot(Runtime):
    name = "proot"
    title = "PRoot"
    program = RuntimeProgram(
        reader.PROOT,
        {(): StartSubcommand(_OPTIONS, "rootfs", actions=ALL_ACTIONS)},
        root_of=lambda line: line.last("rootfs", "R", "S") or "/",
    )
    image_forms = ("directory",)
    image_hint = "unpack it: `apptainer build --sandbox DIR IMAGE`, or use --backend apptainer"
    limits = RuntimeLimits(no_read_only_bind=True, hides_missing_command=True)
    isolates_dev = False

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        edits = make_edits(plan, stage.files, parse_user_binds(start.user.options.all("bind")), _obstacle)
        why = "PRoot ends a path at a colon, and takes a `!` at its end for an option of the bind"
        options = [arg for bind in edits.binds for arg in ("-b", format_bind(bind, why, ("!",)))]
        env = compose(plan.env, BaseEnvironment(callers=start.caller.environ, images=library_path(plan)))
        writable = self.writable_bind_findings(edits, plan, start, stage)
        findings = (*edits.findings, *shared_dev_findings(plan, "always"), *writable)
        unset = tuple(name for name, value in env.items() if value is None and name in start.caller.environ)
        return RuntimeArguments(tuple(options), edits.binds, set_variables(env), edits.decisions, findings, unset)

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        place = () if start.user.options.last("cwd") is not None else ("-w", _start_directory(start))
        options = (*place, *start.user.arguments, *arguments.options)
        argv = (call.program, "-R", call.image, *options, *start.in_directory(call))
        return Command(argv, changed(start.caller.environ, unset=arguments.unset, values=dict(arguments.env)))

    def base_mounts(self, plan: Plan, start: Start) -> UserMounts:
        home = start.caller.environ.get("HOME", "")
        paths = (*HOST_DIRECTORIES, *HOST_FILES, *([home] if home in start.caller.directories else ()))
        binds = (*binds_at_same_path(paths), *parse_user_binds(start.user.options.all("bind")))
        return make_base_mounts(binds, start.caller.environ, start.user.options.last("cwd") or _start_directory(start))

    def render(self, form: str, prepared: PreparedStart, *, quoted: bool = False) -> str:
        """Return a command line of env(1) that starts `proot`, which has no option for variables."""
        arguments = prepared.arguments
        changes = [f"--unset={name}" for name in arguments.unset]
        changes += [f"{name}={value}" for name, value in arguments.env]
        options = ("env", *changes, self.name, *arguments.options)
        return format_arguments(arguments._replace(options=options, unset=()), self.name, quoted=quoted)


def _obstacle(mount: Mount, source: HostPath) -> Optional[str]:
    """Return an empty reason for a file that a directory of the host already provides; None for any other file."""
    return "" if in_host_directory(mount) and str(source) == mount.target else None


def _start_directory(start: Start) -> str:
    working, home = start.caller.working_directory or "/", start.caller.environ.get("HOME", "")
    inside = any(f"{working}/".startswith(f"{path}/") for path in (*HOST_DIRECTORIES, home) if path)
    return normpath(working) if inside or (start.tree is not None and start.tree.has(working)) else "/"


PROOT = Proot()
