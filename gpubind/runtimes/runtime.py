"""`Runtime`, the base class of all container runtimes, and the facts and the parts of a start."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Callable, Literal, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.model import ContainerPath, Finding, HostPath, Plan, Severity, Vendor, finding, with_count
from gpubind.planner.placement import GPUBIND_LAYOUT, Layout
from gpubind.runtimes.cmdline.programs import Action, RuntimeProgram
from gpubind.runtimes.cmdline.reader import ParsedCommandLine, UserOptionValues
from gpubind.runtimes.cmdline.values import parse_assignment
from gpubind.runtimes.edits import Edits, RuntimeArguments, vendor_of

if TYPE_CHECKING:
    from gpubind.formats.archive.bundle import Bundle
    from gpubind.image.facts import Image
    from gpubind.image.reference import ImageForm, ImageReference, Store
    from gpubind.loader.namespace import UserMounts

UNBOUND_WORKING_DIRECTORIES = ("/", "/bin", "/etc", "/lib", "/lib64", "/mnt", "/opt", "/sbin", "/usr", "/var")
"""Working directories that Apptainer does not bind, which would hide the image's: container_linux.go, addCwdMount."""


class RuntimeLimits(NamedTuple):
    """What a runtime does not support, and what may surprise its caller."""

    no_namespace_message: str = ""
    """The runtime's error message if the kernel allows no user namespace; empty if it needs none."""
    setuid_programs: tuple[str, ...] = ()
    """Its set-user-id programs. If one of them is installed, it needs no user namespace."""
    module_may_split: bool = False
    """Whether its set-user-id program may be outside the module tree in which the runtime itself is often installed."""
    drops_groups: bool = False
    """Whether a container does not have its caller's groups."""
    keep_groups: Optional[str] = None
    """The value of --group-add that keeps all groups; None if each group must be given by number."""
    systemd_cgroups: bool = False
    """Whether systemd manages the device cgroups of its containers."""
    no_read_only_bind: bool = False
    """Whether it has no read-only bind: the container may write a bound file whenever the caller may."""
    hides_missing_command: bool = False
    """Whether its exit code does not show that a command is missing (127) or cannot be executed (126)."""


def parse_version(text: str) -> Optional[tuple[int, ...]]:
    """Return the first version in *text*, such as `1.4` or `1.4.5`, as three numbers."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups(default="0")) if match else None


_RUNSCRIPT = "/.singularity.d/runscript"
"""The script that `run` executes in an image of Apptainer or SingularityCE."""


class StartCall(NamedTuple):
    """The container to start."""

    program: str
    """The runtime's program: a path or a name."""
    action: Action
    image: str
    """The image, as the user gives it."""
    argv: tuple[str, ...]
    """The command in the container, with its arguments."""
    unique_name: str = "ID"
    """A string for the container's name that no other start has."""
    stdin_is_terminal: Optional[bool] = False
    """Whether standard input is a terminal; None if unknown."""


PullPolicy = Literal["missing", "always", "newer", "never"]


class PullCommand(NamedTuple):
    """The command by which a runtime pulls an image, with the user's options."""

    policy: PullPolicy
    """When the image is pulled. `always`: before each start. `missing`: only if it is not in the store. `newer`: as
    `missing`, but if the store has the image, try to update it without progress output.
    """
    args: tuple[str, ...]
    """The command line, after the program."""
    prints_name: bool
    """Whether standard output ends with the image's ID or name, and has nothing else; progress is on standard error."""
    no_repeat_options: tuple[str, ...]
    """Options that keep the start from pulling again."""
    exists_args: tuple[str, ...] = ()
    """For `newer`: the command line that exits with 0 if the store has the image."""
    repull_args: tuple[str, ...] = ()
    """For `newer`: the command line that updates an image of the store. It tries only once, and shows no progress."""


STAGED_DIRECTORY = "<generated>"
"""The argument of a command that stands for the directory of its staged file."""


class StagedFile(NamedTuple):
    """A file that the runtime reads when it starts."""

    name: str
    content: str


