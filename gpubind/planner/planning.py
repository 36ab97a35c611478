"""Plan for a host: read its inventories, check which files the image can load, and make the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from posixpath import dirname
from typing import TYPE_CHECKING, Optional, Union

from gpubind.errors import NothingToBindError
from gpubind.frozen import NamedTuple
from gpubind.host import Host, ListFile
from gpubind.host.base import MANIFEST_VARIABLES, assumption_findings, trust_finding
from gpubind.host.open import read_listfile
from gpubind.inventory.vendors import nothing_to_bind_finding, read_inventories
from gpubind.model import ABSENT, Finding, Inventory, Missing, Plan, Request, finding, userspaces_of
from gpubind.planner.placement import GBM_BACKEND, GPUBIND_LAYOUT, Layout
from gpubind.planner.plan import empty_plan, make_plan
from gpubind.planner.request import validate_request

if TYPE_CHECKING:
    from gpubind.image.facts import Image
    from gpubind.loader.verdict import ImageFit

_PLAIN_PATH = re.compile(r"(/(?!\.\.?/)[A-Za-z0-9._+@-]{1,255}){1,16}")
"""A path that each runtime can bind."""


class PlanQuery(NamedTuple):
    """A request with its list file and the caller's names of options."""

    request: Request = Request()
    """The caller's request, which `plan_host` validates."""
    listfile: Union[ListFile, str, None] = None
    """The list file, or its path, that replaces the installed one."""
    option_name: Callable[[str], str] = str
    """A function that returns the caller's name of a `Request` field, for messages."""
    own_only: frozenset[str] = frozenset()
    """The fields that only gpubind's own plan uses: a plan with `like` ignores them."""

    def validated_request(self, layout: Optional[Layout] = None) -> Request:
        """Return the request with normalized values. Errors: as `validate_request`."""
        return validate_request(
            self.request,
            has_list=self.listfile is not None,
            layout=layout,
            option_name=self.option_name,
            own_only=self.own_only,
        )

    def read_listfile(self) -> Optional[ListFile]:
        """Return the list file. Errors: `HostReadError` (code `unreadable-file`)."""
        return read_listfile(self.listfile) if isinstance(self.listfile, str) else self.listfile


def plan_host(host: Host, query: PlanQuery, image: Optional[Image] = None, layout: Optional[Layout] = None) -> Plan:
    """Return the plan for containers of *image* on *host*; *layout* places its files there.

    Errors: `UsageError` for an invalid request (`validate_request`); `NothingToBindError` where the host has no driver
    library and no device of any requested vendor; `FormatError` for a malformed list file; `HostReadError`.
    """
    request = query.validated_request(layout)
    listfile = query.read_listfile() if request.like is None else None
    for tree, directories in ((host.dev, request.cdi_directories), (host.driver, request.library_path)):
        for directory in directories:
            tree.list(directory)  # raises for a record that does not contain the directory
    trust = (*trust_findings(host, request, listfile), *assumption_findings(host))
    if request.like is not None:
        from gpubind.planner.like import plan_builtin_flags

        plan = plan_builtin_flags(host, request)
        return plan._replace(findings=(*plan.findings, *trust, *_unreadable_findings(host, image)))
    try:
        host_inventories = read_inventories(host, request, listfile)
    except NothingToBindError as error:
        ignored = (warning.what for warning in trust if warning.severity == "warning")
        error.why = "; ".join(filter(None, (error.why, *ignored)))
        raise
    inventories = host_inventories.inventories
    request = request._replace(vendors=tuple(inventory.driver.vendor for inventory in inventories))
    fit = _fit(host, inventories, request, image) if image is not None else None
    # Named CDI devices leave the environment no choice.
    environ = {} if request.cdi_devices else host.environ
    findings = (
        *host_inventories.findings,
        *trust,
        *_unlisted_directory_findings(host, request, query.option_name),
        *_unreadable_findings(host, image),
    )
    return make_plan(inventories, request, layout or GPUBIND_LAYOUT, fit, environ=environ, findings=findings)


