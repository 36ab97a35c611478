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
"""Working directories that Apptainer does not bind, for the image's own would be hidden: container_linux.go,
addCwdMount."""


class RuntimeLimits(NamedTuple):
    """The limits of a runtime, and its surprises for the caller."""

    no_namespace_message: str = ""
    """Its own message where the kernel allows no user namespace; empty if it needs none."""
    helpers: tuple[str, ...] = ()
    """Its set-user-id programs: with one of them it needs no user namespace."""
    module_may_split: bool = False
    """Whether the runtime is often in a module tree, with its set-user-id program elsewhere."""
    drops_groups: bool = False
    """Whether a container gets other groups than its caller's."""
    keep_groups: Optional[str] = None
    """The value of its --group-add that keeps them all; None: each must be given by number."""
    systemd_cgroups: bool = False
    """Whether systemd manages the device cgroups of its containers."""
    no_read_only_bind: bool = False
    """Whether a bound file is as writable in the container as it is for the caller."""
    hides_missing_command: bool = False
    """Whether its exit code hides that a command is missing (127) or is not a program (126)."""


def parse_version(text: str) -> Optional[tuple[int, ...]]:
    """Return the first version `1.4` or `1.4.5` in *text*, with three numbers."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups(default="0")) if match else None


_RUNSCRIPT = "/.singularity.d/runscript"
"""Run by default in an image of Apptainer or SingularityCE."""


class StartCall(NamedTuple):
    """The container to start."""

    program: str
    """The runtime's program: a path or a name."""
    action: Action
    image: str
    """As the user gives it."""
    argv: tuple[str, ...]
    """The command in the container, with its arguments."""
    unique_name: str = "ID"
    """A string for the container's name that no other start has."""
    stdin_is_terminal: Optional[bool] = False
    """None if unknown."""


PullPolicy = Literal["missing", "always", "newer", "never"]


class PullCommand(NamedTuple):
    """The command by which a runtime pulls an image, with the user's options."""

    policy: PullPolicy
    """`always`: pull before each start; `missing`: only if the store lacks the image; `newer`: as `missing`, but if the
    store has the image, pull it without progress output."""
    args: tuple[str, ...]
    """The command line, after the program."""
    prints_name: bool
    """Whether standard output ends with the image's ID or name, and has nothing else; progress is on standard error."""
    no_repeat_options: tuple[str, ...]
    """Options that keep the start from pulling again."""
    exists_args: tuple[str, ...] = ()
    """For `newer`: the command line that ends with 0 if the store has the image."""
    repull_args: tuple[str, ...] = ()
    """For `newer`: the command line that pulls it where the store has one: once, and without progress."""


STAGED_DIRECTORY = "<generated>"
"""The argument of a command that is replaced with the directory of its staged file."""


class StagedFile(NamedTuple):
    """A file that the runtime reads when it starts."""

    name: str
    content: str


class Command(NamedTuple):
    """The program that replaces this process."""

    argv: tuple[str, ...]
    """The program and its arguments. The program is a path, or a name if a dry run does not find it."""
    environ: Mapping[str, str]
    """The environment of the program."""
    file: Optional[StagedFile] = None
    """A file to be written first, to an empty directory that replaces the argument `<generated>`."""
    findings: tuple[Finding, ...] = ()
    """Everything that the command line would report about this start."""
    changed: bool = True
    """Whether it differs from the line that `wrap` was given."""


class CallerFacts(NamedTuple):
    """The caller of a start."""

    environ: Mapping[str, str] = MappingProxyType({})
    home: Optional[str] = None
    """The home directory of the user database."""
    working_directory: Optional[str] = None
    """None if that directory is gone."""
    directories: frozenset[str] = frozenset()
    """Those of home and working directory that exist."""
    uid: Optional[int] = None
    """None if no container is started here."""
    is_root: bool = True
    """Whether the caller is root on the host. For a recorded host, the caller is who recorded it."""
    has_terminal: bool = False
    """Whether standard input, output and errors are a terminal."""
    on_host: bool = False
    """Whether the planned host is this machine: only then is the caller's access to its files known."""


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
    """Why its daemon on this machine does not answer; None if it does, or was not queried."""
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
    """Whether such a file could not be read, so that it may set any variable that `env_files` does not have."""
    allow_writable: bool = False
    """Whether the user accepts that a container may write to files of the driver."""


