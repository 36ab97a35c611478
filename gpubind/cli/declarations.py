"""Declarations of commands, their options and arguments; the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Optional, Union, get_args

from gpubind.frozen import NamedTuple
from gpubind.model import CAPABILITIES, Request, Side
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.planner.request import SOURCES
from gpubind.runtimes import RUNTIMES

Origin = Literal["line", "variable", "settings", "default"]
"""Where a value comes from: the command line, a GPUBIND_* variable, a configuration file, the option's own default."""
Group = Literal["Which GPUs and files", "Which host", "The image", "Launch", "Filtering", "Output"]
"""The heading of an option in help."""
GROUPS: tuple[Group, ...] = get_args(Group)
Rows = tuple[tuple[str, str], ...]
"""Names, each with its description."""
Choices = Union[Sequence[str], Callable[[], Sequence[str]]]
"""The values that a shell may complete. A function returns them if they are slow to load."""
COMPLETION = "_GPUBIND_COMPLETE"
"""The variable by which a shell asks for completions; typer derives its name from the program's."""


class Option(NamedTuple):
    """An option of a command."""

    syntax: str
    """The option as help shows it: `-o, --output FILE`. The name of the value, if any, is last."""
    help: str
    group: Group
    field: str = ""
    """The field of `Request` that it sets, or `listfile`."""
    is_repeatable: bool = False
    """Whether it takes several values. If it takes no value, it is counted."""
    default: Any = None
    required: bool = False
    preset: Literal["", "variable", "settings"] = ""
    """What can set it besides the command line: nothing; its GPUBIND_* variable; or the variable and a
    configuration file.
    """
    choices: Choices = ()
    unknown: str = ""
    """The code of the error for a value that is not one of the choices. If it is empty, choices are only for
    completion.
    """
    splits_commas: bool = False
    """Whether one value may hold several choices, separated by commas."""
    is_expert: bool = False
    """Whether only `--help all` and the manual list it."""
    expands_to: str = ""
    """The argument that this flag stands for: `--format=json`."""

    @property
    def spellings(self) -> dict[str, bool]:
        """Return the names of the option, and the value that each gives to a flag: False for `--no-NAME`, else True."""
        tokens = self.syntax.replace(",", "").split()
        return {token: not token.startswith("--no-") for token in tokens if token.startswith("-")}

    @property
    def name(self) -> str:
        """Return its long name."""
        names = self.syntax.split(", ")
        return names[0 if names[0].startswith("--") else 1].partition(" ")[0]

    @property
    def metavar(self) -> str:
        """Return the name of its value; empty if it takes none."""
        return self.syntax.rpartition(", ")[2].partition(" ")[2]

    @property
    def key(self) -> str:
        """Return its name in a configuration file."""
        return self.name[2:]

    @property
    def parameter(self) -> str:
        """Return the name of the value in `ParsedLine.values`."""
        name = self.key.replace("-", "_")
        return f"{name}_" if name in ("format", "list", "try") else name

    @property
    def variable(self) -> str:
        """Return the environment variable that may set it; empty if none may."""
        return f"GPUBIND_{self.key.replace('-', '_').upper()}" if self.preset else ""

    @property
    def unset(self) -> Any:
        """Return the option's value if neither the command line nor a setting has one."""
        return self.default if self.metavar or self.default else 0 if self.is_repeatable else False


class Argument(NamedTuple):
    """A positional argument of a command."""

    parameter: str
    metavar: str
    help: str
    takes_rest: bool = False
    """Whether it takes all remaining arguments."""
    required: bool = True
    choices: Choices = ()
    unknown: str = ""
    """As of `Option`."""


def choices_of(parameter: Union[Option, Argument]) -> Sequence[str]:
    """Return the choices of *parameter*. Loading them may be slow."""
    return parameter.choices() if callable(parameter.choices) else parameter.choices


EXIT_CODES: Rows = (
    ("2", "usage error"),
    ("3", "nothing to bind: no driver and no GPU here"),
    ("4", "the host, the image or a file cannot be read"),
    ("5", "a file named by the user is malformed"),
    ("6", "the runtime is missing, or cannot express the plan"),
)
STARTS_CODES: Rows = (
    ("125", "gpubind could not start the container"),
    ("126, 127", "the command cannot be executed, or does not exist"),
    ("other", "the exit code of the container"),
)
HELP = Option("-h, --help", "Show this message and exit; with `all` after it, every option.", "Output")
VERSION = Option("-V, --version", "Show the version and exit.", "Output")