def plan_or_empty(host: Host, query: PlanQuery, image: Optional[Image] = None, layout: Optional[Layout] = None) -> Plan:
    """Return the plan of `plan_host`; where there is nothing to bind, an empty plan with a finding."""
    try:
        return plan_host(host, query, image, layout)
    except NothingToBindError as error:
        facts = image.facts if image is not None else None
        plan = empty_plan(layout or GPUBIND_LAYOUT, facts, query.request.vendors)
        return plan._replace(findings=(nothing_to_bind_finding(error),))


def trust_findings(
    host: Host, request: Optional[Request] = None, listfile: Optional[ListFile] = None
) -> Iterator[Finding]:
    """Yield a finding for each path that other users could change, if a command of root ignores the path, or uses it
    because an option names it.
    """
    below = (*request.library_path, *request.cdi_directories) if request is not None else ()
    yield from map(trust_finding, host.untrusted(below, () if listfile is None else (listfile.label,)))


def _unlisted_directory_findings(host: Host, request: Request, option_name: Callable[[str], str]) -> Iterator[Finding]:
    if not request.library_path and not request.cdi_directories:
        return
    lenient = host.lenient
    library_paths = [("library_path", lenient.driver, path) for path in request.library_path]
    cdi_directories = [("cdi_directories", lenient.dev, path) for path in request.cdi_directories]
    for field, tree, path in (*library_paths, *cdi_directories):
        listing = tree.list(path)
        if isinstance(listing, Missing) and listing.why != "unrecorded":
            case = "absent" if listing.why == "absent" else "other"
            yield finding("unlisted-directory", subject=path, case=case, option=option_name(field), reason=str(listing))


def _fit(host: Host, inventories: tuple[Inventory, ...], request: Request, image: Image) -> ImageFit:
    from gpubind.loader.fit import fit_compat, fit_files

    files = [file for inventory in inventories for file in inventory.files]
    userspaces = userspaces_of(request.vendors)
    fit = fit_files(host.driver, files, image.loader, image.facts, userspaces, request.userspace == "host")
    if request.libc != "image" or fit.lacks_glibc:
        from gpubind.loader.glibc import with_libc

        fit = with_libc(host.driver, files, image.loader, fit, request)
    if image.facts.compat and "nvidia" in request.vendors:
        fit = fit_compat(host.driver, files, image.loader, fit)
    if any(GBM_BACKEND in file.names for file in files):
        from gpubind.image.gbm import backend_directories

        fit = fit._replace(gbm=backend_directories(image))
    return fit._replace(manifests=tuple(_named_manifests(host, image)))


def _named_manifests(host: Host, image: Image) -> Iterator[tuple[str, ...]]:
    """Yield the system's paths in each value; other paths may be the user's own files, which runtimes bind."""
    for environ, name in product((image.facts.env, host.environ), MANIFEST_VARIABLES):
        paths = tuple(path for path in environ.get(name, "").split(":") if path.startswith(("/etc/", "/usr/")))
        plain = tuple(path for path in paths if _PLAIN_PATH.fullmatch(path) and _has_room(image, path))
        if plain and not any("nvidia" in path and not image.tree.lacks(path) for path in plain):
            yield plain


def _has_room(image: Image, path: str) -> bool:
    """Return whether *path* can be made in *image*: the nearest name above it that the image has is a directory."""
    parent = dirname(path)
    while image.tree.lstat(parent) == ABSENT:
        parent = dirname(parent)
    stat = image.tree.stat(parent)  # of the target of a link, which may be missing
    return not isinstance(stat, Missing) and stat.kind == "dir"


def _unreadable_findings(host: Host, image: Optional[Image]) -> Iterator[Finding]:
    if host.driver.unseen or host.dev.unseen or (image is not None and image.tree.unseen):
        from gpubind.host.base import unreadable_path_findings

        yield from unreadable_path_findings(host, image.tree if image is not None else None)
