"""Validate a request before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Optional, get_args

from gpubind.errors import FormatError, UsageError, suggest_known
from gpubind.model import CAPABILITIES, VENDORS, Capability, ContainerPath, Request, RootedPath, Side
from gpubind.planner.placement import CDI_LAYOUT_NAME, SINGULARITY_LAYOUT, Layout

SOURCES = ("auto", "nvidia-container-cli", "liblist", "driver", "cdi")
_SIDE_FIELDS = ("vendor_neutral", "userspace", "cuda_compat", "libc")


def validate_request(
    request: Request,
    *,
    has_list: bool = False,
    layout: Optional[Layout] = None,
    option_name: Callable[[str], str] = str,
    own_only: Collection[str] = (),
) -> Request:
    """Return *request* with every value normalized.

    *has_list*: whether a list file replaces the installed one. *layout* places the files. *option_name* returns the
    caller's name of a field, for messages. *own_only*: fields that only gpubind's own plan uses.
    Errors: `UsageError` with the codes `wrong-type`, `unknown-vendor`, `unknown-capability`, `unknown-source`,
    `unknown-side`, `cdi-with-source`, `cdi-with-gpus`, `bad-cdi-name`, `bad-gpus`, `unknown-flavour`,
    `like-with-option`, `fixed-libdir`, `list-with-source`, `list-for-two`, `not-absolute`.
    """
    request = _with_tuples(request)
    if request.like is not None:
        request = _reset_ignored_fields(request, own_only, option_name, has_list=has_list)
    if request.source not in SOURCES:
        message = f"unknown source `{request.source}`"
        raise UsageError("unknown-source", message, hint=suggest_known(SOURCES, request.source)).about("source")
    if request.cdi_devices and request.source == "auto":
        request = request._replace(source="cdi")
    _require_only_cdi_devices(request, option_name)
    for field in _SIDE_FIELDS:
        side = getattr(request, field)
        if side not in get_args(Side):
            message = f"{option_name(field)}: unknown side `{side}`"
            raise UsageError("unknown-side", message, hint=suggest_known(get_args(Side), side)).about(field)
    for vendor in request.vendors:
        if vendor not in VENDORS:
            raise UsageError("unknown-vendor", f"unknown vendor `{vendor}`", hint=suggest_known(VENDORS, vendor))
    if request.caps is not None:
        request = request._replace(caps=_known_caps(request.caps, option_name))
    if request.libdir is not None and layout is not None:
        _require_movable_libdir(layout, option_name)
    if has_list:
        request = _for_list_file(request, option_name)
    _need_gpus(request, option_name)
    libdir, directories = request.libdir, request.cdi_directories
    return request._replace(
        vendors=tuple(vendor for vendor in VENDORS if vendor in request.vendors),
        library_path=tuple(
            RootedPath(_validate_path("library_path", path, option_name)) for path in request.library_path
        ),
        libdir=None if libdir is None else ContainerPath(_validate_path("libdir", libdir, option_name)),
        cdi_directories=tuple(_validate_path("cdi_directories", path, option_name) for path in directories),
    )


def _known_caps(caps: Sequence[str], option_name: Callable[[str], str]) -> tuple[Capability, ...]:
    """Sort *caps*, and expand `all`. Errors: `UsageError` (code `unknown-capability`)."""
    caps = CAPABILITIES if "all" in caps else caps
    unknown = next((cap for cap in caps if cap not in CAPABILITIES), None)
    if unknown is not None or not caps:
        message = f"unknown capability `{unknown}`" if unknown else f"{option_name('caps')} names no capability"
        hint = suggest_known((*CAPABILITIES, "all"), unknown or "")
        raise UsageError("unknown-capability", message, hint=hint).about("caps")
    return tuple(cap for cap in CAPABILITIES if cap in caps)


def _with_tuples(request: Request) -> Request:
    """Return *request* with tuples for lists. Errors: `UsageError` (code `wrong-type`)."""
    tuples: dict[str, Any] = {}
    for field, default in Request._field_defaults.items():
        value = getattr(request, field)
        if value is None and default is None:
            continue
        expected = "True or False" if isinstance(default, bool) else "a string"
        is_right = isinstance(value, bool if isinstance(default, bool) else str)
        if isinstance(default, tuple) or field == "caps":
            expected = "a tuple of strings"
            is_right = isinstance(value, (tuple, list)) and all(isinstance(item, str) for item in value)
            tuples[field] = tuple(value) if is_right else ()
        if not is_right:
            raise UsageError("wrong-type", f"{field} wants {expected}, not {value!r:.80}")
    return request._replace(**tuples)


def _reset_ignored_fields(
    request: Request, own_only: Collection[str], option_name: Callable[[str], str], *, has_list: bool
) -> Request:
    """Reset the fields of *own_only* that the flavour ignores. Errors: `UsageError` (`like-with-option`) for others."""
    from gpubind.planner.like import ignored_fields, parse_flavour

    ignored = [*ignored_fields(request), *(["listfile"] if has_list else ())]
    for field in ignored:
        if field not in own_only:
            flavour = parse_flavour(request)
            message = f"{option_name(field)} cannot be used with {option_name('like')} {request.like}"
            why = f"it is about gpubind's own plan; {flavour.program} itself has no such choice"
            if field == "caps" and flavour.matches_class:
                why = f"{flavour.program} can add compat32, and takes no other choice of capabilities"
            raise UsageError("like-with-option", message, why=why, hint="leave one of them out").about(field)
    defaults = Request._field_defaults
    return request._replace(**{field: defaults[field] for field in ignored if field in defaults})


def _require_movable_libdir(layout: Layout, option_name: Callable[[str], str]) -> None:
    """Raise `UsageError` (code `fixed-libdir`) if the libraries of *layout* cannot be in another directory."""
    if layout.searched:
        message = f"{option_name('libdir')} cannot move the libraries of this plan"
        why = "no loader searches another directory by itself, and this plan cannot add to the image's search path"
        hint = f"leave it out, or give --cdi-hook with --format {CDI_LAYOUT_NAME}, where nvidia-cdi-hook is installed"
        raise UsageError("fixed-libdir", message, why=why, hint=hint)
    if layout.name == SINGULARITY_LAYOUT.name:
        why = "Apptainer and SingularityCE have one directory for libraries from outside"
        raise UsageError("fixed-libdir", f"{option_name('libdir')} cannot move {layout.libdir}", why=why)


def _require_only_cdi_devices(request: Request, option_name: Callable[[str], str]) -> None:
    """Raise `UsageError` if CDI devices are named and another option chooses as well."""
    if not request.cdi_devices:
        return
    devices = option_name("cdi_devices")
    if request.source != "cdi":
        message = f"{devices} cannot be used with {option_name('source')} {request.source}"
        raise UsageError("cdi-with-source", message)
    if request.gpus is not None:
        raise UsageError("cdi-with-gpus", f"{devices} and {option_name('gpus')} both choose: give one of them")
    from gpubind.formats.driver.cdi import parse_cdi_name

    for name in request.cdi_devices:
        try:
            parse_cdi_name(name)
        except FormatError as error:
            hint = "a device's whole name is wanted: nvidia.com/gpu=0"
            raise UsageError(error.code, error.what, why=error.why, hint=hint) from error


def _for_list_file(request: Request, option_name: Callable[[str], str]) -> Request:
    if request.source not in ("auto", "liblist"):
        message = f"{option_name('listfile')} cannot be used with {option_name('source')} {request.source}"
        raise UsageError("list-with-source", message)
    if len(request.vendors) > 1:
        message = f"{option_name('listfile')} is one vendor's list, and {len(request.vendors)} vendors are asked for"
        hint = "plan each vendor by itself, or put both lists where gpubind looks for them"
        raise UsageError("list-for-two", message, hint=hint)
    return request._replace(vendors=request.vendors or ("nvidia",))


def _need_gpus(request: Request, option_name: Callable[[str], str]) -> None:
    """Raise `UsageError` for a malformed `gpus`, even on a host without GPUs."""
    if request.gpus is None:
        return
    from gpubind.formats.driver.gpu_names import parse_gpus_option

    try:
        parse_gpus_option(request.gpus)
    except UsageError as error:
        raise error.about("gpus") from None


def _validate_path(field: str, path: str, option_name: Callable[[str], str]) -> str:
    """Return *path* without doubled and trailing slashes. Errors: `UsageError` if it cannot be in a search path."""
    parts = [part for part in path.split("/") if part]
    plain = path.startswith("/") and parts and not {".", ".."} & set(parts)
    if not plain or ":" in path or not path.isprintable():
        why = "it may hold no `.`, `..`, colon or control character"
        message = f"{option_name(field)} wants an absolute path below /, not `{path}`"
        raise UsageError("not-absolute", message, why=why).about(field)
    return "/" + "/".join(parts)
