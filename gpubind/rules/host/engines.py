"""Why the GPU options of docker and podman fail. gpubind needs none of these options.

Sources: NVIDIA Container Toolkit, "Installation", "Troubleshooting" and "CDI support"; moby `daemon/`; docker-snap's
README; container-selinux `container.te`. Messages are those of the real programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.driver.engines import (
    BUILT_IN,
    DAEMON_FILE,
    DOCKER,
    ENGINE_PROGRAMS,
    PODMAN,
    SIZE_LIMIT,
    TOOLKIT_FILE,
    DaemonSettings,
    Release,
    find_no_cgroups_line,
    malformed_as_missing,
    releases,
)
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.programs import PROGRAM_DIRECTORIES
from gpubind.inventory.cdi.specs import ALL, DIRECTORIES, SUFFIXES, LoadedSpec
from gpubind.model import ABSENT, VENDOR_ROWS, Finding, Missing, Severity, Vendor, finding
from gpubind.model.files import or_none
from gpubind.model.vendors import CDI_KINDS
from gpubind.rules.preflight import Preflight

HOOK, CDI_HOOK = "nvidia-container-runtime-hook", "nvidia-cdi-hook"
_PODMAN_HOOKS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
SNAPS = ("/snap/bin/docker", "/var/lib/snapd/snap/bin/docker")
RUN_CDI = "/run/cdi"
NOTE: Severity = "note"
SELINUX = "/sys/fs/selinux"


class Toolkit(NamedTuple):
    """A vendor's toolkit for docker."""

    name: str
    runtime: str
    """docker's runtime of that vendor, a program."""
    configure: str
    """The command that adds the runtime to docker's configuration."""


_TOOLKITS: Mapping[Vendor, Toolkit] = {
    "nvidia": Toolkit(
        "NVIDIA's container toolkit", "nvidia-container-runtime", "nvidia-ctk runtime configure --runtime=docker"
    ),
    "amd": Toolkit("AMD's container toolkit", "amd-container-runtime", "amd-ctk runtime configure"),
}
_BOOLEANS = ("container_use_devices", "container_use_xserver_devices")
"""SELinux booleans. If one is on, containers may use the nodes of GPUs. NVIDIA's nodes have the type
xserver_misc_device_t.
"""


def daemon_unreachable(preflight: Preflight) -> Iterator[Finding]:
    """Report that docker's daemon does not answer the caller."""
    if preflight.start is not None and preflight.start.facts.silence is not None:
        yield finding("daemon-unreachable", subject=DOCKER, answer=preflight.start.facts.silence)


def toolkit_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report that NVIDIA's program for docker's `--gpus` is missing. dockerd searches for it in its PATH when it
    starts.
    """
    host = preflight.host
    if DOCKER not in installed(preflight) or not preflight.has_linux_driver or not _lacks(host, HOOK):
        return
    release = preflight.release(DOCKER) if _program(host, CDI_HOOK) else None
    if release is None or not release.gpus_by_cdi:
        case = "base" if _program(host, _TOOLKITS["nvidia"].runtime) else "none"
        yield finding("toolkit-missing", subject=DOCKER, case=case, where=f"{HOOK} in {':'.join(PROGRAM_DIRECTORIES)}")


def gpu_runtime_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a runtime in dockerd's settings that cannot start, and a vendor's toolkit whose runtime is not in the
    settings.
    """
    settings = _daemon(preflight)
    if settings is None:
        return
    default, line = settings.default_runtime, settings.line_numbers.get("default-runtime", 1)
    severity = _severity(preflight)
    if default not in (*settings.runtimes, *BUILT_IN):
        yield _runtime(default, "default", severity, f"{DAEMON_FILE}, line {line}")
    for name, path in settings.runtimes.items():
        if name in (default, *_TOOLKITS) and _is_gone(preflight.host, path):
            where = f"{DAEMON_FILE}, line {settings.line_numbers.get('runtimes', 1)}"
            case, how = ("every", severity) if name == default else ("program", NOTE)
            yield _runtime(name, case, how, where, path)
    for vendor in _vendors(preflight):
        if vendor not in settings.runtimes and _program(preflight.host, _TOOLKITS[vendor].runtime):
            yield _runtime(vendor, "absent", NOTE, DAEMON_FILE)


def _runtime(name: str, case: str, severity: Severity, where: str, path: str = "") -> Finding:
    toolkit = _TOOLKITS["amd" if name == "amd" else "nvidia"]
    return finding(
        "gpu-runtime-missing",
        subject=name,
        case=case,
        severity=severity,
        where=where,
        path=path,
        configure=toolkit.configure,
        toolkit=toolkit.name,
    )