class Command(NamedTuple):
    """The program that replaces this process."""

    argv: tuple[str, ...]
    """The program and its arguments. The program is a path, or a name if a dry run finds no such program."""
    environ: Mapping[str, str]
    """The environment of the program."""
    file: Optional[StagedFile] = None
    """A file to be written first, to an empty directory, whose path replaces the argument `<generated>`."""
    findings: tuple[Finding, ...] = ()
    """The findings that the command line would report about this start."""
    changed: bool = True
    """Whether it differs from the command line that was given to `wrap`."""


class CallerFacts(NamedTuple):
    """The caller of a start."""

    environ: Mapping[str, str] = MappingProxyType({})
    home: Optional[str] = None
    """The home directory according to the user database."""
    working_directory: Optional[str] = None
    """The working directory; None if it was removed."""
    directories: frozenset[str] = frozenset()
    """The home and the working directory, each if it exists."""
    uid: Optional[int] = None
    """The user ID; None if no container is started here."""
    is_root: bool = True
    """Whether the caller is root on the host. The caller of a recorded host is the user who recorded it."""
    has_terminal: bool = False
    """Whether standard input, output and errors are a terminal."""
    on_host: bool = False
    """Whether the planned host is this machine. Only then is it known which files of the host the caller may access."""


class RuntimeFacts(NamedTuple):
    """The facts of the host on which the runtime depends."""

    version: Optional[tuple[int, ...]] = None
    """The version of its program; None if unknown."""
    site_config: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Its configuration file: directive -> values."""
    texts: Mapping[str, str] = MappingProxyType({})
    """The contents of this host's files that match the runtime's `texts`, by path, in order."""
    architecture: Optional[str] = None
    """The host's machine name, from uname(2)."""
    nodes: tuple[HostPath, ...] = ()
    """The runtime's `extra_nodes` that exist on this host."""
    files: tuple[HostPath, ...] = ()
    """The runtime's `extra_files` that exist on this host; for a recorded host, all of them."""
    inits: tuple[HostPath, ...] = ()
    """The runtime's `init_programs` that exist on this host."""
    tools: Optional[tuple[HostPath, ...]] = None
    """The runtime's `required_tools` that exist on this host; None if unknown."""
    remote: Optional[str] = None
    """The option, variable or file that selects a daemon on another machine; None if there is none."""
    silence: Optional[str] = None
    """Why the daemon on this machine does not answer; None if it answers, or if it was not queried."""
    has_selinux: bool = False
    """Whether this host's kernel enforces SELinux."""

    def directive(self, name: str, default: str = "") -> str:
        """Return the value of directive *name* in the configuration file; the first one takes precedence."""
        return self.site_config.get(name, (default,))[0]


class UserOptions(NamedTuple):
    """The user's options for a runtime, and the files that they name."""

    arguments: tuple[str, ...] = ()
    """As they are written."""
    options: UserOptionValues = UserOptionValues()
    """The options that the arguments and the environment give."""
    env_files: Mapping[str, Optional[str]] = MappingProxyType({})
    """The variables that files of --env-file set; None for a value that only a shell knows."""
    has_unread_env_files: bool = False
    """Whether such a file could not be read. It may then set any variable that `env_files` does not have."""
    allow_writable: bool = False
    """Whether the user accepts that a container may write to files of the driver."""


class Stage(NamedTuple):
    """The files that gpubind writes for a start, and the files that the container must not write."""

    files: Mapping[ContainerPath, HostPath] = MappingProxyType({})
    """Where generated content was written: container path -> host path."""
    skeleton: Optional[HostPath] = None
    """The directory that has an empty file for each of the runtime's `mount_point_files`."""
    writable: frozenset[str] = frozenset()
    """The sources of the plan's mounts that the caller may write; known only for a runtime without a read-only bind."""


NO_STAGE = Stage()


