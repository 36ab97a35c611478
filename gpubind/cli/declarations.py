"""What commands declare: their options and arguments, and the options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Optional, Union, get_args

from gpubind.model import CAPABILITIES, Side
from gpubind.model.data import HOSTS
from gpubind.planner.request import SOURCES
from gpubind.runtimes import RUNTIMES

Kind = Literal["flag", "switch", "count", "value", "list"]
"""What an option takes: no value; none, with a --no- form; none, and it is counted; a value; a value each time."""
Origin = Literal["line", "variable", "settings", "default"]
"""Where a value comes from: the command line, a GPUBIND_* variable, a configuration file, the option's own default."""
Group = Literal["Which GPUs and files", "Which host", "The image", "Launch", "Filtering", "Output"]
"""The heading of an option in help."""
GROUPS: tuple[Group, ...] = get_args(Group)
Rows = tuple[tuple[str, str], ...]
"""Names, each with its description."""
Choices = Union[Sequence[str], Callable[[], Sequence[str]]]
"""What a shell may complete; a function if the list is slow to load."""


COMPLETION = "_GPUBIND_COMPLETE"
"""The variable by which a shell asks for completions; typer makes its name of the program's."""


class Option(NamedTuple):
    """An option of a command."""

    name: str
    """Such as `--dev-root`."""
    help: str
    group: Group
    kind: Kind = "value"
    metavar: str = ""
    short: str = ""
    """Such as `-o`."""
    default: Any = None
    required: bool = False
    preset: Literal["", "variable", "settings"] = ""
    """What else may set it: nothing; its GPUBIND_* variable; that, or a configuration file."""
    choices: Choices = ()
    commas: bool = False
    """Whether several of the choices may stand in one value."""

    @property
    def key(self) -> str:
        """Return the name in a configuration file."""
        return self.name[2:]

    @property
    def parameter(self) -> str:
        """Return the name of the value in `Line.values`."""
        name = self.key.replace("-", "_")
        return f"{name}_" if name in ("format", "list") else name

    @property
    def variable(self) -> str:
        """Return the environment variable that may set it; empty if none may."""
        return f"GPUBIND_{self.key.replace('-', '_').upper()}" if self.preset else ""

    @property
    def takes_value(self) -> bool:
        return self.kind in ("value", "list")

    @property
    def unset(self) -> Any:
        """Return the value where nothing sets it."""
        return {"flag": False, "switch": False, "count": 0}.get(self.kind) if self.default is None else self.default

    @property
    def spellings(self) -> dict[str, bool]:
        """Return the names of the option, each with what it means for a flag."""
        spelled = {self.name: True, **({self.short: True} if self.short else {})}
        return {**spelled, f"--no-{self.key}": False} if self.kind == "switch" else spelled


class Argument(NamedTuple):
    """A word that a command takes by its place."""

    parameter: str
    metavar: str
    help: str
    many: bool = False
    """Whether it takes all words that are left."""
    required: bool = True
    choices: Choices = ()


class Subcommand(NamedTuple):
    """A command of gpubind."""

    name: str
    run: Callable[..., None]
    """Called with the values, and with the origins of those of options."""
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...] = ()
    common: tuple[str, ...] = ()
    """The five options that most people want."""
    examples: Rows = ()
    """Each what somebody wants, and the command line."""
    exit_codes: Rows = ()
    ends_options: bool = False
    """Whether its first argument ends the options: what follows belongs to another program."""


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
HELP = Option("--help", "Show this message and exit.", "Output", "flag", short="-h")
VERSION = Option("--version", "Show the version and exit.", "Output", "flag", short="-V")

IMAGE_HELP = (
    "The image that will be started: a directory, an OCI bundle, a SIF file, an OCI layout, a docker or OCI archive, "
    "podman:NAME or docker:NAME."
)
HOST_HELP = "Plan for a recorded host: a record file or a bundled host."
SIDES = get_args(Side)


class PlanOptions(NamedTuple):
    """The values of `PLAN_OPTIONS`, by the same names."""

    nv: bool = False
    rocm: bool = False
    caps: Optional[str] = None
    gpus: Optional[str] = None
    cdi_device: Optional[Sequence[str]] = None
    cdi_dir: Optional[Sequence[str]] = None
    source: str = "auto"
    list_: Optional[str] = None
    library_path: Optional[Sequence[str]] = None
    completion: bool = True
    host: Optional[str] = None
    root: Optional[str] = None
    dev_root: Optional[str] = None
    vendor_neutral: str = "auto"
    userspace: str = "auto"
    cuda_compat: str = "auto"
    libc: str = "image"
    libdir: Optional[str] = None


