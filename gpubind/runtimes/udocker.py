"""udocker: containers by name, without privilege. In its P modes it runs PRoot, and binds files as PRoot does.

gpubind refuses its R modes, which bind only directories. The container has the host's whole /dev. `-e` replaces the
image's value, which gpubind does not know. So gpubind puts libraries where every loader looks, and sets no search path.

Source: udocker 1.3.17 `cli.py`, `config.py`, `tools.py`, `engine/proot.py`, `engine/runc.py`, `utils/uenv.py`,
`utils/uvolume.py`; 1.3.17 was run, in mode P1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpubind.errors import RuntimeLimitError
from gpubind.model import Finding, Plan, finding
from gpubind.model.arch import ARCHITECTURES
from gpubind.planner.placement import Layout, cdi_layout
from gpubind.runtimes.cmdline import reader
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.edits import (
    Edits,
    RuntimeArguments,
    format_bind,
    make_edits,
    parse_user_binds,
    shared_dev_findings,
    unsupported_value,
    vendor_of,
)
from gpubind.runtimes.environment import BaseEnvironment, compose, library_path, set_variables
from gpubind.runtimes.runtime import NO_STAGE, Command, Runtime, RuntimeLimits, Stage, Start, StartCall

_MODE_VARIABLE = "UDOCKER_DEFAULT_EXECUTION_MODE"
"""The variable with the mode of containers for which `udocker setup` set none."""
_PROOT_VARIABLE = "UDOCKER_USE_PROOT_EXECUTABLE"
"""The variable with the path of PRoot for the P modes. `UDOCKER` means that of udocker's tools, empty that in PATH."""

_OPTIONS = "allow-root config= debug/D help/h insecure quiet/q repo= version/V"
_RUN_OPTIONS = """
    bindhome containerauth cpuset-cpus= device= dns= dns-search= dri entrypoint= env/e= env-file= help hostauth hostenv
    httpproxy= index= kernel= location= name= netcoop nobanner nometa nosysdirs novol= platform= publish-all/P
    publish/p= pull= registry= rm user/u= volume/v= volumes-from= workdir/w= /i /t /a
"""


class Udocker(Runtime):
    name = "udocker"
    title = "udocker"
    program = RuntimeProgram(reader.UDOCKER, {("run",): StartSubcommand(_RUN_OPTIONS, actions=ALL_ACTIONS)}, _OPTIONS)
    image_forms = ("reference",)
    can_pull = True
    image_hint = "`udocker create --name=NAME IMAGE` makes a container of it; then give NAME"
    limits = RuntimeLimits(no_read_only_bind=True)
    env_option = "env"
    passes_only_named_variables = True

    def required_tools(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the PRoot that the environment names.

        If it names none, return the tools of `udocker install`, and the configuration files, which may name other
        tools.
        """
        home = environ.get("UDOCKER_DIR") or f"{environ.get('HOME', '')}/.udocker"
        configured = ("/etc/udocker.conf", f"{home}/udocker.conf")
        proot_path = environ.get(_PROOT_VARIABLE, "UDOCKER")
        if proot_path == "UDOCKER":
            return (f"{environ.get('UDOCKER_LIB') or f'{home}/lib'}/VERSION", *configured)
        return (proot_path,) if proot_path else tuple(f"{path}/proot" for path in environ.get("PATH", "").split(":"))

    def hides_caller_variable(self, start: Start, name: str) -> bool:
        """Return whether the caller's value does not reach the container. With --hostenv, all that the user does
        not set do.
        """
        is_passed = "hostenv" in start.user.options.values and name not in start.user.options.env
        return not is_passed and super().hides_caller_variable(start, name)

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        """Return the layout of a CDI spec: like udocker, a spec cannot add to the image's search paths.

        So libraries are where every loader looks, and programs in /usr/bin.
        """
        return cdi_layout(start.facts.architecture or ARCHITECTURES[0].name)._replace(isolated=False)

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        """Return the options for *plan*.

        Errors: `RuntimeLimitError` for paths and values that no option can express, for an R mode (code `file-binds`),
        and for an F mode with the host's C library (code `fixed-loader`).
        """
        user_binds = parse_user_binds(start.user.options.all("volume"))
        edits = make_edits(plan, stage.files, user_binds)
        _need_mode(start.caller.environ.get(_MODE_VARIABLE, ""), plan, edits)
        # udocker also joins doubled slashes, which no plan has.
        why = "udocker ends a path at a colon, and PRoot takes a `!` at its end for an option of the bind"
        options = [f"--volume={format_bind(bind, why, ('!', '/'))}" for bind in edits.binds]
        env = compose(plan.env, BaseEnvironment(start.user.options.env, images=library_path(plan)))
        for name, value in set_variables(env):
            if value != value.strip():
                raise unsupported_value(name, "udocker takes the white space around a value away")
            options.append(f"--env={name}={value}")
        findings = (*self._findings(plan, edits, start), *self.writable_bind_findings(edits, plan, start, stage))
        return RuntimeArguments(tuple(options), edits.binds, set_variables(env), edits.decisions, findings)

    def _findings(self, plan: Plan, edits: Edits, start: Start) -> Iterator[Finding]:
        if start.facts.tools == ():
            where = ", ".join(self.required_tools(start.caller.environ))
            yield finding("udocker-tools", subject="udocker", where=where)
        yield from (*edits.findings, *shared_dev_findings(plan, "always"))
        if edits.binds:
            yield finding("udocker-container", subject="container", vendor=vendor_of(plan))

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line. `run` starts the image's default command, `shell` a shell."""
        argv = ("/bin/sh", *call.argv) if call.action == "shell" else call.argv
        line = (call.program, "run", "--nobanner", *start.user.arguments, *arguments.options, call.image, *argv)
        return Command(line, start.caller.environ)


def _need_mode(mode: str, plan: Plan, edits: Edits) -> None:
    """Errors: `RuntimeLimitError` (codes `file-binds`, `fixed-loader`) for a *mode* that does not support the plan."""
    if mode.startswith("F") and any(mount.rule == "libc" for mount in plan.mounts):
        raise RuntimeLimitError(
            "fixed-loader",
            "udocker starts programs by the image's own loader in this mode",
            where=f"{_MODE_VARIABLE}={mode}",
            why="no bind takes the place of a file that the kernel opens at its real path",
            hint="use mode P1: `udocker setup --execmode=P1 NAME`, or give --libc image",
        )
    if edits.binds and mode.startswith("R"):
        raise RuntimeLimitError(
            "file-binds",
            "udocker binds no file in this mode",
            where=f"{_MODE_VARIABLE}={mode}",
            why="in the R modes it says `engine does not support file mounting`",
            hint="use mode P1: `udocker setup --execmode=P1 NAME`",
        )


UDOCKER = Udocker()
