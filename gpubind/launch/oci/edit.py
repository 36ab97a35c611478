"""Put the plan into the config.json of an engine's container: `edit_bundle`.

A hostile user may control all of config.json and of the root file system, and this process may be root. So reads have
bounds, links are followed only inside the root file system, and only config.json is written: completely or not at all.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import closing
from posixpath import basename, dirname

from gpubind.errors import BoundError, CheckError, OutputError, in_file
from gpubind.formats.archive.bundle import SIZE_LIMIT, Bundle, parse_bundle
from gpubind.formats.driver.engines import SIZE_LIMIT as TOOLKIT_LIMIT
from gpubind.formats.driver.engines import TOOLKIT_FILE, RequestPolicy, parse_request_policy
from gpubind.formats.driver.require import requirements_of
from gpubind.host import Host
from gpubind.image.bundle import read_bundle_image, with_directory
from gpubind.inventory.amd.devices import KFD
from gpubind.inventory.nodes import NVIDIA_MODULE
from gpubind.launch.oci.gpus import is_dockers, requested_gpus, variables_of
from gpubind.launch.oci.passing import RUNTIMES
from gpubind.launch.start import preflight_of
from gpubind.launch.target import StartRequest, StartTarget
from gpubind.launch.wrap.gpus import GpuRequest
from gpubind.launch.wrap.start import prepare_gpus
from gpubind.machine import system
from gpubind.machine.answers import inspection_error, missing_from, read_unchanged, retry_transient
from gpubind.machine.budget import TIMES_LIMIT, renew
from gpubind.machine.regular import open_regular, read_regular
from gpubind.machine.system import OpenDirectory
from gpubind.machine.writing import replace
from gpubind.model.files import ABSENT
from gpubind.runtimes.bundles import EngineRuntime
from gpubind.runtimes.runtime import PreparedStart, Runtime

NVIDIA = (NVIDIA_MODULE, "/proc/driver/nvidia/version", "/dev/nvidiactl")
"""Paths of which a host with NVIDIA's driver always has at least one."""


OpenHost = Callable[[Mapping[str, str]], Host]
"""A function that opens this machine for a container with these variables."""


def edit_bundle(request: StartRequest, directory: str, path: str, program: str, open_host: OpenHost) -> bool:
    """Put the plan for the bundle in *directory* into its configuration *path*. Return whether it requests GPUs.

    *program* is the runtime that will start it. A bundle without a request is not changed. Errors: `FormatError`
    (`bad-bundle`), `UsageError` (`wrap-gpus`), `CheckError` (`gpu-required`, `require-unsatisfied`), `OutputError`; as
    `prepare_gpus`.
    """
    with _open_directory(dirname(path) or ".") as place:
        bundle, facts = _read(place, path, directory)
        gpus = requested_gpus(bundle, read_policy)
        if gpus is None:
            return False
        try:
            text = _planned(request, bundle, gpus, program, open_host)
        except BoundError:
            renew(TIMES_LIMIT)
            text = _planned(request, bundle, gpus, program, open_host)
        try:
            mode, owner = stat.S_IMODE(facts.st_mode), (facts.st_uid, facts.st_gid)
            replace(place, basename(path), text.encode(), mode, owner)
        except OSError as error:
            why = error.strerror or str(error)
            raise OutputError("unwritable-file", "the configuration cannot be written", where=path, why=why) from error
        return True


def _planned(request: StartRequest, bundle: Bundle, gpus: GpuRequest, program: str, open_host: OpenHost) -> str:
    host = open_host(variables_of(bundle))
    has_nvidia = any(map(host.dev.has, NVIDIA))
    if is_dockers(bundle) and gpus.vendors == ("nvidia",) and host.dev.has(KFD) and not has_nvidia:
        gpus = gpus._replace(vendors=("amd",))
    with closing(read_bundle_image(bundle, bundle.directory)) as image:
        name = basename(program) if basename(program) in RUNTIMES else RUNTIMES[0]
        runtime = EngineRuntime(name, image.facts.loader_directories)
        target = StartTarget(runtime, program, host, image)
        merged_request, prepared = prepare_gpus(request._replace(require_gpu=gpus.gpus != "none"), target, gpus)
        _need_requirements(merged_request, prepared, bundle, runtime)
        for finding in (*prepared.plan.findings, *prepared.arguments.findings):
            merged_request.report(finding)
        return prepared.arguments.document


def _need_requirements(request: StartRequest, prepared: PreparedStart, bundle: Bundle, runtime: Runtime) -> None:
    """Report each NVIDIA_REQUIRE_* variable that the driver does not satisfy.

    Errors: `CheckError` (code `require-unsatisfied`) where NVIDIA's hook would stop the container: if docker's own
    option requests the GPUs, or if the toolkit is in its legacy mode. In other modes it does not check these variables.
    """
    if not requirements_of(bundle.variables):
        return
    from gpubind.rules.image.cuda import require_unsatisfied

    preflight = preflight_of(prepared, runtime)
    policy = read_policy()
    stops = policy.compares_driver and (policy.is_legacy or is_dockers(bundle))
    for finding in require_unsatisfied(preflight) if preflight.has_image else ():
        if finding.severity == "error" and stops:
            problem, why, hint = f"{finding.what} ({finding.where})", finding.why or "", finding.hint or ""
            raise CheckError("require-unsatisfied", problem, findings=[finding], why=why, hint=hint)
        request.report(finding._replace(severity="warning") if finding.severity == "error" else finding)


def read_policy() -> RequestPolicy:
    """Return what NVIDIA's toolkit is configured to grant; its defaults if it has no configuration. Errors:
    `FormatError`.
    """
    try:
        data = read_regular(TOOLKIT_FILE, TOOLKIT_LIMIT)
    except OSError as error:
        if missing_from(error) == ABSENT:
            return RequestPolicy()
        raise inspection_error(TOOLKIT_FILE, error) from error
    with in_file(TOOLKIT_FILE):
        return parse_request_policy(data)


def _open_directory(path: str) -> OpenDirectory:
    try:
        return system.open_directory(path)
    except OSError as error:
        raise inspection_error(path, error) from error


def _read(place: OpenDirectory, path: str, directory: str) -> tuple[Bundle, os.stat_result]:
    """Return the configuration *path* in the open directory *place*, and its facts. Links are not followed."""

    def read() -> tuple[bytes, os.stat_result]:
        with open_regular(basename(path), place) as file:
            return read_unchanged(SIZE_LIMIT + 1, file, path), file.facts()

    try:
        data, facts = retry_transient(read)
    except OSError as error:
        raise inspection_error(path, error) from error
    with in_file(path):
        bundle = parse_bundle(data, is_engines=True)
    return with_directory(bundle, directory), facts