class Stage(NamedTuple):
    """The files that gpubind writes for a start, and those that must not be written to."""

    files: Mapping[ContainerPath, HostPath] = MappingProxyType({})
    """Where generated content was written: container path -> host path."""
    skeleton: Optional[HostPath] = None
    """The directory with an empty file for each of the runtime's `mount_point_files`."""
    writable: frozenset[str] = frozenset()
    """The sources of the plan that the caller may write; known only for a runtime without a read-only bind."""


NO_STAGE = Stage()


class Start(NamedTuple):
    """One start of a container, as far as the arguments for the runtime depend on it."""

    runtime: Runtime
    """The runtime that reads the arguments. Its program may have another runtime's name."""
    caller: CallerFacts = CallerFacts()
    facts: RuntimeFacts = RuntimeFacts()
    user: UserOptions = UserOptions()
    tree: Optional[Tree] = None
    """The files of the image, if they could be read."""
    bundle: Optional[Bundle] = None
    """The configuration of the image, if that is an OCI bundle."""
    is_entered: bool = False
    """Whether later commands enter the container, with the variables of their callers."""
    restarts: Optional[Severity] = None
    """How serious it is if the container does not start again; None if it is started once."""

    @property
    def shell(self) -> str:
        """Return the image's shell: bash, if it has that."""
        return "/bin/bash" if self.tree is not None and self.tree.has("/bin/bash") else "/bin/sh"

    def in_directory(self, call: StartCall) -> tuple[str, ...]:
        """Return the command for an image that is a directory: for `run` its runscript, which Apptainer's images have;
        for `shell`, or without a command, its shell.
        """
        if call.action == "run" and self.tree is not None and self.tree.has(_RUNSCRIPT):
            return (_RUNSCRIPT, *call.argv)
        return (self.shell, *call.argv) if call.action == "shell" or not call.argv else call.argv


