"""A runtime, `Runtime`: the base class of each, with everything that the rest of gpubind asks of one."""

from __future__ import annotations

import re
import shlex
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
from gpubind.runtimes.cmdline.programs import PROGRAMS, Action
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
    """The runtime's own: a path, or a name."""
    action: Action
    image: str
    """As the user gives it."""
    argv: tuple[str, ...]
    """The command in the container, with its arguments."""
    unique_name: str = "ID"
    """In the name of this start only."""
    stdin_is_terminal: Optional[bool] = False
    """Whether standard input is one."""


PullPolicy = Literal["missing", "always", "newer", "never"]


class PullCommand(NamedTuple):
    """The command with which a runtime gets an image, by the user's own options."""

    policy: PullPolicy
    """`always`: before each start; `missing`: where its store does not have the image; `newer`: there, and in silence
    where it has one."""
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
"""The word of a command that stands for the directory in which its file is."""


class StagedFile(NamedTuple):
    """A file that the runtime reads when it starts."""

    name: str
    content: str


class Command(NamedTuple):
    """The program that replaces this process."""

    argv: tuple[str, ...]
    """The program, a path, or a name where a dry run does not find it; and its arguments."""
    environ: Mapping[str, str]
    """The environment of the program."""
    file: Optional[StagedFile] = None
    """A file that must be written first, to an empty directory, which replaces the word `<generated>`."""
    findings: tuple[Finding, ...] = ()
    """Everything that the command line would report about this start."""
    changed: bool = True
    """Whether it differs from the line that `wrap` was given."""


class CallerFacts(NamedTuple):
    """Who starts a container, and from where."""

    environ: Mapping[str, str] = MappingProxyType({})
    home: Optional[str] = None
    """As the user database has it."""
    working_directory: Optional[str] = None
    """None if that directory is gone."""
    directories: frozenset[str] = frozenset()
    """Those of home and working directory that exist."""
    uid: Optional[int] = None
    """None if no container is started here."""
    is_root: bool = True
    """Whether the caller is root of the host; of a recorded one, who recorded it."""
    has_terminal: bool = False
    """Whether standard input, output and errors are a terminal."""
    on_host: bool = False
    """Whether the planned host is this machine: only there the access of the caller to its files is known."""


class RuntimeFacts(NamedTuple):
    """The host, as far as the runtime reads it."""

    version: Optional[tuple[int, ...]] = None
    """Of its program; None if that could not be asked."""
    site_config: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Its configuration file: directive -> values."""
    texts: Mapping[str, str] = MappingProxyType({})
    """The texts of the runtime's `texts` that exist on this host, by path, in their order."""
    architecture: Optional[str] = None
    """The machine of the host, by uname."""
    nodes: tuple[HostPath, ...] = ()
    """The runtime's `nodes` that exist on this host."""
    files: tuple[HostPath, ...] = ()
    """The runtime's `files` that exist on this host; for a recorded one, all."""
    inits: tuple[HostPath, ...] = ()
    """The runtime's `inits` that exist on this host."""
    tools: Optional[tuple[HostPath, ...]] = None
    """The runtime's `tools` that exist on this host; None if that is not known."""
    remote: Optional[str] = None
    """The option, variable or file that selects a daemon on another machine; None if there is none."""
    silence: Optional[str] = None
    """Why its daemon on this machine does not answer; None if it does, or was not asked."""
    has_selinux: bool = False
    """Whether this host's kernel enforces SELinux's rules."""

    def directive(self, name: str, default: str = "") -> str:
        """Return the value of directive *name* in the configuration file; the first one takes precedence."""
        return self.site_config.get(name, (default,))[0]


class UserOptions(NamedTuple):
    """The user's own options for a runtime, and the files that they name."""

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
    """The directory that holds an empty file for each place of the runtime's `skeleton`."""
    writable: frozenset[str] = frozenset()
    """Those sources of the plan that the caller may write; known for a runtime without a read-only bind."""


