"""The settings of Apptainer or SingularityCE, from the user's options, variables and the site's configuration.

Each is read once, by the program's rules. A value on the command line takes precedence over a variable. SingularityCE
reads only variables with the prefix SINGULARITY_; Apptainer prefers those with APPTAINER_. Binds of all sources add up.
Sources: Apptainer 1.4.5 `cmd/internal/cli/action_flags.go`, `pkg/cmdline/flag.go`, `env.go`, `internal/pkg/util/env/`,
`pkg/util/apptainerconf/parser.go`, `internal/pkg/runtime/engine/apptainer/process_linux.go` (injectEnvHandler);
SingularityCE 4.5, the same files; for `gpu library path` https://github.com/apptainer/apptainer/pull/3697.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, Optional

from gpubind.formats.driver.gpu_names import CAPS_VARIABLE
from gpubind.frozen import NamedTuple
from gpubind.runtimes.cmdline.programs import RuntimeProgram, StartSubcommand
from gpubind.runtimes.cmdline.reader import PFLAG, ParsedCommandLine, UserOptionValues
from gpubind.runtimes.cmdline.values import parse_list, parse_map
from gpubind.runtimes.edits import is_utf8
from gpubind.runtimes.runtime import Start

PREFIXES = {"apptainer": ("APPTAINER", "SINGULARITY"), "singularity": ("SINGULARITY",)}
"""The prefixes of a program's variables, in order of precedence."""
_CUMULATIVE_OPTIONS = ("bind", "mount")
"""Options for which the values of variables are added to those of the command line."""
_LIST_OPTIONS = (
    *("blkio-weight-device", "cdi-dirs", "containlibs", "data", "device", "env-file", "fusemount", "network-args"),
    *("no-env", "no-mount", "overlay", "scratch", "security"),
)
"""Options whose value is a line of CSV."""
_VARIABLES_TEXT = """
    app=APP,APPNAME bind=BIND,BINDPATH cpus=CPU_SHARES cwd=CWD,TARGET_CWD docker-host= env= fusemount=FUSESPEC help=
    ipc=IPC,UNSHARE_IPC net=NET,UNSHARE_NET no-env=NOENV no-https=NO_HTTPS,NOHTTPS nohttps=NO_HTTPS,NOHTTPS
    no-init=NOSHIMINIT no-nv=NV_OFF,NO_NV no-rocm=ROCM_OFF,NO_ROCM overlay=OVERLAY,OVERLAYIMAGE passphrase=
    pem-path=ENCRYPTION_PEM_PATH pid=PID,UNSHARE_PID pwd=PWD,TARGET_PWD scratch=SCRATCH,SCRATCHDIR
    userns=USERNS,UNSHARE_USERNS uts=UTS,UNSHARE_UTS vm-err=VMERROR
"""
_VARIABLES = {
    name: tuple(filter(None, variables.split(",")))
    for name, _, variables in (item.partition("=") for item in _VARIABLES_TEXT.split())
}
"""The variables of each option that does not have exactly one variable of the same name, in order of precedence."""