class Start(NamedTuple):
    """The facts of one start of a container on which the arguments for the runtime depend."""

    runtime: Runtime
    """The runtime whose rules apply to the arguments. Its program may have the name of another runtime."""
    caller: CallerFacts = CallerFacts()
    facts: RuntimeFacts = RuntimeFacts()
    user: UserOptions = UserOptions()
    tree: Optional[Tree] = None
    """The files of the image, if they could be read."""
    bundle: Optional[Bundle] = None
    """The configuration of the image, if that is an OCI bundle."""
    is_entered: bool = False
    """Whether later commands enter the container, each with its caller's variables."""
    restarts: Optional[Severity] = None
    """How serious it is if the container does not start again; None if it is started once."""

    @property
    def shell(self) -> str:
        """Return the shell of the image: bash if the image has it, else sh."""
        return "/bin/bash" if self.tree is not None and self.tree.has("/bin/bash") else "/bin/sh"

    def in_directory(self, call: StartCall) -> tuple[str, ...]:
        """Return the command that is started in an image that is a directory.

        For `run`, it is the runscript, which images of Apptainer have. For `shell`, or without a command, it is the
        shell.
        """
        if call.action == "run" and self.tree is not None and self.tree.has(_RUNSCRIPT):
            return (_RUNSCRIPT, *call.argv)
        return (self.shell, *call.argv) if call.action == "shell" or not call.argv else call.argv


class PreparedStart(NamedTuple):
    """A start with its plan and its runtime's arguments for it."""

    arguments: RuntimeArguments
    start: Start
    host: Host
    plan: Plan
    image: Optional[Image] = None
    includes_user_options: bool = False
    """Whether the arguments include the user's options."""


