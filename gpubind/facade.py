"""The pipeline, end to end: a host, a request, a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from gpubind import __version__
from gpubind.errors import UsageError
from gpubind.host import Host, ListFile
from gpubind.host.open import open_host
from gpubind.model import Finding, Plan, Request
from gpubind.planner import make_plan
from gpubind.planner.placement import GPUBIND, Layout
from gpubind.sources.vendors import read_inventories

if TYPE_CHECKING:
    from gpubind.image import Image

__all__ = ["check", "open_host", "open_image", "plan", "record"]


def open_image(reference: str, machine: Optional[str] = None) -> Image:
    """The image that *reference* names, of several the one for *machine*: see `gpubind.image.open_image`."""
    from gpubind.image import open_image as open_it

    return open_it(reference, machine)


def plan(
    host: Host,
    request: Request,
    listfile: Optional[ListFile] = None,
    image: Optional[Image] = None,
    layout: Layout = GPUBIND,
) -> Plan:
    """What a container needs of *host*, in *image* if one is given.

    *layout* is where things land there. *listfile* takes the place of the list file in force.
    Errors: `NothingToBindError` when the host has no driver library and no device of any vendor that is asked for;
    `FormatError` (with the file named) for a malformed list file; `HostReadError`.
    """
    if request.like is not None:
        from gpubind.like import like_plan

        return like_plan(host, request)
    found = read_inventories(host, request, listfile)
    request = request._replace(vendors=tuple(inventory.driver.vendor for inventory in found.inventories))
    fit = None
    if image is not None:
        from gpubind.ldso.fit import fit_compat, fit_files

        files = [file for inventory in found.inventories for file in inventory.files]
        asked = request.userspace if "amd" in request.vendors else None
        fit = fit_files(host.driver, files, image.loader, image.facts, asked)
        if image.facts.compat and "nvidia" in request.vendors:
            fit = fit_compat(host.driver, files, image.loader, fit)
    # Devices that are named choose for themselves.
    environ = {} if request.cdi_devices else host.environ
    return make_plan(found.inventories, request, layout, fit, environ=environ, found=found.findings)


def check(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    *,
    backend: Optional[str] = None,
    program: Optional[str] = None,
) -> tuple[Finding, ...]:
    """What will not work with *plan* on *host*, in *image* if one is given: errors first, then by code and subject.

    *backend* is the name of the runtime that will start it; *program* is what will run, as the image has it. Errors:
    `UsageError` (code `program-without-image`).
    """
    if program is not None and image is None:
        raise UsageError("program-without-image", "a program is looked for in an image, and none is given")
    from gpubind.rules import check as check_start
    from gpubind.rules import preflight

    return check_start(preflight(host, plan, image, backend=backend, program=program))


def record(host: Host, description: str = "", hostname: Optional[str] = None) -> str:
    """*host* as the text of a record: what `--host FILE` reads."""
    from gpubind.errors import HostReadError
    from gpubind.formats.record import SIZE_LIMIT, dump_record
    from gpubind.host.survey import survey

    text = dump_record(survey(host, description, hostname), __version__)
    if len(text) > SIZE_LIMIT:
        why = f"{len(text)} bytes; {SIZE_LIMIT} can be read again"
        raise HostReadError("unreadable-file", "this host is too large for a record", where=host.driver.root, why=why)
    return text