_OPTIONS = "build-config config/c= debug/d help/h nocolor quiet/q silent/s verbose/v version"
"""The options before the action. -s and -c have other meanings there than after it."""
_ACTION_OPTIONS = """
    add-caps= allow-setuid app= apply-cgroups= arch= arch-variant= authfile= bind/B= blkio-weight= blkio-weight-device=
    boot cdi-dirs= cleanenv/e compat compat32 contain/c containall/C containlibs= cpu-shares= cpus= cpuset-cpus=
    cpuset-mems= cwd= data= device= disable-cache dmtcp-launch= dmtcp-restart= dns= docker-host= docker-login
    docker-password= docker-username= drop-caps= env= env-file= fakeroot/f fusemount= help/h home/H= hostname=
    ignore-fakeroot-command ignore-subuid ignore-userns intel-hpu ipc/i keep-layers keep-privs memory=
    memory-reservation= memory-swap= mount= net/n netns-path= network= network-args= no-compat no-env= no-eval no-home
    no-https no-init no-mount= no-nv no-oci no-pid no-privs no-rocm no-setgroups no-tmp-sandbox no-umask nohttps nv
    nvccli oci oom-kill-disable overlay/o= passphrase pem-path= pids-limit= platform= pwd= rocm runscript-timeout=
    scratch/S= security= sharens sif-fuse syos tmp-sandbox tmpdir= underlay unsquash userns/u uts vm vm-cpu= vm-err
    vm-ip= vm-ram= workdir/W= writable-tmpfs writable/w
"""
_EXEC = StartSubcommand(f"{_ACTION_OPTIONS} pid/p")
_INSTANCE = StartSubcommand(f"{_ACTION_OPTIONS} pid-file= name=", "instance")
INSTANCE_OPTIONS = _INSTANCE.options
PROGRAM = RuntimeProgram(
    PFLAG,
    {
        ("exec",): _EXEC._replace(needs_command=True, actions=("exec",)),
        ("run",): _EXEC._replace(actions=("run",)),
        ("shell",): StartSubcommand(f"{_EXEC.options} shell/s=", actions=("shell",)),
        ("test",): _EXEC,
        ("instance", "start"): _INSTANCE,
        ("instance", "run"): _INSTANCE,
    },
    _OPTIONS,
    "singularity",
)


def is_contained(options: UserOptionValues) -> bool:
    """Return whether the container gets a minimal /dev, and only the requested paths of the host."""
    return any(map(options.has, ("contain", "containall", "compat")))


def is_literal(options: UserOptionValues) -> bool:
    """Return whether the container gets values of variables literally. Otherwise its shell evaluates them once."""
    return options.has("no-eval") or options.has("compat")


def is_kept_out(options: UserOptionValues, name: str) -> bool:
    """Return whether the user keeps all of the caller's variables outside, or *name* (possible since Apptainer 1.5)."""
    return any(map(options.has, ("cleanenv", "containall", "compat"))) or name in options.all("no-env")


def variables_of(name: str) -> tuple[str, ...]:
    """Return the variables that set option *name*, without the program's prefix, in order of precedence."""
    return _VARIABLES.get(name, (name.upper().replace("-", "_"),))


def user_option_values(program: str, line: ParsedCommandLine, environ: Mapping[str, str]) -> UserOptionValues:
    """Return the options of *program* by its command *line* and *environ*."""
    values: dict[str, list[str]] = {}
    env: dict[str, str] = {}
    for option in line.options:
        if option.name == "env":
            env.update(parse_map(option.value))
        else:
            elements = parse_list(option.value) if option.name in _LIST_OPTIONS else [option.value]
            values.setdefault(option.name, []).extend(elements)
    _add_variables(values, program, environ)
    return UserOptionValues({name: tuple(texts) for name, texts in values.items()}, env)


def _add_variables(values: dict[str, list[str]], program: str, environ: Mapping[str, str]) -> None:
    """Add the values of the variables to *values*. Variables with the first prefix take precedence over the second."""
    seen: set[str] = set()
    names = PROGRAM.start().option_table.names
    for prefix in PREFIXES[program]:
        for name in names:
            for variable in variables_of(name):
                value = environ.get(f"{prefix}_{variable}", "")
                if not value.strip() or variable in seen:
                    continue
                if name in _CUMULATIVE_OPTIONS:
                    values.setdefault(name, []).append(value)
                elif name not in values:
                    parts = ",".join(part.strip() for part in value.split(","))
                    values[name] = list(parse_list(parts)) if name in _LIST_OPTIONS else [value.strip()]
        seen |= {variable for name in names for variable in variables_of(name) if f"{prefix}_{variable}" in environ}