IMAGE_HELP = (
    "The image that will be started: a directory, an OCI bundle, a SIF file, an OCI layout, a docker or OCI archive, "
    "podman:NAME or docker:NAME."
)
STDIN_HELP = " `-` is an archive on standard input."
HOST_HELP = "Plan for another host: a record file, a bundled host, or a typical one: driver:535,gpu:a100x4."
SIDES = get_args(Side)


class PlanOptions(NamedTuple):
    """The values of `PLAN_OPTIONS`."""

    host: Optional[str] = None
    root: Optional[str] = None
    dev_root: Optional[str] = None
    listfile: Optional[str] = None
    by_site: frozenset[str] = frozenset()
    """The fields that a variable or a configuration file sets."""
    request: Request = Request()
    """The request, without `like`."""


PLAN_OPTIONS = (
    Option("--nv", "Plan for NVIDIA. Without a vendor option: every vendor found.", "Which GPUs and files"),
    Option("--rocm", "Plan for AMD; with --nv for both.", "Which GPUs and files"),
    Option("--intel", "Plan for Intel: GPUs, NPUs, Gaudi.", "Which GPUs and files"),
    Option(
        "--caps LIST",
        f"Driver capabilities, separated by commas: {', '.join(CAPABILITIES)}, or all. [all but compat32]",
        "Which GPUs and files",
        field="caps",
        preset="settings",
        choices=(*CAPABILITIES, "all"),
        splits_commas=True,
    ),
    Option(
        "--gpus all|none|LIST",
        "Which GPUs: indexes, UUIDs or beginnings of them, PCI addresses, minor:N, MIG devices (G:gi/ci), "
        "render nodes. [what the environment says: SLURM_STEP_GPUS, CUDA_VISIBLE_DEVICES, ...; else all]",
        "Which GPUs and files",
        field="gpus",
        preset="settings",
        choices=("all", "none"),
    ),
    Option(
        "--cdi-device VENDOR/CLASS=NAME",
        "Plan for this CDI device, of any vendor; implies --source cdi. Repeatable. [nvidia.com/gpu=all]",
        "Which GPUs and files",
        field="cdi_devices",
        is_repeatable=True,
    ),
    Option(
        "--cdi-dir DIR",
        "Where CDI specs are, below --dev-root; the last directory wins. Repeatable. [/etc/cdi, /var/run/cdi]",
        "Which GPUs and files",
        field="cdi_directories",
        is_repeatable=True,
        preset="settings",
        is_expert=True,
    ),
    Option(
        "--source SOURCE",
        f"What names the driver's files: {', '.join(SOURCES)}.",
        "Which GPUs and files",
        field="source",
        default="auto",
        preset="settings",
        choices=SOURCES,
        is_expert=True,
    ),
    Option(
        "--list FILE",
        "Use only this list file.",
        "Which GPUs and files",
        field="listfile",
        preset="settings",
        is_expert=True,
    ),
    Option(
        "--library-path DIR",
        "Also search this directory. Repeatable.",
        "Which GPUs and files",
        field="library_path",
        is_repeatable=True,
        preset="settings",
        is_expert=True,
    ),
    Option(
        "--completion, --no-completion",
        "Complete the shipped list from the driver itself.",
        "Which GPUs and files",
        field="completion",
        default=True,
        preset="settings",
        is_expert=True,
    ),
    Option("--host FILE|NAME", HOST_HELP, "Which host", choices=BUNDLED_HOSTS),
    Option("--root DIR", "Where the driver's user space is. [/]", "Which host", preset="settings"),
    Option(
        "--dev-root DIR",
        "Where /dev, /proc and /sys are. [--root, or /]",
        "Which host",
        preset="settings",
        is_expert=True,
    ),
    *(
        Option(
            f"--{field.replace('_', '-')} SIDE",
            f"Whose {whose}: auto, host or image.",
            "The image",
            field=field,
            default="auto",
            preset="settings",
            choices=SIDES,
            is_expert=True,
        )
        for field, whose in (
            ("vendor_neutral", "copy of libglvnd and of the OpenCL loader the container uses"),
            ("userspace", "ROCm or Level Zero the container uses"),
            ("cuda_compat", "libcuda the container uses, if the image has one for CUDA's forward compatibility"),
        )
    ),
    Option(
        "--libc SIDE",
        "Whose glibc the image's programs run on: image; host, if that is newer; auto: the host's only if a "
        "library that was asked for cannot be loaded without it.",
        "The image",
        field="libc",
        default="image",
        preset="settings",
        choices=SIDES,
    ),
    Option(
        "--libdir DIR",
        "Where libraries land in the container.",
        "The image",
        field="libdir",
        preset="settings",
        is_expert=True,
    ),
)


