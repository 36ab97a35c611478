"""The options that every planning command shares, and the plan that they ask for.

No `from __future__ import annotations` here, nor in the modules of commands: `cli/declare.py` reads annotations as they
are, and would see strings.
"""

import os
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

from gpubind.cli.declare import Option, Origin, Subcommand, parameters, parameters_of
from gpubind.cli.values import capabilities, choices_of_gpus, flavours, hosts, sides, sources
from gpubind.documents import LASTING
from gpubind.errors import UsageError
from gpubind.model import CAPABILITIES, VENDORS, Capability, ContainerPath, Request, RootedPath, Vendor
from gpubind.planner.request import SOURCES
from gpubind.runtimes import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubind.host import Host
    from gpubind.host.base import Untrusted
    from gpubind.image import Image
    from gpubind.model import Plan
    from gpubind.planner.planning import Query

Like = Annotated[
    Optional[str],
    Option(
        metavar="FLAVOUR",
        autocompletion=flavours,
        help="Plan what this program's own --nv or --rocm binds: apptainer, apptainer-1.4, apptainer-1.5, singularity.",
    ),
]
IMAGE_HELP = (
    "The image that will be started: a directory, an OCI bundle, a SIF file, an OCI layout, a docker or OCI archive, "
    "podman:NAME or docker:NAME."
)
HOST_HELP = "Plan for a recorded host: a record file or a bundled host."
ImageOption = Annotated[Optional[str], Option(metavar="IMAGE", help=IMAGE_HELP)]
BackendArguments = Annotated[
    Optional[list[str]], Option(metavar="ARGUMENT", help="An argument for the runtime itself. Repeatable.")
]
CdiHook = Annotated[
    Optional[str],
    Option(
        metavar="FILE",
        help="With --format cdi: where nvidia-cdi-hook is on the host. The hook adds the libraries to the "
        "container's ld cache.",
    ),
]
AllowWritable = Annotated[
    bool,
    Option(
        "--allow-writable",
        help="Bind files that you may write, with a runtime that does not support read-only binds.",
    ),
]
RequireGpu = Annotated[bool, Option("--require-gpu", envvar="GPUBIND_REQUIRE_GPU", help="Do not start without a GPU.")]
CheckFirst = Annotated[bool, Option(envvar="GPUBIND_CHECK", help="Check first, and do not start on an error finding.")]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Do not report findings.")]
MEMO_HELP = "-vv: also whether a kept answer was given."
Verbose = Annotated[int, Option("-v", "--verbose", count=True, help=f"Report notes, too. {MEMO_HELP}")]
Output = Annotated[Optional[str], Option("-o", "--output", metavar="FILE", help="Write to a file. [standard output]")]
StageDir = Annotated[
    Optional[str],
    Option(
        metavar="DIR",
        envvar="GPUBIND_STAGE_DIR",
        help="With --format "
        + ", ".join((*LASTING, *KEPT))
        + ": where generated files may stay, for all who use the document.",
    ),
]