NO_STAGE = Stage()


class Start(NamedTuple):
    """One start of a container, as far as the arguments for the runtime depend on it."""

    runtime: Runtime
    """The runtime that will read the arguments; its program may go by another one's name."""
    caller: CallerFacts = CallerFacts()
    facts: RuntimeFacts = RuntimeFacts()
    user: UserOptions = UserOptions()
    tree: Optional[Tree] = None
    """The files of the image, if they could be read."""
    bundle: Optional[Bundle] = None
    """The configuration of the image, if that is an OCI bundle."""
    is_entered: bool = False
    """Whether later commands enter the container, and bring the variables of their callers."""
    restarts: Optional[Severity] = None
    """How serious it is if the container does not start again; None if it is started once."""

    @property
    def shell(self) -> str:
        """Return the image's shell: bash, if it has that."""
        return "/bin/bash" if self.tree is not None and self.tree.has("/bin/bash") else "/bin/sh"

    def in_directory(self, call: StartCall) -> tuple[str, ...]:
        """Return the command in a container of a plain directory: for `run` its runscript, as Apptainer's images have
        one; for `shell`, or where no command is named, its shell.
        """
        if call.action == "run" and self.tree is not None and self.tree.has(_RUNSCRIPT):
            return (_RUNSCRIPT, *call.argv)
        return (self.shell, *call.argv) if call.action == "shell" or not call.argv else call.argv


class PreparedStart(NamedTuple):
    """A start with its plan, in the arguments of its runtime."""

    arguments: RuntimeArguments
    start: Start
    host: Host
    """As it is planned for."""
    plan: Plan
    image: Optional[Image] = None
    includes_user_options: bool = False
    """Whether the user's own options are among the words."""