class Runtime(ABC):
    """A container runtime. Its methods are pure: the facts of this machine that they need are in `Start`."""

    name: str
    """Its value of --backend, and the name of its program."""
    title: str
    """Its name in messages."""
    program: RuntimeProgram
    """Its command line."""
    image_forms: tuple[ImageForm, ...]
    """The forms of image that it starts, for `--backend auto` and in messages."""
    can_pull = False
    """Whether it can pull images. If it can, a name that is not a file on this machine may still be valid."""
    image_hint = ""
    """What to do with an image of a form that it does not start."""
    limits = RuntimeLimits()
    needs_version = False
    """Whether its version matters: only then does gpubind run the program to query it."""
    site_config_path: Optional[str] = None
    """Its configuration file."""
    extra_nodes: tuple[str, ...] = ()
    """Patterns of the nodes in /dev that it provides in addition to the plan's."""
    extra_files: tuple[str, ...] = ()
    """Files of the host that it provides in addition to the plan's."""
    init_programs: tuple[str, ...] = ()
    """The paths of programs that it can run as a container's first process."""
    store: Optional[Store] = None
    """The program in whose store are the images that it starts by a plain name."""
    hides_images = False
    """Whether a plain name refers to an image in a store that gpubind does not read."""
    store_options: tuple[str, ...] = ()
    """Options before the subcommand that may select another store than `store` reads."""
    has_daemon = False
    """Whether a daemon starts its containers."""
    keeps_containers = False
    """Whether a container stays after its end, and can be started again with the options of its creation."""
    gpu_flags: Mapping[Vendor, str] = MappingProxyType({})
    """Its own flag for the GPUs of each vendor, which is used on a host that cannot be inspected."""
    env_option = ""
    """Its option that sets a variable of the container."""
    isolates_dev = True
    """Whether the container's /dev holds only the planned nodes."""
    passes_only_named_variables = False
    """Whether it passes on a variable of the caller only if the user names it without a value."""
    inserts_into_line = False
    """Whether `arguments_in_line` returns all options: the user's, with the plan's among them."""

    def identify(self, text: str) -> tuple[Runtime, Optional[tuple[int, ...]]]:
        """Return which runtime the program really is, and its version. *text* is its output for `--version`."""
        return self, None

    def parse_site(self, text: str) -> Mapping[str, tuple[str, ...]]:
        """Return the directives in the text of its configuration file."""
        return {}

    def user_option_values(self, arguments: Sequence[str], environ: Mapping[str, str]) -> UserOptionValues:
        """Return the options that the user's *arguments* and the caller's environment give."""
        line = self.parse_user_options(arguments)
        env: dict[str, str] = {}
        for option in line.options:
            env.update(self.parse_env_option(option.value, environ) if option.name == self.env_option else {})
        return UserOptionValues.of(line, env)

    def parse_user_options(self, arguments: Sequence[str]) -> ParsedCommandLine:
        """Parse the user's *arguments* by the rules of the runtime's program."""
        return self.program.read(arguments)

    def parse_env_option(self, text: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables that *text*, a value of `env_option`, sets in a container of a caller with *environ*."""
        return parse_assignment(text, environ)

    def read_env_file(self, text: str, environ: Mapping[str, str]) -> Mapping[str, Optional[str]]:
        """Return the variables that the text of a file of --env-file sets."""
        return {}

    def required_tools(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return files of which at least one must exist in addition to its program."""
        return ()

    def remote_daemon(
        self, environ: Mapping[str, str], read: Callable[[str], Optional[str]], global_options: Mapping[str, str]
    ) -> Optional[str]:
        """Return the setting that selects a daemon on another machine; None if there is none.

        It is a variable, a file of the caller's, or one of *global_options*, the options before the subcommand. *read*
        returns the text of a file on this machine, or None.
        """
        return None

    def texts(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return patterns of the files of this machine on which its starts depend, in the order of reading."""
        return ()

    def stored_image(
        self, image: ImageReference, options: UserOptionValues, environ: Mapping[str, str], texts: Mapping[str, str]
    ) -> Optional[str]:
        """Return the directory that would hold *image*; None if the runtime does not keep images as directories.

        *environ* includes UID. *texts* has the contents of the files that match the patterns of `texts`.
        """
        return None

    def pull(self, options: UserOptionValues, global_options: Mapping[str, str], image: str) -> PullCommand:
        """Return how it pulls *image*. *options* are the user's; *global_options* are those before the subcommand."""
        raise NotImplementedError(self.name)

    def hides_caller_variable(self, start: Start, name: str) -> bool:
        """Return whether the caller's own value of variable *name* does not reach the container."""
        user_value = start.user.options.env.get(name)
        return self.passes_only_named_variables and user_value != start.caller.environ.get(name, "")

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        """Return the container paths of a plan, and whether the container's /dev has only the planned nodes.

        *is_blind*: whether no image is known.
        """
        return GPUBIND_LAYOUT._replace(isolated=self.isolates_dev)

    def site_library_path(self, start: Start) -> tuple[str, ...]:
        """Return the directories of this machine in which the site lets its GPU flag search for libraries."""
        return ()

    def wants_compat32(self, start: Start) -> bool:
        """Return whether the user's options or variables make its GPU flag provide 32-bit libraries."""
        return False

    def generated_files(self, plan: Plan, start: Start) -> Mapping[ContainerPath, str]:
        """Return the texts of the files that it needs in addition to the plan's, by path in the container."""
        return {}

    def mount_point_files(self, plan: Plan, start: Start) -> tuple[ContainerPath, ...]:
        """Return the mount points for which a directory of gpubind must contain an empty file."""
        return ()

    @abstractmethod
    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return its arguments for *plan*, with the files of *stage*; None if they depend on an image, and none is
        known.

        Errors: `RuntimeLimitError`.
        """

    def arguments_in_line(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return the arguments for *plan* in the user's command line. Errors: `RuntimeLimitError`."""
        return self.arguments(plan, start, stage)

    def by_device(self, names: Sequence[str], plan: Plan, start: Start) -> RuntimeArguments:
        """Return the options that give the GPUs of *plan* as CDI devices *names*. It reads the specs at each start."""
        raise NotImplementedError(self.name)

    def base_mounts(self, plan: Plan, start: Start) -> Optional[UserMounts]:
        """Return the mounts and variables of a start in addition to those of *plan*; None if they are not known."""
        return None

    @abstractmethod
    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line."""

    def writable_bind_findings(self, edits: Edits, plan: Plan, start: Start, stage: Stage) -> Iterator[Finding]:
        """Yield the finding that the runtime cannot bind the files of the driver read-only.

        An ordinary user's container still cannot write a file that root owns. Root's container can. Errors:
        `RuntimeLimitError` (code `writable-bind`) for a file that the caller may write, unless the user allows that.
        """
        sources = [bind.source for bind in edits.binds if bind.read_only]
        writable = [source for source in sources if source in stage.writable]
        if writable and not start.user.allow_writable:
            raise RuntimeLimitError(
                "writable-bind",
                f"a program in the container could write {with_count(len(writable), 'file')} of the driver",
                where=writable[0],
                why=f"{self.title} has no read-only bind, and the caller may write the file",
                hint="start it as an ordinary user, use another runtime, or accept that with --allow-writable",
            )
        if sources:
            yield finding(
                "no-read-only-bind",
                subject="mounts",
                case="writable" if writable else "protected",
                severity="warning" if writable else "note",
                vendor=vendor_of(plan),
                runtime=self.title,
                files=with_count(len(writable or sources), "file"),
            )

    def render_environ(self, form: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables of *environ* on which a plan in *form* depends. Its text may read others by itself."""
        return environ

    def format_findings(self, form: str, prepared: PreparedStart) -> Iterator[Finding]:
        """Yield the findings that only a plan in *form* has, in addition to those of the runtime's arguments."""
        yield from ()

    def render(self, form: str, prepared: PreparedStart, *, quoted: bool = False) -> str:
        """Return a plan as `plan --format FORM` prints it; *quoted*: for `eval`. Errors: as `format_arguments`."""
        return format_arguments(prepared.arguments, self.name, quoted=quoted)


_NEEDS_QUOTES = r"[\s\"'\\*?\[\]]"


def format_arguments(arguments: RuntimeArguments, program: str, *, quoted: bool, exports: str = "") -> str:
    """Return the options of *arguments* on one line.

    With *quoted*, the line is for `eval`; otherwise a shell splits it at spaces, as in `singularity exec $(gpubind plan
    ...) image cmd`. *exports* is the format of the same plan as variables, if the program reads them. Errors:
    `RuntimeLimitError`: code `unsupported-unset` if the caller's variable must be removed, because --env can only set
    one; code `not-raw` for an option that a shell would split: it splits the text of a substitution, and removes no
    quotes from it.
    """
    alternative = f" or `--format {exports}`" if exports else ""
    if arguments.unset:
        raise RuntimeLimitError(
            "unsupported-unset",
            f"no option of {program} keeps {arguments.unset[0]} out of the container",
            why="the plan takes it away, and an empty value would hide every GPU",
            hint=f"unset it yourself, or use `gpubind exec`{alternative}",
        )
    for arg in arguments.options if not quoted else ():
        if re.search(_NEEDS_QUOTES, arg):
            raise RuntimeLimitError(
                "not-raw",
                "the shell would split an argument of this plan in an unquoted $(...)",
                where=arg,
                why="it holds white space, a quote, a backslash or a wildcard",
                hint=f"use `gpubind exec` or `eval` with `--format {program} --format sh`{alternative}",
            )
    import shlex

    return " ".join(map(shlex.quote, arguments.options) if quoted else arguments.options) + "\n"


def format_multiline(args: Sequence[str], first: int, last: int) -> str:
    """Return *args* quoted for a shell, with each option and its value on a separate line.

    The arguments before *first* form one line, and so do those from *last* on.
    """
    import shlex

    lines = [list(args[:first])]
    for arg in args[first:last]:
        if arg.startswith("-"):
            lines.append([])
        lines[-1].append(arg)
    lines.append(list(args[last:]))
    return " \\\n  ".join(shlex.join(line) for line in lines if line) + "\n"