class PlanOptions(NamedTuple):
    """What the user asks of a plan. The names are the options'."""

    nv: Annotated[bool, Option("--nv", help="Plan for NVIDIA. Without a vendor option: every vendor found.")] = False
    rocm: Annotated[bool, Option("--rocm", help="Plan for AMD; with --nv for both.")] = False
    caps: Annotated[
        Optional[str],
        Option(
            metavar="LIST",
            envvar="GPUBIND_CAPS",
            autocompletion=capabilities,
            help="Driver capabilities, separated by commas: "
            + ", ".join(CAPABILITIES)
            + ", or all. [all but compat32]",
        ),
    ] = None
    source: Annotated[
        str,
        Option(
            metavar="SOURCE",
            envvar="GPUBIND_SOURCE",
            autocompletion=sources,
            help="What names the driver's files: " + ", ".join(SOURCES) + ".",
        ),
    ] = "auto"
    cdi_device: Annotated[
        Optional[list[str]],
        Option(
            metavar="VENDOR/CLASS=NAME",
            help="Plan for this CDI device, of any vendor; implies --source cdi. Repeatable. [nvidia.com/gpu=all]",
        ),
    ] = None
    cdi_dir: Annotated[
        Optional[list[str]],
        Option(
            metavar="DIR",
            envvar="GPUBIND_CDI_DIR",
            help="Where CDI specs are, below --dev-root; the last directory wins. Repeatable. [/etc/cdi, /var/run/cdi]",
        ),
    ] = None
    list_: Annotated[
        Optional[str],
        Option("--list", metavar="FILE", envvar="GPUBIND_LIST", help="Use only this list file."),
    ] = None
    completion: Annotated[
        bool, Option(envvar="GPUBIND_COMPLETION", help="Complete the shipped list from the driver itself.")
    ] = True
    library_path: Annotated[
        Optional[list[str]],
        Option(metavar="DIR", envvar="GPUBIND_LIBRARY_PATH", help="Also search this directory. Repeatable."),
    ] = None
    root: Annotated[
        Optional[str], Option(metavar="DIR", envvar="GPUBIND_ROOT", help="Where the driver's user space is. [/]")
    ] = None
    dev_root: Annotated[
        Optional[str],
        Option(metavar="DIR", envvar="GPUBIND_DEV_ROOT", help="Where /dev, /proc and /sys are. [--root, or /]"),
    ] = None
    host: Annotated[
        Optional[str],
        Option("--host", metavar="FILE|NAME", autocompletion=hosts, help=HOST_HELP),
    ] = None
    vendor_neutral: Annotated[
        str,
        Option(
            metavar="SIDE",
            envvar="GPUBIND_VENDOR_NEUTRAL",
            autocompletion=sides,
            help="Whose copy of libglvnd and of the OpenCL loader the container uses: auto, host or image.",
        ),
    ] = "auto"
    gpus: Annotated[
        Optional[str],
        Option(
            metavar="all|none|LIST",
            envvar="GPUBIND_GPUS",
            autocompletion=choices_of_gpus,
            help="Which GPUs: indexes, UUIDs or beginnings of them, PCI addresses, minor:N, MIG devices (G:gi/ci), "
            "render nodes. [what the environment says: SLURM_STEP_GPUS, CUDA_VISIBLE_DEVICES, ...; else all]",
        ),
    ] = None
    userspace: Annotated[
        str,
        Option(
            metavar="SIDE",
            envvar="GPUBIND_USERSPACE",
            autocompletion=sides,
            help="Whose ROCm the container uses: auto, host or image.",
        ),
    ] = "auto"
    cuda_compat: Annotated[
        str,
        Option(
            metavar="SIDE",
            envvar="GPUBIND_CUDA_COMPAT",
            autocompletion=sides,
            help="Whose libcuda the container uses, if the image has one for CUDA's forward compatibility: auto, "
            "host or image.",
        ),
    ] = "auto"
    libc: Annotated[
        str,
        Option(
            metavar="SIDE",
            envvar="GPUBIND_LIBC",
            autocompletion=sides,
            help="Whose glibc the image's programs run on: image; host, if that is newer; auto: the host's only if a "
            "library that was asked for cannot be loaded without it.",
        ),
    ] = "image"
    libdir: Annotated[
        Optional[str],
        Option(metavar="DIR", envvar="GPUBIND_LIBDIR", help="Where libraries land in the container."),
    ] = None