def plan_options(*names: str) -> tuple[Option, ...]:
    """Return the options *names* of `PLAN_OPTIONS`."""
    return tuple(option for option in PLAN_OPTIONS if option.name in names)


def format_option(formats: Iterable[str]) -> Option:
    """Return the option that chooses one of *formats*; the first of them is the default."""
    names = tuple(formats)
    text = f"What to print: {', '.join(names)}. [{names[0]}]"
    return Option("--format FORMAT", text, "Output", choices=names, unknown="unknown-format")


def _like_flavours() -> Sequence[str]:
    from gpubind.planner.like import FLAVOURS

    return tuple(FLAVOURS)


LIKE = Option(
    "--like FLAVOUR",
    "Plan what this program's own --nv or --rocm binds: apptainer, apptainer-1.4, apptainer-1.5, apptainer-1.6, "
    "singularity.",
    "Which GPUs and files",
    field="like",
    choices=_like_flavours,
)
IMAGE = Option("--image IMAGE", IMAGE_HELP, "The image")
BACKEND = Option(
    "--backend RUNTIME",
    f"What starts the container: {', '.join(RUNTIMES)} or auto.",
    "Launch",
    default="auto",
    preset="settings",
    choices=(*RUNTIMES, "auto"),
)
BACKEND_ARGUMENTS = Option(
    "--backend-arg ARGUMENT", "An argument for the runtime itself. Repeatable.", "Launch", is_repeatable=True
)
ALLOW_WRITABLE = Option(
    "--allow-writable", "Bind files that you may write, with a runtime that does not support read-only binds.", "Launch"
)
CHECK_FIRST = Option(
    "--check, --no-check", "Check first, and do not start on an error finding.", "Launch", preset="settings"
)
LOG_START = Option(
    "--log-start, --no-log-start", "Write a line about the start to the system log.", "Launch", preset="settings"
)
REQUIRE_GPU = Option("--require-gpu", "Do not start without a GPU.", "Launch", preset="settings")
DRY_RUN = Option("--dry-run", "Print the command instead.", "Launch")
STRICT = Option("--strict", "Exit 1 on a warning, too.", "Filtering", preset="settings")
JSON = Option("--json", "The same as --format json.", "Output", expands_to="--format=json")
OUTPUT = Option("-o, --output FILE", "Write to a file. [standard output]", "Output")
QUIET = Option("-q, --quiet", "Do not report findings.", "Output")
MEMO_HELP = "-vv: also whether a kept answer was given."
VERBOSE = Option("-v, --verbose", f"Report notes, too. {MEMO_HELP}", "Output", is_repeatable=True)

_SHARED = (*PLAN_OPTIONS, BACKEND, CHECK_FIRST, LOG_START, REQUIRE_GPU, STRICT)
CONFIGURABLE = tuple(option for option in _SHARED if option.preset == "settings")
"""The shared options that a configuration file may set, in addition to `format` and `ignore`."""


class Subcommand(NamedTuple):
    """A command of gpubind."""

    run: Callable[..., None]
    """The function of the command. It gets each value by its parameter, and the shared options as `PlanOptions`."""
    own_options: tuple[Option, ...]
    """Its own options. One with the name of a shared option replaces it."""
    arguments: tuple[Argument, ...] = ()
    shared: tuple[Option, ...] = PLAN_OPTIONS
    common: tuple[str, ...] = ()
    """The options that most people want, up to five."""
    examples: Rows = ()
    """Each is a purpose and a command line."""
    exit_codes: Rows = ()
    starts: bool = False
    """Whether it starts a container. Its options then end at its first argument: the rest belongs to another
    program.
    """
    remote: bool = False
    """Whether other machines do the work. `run` then also gets the origins of the values, and forwards those of the
    command line. Its JSON is a line for each machine; errors are not among them."""

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", "-")

    @property
    def help(self) -> tuple[str, ...]:
        """Return the paragraphs of the docstring; the first is one sentence."""
        return tuple(" ".join(part.split()) for part in (self.run.__doc__ or "").split("\n\n"))

    @property
    def options(self) -> tuple[Option, ...]:
        """Return all options, in the order of help."""
        return tuple({option.name: option for option in (*self.shared, *self.own_options)}.values())