PLAN_OPTIONS = (
    Option("--nv", "Plan for NVIDIA. Without a vendor option: every vendor found.", "Which GPUs and files", "flag"),
    Option("--rocm", "Plan for AMD; with --nv for both.", "Which GPUs and files", "flag"),
    Option(
        "--caps",
        f"Driver capabilities, separated by commas: {', '.join(CAPABILITIES)}, or all. [all but compat32]",
        "Which GPUs and files",
        metavar="LIST",
        preset="settings",
        choices=(*CAPABILITIES, "all"),
        commas=True,
    ),
    Option(
        "--gpus",
        "Which GPUs: indexes, UUIDs or beginnings of them, PCI addresses, minor:N, MIG devices (G:gi/ci), "
        "render nodes. [what the environment says: SLURM_STEP_GPUS, CUDA_VISIBLE_DEVICES, ...; else all]",
        "Which GPUs and files",
        metavar="all|none|LIST",
        preset="settings",
        choices=("all", "none"),
    ),
    Option(
        "--cdi-device",
        "Plan for this CDI device, of any vendor; implies --source cdi. Repeatable. [nvidia.com/gpu=all]",
        "Which GPUs and files",
        "list",
        metavar="VENDOR/CLASS=NAME",
    ),
    Option(
        "--cdi-dir",
        "Where CDI specs are, below --dev-root; the last directory wins. Repeatable. [/etc/cdi, /var/run/cdi]",
        "Which GPUs and files",
        "list",
        metavar="DIR",
        preset="settings",
    ),
    Option(
        "--source",
        f"What names the driver's files: {', '.join(SOURCES)}.",
        "Which GPUs and files",
        metavar="SOURCE",
        default="auto",
        preset="settings",
        choices=SOURCES,
    ),
    Option("--list", "Use only this list file.", "Which GPUs and files", metavar="FILE", preset="settings"),
    Option(
        "--library-path",
        "Also search this directory. Repeatable.",
        "Which GPUs and files",
        "list",
        metavar="DIR",
        preset="settings",
    ),
    Option(
        "--completion",
        "Complete the shipped list from the driver itself.",
        "Which GPUs and files",
        "switch",
        default=True,
        preset="settings",
    ),
    Option("--host", HOST_HELP, "Which host", metavar="FILE|NAME", choices=HOSTS),
    Option("--root", "Where the driver's user space is. [/]", "Which host", metavar="DIR", preset="settings"),
    Option(
        "--dev-root",
        "Where /dev, /proc and /sys are. [--root, or /]",
        "Which host",
        metavar="DIR",
        preset="settings",
    ),
    Option(
        "--vendor-neutral",
        "Whose copy of libglvnd and of the OpenCL loader the container uses: auto, host or image.",
        "The image",
        metavar="SIDE",
        default="auto",
        preset="settings",
        choices=SIDES,
    ),
    Option(
        "--userspace",
        "Whose ROCm the container uses: auto, host or image.",
        "The image",
        metavar="SIDE",
        default="auto",
        preset="settings",
        choices=SIDES,
    ),
    Option(
        "--cuda-compat",
        "Whose libcuda the container uses, if the image has one for CUDA's forward compatibility: auto, host or image.",
        "The image",
        metavar="SIDE",
        default="auto",
        preset="settings",
        choices=SIDES,
    ),
    Option(
        "--libc",
        "Whose glibc the image's programs run on: image; host, if that is newer; auto: the host's only if a "
        "library that was asked for cannot be loaded without it.",
        "The image",
        metavar="SIDE",
        default="image",
        preset="settings",
        choices=SIDES,
    ),
    Option("--libdir", "Where libraries land in the container.", "The image", metavar="DIR", preset="settings"),
)


def _flavours() -> Sequence[str]:
    from gpubind.planner.like import FLAVOURS

    return tuple(FLAVOURS)


LIKE = Option(
    "--like",
    "Plan what this program's own --nv or --rocm binds: apptainer, apptainer-1.4, apptainer-1.5, singularity.",
    "Which GPUs and files",
    metavar="FLAVOUR",
    choices=_flavours,
)
IMAGE = Option("--image", IMAGE_HELP, "The image", metavar="IMAGE")
BACKEND = Option(
    "--backend",
    f"What starts the container: {', '.join(RUNTIMES)} or auto.",
    "Launch",
    metavar="RUNTIME",
    default="auto",
    preset="settings",
    choices=(*RUNTIMES, "auto"),
)
BACKEND_ARGUMENTS = Option(
    "--backend-arg", "An argument for the runtime itself. Repeatable.", "Launch", "list", metavar="ARGUMENT"
)
ALLOW_WRITABLE = Option(
    "--allow-writable",
    "Bind files that you may write, with a runtime that does not support read-only binds.",
    "Launch",
    "flag",
)
CHECK_FIRST = Option(
    "--check", "Check first, and do not start on an error finding.", "Launch", "switch", preset="settings"
)
REQUIRE_GPU = Option("--require-gpu", "Do not start without a GPU.", "Launch", "flag", preset="settings")
DRY_RUN = Option("--dry-run", "Print the command instead.", "Launch", "flag")
STRICT = Option("--strict", "Exit 1 on a warning, too.", "Filtering", "flag", preset="settings")
JSON = Option("--json", "The same as --format json.", "Output", "flag")
OUTPUT = Option("--output", "Write to a file. [standard output]", "Output", metavar="FILE", short="-o")
QUIET = Option("--quiet", "Do not report findings.", "Output", "flag", short="-q")
MEMO_HELP = "-vv: also whether a kept answer was given."
VERBOSE = Option("--verbose", f"Report notes, too. {MEMO_HELP}", "Output", "count", short="-v")

CONFIGURABLE = (*PLAN_OPTIONS, BACKEND, CHECK_FIRST, REQUIRE_GPU, STRICT)
"""The options that a configuration file may set, in addition to `format` and `ignore`."""