def planning(
    work: Callable[..., None],
    name: str = "",
    *,
    only: Container[str] = PlanOptions._fields,
    text: str = "",
    ends_options: bool = False,
) -> Subcommand:
    """Return *work* as a command with the options of `PlanOptions` beside its own; *work* gets them as its `options`.

    *only*: the names of those that it takes; the others, and one that it has itself, are at their defaults. *name* and
    *text* are its name and help, where those are not the function's.
    """
    own = parameters_of(work)
    names = {parameter.name for parameter in own}
    every = parameters(PlanOptions.__annotations__, PlanOptions._field_defaults)
    shared = tuple(parameter for parameter in every if parameter.name in only and parameter.name not in names)

    def run(values: dict[str, Any], origins: Mapping[str, Origin]) -> None:
        options = PlanOptions(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        options = _without_untrusted(options, origins, name or work.__name__)
        if options.host is not None or values.get("host"):
            # A root that a site or variable sets is meant for this machine, not for a recorded one.
            options = options._replace(
                root=options.root if origins.get("root") == "line" else None,
                dev_root=options.dev_root if origins.get("dev_root") == "line" else None,
            )
        try:
            work(options=options, **values)
        except UsageError as error:
            error.where = error.where or _where(
                origins, _PARAMETERS.get(error.field, error.field) or _ABOUT.get(error.code, "")
            )
            raise

    return Subcommand(name or work.__name__, run, (*own, *shared), text or work.__doc__ or "", ends_options)


_NAME_PATHS = (("root", "dev_root"), ("list_", "library_path", "cdi_dir"))
"""The options that name what a plan is made of; the first ones are where the others' paths are."""


def _without_untrusted(options: PlanOptions, origins: Mapping[str, Origin], command: str) -> PlanOptions:
    """Return *options* without the values that root's command does not take from a variable."""
    for names in _NAME_PATHS:
        given = {f"GPUBIND_{name.strip('_').upper()}": name for name in names if origins.get(name) == "variable"}
        ignored = [one for one in _untrusted(options) if one.variable in given] if given else []
        if ignored:
            from gpubind.cli.settings import defaults_for

            defaults = defaults_for(command)
            left: dict[str, Any] = {given[one.variable]: defaults.get(given[one.variable]) for one in ignored}
            options = options._replace(**left)
        if ignored and options.host is not None:  # a recorded host has no findings about this machine
            from gpubind.cli.output import report
            from gpubind.planner.planning import trust_finding

            report(map(trust_finding, ignored), brief=True)
    return options


def _untrusted(options: PlanOptions) -> "Iterator[Untrusted]":
    from gpubind.host.directories import untrusted_variables

    return untrusted_variables(os.environ, options.root or "/", options.dev_root or options.root or "/")


_PARAMETERS = {"cdi_directories": "cdi_dir", "cdi_devices": "cdi_device", "listfile": "list_"}
"""The parameters of the fields of `Request` that have another name."""
_ABOUT = {"unknown-backend": "backend", "unknown-gpu": "gpus", "ambiguous-gpu": "gpus"}
"""The parameters that errors are about which no field of `Request` raises."""


def _where(origins: Mapping[str, Origin], option: str) -> str:
    """The variable or the configuration file that the value of *option* comes from; empty for the command line."""
    origin = origins.get(option)
    if origin == "variable":
        return f"the variable GPUBIND_{option.strip('_').upper()}"
    if origin == "settings":
        from gpubind.cli.settings import file_of

        key = option.strip("_").replace("_", "-")
        return f"`{key}` in {file_of(key)}"
    return ""


def open_host_of(options: PlanOptions) -> "Host":
    """Return the host that the options name."""
    from gpubind.host.open import open_host

    return open_host(options.host, options.root, options.dev_root)


def open_image_of(image: Optional[str], host: "Host") -> Optional["Image"]:
    """Return the image that --image names, if it was given; of several architectures, the one for *host*."""
    if image is None:
        return None
    from gpubind.image import open_image

    return open_image(image, host.uname.machine)


def plan_of(
    options: PlanOptions, host: "Host", *, like: Optional[str] = None, image: Optional["Image"] = None
) -> "Plan":
    """Return the plan that the options ask for. Errors: as `plan_host`."""
    from gpubind.planner.planning import plan_host

    return plan_host(host, query_of(options, like), image)


def query_of(options: PlanOptions, like: Optional[str] = None) -> "Query":
    """Return what the options ask of a plan."""
    from gpubind.planner.planning import Query

    request = Request(
        vendors=vendors_of(options),
        caps=_caps(options.caps),
        source=options.source,
        completion=options.completion,
        library_path=tuple(RootedPath(path) for path in options.library_path or ()),
        like=like,
        libdir=ContainerPath(options.libdir) if options.libdir else None,
        vendor_neutral=options.vendor_neutral,  # type: ignore[arg-type]  # asked by `checked`, as the three below
        gpus=options.gpus,
        cdi_directories=tuple(options.cdi_dir or ()),
        cdi_devices=tuple(options.cdi_device or ()),
        userspace=options.userspace,  # type: ignore[arg-type]
        cuda_compat=options.cuda_compat,  # type: ignore[arg-type]
        libc=options.libc,  # type: ignore[arg-type]
    )
    return Query(request, options.list_, _option)


_OPTIONS = {
    "cdi_devices": "--cdi-device",
    "cdi_directories": "--cdi-dir",
    "listfile": "--list",
    "vendors": "--nv and --rocm",
}


def _option(field: str) -> str:
    """Return the option by which the user says a field of `Request`."""
    return _OPTIONS.get(field) or "--" + field.replace("_", "-")


def vendors_of(options: PlanOptions) -> tuple[Vendor, ...]:
    """Return those that are asked for by name; else none, which stands for every vendor found."""
    asked: dict[Vendor, bool] = {"nvidia": options.nv, "amd": options.rocm}
    return tuple(vendor for vendor in VENDORS if asked[vendor])


def _caps(text: Optional[str]) -> Optional[tuple[Capability, ...]]:
    """`compute,utility` -> the names, which `checked` asks whether they are capabilities."""
    if text is None:
        return None
    return tuple(sorted({name.strip() for name in text.split(",")} - {""}))  # type: ignore[arg-type]