def engine_config(preflight: Preflight) -> Iterator[Finding]:
    """Report a configuration file of docker or of NVIDIA's toolkit that is malformed or unreadable."""
    daemon, toolkit = (preflight.daemon if DOCKER in installed(preflight) else None), _toolkit(preflight)
    for path, answer, engine, program in (
        (DAEMON_FILE, daemon, DOCKER, ENGINE_PROGRAMS[DOCKER]),
        (TOOLKIT_FILE, toolkit, "NVIDIA's toolkit", HOOK),
    ):
        if isinstance(answer, Missing) and answer.why not in ("absent", "unrecorded"):
            yield finding(
                "engine-config",
                subject=path,
                case="forbidden" if answer.why == "forbidden" else "unreadable",
                severity=NOTE if answer.why == "forbidden" else "warning",
                where=path,
                why=answer.detail or answer.why,
                engine=engine,
                program=program,
            )


def toolkit_cgroups(preflight: Preflight) -> Iterator[Finding]:
    """Report a toolkit that sets no device cgroup although root's containers have one, or sets one without the right to
    do so.
    """
    by_hook, line = _engines_using_hook(preflight), _toolkit(preflight)
    if isinstance(line, Missing):
        return
    rootless = [name for name in by_hook if _is_rootless(preflight, name)]
    if line is not None and len(rootless) < len(by_hook):
        name = next(name for name in by_hook if name not in rootless)
        yield finding("toolkit-cgroups", subject=name, case="root", where=f"{TOOLKIT_FILE}, line {line}")
    elif line is None and rootless:
        yield finding("toolkit-cgroups", subject=rootless[0], case="rootless", where=TOOLKIT_FILE)


def docker_snap(preflight: Preflight) -> Iterator[Finding]:
    """Report docker as a snap: its daemon cannot open the host's driver files."""
    dev = preflight.host.dev
    snap = next((path for path in SNAPS if dev.has(path)), None)
    if preflight.backend in (None, DOCKER) and snap is not None and _lacks(preflight.host, ENGINE_PROGRAMS[DOCKER]):
        yield finding("docker-snap", subject=DOCKER, severity=_severity(preflight), where=snap)


def selinux_devices(preflight: Preflight) -> Iterator[Finding]:
    """Report that SELinux is enforcing and forbids containers with its label to open the nodes of GPUs."""
    host, docker = preflight.host, _daemon(preflight) or DaemonSettings()
    labelling = [name for name in installed(preflight) if name == PODMAN or docker.has_selinux]
    enforce = f"{SELINUX}/enforce"
    if not labelling or not preflight.plan.devices or host.dev.text(enforce) != "1":
        return
    values = [host.dev.text(f"{SELINUX}/booleans/{name}") or "" for name in _BOOLEANS]
    if not any(value.startswith("1") for value in values):
        user_options = preflight.start.user.options.all("security-opt") if preflight.start is not None else ()
        label = next((value for value in user_options if "label" in value and "disable" not in value), None)
        yield finding(
            "selinux-devices",
            subject=labelling[0],
            case="own" if label is not None else "engine",
            severity="warning" if label is not None else NOTE,
            where=f"{enforce}: 1; {SELINUX}/booleans/{_BOOLEANS[1]}: 0",
            label=label,
        )


def cdi_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report that podman finds no CDI spec for a vendor's GPUs."""
    vendors = _vendors(preflight) if PODMAN in installed(preflight) else ()
    if not vendors:
        return
    registry = preflight.registry(cdi_directories(preflight, PODMAN))
    kinds = {name.partition("=")[0] for name in (*registry.devices, *registry.conflicts)}
    listings = [preflight.host.dev.list(path) for path in registry.directories]
    is_known = all(not isinstance(listing, Missing) or listing.why == "absent" for listing in listings)
    if not is_known or registry.ignored_files or _outside(preflight.host):
        return
    for vendor in vendors:
        if CDI_KINDS[vendor] not in kinds and not (vendor == "nvidia" and _has_podman_hook(preflight.host)):
            yield finding(
                "cdi-missing",
                subject=f"{CDI_KINDS[vendor]}={ALL}",
                vendor=vendor,
                where=", ".join(registry.directories),
                option=f"--{VENDOR_ROWS[vendor].option}",
                file=f"{DIRECTORIES[0]}/{vendor}.json",
            )


def cdi_disabled(preflight: Preflight) -> Iterator[Finding]:
    """Report that docker ignores the host's CDI specs. Before 28.2, docker's settings must enable them."""
    settings = _daemon(preflight)
    specs = _specs(preflight, DOCKER) if settings is not None else ()
    if settings is None or not specs:
        return
    cdi_setting = settings.features.get("cdi")
    release = preflight.release(DOCKER) if cdi_setting is None else None
    if cdi_setting is False or (release is not None and not release.on):
        line = settings.line_numbers.get("features")
        where = f"{DAEMON_FILE}, line {line}" if line else f"{DAEMON_FILE} (features.cdi is not set)"
        yield finding("cdi-disabled", subject=DOCKER, where=where, spec=specs[0].path)


def cdi_not_read(preflight: Preflight) -> Iterator[Finding]:
    """Report the specs in directories that an engine does not search."""
    dev = preflight.host.dev
    for engine in installed(preflight):
        read = cdi_directories(preflight, engine)
        seen = [dev.resolve(path) for path in read]
        for directory in (*DIRECTORIES, RUN_CDI):
            files = [f"{directory}/{name}" for name in dev.names(directory) if name.endswith(SUFFIXES)]
            if files and dev.resolve(directory) not in seen:
                seen.append(dev.resolve(directory))
                places = ", ".join(read) or "no directory"
                yield finding("cdi-not-read", subject=directory, where=", ".join(files), engine=engine, read=places)


