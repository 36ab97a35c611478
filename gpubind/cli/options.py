"""What the options of a command ask for: the command run with them, the host, the image and the plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional

from gpubind.cli.declarations import PLAN_OPTIONS, Origin, PlanOptions, Subcommand
from gpubind.errors import UsageError
from gpubind.model import VENDOR_ROWS, Capability, ContainerPath, Request, RootedPath, Vendor

if TYPE_CHECKING:
    from gpubind.host import Host, ListFile
    from gpubind.host.base import Untrusted
    from gpubind.image.facts import Image
    from gpubind.planner.planning import Query


def run(command: Subcommand, values: Mapping[str, Any], origins: Mapping[str, Origin]) -> None:
    """Do the work of *command* with *values*. Errors: as the command, each with the setting that is wrong."""
    names = {option.parameter for option in command.shared} - {option.parameter for option in command.own}
    others = {name: value for name, value in values.items() if name not in names}
    if command.remote:
        others["origins"] = origins
    if not command.shared:
        return command.work(**others)
    if values.get("require") is not None:
        _need_no_host(command, origins)
    by_site = frozenset(name for name in names if origins.get(name) in ("variable", "settings"))
    options = PlanOptions(**{name: values[name] for name in names}, by_site=by_site)
    options = _without_untrusted(options, origins, command)
    if options.host is not None or values.get("host"):
        # A root that a site or variable sets is meant for this machine, not for a recorded one.
        options = options._replace(
            root=options.root if origins.get("root") == "line" else None,
            dev_root=options.dev_root if origins.get("dev_root") == "line" else None,
        )
    try:
        command.work(options=options, **others)
    except UsageError as error:
        from gpubind.cli.settings import place_of

        name = _option(error.field) if error.field else _ABOUT.get(error.code)
        about = (option for option in command.options if option.name == name)
        error.where = error.where or "".join(place_of(option, origins[option.parameter]) for option in about)
        raise


def _need_no_host(command: Subcommand, origins: Mapping[str, Origin]) -> None:
    """Errors: `UsageError` for an option on the line that is about a host or a start: --require compares with none."""
    for option in command.options:
        is_about_image = option.group in ("Filtering", "Output") or option.name in ("--image", "--program", "--require")
        if origins.get(option.parameter) == "line" and (not is_about_image or option.name == "--expect"):
            what = f"{option.name} is about a host or a start, and --require compares the image with a policy"
            raise UsageError("require-with-host", what, hint="leave one of them out")


_ABOUT = {
    "unknown-backend": "--backend",
    "unknown-gpu": "--gpus",
    "ambiguous-gpu": "--gpus",
    "inseparable-gpus": "--gpus",
}
"""The options that errors are about which are about no field of `Request`."""


_NAME_PATHS = (("--root", "--dev-root"), ("--list", "--library-path", "--cdi-dir"))
"""The options that name the sources of a plan; the paths of the second ones are below the first ones."""


def _without_untrusted(options: PlanOptions, origins: Mapping[str, Origin], command: Subcommand) -> PlanOptions:
    """Return *options* without the values that root's command does not take from a variable."""
    for names in _NAME_PATHS:
        named = [option for option in PLAN_OPTIONS if option.name in names]
        given = {option.variable: option.parameter for option in named if origins.get(option.parameter) == "variable"}
        ignored = [one for one in _untrusted(options) if one.variable in given] if given else []
        if ignored:
            from gpubind.cli.settings import defaults_for

            defaults = defaults_for(command)
            left: dict[str, Any] = {given[one.variable]: defaults.get(given[one.variable]) for one in ignored}
            options = options._replace(**left)
        if ignored and options.host is not None:  # a recorded host has no findings about this machine
            from gpubind.cli.output import report
            from gpubind.host.base import trust_finding

            report(map(trust_finding, ignored), brief=True)
    return options


def _untrusted(options: PlanOptions) -> Iterator[Untrusted]:
    from gpubind.host.directories import untrusted_variables

    return untrusted_variables(os.environ, options.root or "/", options.dev_root or options.root or "/")


def open_host_of(options: PlanOptions) -> Host:
    """Return the host that the options name."""
    from gpubind.host.open import open_host

    return open_host(options.host, options.root, options.dev_root)


@contextmanager
def reading(host: Host, request: Optional[Request] = None, listfile: Optional[ListFile] = None) -> Iterator[None]:
    """Report what of *host* is ignored, or could not be read, within."""
    from gpubind.cli.output import report
    from gpubind.host.base import dev_root_assumed, not_looked_at
    from gpubind.planner.planning import trust_findings

    try:
        yield
    finally:
        ignored = trust_findings(host, request, listfile)
        report((*ignored, *dev_root_assumed(host), *not_looked_at(host)), brief=True)


def open_image_of(image: Optional[str], host: Host) -> Optional[Image]:
    """Return the image that --image names, if it was given; of several architectures, the one for *host*."""
    if image is None:
        return None
    from gpubind.image.open import open_image

    return open_image(image, host.uname.machine)


def query_of(options: PlanOptions, like: Optional[str] = None) -> Query:
    """Return what the options ask of a plan."""
    from gpubind.planner.planning import Query

    request = Request(
        vendors=vendors_of(options),
        caps=_caps(options.caps),
        source=options.source,
        completion=options.completion,
        library_path=tuple(RootedPath(path) for path in options.library_path or ()),
        like=like,
        libdir=ContainerPath(options.libdir) if options.libdir is not None else None,
        vendor_neutral=options.vendor_neutral,  # type: ignore[arg-type]  # asked by `checked`, as the three below
        gpus=options.gpus,
        cdi_directories=tuple(options.cdi_dir or ()),
        cdi_devices=tuple(options.cdi_device or ()),
        userspace=options.userspace,  # type: ignore[arg-type]
        cuda_compat=options.cuda_compat,  # type: ignore[arg-type]
        libc=options.libc,  # type: ignore[arg-type]
    )
    fields = {parameter: field for field, parameter in _PARAMETERS.items()}
    own_only = frozenset(fields.get(parameter, parameter) for parameter in options.by_site)
    return Query(request, options.list_, _option, own_only)


_PARAMETERS = {"cdi_devices": "cdi_device", "cdi_directories": "cdi_dir", "listfile": "list_"}
"""The fields that have another name than their option."""


def _option(field: str) -> str:
    return f"--{_PARAMETERS.get(field, field).rstrip('_').replace('_', '-')}"


def vendors_of(options: PlanOptions) -> tuple[Vendor, ...]:
    """Return those that are asked for by name; else none, which stands for every vendor found."""
    return tuple(vendor for vendor, row in VENDOR_ROWS.items() if getattr(options, row.option))


def _caps(text: Optional[str]) -> Optional[tuple[Capability, ...]]:
    """`compute,utility` -> the names, which `checked` asks whether they are capabilities."""
    if text is None:
        return None
    return tuple(sorted({name.strip() for name in text.split(",")} - {""}))  # type: ignore[arg-type]