class Runtime(ABC):
    """A container runtime. Its methods are pure: the facts of this machine that they need are in `Start`."""

    name: str
    """The word for --backend, and the name of its program."""
    title: str
    """The name that people use."""
    image_forms: tuple[ImageForm, ...]
    """The forms of image that it starts, for `--backend auto` and in messages."""
    can_pull = False
    """Whether it finds images by itself: one that is not a file here may still be right."""
    image_hint = ""
    """What to do with an image in another form."""
    limits = RuntimeLimits()
    needs_version = False
    """Whether its version makes a difference: only then is the program asked."""
    site_config_path: Optional[str] = None
    """Its configuration file."""
    extra_nodes: tuple[str, ...] = ()
    """Patterns of the nodes in /dev that it provides in addition to the plan's."""
    extra_files: tuple[str, ...] = ()
    """Files of the host that it provides in addition to the plan's."""
    init_programs: tuple[str, ...] = ()
    """Programs that it can make the first of a container, by the place where packages have them."""
    store: Optional[Store] = None
    """The program whose own store has the images that it starts by a plain name."""
    hides_images = False
    """Whether a plain name is that of an image in a store that gpubind does not read."""
    store_options: tuple[str, ...] = ()
    """Options before the subcommand with which it may have other images than `store` has."""
    has_daemon = False
    """Whether it starts nothing itself, and a daemon does."""
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
    """Whether `arguments_in_line` returns the user's own options, too, with the plan among them."""

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
        """Return the user's *arguments* as its program reads them."""
        return PROGRAMS[self.name].read(arguments)

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
        """Return what sends it to another machine: a variable, a file of the caller's, or one of *global_options*,
        those before its subcommand. None if nothing does. *read* returns the text of a file of this machine, or None.
        """
        return None

    def texts(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return patterns of files of this machine that its starts depend on, in the order in which it reads them."""
        return ()

    def stored_image(
        self, image: ImageReference, options: UserOptionValues, environ: Mapping[str, str], texts: Mapping[str, str]
    ) -> Optional[str]:
        """Return the directory that would hold *image*, where it keeps images as directories.

        *environ* has UID, too; *texts* are those of the files that `texts` names.
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
        """Return where a plan lands, and whether the container's /dev will hold only the planned nodes.

        *is_blind*: no image is known.
        """
        return GPUBIND_LAYOUT._replace(isolated=self.isolates_dev)

    def site_library_path(self, start: Start) -> tuple[str, ...]:
        """Return the directories of this machine where the site has its own GPU flag look for libraries."""
        return ()

    def wants_compat32(self, start: Start) -> bool:
        """Return whether the user's options or variables have its own GPU flag bring 32-bit libraries, too."""
        return False

    def generated_files(self, plan: Plan, start: Start) -> Mapping[ContainerPath, str]:
        """Return the texts of the files that it adds to the plan's, by their place in the container."""
        return {}

    def mount_point_files(self, plan: Plan, start: Start) -> tuple[ContainerPath, ...]:
        """Return the places that need an empty file in a directory of gpubind's, to be mounted on."""
        return ()

    @abstractmethod
    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return *plan* in its arguments, with the files of *stage*; None where an image would be needed for that.

        Errors: `RuntimeLimitError`.
        """

    def arguments_in_line(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return *plan* in arguments for the user's own command line. Errors: `RuntimeLimitError`."""
        return self.arguments(plan, start, stage)

    def by_device(self, names: Sequence[str], plan: Plan, start: Start) -> RuntimeArguments:
        """Return the options that give the GPUs of *plan* by CDI devices, which it reads at each start."""
        raise NotImplementedError(self.name)

    def base_mounts(self, plan: Plan, start: Start) -> Optional[UserMounts]:
        """Return what a start mounts and sets in addition to *plan*; None where that is not known."""
        return None

    @abstractmethod
    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line."""

    def writable_bind_findings(self, edits: Edits, plan: Plan, start: Start, stage: Stage) -> Iterator[Finding]:
        """Yield the finding about files that it binds as writable as they are, having no read-only bind.

        A container of an ordinary user's cannot write a driver file that root owns, whatever the bind says. Root's can.
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
        """Return the part of the caller's *environ* for a plan in *form*: a text may read the rest when evaluated."""
        return environ

    def format_findings(self, form: str, prepared: PreparedStart) -> Iterator[Finding]:
        """Yield what a plan in *form* cannot do, and in the runtime's arguments can."""
        yield from ()

    def render(self, form: str, prepared: PreparedStart, *, quoted: bool = False) -> str:
        """Return a plan as `plan --format FORM` prints it; *quoted*: for `eval`. Errors: as `format_arguments`."""
        return format_arguments(prepared.arguments, self.name, quoted=quoted)


_NEEDS_QUOTES = r"[\s\"'\\*?\[\]]"


def format_arguments(arguments: RuntimeArguments, program: str, *, quoted: bool, exports: str = "") -> str:
    """Return the options of *arguments* on one line: *quoted* for `eval`, or plain, to be split by a shell as in
    `singularity exec $(gpubind plan ...) image cmd`. *exports* is the format of the same plan as variables, if the
    program reads them.

    Errors: `RuntimeLimitError` (`unsayable-unset`) where the caller's variable has to go: --env can only set. Code
    `not-raw` for an option that a shell would not leave whole: it splits what a substitution gives, and unquotes none.
    """
    alternative = f" or `--format {exports}`" if exports else ""
    if arguments.unset:
        raise RuntimeLimitError(
            "unsayable-unset",
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
    return " ".join(map(shlex.quote, arguments.options) if quoted else arguments.options) + "\n"


def format_multiline(args: Sequence[str], first: int, last: int) -> str:
    """Return *args* quoted for a shell, with each option and its value on a separate line.

    What stands before *first* is one line, and so is what stands from *last* on.
    """
    lines = [list(args[:first])]
    for arg in args[first:last]:
        if arg.startswith("-"):
            lines.append([])
        lines[-1].append(arg)
    lines.append(list(args[last:]))
    return " \\\n  ".join(shlex.join(line) for line in lines if line) + "\n"