def cdi_too_new(preflight: Preflight) -> Iterator[Finding]:
    """Report each spec whose CDI version is too new for an engine."""
    for engine in installed(preflight):
        specs = _specs(preflight, engine)
        newer = _newer(specs, releases(engine)[0]) if specs else []  # without a spec, the release is not queried
        release = preflight.release(engine) if newer else None
        if release is None:
            continue
        for path, spec in _newer(newer, release):
            yield finding(
                "cdi-too-new",
                subject=path,
                where=f"{path}: cdiVersion {spec.version}",
                engine=engine,
                version=spec.version,
                reads=release.reads,
                device=f"{spec.kind}={spec.devices[0].name}",
            )


def _newer(specs: Iterable[LoadedSpec], release: Release) -> list[LoadedSpec]:
    from gpubind.formats.driver.cdi import VERSIONS

    return [loaded for loaded in specs if VERSIONS.index(loaded.spec.version) > VERSIONS.index(release.reads)]


def installed(preflight: Preflight) -> tuple[str, ...]:
    """Return docker and podman if they are installed; if the runtime is known, only that one."""
    names = ENGINE_PROGRAMS if preflight.backend is None else (preflight.backend,)
    return tuple(name for name in names if name in ENGINE_PROGRAMS and _program(preflight.host, ENGINE_PROGRAMS[name]))


def _severity(preflight: Preflight) -> Severity:
    """Return the severity of a fault that prevents every start by docker."""
    return "error" if preflight.backend == DOCKER else "warning"


def _program(host: Host, name: str) -> bool:
    return any(host.dev.has(f"{directory}/{name}") for directory in PROGRAM_DIRECTORIES)


def _lacks(host: Host, name: str) -> bool:
    return all(host.dev.lacks(f"{directory}/{name}") for directory in PROGRAM_DIRECTORIES)


def _is_gone(host: Host, program: str) -> bool:
    return host.dev.lacks(program) if program.startswith("/") else bool(program) and _lacks(host, program)


def _daemon(preflight: Preflight) -> Optional[DaemonSettings]:
    """Return dockerd's settings; None if they are missing or unknown."""
    return or_none(preflight.daemon) if DOCKER in installed(preflight) else None


def _toolkit(preflight: Preflight) -> Union[int, Missing, None]:
    """Return the line number of `no-cgroups = true` in the settings of NVIDIA's toolkit; Missing if it is unknown."""
    data = preflight.host.dev.read(TOOLKIT_FILE, SIZE_LIMIT) if _engines_using_hook(preflight) else ABSENT
    if isinstance(data, Missing):
        return data
    try:
        return find_no_cgroups_line(data)
    except FormatError as error:
        return malformed_as_missing(error)


def _engines_using_hook(preflight: Preflight) -> tuple[str, ...]:
    engines = installed(preflight) if preflight.has_linux_driver else ()
    return tuple(name for name in engines if name == DOCKER or _has_podman_hook(preflight.host))


def _vendors(preflight: Preflight) -> tuple[Vendor, ...]:
    has: dict[Vendor, bool] = {
        "nvidia": preflight.has_linux_driver,
        "amd": any(gpu.vendor == "amd" and gpu.chosen for gpu in preflight.plan.gpus),
    }
    return tuple(vendor for vendor in _TOOLKITS if has[vendor])


def cdi_directories(preflight: Preflight, engine: str) -> tuple[str, ...]:
    """Return the directories in which *engine* searches for CDI specs."""
    settings = _daemon(preflight) if engine == DOCKER else None
    if settings is not None and settings.cdi_directories is not None:
        return settings.cdi_directories
    has_more = preflight.host.dev.names(DIRECTORIES[1])
    release = preflight.release(engine) if engine == PODMAN and has_more else None
    return DIRECTORIES if release is None or release.cdi_directories is None else release.cdi_directories


def _specs(preflight: Preflight, engine: str) -> tuple[LoadedSpec, ...]:
    directories = cdi_directories(preflight, engine)
    return preflight.registry(directories).specs if directories else ()


def _outside(host: Host) -> bool:
    """Return whether /run/cdi has specs and is not the same directory as /var/run/cdi."""
    return bool(host.dev.names(RUN_CDI)) and host.dev.resolve(RUN_CDI) != host.dev.resolve(DIRECTORIES[1])


def _has_podman_hook(host: Host) -> bool:
    return any("nvidia" in name for directory in _PODMAN_HOOKS for name in host.dev.names(directory))


def _is_rootless(preflight: Preflight, engine: str) -> bool:
    """Return whether *engine* runs as an ordinary user. podman runs as the caller; a user may have an own docker
    daemon.
    """
    if engine == PODMAN:
        return preflight.host.identity.euid != 0
    environ = preflight.start.caller.environ if preflight.start is not None else {}
    return environ.get("DOCKER_HOST", "").startswith("unix:///run/user/")
