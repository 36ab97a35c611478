"""Commands and options. Bodies import their work, so that no command loads what it does not use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Optional, get_args

import typer

from gpubind import __version__
from gpubind.errors import EXIT_FINDING, UsageError
from gpubind.model import CAPABILITIES, DEFAULT_CAPABILITIES, Capability, ContainerPath, Request, RootedPath

if TYPE_CHECKING:
    from gpubind.host import Host, ListFile
    from gpubind.model import Plan

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan what a container must get from this GPU host, explain it, and hand it to any container runtime.",
)

SOURCES = ("auto", "liblist", "driver")
FORMATS = ("table", "text", "json", "paths")

Nv = Annotated[bool, typer.Option("--nv", help="Plan for NVIDIA. Without a vendor option: every vendor found.")]
Root = Annotated[
    Optional[str], typer.Option(metavar="DIR", envvar="GPUBIND_ROOT", help="Where the driver's user space is. [/]")
]
DevRoot = Annotated[
    Optional[str],
    typer.Option(metavar="DIR", envvar="GPUBIND_DEV_ROOT", help="Where /dev, /proc and /sys are. [--root, or /]"),
]
HostOption = Annotated[
    Optional[str],
    typer.Option("--host", metavar="FILE|NAME", help="Plan for a recorded host: a record, or one that ships."),
]
Source = Annotated[str, typer.Option(envvar="GPUBIND_SOURCE", help="Who names the files: auto, liblist or driver.")]
ListOption = Annotated[
    Optional[str],
    typer.Option("--list", metavar="FILE", envvar="GPUBIND_LIST", help="Use this list file, and nothing beside it."),
]
LibraryPath = Annotated[
    Optional[list[str]],
    typer.Option(metavar="DIR", envvar="GPUBIND_LIBRARY_PATH", help="Also search this directory. Repeatable."),
]
Caps = Annotated[
    Optional[str],
    typer.Option(
        metavar="LIST",
        envvar="GPUBIND_CAPS",
        help="Driver capabilities, separated by commas: " + ", ".join(CAPABILITIES) + ", or all. [all but compat32]",
    ),
]
Like = Annotated[
    Optional[str],
    typer.Option(
        metavar="FLAVOUR",
        help="Plan exactly what that program's own --nv binds: apptainer, apptainer-1.4, apptainer-1.5, singularity.",
    ),
]
Completion = Annotated[
    bool, typer.Option(envvar="GPUBIND_COMPLETION", help="Complete the shipped list from the driver itself.")
]
Libdir = Annotated[
    Optional[str],
    typer.Option(
        metavar="DIR", envvar="GPUBIND_LIBDIR", help="Where libraries land in the container. [/.gpubind/libs]"
    ),
]
Output = Annotated[
    Optional[str], typer.Option("-o", "--output", metavar="FILE", help="Write to a file. [standard output]")
]


def _version(wanted: bool) -> None:
    if wanted:
        from gpubind.cli.output import write_document

        write_document(f"gpubind {__version__}\n", None)
        raise typer.Exit


@app.callback()
def gpubind(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    from gpubind.cli.settings import read_settings

    settings = read_settings()
    if settings:
        renamed = {"list": "list_", "format": "format_"}
        defaults = {renamed.get(key, key.replace("-", "_")): value for key, value in settings.items()}
        context.default_map = {"plan": defaults, "explain": defaults}


@app.command()
def plan(
    nv: Nv = False,
    caps: Caps = None,
    source: Source = "auto",
    list_: ListOption = None,
    completion: Completion = True,
    library_path: LibraryPath = None,
    root: Root = None,
    dev_root: DevRoot = None,
    host: HostOption = None,
    like: Like = None,
    libdir: Libdir = None,
    format_: Annotated[
        Optional[str],
        typer.Option(
            "--format",
            metavar="FORMAT",
            envvar="GPUBIND_FORMAT",
            help="table, text, json or paths. [table on a terminal, else text]",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Output = None,
    strict: Annotated[
        bool, typer.Option("--strict", envvar="GPUBIND_STRICT", help="Exit 1 if there is an error finding.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not report findings on standard error.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also show what was left out, and why.")] = False,
) -> None:
    """Say what a container needs of this host: binds, device nodes, environment."""
    from gpubind.cli.output import is_terminal, write_document

    chosen = _format(format_, json, terminal=output is None and is_terminal())
    made = _plan(host, root, dev_root, list_, caps, source, completion, library_path, like, libdir)
    write_document(_render(made, chosen, verbose, colour=output is None and is_terminal()), output)
    if not quiet and chosen != "json":
        _report(made, chosen)
    if strict and any(finding.severity == "error" for finding in made.findings):
        raise typer.Exit(EXIT_FINDING)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A soname, a file name, a path, or a pattern of those.")],
    nv: Nv = False,
    caps: Caps = None,
    source: Source = "auto",
    list_: ListOption = None,
    completion: Completion = True,
    library_path: LibraryPath = None,
    root: Root = None,
    dev_root: DevRoot = None,
    host: HostOption = None,
    like: Like = None,
    libdir: Libdir = None,
) -> None:
    """Say why a file is in the plan or not: who named it, where it was looked for, which rule decided."""
    from gpubind.cli.output import write_document
    from gpubind.documents.text import render_explanation
    from gpubind.explanation import explain as explain_name

    made = _plan(host, root, dev_root, list_, caps, source, completion, library_path, like, libdir)
    write_document(render_explanation(explain_name(made, name)), None)


@app.command()
def record(
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="The record to write; - for standard output.")
    ],
    root: Root = None,
    dev_root: DevRoot = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="A line that says which host this is.")] = "",
    hostname: Annotated[bool, typer.Option("--hostname", help="Keep this machine's name in the record.")] = False,
) -> None:
    """Capture this host, so that plans for it can be made anywhere with --host FILE.

    A record holds listings, facts and small texts of a fixed set of places; no file bodies, no user names, no
    environment but PATH and CUDA_MPS_PIPE_DIRECTORY.
    """
    from gpubind.cli.output import write_document
    from gpubind.facade import open_host
    from gpubind.facade import record as record_host

    name = os.uname().nodename if hostname else None
    write_document(record_host(open_host(None, root, dev_root), description, name), output)


def _plan(
    host: Optional[str],
    root: Optional[str],
    dev_root: Optional[str],
    list_: Optional[str],
    caps: Optional[str],
    source: str,
    completion: bool,
    library_path: Optional[list[str]],
    like: Optional[str],
    libdir: Optional[str],
) -> Plan:
    from gpubind.facade import open_host
    from gpubind.facade import plan as make

    if source not in SOURCES:
        raise UsageError("unknown-source", f"unknown source `{source}`", hint="known: " + ", ".join(SOURCES))
    opened: Host = open_host(host, root, dev_root)
    listfile: Optional[ListFile] = None
    if list_ is not None:
        from gpubind.host.open import read_listfile

        if source == "driver":
            raise UsageError("list-with-driver", "--list cannot be used with --source driver")
        listfile = read_listfile(list_)
    request = Request(
        caps=_caps(caps),
        caps_explicit=caps is not None,
        source=source,
        completion=completion,
        library_path=tuple(RootedPath(_absolute("--library-path", path)) for path in library_path or ()),
        like=like,
        libdir=ContainerPath(_absolute("--libdir", libdir).rstrip("/")) if libdir else None,
    )
    return make(opened, request, listfile)


def _caps(text: Optional[str]) -> tuple[Capability, ...]:
    """`compute,utility` -> the capabilities, in the order of `CAPABILITIES`."""
    if text is None:
        return DEFAULT_CAPABILITIES
    names = {name.strip() for name in text.split(",")} - {""}
    if "all" in names:
        return CAPABILITIES
    unknown = sorted(names - set(get_args(Capability)))
    if unknown or not names:
        what = f"unknown capability `{unknown[0]}`" if unknown else "--caps names no capability"
        raise UsageError("unknown-capability", what, hint="known: " + ", ".join((*CAPABILITIES, "all")))
    return tuple(capability for capability in CAPABILITIES if capability in names)


def _absolute(option: str, path: str) -> str:
    if not path.startswith("/") or path.rstrip("/") == "" or "\0" in path:
        raise UsageError("not-absolute", f"{option} wants an absolute path below /, not `{path}`")
    return path


def _format(format_: Optional[str], json: bool, *, terminal: bool) -> str:
    if json and format_ not in (None, "json"):
        raise UsageError("two-formats", f"--json and --format {format_} exclude each other")
    chosen = "json" if json else format_ or ("table" if terminal else "text")
    if chosen not in FORMATS:
        raise UsageError("unknown-format", f"unknown format `{chosen}`", hint="known: " + ", ".join(FORMATS))
    return chosen


def _render(plan: Plan, chosen: str, verbose: bool, *, colour: bool) -> str:
    if chosen == "json":
        from gpubind.documents.json import render_json

        return render_json(plan)
    if chosen == "table":
        from gpubind.cli.render import render_table

        return render_table(plan, verbose=verbose, colour=colour)
    from gpubind.documents import text

    return text.render_paths(plan) if chosen == "paths" else text.render_text(plan, verbose=verbose)


def _report(plan: Plan, chosen: str) -> None:
    from gpubind.cli.main import complain
    from gpubind.documents.text import render_finding

    for finding in plan.findings:
        complain(render_finding(finding))
