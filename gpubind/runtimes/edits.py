"""A plan as edits of a container: binds, device nodes and variables, before a runtime renders them.

Every runtime starts from the same edits, and renders them: as arguments, as a shell's exports, as a configuration file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Callable, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.frozen import NamedTuple
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.model import ContainerPath, Decision, DeviceNode, EnvVar, Finding, HostPath, Mount, Plan, Severity, Vendor
from gpubind.model.findings import finding, with_count
from gpubind.planner.sides import DEFAULT_EXTRAS
from gpubind.runtimes.environment import PROGRAM_VARIABLES

GPUBIND_DIRECTORY = ContainerPath("/.gpubind")
"""The directory for the files of a plan, in the layout of most runtimes."""
NO_MOUNT_POINT = "no-mount-point"


class Bind(NamedTuple):
    """One bind, of any runtime."""

    source: str
    """The real path on the host: a file of the driver, or a generated one."""
    target: str
    """The path in the container."""
    read_only: bool
    """Whether the container may only read it."""


class Edits(NamedTuple):
    """The changes of a plan to a container."""

    binds: tuple[Bind, ...]
    """In the plan's order."""
    devices: tuple[DeviceNode, ...]
    env: tuple[EnvVar, ...]
    decisions: tuple[Decision, ...]
    """Decisions about the mounts that have no place in the container. The findings are about the same mounts."""
    findings: tuple[Finding, ...]


class RuntimeArguments(NamedTuple):
    """The edits of a container in the form that a runtime takes: its arguments."""

    options: tuple[str, ...]
    """Arguments of the command line."""
    binds: tuple[Bind, ...] = ()
    """The binds of the options, for a caller that passes binds in another way."""
    env: tuple[tuple[str, str], ...] = ()
    """The variables that the options set, for a caller that sets them in another way."""
    decisions: tuple[Decision, ...] = ()
    """Decisions about the parts of the plan that are left out."""
    findings: tuple[Finding, ...] = ()
    """Findings about everything that will not work with these arguments."""
    unset: tuple[str, ...] = ()
    """Variables that the caller must remove from the runtime's environment, because no option keeps them out."""
    document: str = ""
    """The image's configuration with the edits in it, for a runtime that reads a configuration instead of options."""


def make_edits(
    plan: Plan,
    staged: Mapping[ContainerPath, HostPath],
    binds: Iterable[UserBind] = (),
    obstacle: Optional[Callable[[Mount, HostPath], Optional[str]]] = None,
) -> Edits:
    """Return the edits of *plan*. Its generated files are bound from where they are *staged*, or left out if they are
    not.

    *binds* are the user's, which take precedence. *obstacle* returns any other reason why a mount with that source has
    no place in the container; an empty reason means that the container already has the file.
    """
    user_binds = tuple(binds)
    planned: list[Bind] = []
    decisions: list[Decision] = []
    for mount in plan.mounts:
        source = mount.source or staged.get(mount.target)
        if source is None:
            continue
        why = _covering_bind_reason(mount, source, user_binds)
        if why is None and obstacle is not None:
            why = obstacle(mount, source)
        if why is None:
            planned.append(Bind(source, mount.target, "ro" in mount.options))
        elif why:
            decisions.append(
                Decision(
                    vendor=mount.vendor,
                    subject=mount.target,
                    verdict="left-out",
                    rule=NO_MOUNT_POINT,
                    step="place",
                    path=mount.source,
                    target=mount.target,
                    detail=why,
                )
            )
    findings = tuple(_no_mount_point_findings(decisions, plan))
    return Edits(tuple(planned), plan.devices, plan.env, tuple(decisions), findings)


def _covering_bind_reason(mount: Mount, source: HostPath, binds: Iterable[UserBind]) -> Optional[str]:
    """Return that one of the user's *binds* covers the target of *mount*; empty if that bind provides the same file,
    None if no bind covers it.

    A mount point inside such a bind would be made on the host. A bind of the root does not cover anything.
    """
    for bind in reversed(tuple(binds)):
        bound_path = bind.target.rstrip("/")
        if bound_path and f"{mount.target}/".startswith(f"{bound_path}/"):
            is_the_file = source == f"{bind.source.rstrip('/')}{mount.target[len(bound_path) :]}"
            return "" if is_the_file else f"{bound_path} is bound by you or the site, which takes precedence"
    return None


def parse_user_binds(values: Iterable[str]) -> tuple[UserBind, ...]:
    """Return the user's binds for an option's *values* SOURCE[:TARGET[:OPTIONS]]. A final `!` is PRoot's option."""
    parts = (value.partition(":") for value in values)
    pairs = ((source, remainder.partition(":")[0].rstrip("!") or source) for source, _, remainder in parts)
    return tuple(UserBind(HostPath(source), ContainerPath(target)) for source, target in pairs)


