"""Start a runtime's own command line with the plan in it: `command_of_line`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Optional

from gpubind.errors import CommandError, GpubindError, UsageError
from gpubind.host import Host
from gpubind.image.reference import native_reference
from gpubind.inventory.nodes import NVIDIA_MODULE
from gpubind.launch.caller import find_remote_daemon
from gpubind.launch.lasting import use_cdi_devices
from gpubind.launch.start import FALLBACK_ERRORS, inspect_start, log_start, prepare_start, report_builtin_flag
from gpubind.launch.target import UNREADABLE_IMAGE_ERRORS, StartRequest, StartTarget, start_as_written, with_target
from gpubind.launch.wrap.command import WrappedCommand, asks_by_flag, insert_gpubind, parse_command, rewrite
from gpubind.launch.wrap.gpus import SHOWN, GpuRequest, as_written, with_image
from gpubind.launch.wrap.passing import SITE_LIMIT, site_switches
from gpubind.launch.wrap.unread import without_plan
from gpubind.machine.listener import report_command
from gpubind.machine.regular import read_beginning
from gpubind.model import Gpu, Vendor, shorten_list, sorted_by_pci
from gpubind.model.notice import Message, Notice
from gpubind.model.vendors import AMD_MODULE, CDI_KINDS
from gpubind.runtimes import PROGRAMS, WRAPPED
from gpubind.runtimes.cmdline.programs import Action
from gpubind.runtimes.lost_choice import choice_by_count
from gpubind.runtimes.runtime import STAGED_DIRECTORY, Command, PreparedStart, StartCall

_ACTIONS: dict[str, Action] = {"exec": "exec", "shell": "shell"}


def command_of_line(
    argv: tuple[str, ...],
    environ: Mapping[str, str],
    request: Callable[[], StartRequest],
    again: Callable[[], Sequence[str]],
    report: Callable[[Message], None],
) -> tuple[Command, Optional[WrappedCommand]]:
    """Return the command for *argv* in *environ*, and the parsed line if the command contains a plan.

    *request* is called if a plan is made. *again* returns the arguments that start this program, for a line that starts
    its runtime in another environment. Errors: as `parse_command` and `make_command`.
    """
    as_given = Command(argv, environ, changed=False)
    try:
        line = parse_command(argv, environ, site_switches(argv, lambda path: read_beginning(path, SITE_LIMIT)))
    except UsageError as error:
        if asks_by_flag(argv):
            raise
        start_as_written(request(), error)
        return as_given, None
    if line is None:
        warning = without_plan(argv, environ)
        if warning is not None:
            report(warning)
        return as_given, None
    if not line.starts_here:
        return Command(insert_gpubind(line, again()), environ), None
    command = _wrapped_command(request(), line)
    return (as_given, None) if command is None else (command, line)  # the program's own flag stays


def _wrapped_command(request: StartRequest, line: WrappedCommand) -> Optional[Command]:
    """Return *line* with the plan in it; None if it is to start unchanged. Errors: as `make_command`."""
    runtime = WRAPPED[line.runtime]
    request = request._replace(
        arguments=line.user_options,
        global_options=line.global_options,
        is_entered=line.is_entered,
        container="created" if line.subcommand[-1:] == ("create",) else "kept",
        keeps_line=True,
    )
    image = native_reference(line.image_place, runtime) if line.image_place is not None else None
    try:
        program = line.argv[line.program_at]
        command = with_target(request, runtime, program, image, lambda target: _command(request, line, target))
    except UNREADABLE_IMAGE_ERRORS as error:
        if line.gpus.is_optional:
            start_as_written(request, error)
        elif isinstance(error, FALLBACK_ERRORS):
            report_builtin_flag(request, error, has_gpu_flag=True)
        else:
            raise
        command = None
    if not PROGRAMS[line.runtime].reader.permutes:  # else options may follow the command's arguments
        report_command(line.command, is_looked_at=request.check or runtime.limits.hides_missing_command)
    return command


def _command(request: StartRequest, line: WrappedCommand, target: StartTarget) -> Optional[Command]:
    """Return the line with its plan; None if it starts without one, because its image is unreadable or because it
    needs none.
    """
    brings_amds = line.gpus.brings_nodes and "amd" in line.gpus.vendors
    if target.is_unread or (brings_amds and target.image is None and not request.demands_plan):
        return None  # the right ROCm is unknown, and the line has the nodes
    try:
        return _planned(request, line, target)
    except (CommandError, *UNREADABLE_IMAGE_ERRORS):  # a retry may plan without the damaged image
        raise
    except GpubindError as error:
        if not line.gpus.is_optional:
            raise
        start_as_written(request, error)
        return None


def _planned(request: StartRequest, line: WrappedCommand, target: StartTarget) -> Optional[Command]:
    """Return the line with its plan; None if the image requests no GPU, or if there is nothing to bind."""
    facts = target.image.facts if target.image is not None else None
    daemon = find_remote_daemon(target.runtime, request.environ, request.global_options) if facts is None else None
    if line.gpus.image_decides and daemon is not None:
        return None  # the runtime on that machine reads the variables of the image
    gpus = with_image(line.gpus, facts.env if facts is not None else None)
    if gpus is None:
        return None
    merged_request, prepared = prepare_gpus(request, target, gpus)
    if gpus.by_count and merged_request.query.request.gpus == gpus.gpus and not request.elsewhere:
        for finding in choice_by_count(prepared.plan, request.environ, " ".join(gpus.flags[0].args)):
            request.report(finding)
    prepared = use_cdi_devices(request, target, prepared, has_nodes=gpus.brings_nodes)
    has_command_word = line.subcommand[-1:] == ("exec",) and line.command
    inspect_start(merged_request, target, prepared, line.command[0] if has_command_word else None)
    if not prepared.plan.drivers:
        return None
    log_start(request, prepared, line.image or "-")
    insert, remove = prepared.arguments.options, {option.name for option in line.options}
    environ, file = request.environ, None
    if not prepared.includes_user_options:
        action = _ACTIONS.get(line.subcommand[-1] if line.subcommand else "exec", "run")
        image = "" if line.is_rootfs else line.image or ""  # the line itself has --rootfs
        call = StartCall(target.program, action, image, line.command, stdin_is_terminal=None)
        start_command = prepared.start.runtime.start_command(call, prepared.start, prepared.arguments)
        environ, file = start_command.environ, start_command.file
        insert, remove = (insert, set()) if file is None else (("--bundle", STAGED_DIRECTORY), {"bundle"})
    return Command(rewrite(line, insert, remove=remove), environ, file)


def prepare_gpus(request: StartRequest, target: StartTarget, gpus: GpuRequest) -> tuple[StartRequest, PreparedStart]:
    """Return *request* with *gpus*, and the start of *target* with them.

    Errors: as `prepare_start`, in terms of the line's options.
    """
    gpus = _of_one_vendor(gpus, request, target.host)
    merged_request = _merge_request(request, gpus._replace(gpus=_counted_by_rocr(gpus, request, target.host)))
    try:
        return merged_request, prepare_start(merged_request, target, in_line=True)
    except UsageError as error:
        is_lines = merged_request.query.request.gpus != request.query.request.gpus
        if not is_lines or error.code != "inseparable-gpus":
            raise as_written(error, gpus, target.runtime.name) if is_lines else error from None
        request.report(as_written(error, gpus, target.runtime.name))  # docker then gives all
    merged_request = _merge_request(request, gpus._replace(gpus="all"))
    return merged_request, prepare_start(merged_request, target, in_line=True)


def _of_one_vendor(gpus: GpuRequest, request: StartRequest, host: Host) -> GpuRequest:
    """Return *gpus*; if it has GPU numbers and the user named neither vendors nor GPUs, with the vendor that they
    belong to.

    The engines apply numbers to NVIDIA's GPUs if NVIDIA's kernel module is loaded, else to AMD's. Sources: moby 29.7
    `daemon/devices_linux.go`; podman 6 `libpod/util.go` (discoverGPUVendorFromCDI).
    """
    user_request = request.query.request
    is_known = bool(gpus.vendors or user_request.vendors or user_request.cdi_devices) or user_request.gpus is not None
    if is_known or not any(name.isdigit() for name in (gpus.gpus or "").split(",")):
        return gpus
    modules: tuple[tuple[str, Vendor], ...] = ((NVIDIA_MODULE, "nvidia"), (AMD_MODULE, "amd"))
    return gpus._replace(vendors=tuple(vendor for module, vendor in modules if host.dev.has(module))[:1])


def _counted_by_rocr(gpus: GpuRequest, request: StartRequest, host: Host) -> Optional[str]:
    """Return the value of `--gpus` with the numbers of AMD's toolkit, which are in PCI order, translated to ROCr's.

    A device of a CDI spec takes precedence: docker since 29.3 and podman since 6 look up --gpus in CDI specs.
    """
    vendors = gpus.vendors or request.query.request.vendors
    is_amds = vendors == ("amd",) or not (vendors or host.dev.has(NVIDIA_MODULE))
    if gpus.gpus in (None, "all", "none") or not is_amds:
        return gpus.gpus
    from gpubind.inventory.amd.devices import read_topology
    from gpubind.inventory.cdi.specs import read_registry

    names, host_gpus = (gpus.gpus or "").split(","), sorted_by_pci(read_topology(host).gpus)
    if gpus.chosen_by and host_gpus and not gpus.cdi:
        names = _filter_available(names, host_gpus, gpus.chosen_by, request)
    nodes = {str(place): gpu.render or "" for place, gpu in enumerate(host_gpus)}
    for name, (_, device) in read_registry(host, request.query.request.cdi_directories).devices.items():
        renders = [node.source for node in device.edits.nodes if "/renderD" in node.source]
        is_meant = name in gpus.cdi or (not gpus.cdi and not gpus.chosen_by and name.startswith(f"{CDI_KINDS['amd']}="))
        if renders and is_meant:
            nodes[name.partition("=")[2]] = ",".join(renders)
    return ",".join(nodes.get(name) or name for name in names)


def _filter_available(names: Iterable[str], gpus: Iterable[Gpu], by: str, request: StartRequest) -> list[str]:
    """Return the *names* of existing *gpus*, each once and in ROCr's order. AMD's toolkit ignores all others."""
    indexes = {name: gpu.index or 0 for place, gpu in enumerate(gpus) for name in (str(place), gpu.uuid) if name}
    unknown = [name for name in names if name and name not in indexes]
    if unknown:
        text = f"{by}: this host has no {shorten_list([name[:SHOWN] for name in unknown])}, which is ignored"
        request.report(Notice("warning", "visible-devices-unknown", text))
    return sorted(dict.fromkeys(name for name in names if name in indexes), key=indexes.__getitem__) or ["none"]


def _merge_request(request: StartRequest, gpus: GpuRequest) -> StartRequest:
    """Return *request* with the line's *gpus*, except where options and settings of `wrap` itself take precedence."""
    user_request = request.query.request
    is_chosen = user_request.gpus is not None or bool(user_request.cdi_devices)
    by_cdi = not is_chosen and gpus.gpus is None and bool(gpus.cdi)
    merged = user_request._replace(
        vendors=tuple(dict.fromkeys((*user_request.vendors, *gpus.vendors))),
        gpus=user_request.gpus if is_chosen else gpus.gpus,
        cdi_devices=gpus.cdi if by_cdi else user_request.cdi_devices,
        caps=gpus.caps if user_request.caps is None and gpus.caps is not None else user_request.caps,
    )
    return request._replace(query=request.query._replace(request=merged))