class PreparedStart(NamedTuple):
    """A start with its plan, in the arguments of its runtime."""

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
    """Whether it can pull images: a name that is not a file on this machine may still be valid."""
    image_hint = ""
    """What to do with an image in another form."""
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
    """The program whose own store has the images that it starts by a plain name."""
    hides_images = False
    """Whether a plain name is that of an image in a store that gpubind does not read."""
    store_options: tuple[str, ...] = ()
    """Options before the subcommand with which it may have other images than `store` has."""
    has_daemon = False
    """Whether a daemon starts its containers."""
    keeps_containers = False
    """Whether a container stays after its end, and is started again with the options of its creation."""
    gpu_flags: Mapping[Vendor, str] = MappingProxyType({})
    """Its own flag for the GPUs of a vendor, for a start on a host that cannot be inspected."""
    env_option = ""
    """Its option that sets a variable of the container."""
    isolates_dev = True
    """Whether the container's /dev holds only the planned nodes."""
    passes_only_named_variables = False
    """Whether it passes on only those variables of the caller that the user names, without a value."""
    inserts_into_line = False
    """Whether `arguments_in_line` returns the user's options with the plan's among them."""

    def identify(self, text: str) -> tuple[Runtime, Optional[tuple[int, ...]]]:
        """Return the program's runtime, whatever it is called, and the version in *text*, printed by `--version`."""
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
        """Return the files of which one must exist in addition to its program."""
        return ()

    def remote_daemon(
        self, environ: Mapping[str, str], read: Callable[[str], Optional[str]], global_options: Mapping[str, str]
    ) -> Optional[str]:
        """Return what selects a daemon on another machine: a variable, a file of the caller's, or one of
        *global_options*, those before the subcommand. None if nothing does.

        *read* returns the text of a file on this machine, or None.
        """
        return None

    def texts(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return patterns of files of this machine that its starts depend on, in the order in which it reads them."""
        return ()

    def stored_image(
        self, image: ImageReference, options: UserOptionValues, environ: Mapping[str, str], texts: Mapping[str, str]
    ) -> Optional[str]:
        """Return the directory that would hold *image*, where it keeps images as directories.

        *environ* includes UID. *texts* has the contents of the files that match `texts`.
        """
        return None

    def pull(self, options: UserOptionValues, global_options: Mapping[str, str], image: str) -> PullCommand:
        """Return how it pulls *image*, with the user's *options*, and *global_options* before its subcommand."""
        raise NotImplementedError(self.name)

    def hides_caller_variable(self, start: Start, name: str) -> bool:
        """Return whether the caller's own value of variable *name* does not reach the container."""
        user_value = start.user.options.env.get(name)
        return self.passes_only_named_variables and user_value != start.caller.environ.get(name, "")

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        """Return the container paths of a plan, and whether /dev will hold only the planned nodes.

        *is_blind*: no image is known.
        """
        return GPUBIND_LAYOUT._replace(isolated=self.isolates_dev)

    def site_library_path(self, start: Start) -> tuple[str, ...]:
        """Return the directories of this machine in which the site lets its GPU flag search for libraries."""
        return ()

    def wants_compat32(self, start: Start) -> bool:
        """Return whether the user's options or variables make its GPU flag provide 32-bit libraries."""
        return False

    def generated_files(self, plan: Plan, start: Start) -> Mapping[ContainerPath, str]:
        """Return the texts of the files that it adds to the plan's, by path in the container."""
        return {}

    def mount_point_files(self, plan: Plan, start: Start) -> tuple[ContainerPath, ...]:
        """Return the mount points that need an empty file in a directory of gpubind's."""
        return ()

    @abstractmethod
    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return its arguments for *plan*, with the files of *stage*; None if they depend on an image that is unknown.

        Errors: `RuntimeLimitError`.
        """

    def arguments_in_line(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return the arguments for *plan* in the user's command line. Errors: `RuntimeLimitError`."""
        return self.arguments(plan, start, stage)

    def by_device(self, names: Sequence[str], plan: Plan, start: Start) -> RuntimeArguments:
        """Return the options for the GPUs of *plan* as CDI devices, *names*, which it reads at each start."""
        raise NotImplementedError(self.name)

    def base_mounts(self, plan: Plan, start: Start) -> Optional[UserMounts]:
        """Return what a start mounts and sets in addition to *plan*; None where that is not known."""
        return None

    @abstractmethod
    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line."""

    def writable_bind_findings(self, edits: Edits, plan: Plan, start: Start, stage: Stage) -> Iterator[Finding]:
        """Yield the finding that it has no read-only bind for the files of the driver.

        An ordinary user's container still cannot write a file that root owns. Root's can.
        Errors: `RuntimeLimitError` (code `writable-bind`) for a file that the caller can write, unless that is allowed.
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
        """Return the variables of *environ* on which a plan in *form* depends; its text may read others."""
        return environ

    def format_findings(self, form: str, prepared: PreparedStart) -> Iterator[Finding]:
        """Yield the findings of a plan in *form* that the runtime's arguments do not have."""
        yield from ()

    def render(self, form: str, prepared: PreparedStart, *, quoted: bool = False) -> str:
        """Return a plan as `plan --format FORM` prints it; *quoted*: for `eval`. Errors: as `format_arguments`."""
        return format_arguments(prepared.arguments, self.name, quoted=quoted)


_NEEDS_QUOTES = r"[\s\"'\\*?\[\]]"


def format_arguments(arguments: RuntimeArguments, program: str, *, quoted: bool, exports: str = "") -> str:
    """Return the options of *arguments* on one line: *quoted* for `eval`, or plain, to be split by a shell as in
    `singularity exec $(gpubind plan ...) image cmd`. *exports* is the format of the same plan as variables, if the
    program reads them.

    Errors: `RuntimeLimitError` (`unsupported-unset`) if the caller's variable must be removed: --env can only set. Code
    `not-raw` for an option that a shell would split: it splits the text of a substitution, and removes no quotes from
    it.
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
