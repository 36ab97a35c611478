"""Run a command with its values. Turn options into the host, the image and the query of a plan."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional

from gpubind.cli.declarations import LIKE, PLAN_OPTIONS, Option, Origin, PlanOptions, Subcommand
from gpubind.errors import UsageError
from gpubind.machine import system
from gpubind.model import VENDOR_ROWS, Request

if TYPE_CHECKING:
    from typing import BinaryIO

    from gpubind.host import Host, ListFile
    from gpubind.image.facts import Image
    from gpubind.planner.planning import PlanQuery


def run(command: Subcommand, values: Mapping[str, Any], origins: Mapping[str, Origin]) -> None:
    """Run *command* with *values*. Errors: as the command; a `UsageError` names the setting that is wrong."""
    names = {option.parameter for option in command.shared} - {option.parameter for option in command.own_options}
    others = {name: value for name, value in values.items() if name not in names}
    if command.remote:
        others["origins"] = origins
    if not command.shared:
        return command.run(**others)
    if values.get("require") is not None:
        _need_no_host(command, origins)
    shared = {name: values[name] for name in names}
    _drop_untrusted(shared, origins, command)
    if values.get("host") is not None:
        # A root that a site or variable sets is meant for this machine, not for a recorded one.
        shared.update((name, None) for name in ("root", "dev_root") if origins.get(name) != "line")
    try:
        command.run(options=_plan_options(shared, origins), **others)
    except UsageError as error:
        from gpubind.cli.settings import setting_location

        name = _option_of_field(error.field) if error.field else _ABOUT.get(error.code)
        about = (option for option in command.options if option.name == name)
        error.where = error.where or "".join(setting_location(option, origins[option.parameter]) for option in about)
        raise


def _plan_options(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> PlanOptions:
    set_options = [option for option in PLAN_OPTIONS if option.field and values.get(option.parameter) is not None]
    fields = {option.field: _field(option, values[option.parameter]) for option in set_options}
    fields["vendors"] = tuple(vendor for vendor, row in VENDOR_ROWS.items() if values.get(row.option))
    by_site = (option.field for option in set_options if origins[option.parameter] in ("variable", "settings"))
    host, root, dev_root = (values.get(name) for name in ("host", "root", "dev_root"))
    return PlanOptions(host, root, dev_root, fields.pop("listfile", None), frozenset(by_site), Request(**fields))


def _field(option: Option, value: Any) -> Any:
    """Return *value* as its field holds it. `validated_request` rejects unknown names in `compute,utility`."""
    if option.splits_commas:
        return tuple(sorted({name.strip() for name in value.split(",")} - {""}))
    return tuple(value) if option.is_repeatable else value


def _need_no_host(command: Subcommand, origins: Mapping[str, Origin]) -> None:
    """Errors: `UsageError` for an option on the line that concerns a host or a start: --require uses neither."""
    for option in command.options:
        is_about_image = option.group in ("Filtering", "Output") or option.name in ("--image", "--program", "--require")
        if origins.get(option.parameter) == "line" and (not is_about_image or option.name == "--expect"):
            message = f"{option.name} is about a host or a start, and --require compares the image with a policy"
            raise UsageError("require-with-host", message, hint="leave one of them out")


_ABOUT = {
    "unknown-backend": "--backend",
    "unknown-gpu": "--gpus",
    "ambiguous-gpu": "--gpus",
    "inseparable-gpus": "--gpus",
}
"""For the code of an error that names no field of `Request`, the option that the error concerns."""


_PATH_OPTIONS = (("--root", "--dev-root"), ("--list", "--library-path", "--cdi-dir"))
"""The options that name the sources of a plan. Paths of the second group are below those of the first."""


def _drop_untrusted(values: dict[str, Any], origins: Mapping[str, Origin], command: Subcommand) -> None:
    """Replace each value by its default if a command of root does not trust the variable that set it."""
    for names in _PATH_OPTIONS:
        path_options = [option for option in PLAN_OPTIONS if option.name in names]
        parameters = {
            option.variable: option.parameter for option in path_options if origins.get(option.parameter) == "variable"
        }
        if not parameters:
            continue
        from gpubind.host.directories import untrusted_variables

        root = values.get("root") or "/"
        untrusted = untrusted_variables(system.environ(), root, values.get("dev_root") or root)
        ignored = [each for each in untrusted if each.variable in parameters]
        if ignored:
            from gpubind.cli.settings import defaults_for

            defaults, replaced = defaults_for(command), [parameters[each.variable] for each in ignored]
            values.update((name, defaults.get(name)) for name in replaced)
        if ignored and values.get("host") is not None:  # a recorded host has no findings about this machine
            from gpubind.cli.output import report
            from gpubind.host.base import trust_finding

            report(map(trust_finding, ignored), brief=True)


def open_host_of(options: PlanOptions) -> Host:
    """Return the host that the options name."""
    from gpubind.host.open import open_host

    return open_host(options.host, options.root, options.dev_root)


@contextmanager
def report_unreadable(
    host: Host, request: Optional[Request] = None, listfile: Optional[ListFile] = None
) -> Iterator[None]:
    """Report the ignored and unreadable parts of *host* at the end of the context."""
    from gpubind.cli.output import report
    from gpubind.host.base import assumption_findings, unreadable_path_findings
    from gpubind.planner.planning import trust_findings

    try:
        yield
    finally:
        ignored = trust_findings(host, request, listfile)
        report((*ignored, *assumption_findings(host), *unreadable_path_findings(host)), brief=True)


def open_image_of(image: Optional[str], host: Host) -> Optional[Image]:
    """Return the image, in the architecture of *host* if it has several; None without --image."""
    if image is None:
        return None
    from gpubind.image.open import open_image

    return open_image(image, host.uname.machine)


def standard_input_for(images: Sequence[str]) -> Optional[BinaryIO]:
    """Return standard input if one of *images* is `-`. Errors: `UsageError` (`wrong-use`) for two, or a terminal."""
    from gpubind.image.reference import STDIN
    from gpubind.machine.listener import mark_uncacheable

    if STDIN not in images:
        return None
    mark_uncacheable("standard input is read")
    if images.count(STDIN) > 1:
        raise UsageError("wrong-use", "only one image can come from standard input", hint="name the others as files")
    if sys.stdin is None or sys.stdin.isatty():
        problem = f"the image `-` is on standard input, which is {'closed' if sys.stdin is None else 'a terminal'}"
        raise UsageError("wrong-use", problem, hint="`docker save IMAGE | gpubind check --image -`")
    return sys.stdin.buffer


def query_of(options: PlanOptions, like: Optional[str] = None) -> PlanQuery:
    """Return the options as the query of a plan."""
    from gpubind.planner.planning import PlanQuery

    return PlanQuery(options.request._replace(like=like), options.listfile, _option_of_field, options.by_site)


def _option_of_field(field: str) -> str:
    return next((each.name for each in (*PLAN_OPTIONS, LIKE) if each.field == field), f"--{field}")