def read_env_file(text: str, environ: Mapping[str, str]) -> dict[str, Optional[str]]:
    """Return the variables that the text of an environment file sets; None for a value that only a shell can evaluate.

    The program evaluates the file in its own shell, which has the caller's variables.
    """
    from gpubind.formats.text.shell import Exports, parse_exports

    exports = parse_exports(text, Exports(dict(environ)))
    names = sorted(set(re.findall(r"(?:^|[\s;&|({])([A-Za-z_][A-Za-z0-9_]*)\+?=", text)))
    values = {name: exports.env.get(name) if exports.is_known(name) else None for name in names}
    return {name: value for name, value in values.items() if value is not None or not exports.is_known(name)}


def parse_site(text: str) -> dict[str, tuple[str, ...]]:
    """Return the directives of an apptainer.conf or singularity.conf: lines `directive = value`, some more than once.

    A line without a value is ignored: the program's default stays.
    """
    site: dict[str, tuple[str, ...]] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and value.strip() and not line.lstrip().startswith("#"):
            site[name.strip()] = (*site.get(name.strip(), ()), value.strip())
    return site


def library_path(start: Start) -> tuple[str, ...]:
    """Return the directories of `gpu library path`, a directive of Apptainer 1.6. Relative ones are left out."""
    values = start.facts.site_config.get("gpu library path", ())
    paths = (path.strip() for value in values for path in value.split(","))
    return tuple(path for path in paths if path.startswith("/"))


def is_since(start: Start, version: tuple[int, int]) -> bool:
    """Return whether the program is known to be Apptainer from *version* on."""
    return start.runtime.name == "apptainer" and start.facts.version is not None and start.facts.version >= version


def wants_compat32(start: Start) -> bool:
    """Return whether --compat32 is set. From 1.6 on, Apptainer also reads NVIDIA's variable for it."""
    implied = "compat32" in start.caller.environ.get(CAPS_VARIABLE, "").split(",")
    return start.user.options.has("compat32") or (implied and is_since(start, (1, 6)))


_EVALUATED = frozenset("$`\\")
"""The characters by which the container's shell may change a value."""


class UserValue(NamedTuple):
    """The user's own value for a variable of the container."""

    text: Optional[str]
    """The value as the user wrote it; None if only the program's shell knows it."""
    is_literal: bool
    """Whether the container gets the value as it is written, without evaluation."""


def user_value(start: Start, name: str) -> Optional[UserValue]:
    """Return the user's own value for variable *name* of the container; None if there is none.

    --env takes precedence over --env-file, and --env-file over the prefixed variables.
    """
    text: Optional[str]
    if name in start.user.options.env:
        text = start.user.options.env[name]
    elif name in start.user.env_files:
        text = start.user.env_files[name]
    elif start.user.has_unread_env_files:
        text = None
    else:
        environ = start.caller.environ
        variables = (f"{prefix}ENV_{name}" for prefix in PREFIXES.get(start.runtime.name, ()))
        text = next((environ[variable] for variable in variables if variable in environ), None)
        if text is None:
            return None
    if text is not None and not is_utf8(text):
        text = None  # not UTF-8: no option can repeat it, and the program already has it
    return UserValue(text, text is not None and (is_literal(start.user.options) or not _EVALUATED & set(text)))


def hides_caller_variable(start: Start, name: str) -> bool:
    """Return whether the user's options, files or variables keep the caller's value of *name* out of the container."""
    return is_kept_out(start.user.options, name) or user_value(start, name) is not None


def dev_kind(start: Start) -> Literal["whole", "minimal", "none"]:
    """Return what the container has as /dev: the host's, a minimal one with the bound nodes, or none from the host."""
    if "dev" in start.user.options.all("no-mount"):
        return "none"
    if is_contained(start.user.options) or start.facts.directive("mount dev") == "minimal":
        return "minimal"
    return "none" if start.facts.directive("mount dev") == "no" else "whole"


def has_fixed_mount_points(start: Start) -> bool:
    """Return whether the program cannot create mount points that are missing from the image."""
    layers = (start.facts.directive("enable overlay", "yes"), start.facts.directive("enable underlay", "yes"))
    return start.user.options.has("writable") or layers == ("no", "no")