def binds_at_same_path(paths: Iterable[str]) -> tuple[UserBind, ...]:
    """Return binds of *paths*, each at the same path in the container as on the host."""
    return tuple(UserBind(HostPath(path), ContainerPath(path)) for path in paths)


def make_base_mounts(
    binds: Iterable[UserBind], variables: Mapping[str, str], directory: str, unseen: tuple[str, ...] = ()
) -> UserMounts:
    """Return the mounts and variables, without a plan, of a container that starts in *directory* with *binds*.

    *variables* has the container's values of PATH, LD_LIBRARY_PATH, LD_PRELOAD and `PROGRAM_VARIABLES`.
    """
    env = [EnvVar("PATH", "set", variables.get("PATH", ""), None, "user")]
    if variables.get("LD_LIBRARY_PATH"):
        env.append(EnvVar("LD_LIBRARY_PATH", "prepend", variables["LD_LIBRARY_PATH"], ":", "user"))
    if variables.get("LD_PRELOAD"):
        env.append(EnvVar("LD_PRELOAD", "set", variables["LD_PRELOAD"], None, "caller"))
    env += [EnvVar(name, "set", variables[name], None, "user") for name in PROGRAM_VARIABLES if name in variables]
    working_directory = ContainerPath(directory) if directory.startswith("/") else None
    return UserMounts(tuple(binds), tuple(env), working_directory, unseen)


HOST_DIRECTORIES = ("/dev", "/proc", "/sys", "/tmp")
"""Directories of the host that every container of ch-run and PRoot has."""


def in_host_directory(mount: Mount) -> bool:
    """Return whether the target of *mount* is below one of `HOST_DIRECTORIES`."""
    return any(mount.target.startswith(f"{path}/") for path in HOST_DIRECTORIES)


def vendor_of(plan: Plan) -> Optional[Vendor]:
    """Return the vendor of the driver that *plan* binds; None if there are several."""
    vendors = {planned.driver.vendor for planned in plan.drivers}
    return vendors.pop() if len(vendors) == 1 else None


_THIS = "the arguments of this runtime"


def unsupported_path(
    path: str, why: str, hint: str = "give the driver root a plainer path", *, document: str = ""
) -> RuntimeLimitError:
    """Return the error about a *path* that the arguments of a runtime, or the *document*, cannot hold."""
    hint = f"{hint}, or start with `gpubind exec`" if document else f"use --backend bwrap, or {hint}"
    message = f"{document or _THIS} cannot contain this path"
    return RuntimeLimitError("unsupported-path", message, where=path, why=why, hint=hint)


def format_bind(bind: Bind, why: str, ends: tuple[str, ...]) -> str:
    """Return `SOURCE:TARGET` for *bind*.

    Errors: `RuntimeLimitError` (code `unsupported-path`) for a path with a colon, or that ends with one of *ends*.
    """
    for path in (bind.source, bind.target):
        if ":" in path or path.endswith(ends):
            raise unsupported_path(path, why)
    return f"{bind.source}:{bind.target}"


def unsupported_value(
    name: str, why: str, hint: str = "give the variable a plainer value", *, document: str = ""
) -> RuntimeLimitError:
    """Return the error about a value of variable *name* that the arguments, or the *document*, cannot hold."""
    hint = "leave out the CDI device that sets it" if document else f"use --backend bwrap, or {hint}"
    message = f"{document or _THIS} cannot contain this value of a variable"
    return RuntimeLimitError("unsupported-value", message, where=name, why=why, hint=hint)


def is_utf8(text: str) -> bool:
    """Return whether *text* was UTF-8: Python decodes other bytes as surrogate escapes."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def shared_dev_findings(plan: Plan, case: Optional[str] = None) -> Iterator[Finding]:
    """Yield the finding that the container has the host's whole /dev, and so also nodes that *plan* does not choose."""
    if plan.devices or plan.gpus:
        yield finding("devices-not-isolated", subject="/dev", case=case, vendor=vendor_of(plan))


def _no_mount_point_findings(decisions: Sequence[Decision], plan: Plan) -> Iterator[Finding]:
    if not decisions:
        return
    targets = sorted({decision.subject for decision in decisions})
    mounts = [mount for mount in plan.mounts if mount.target in targets]
    by_default = not plan.request.caps_named and all(mount.capability in DEFAULT_EXTRAS for mount in mounts)
    severity: Severity = "error" if any(mount.required for mount in mounts) else "note" if by_default else "warning"
    yield finding(
        NO_MOUNT_POINT,
        subject="mounts",
        severity=severity,
        vendor=mounts[0].vendor,
        where=", ".join(targets),
        files=with_count(len(targets), "file"),
        detail=decisions[0].detail,
    )
