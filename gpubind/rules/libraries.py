"""Rules about the plan's libraries and programs in the image: which of them the loader would refuse there, and why."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename
from typing import Literal, NamedTuple, Optional

from gpubind.findings import cases_of, finding, worst
from gpubind.formats.elf import ElfIdent
from gpubind.host.base import shipped_liblist
from gpubind.ldso.container import Container, Failure
from gpubind.model import Capability, Finding, Missing, Mount, Plan, Severity
from gpubind.names import PACKAGES, driver_version_of, is_unused, known
from gpubind.planner.sides import is_minor
from gpubind.rules.lacking import lacking
from gpubind.rules.preflight import ImagePreflight, ProgramPreflight
from gpubind.rules.unseen import softened, unseen_libraries
from gpubind.sources.liblist import NameTable, capability_of, read_table


class Unloadable(NamedTuple):
    """A library or program of the plan that the container's loader refuses."""

    mount: Mount
    failures: tuple[Failure, ...]


def unloadable(container: Container, plan: Plan) -> tuple[Unloadable, ...]:
    """Every library and program of *plan* that cannot be loaded in *container*, by target."""
    refused = []
    for mount in plan.mounts:
        if not (mount.kind == "library" or _is_program(container, mount)):
            continue
        failures = container.failures(mount.target)
        if failures:
            refused.append(Unloadable(mount, failures))
    return tuple(refused)


def _is_program(container: Container, mount: Mount) -> bool:
    """Whether it is a program for the loader; a script is its interpreter's business."""
    located = container.locate(mount.target) if mount.kind == "binary" else None
    return located is not None and isinstance(located.tree.ident(located.at), ElfIdent)


class _Cause(NamedTuple):
    """One reason for which files of the plan are refused."""

    failure: Failure
    """The first that says so."""
    mounts: tuple[Mount, ...]
    """All that it keeps from loading."""
    severity: Severity

    @property
    def names(self) -> tuple[str, ...]:
        """What the files are called, each once."""
        return tuple(sorted({basename(mount.target) for mount in self.mounts}))

    @property
    def are_many(self) -> bool:
        """Whether the files are counted, not named."""
        return len(self.names) > 2


def _causes(preflight: ImagePreflight, kind: Literal["missing", "version", "stack"]) -> Iterator[_Cause]:
    """Why files of the plan do not load: each cause of *kind* once for an architecture, by library and name."""
    causes: dict[tuple[str, str, bool], list[tuple[Failure, Mount]]] = {}
    for library in unloadable(preflight.container, preflight.plan):
        for failure in library.failures:
            mount = library.mount
            if failure.kind == kind and not is_unused(basename(mount.target)):
                cause = (failure.provider or "", failure.name, mount.capability == "compat32")
                causes.setdefault(cause, []).append((failure, mount))
    table = read_table(shipped_liblist("nvliblist.conf"))
    for _, refused in sorted(causes.items(), key=lambda cause: cause[0]):
        mounts = tuple(mount for _, mount in refused)
        yield _Cause(refused[0][0], mounts, worst(_severity(preflight, mount, table) for mount in mounts))


def _refused(code: str, cause: _Cause, cases: tuple[str, ...], **facts: Optional[str]) -> Finding:
    names = ", ".join(cause.names)
    told = {"message": cause.failure.message, "names": names, "number": len(cause.names), **facts}
    return finding(
        code,
        subject=cause.failure.name,
        case=cases,
        severity=cause.severity,
        vendor=cause.mounts[0].vendor,
        where=names,
        **told,
    )


def library_missing(preflight: ImagePreflight) -> Iterator[Finding]:
    """A DT_NEEDED that neither the plan nor the image has. One finding for each name, with all that need it."""
    for cause in _causes(preflight, "missing"):
        mount, name = cause.mounts[0], cause.failure.name
        drivers, packages = lacking(preflight, name), PACKAGES.get(name)
        if drivers is not None and drivers.is_told:
            continue
        own = drivers.case if drivers is not None else "packaged"
        cases = cases_of(("many", cause.are_many), (own, drivers or packages))
        library = f"{name} for {mount.arch}" if mount.capability == "compat32" else name  # another may well be there
        facts = {"packages": packages, "capability": drivers.capability if drivers is not None else None}
        found = _refused("library-missing", cause, cases, use=_use(cause.names), library=library, **facts)
        yield softened(found, unseen_libraries(preflight))


def library_version(preflight: ImagePreflight) -> Iterator[Finding]:
    """A symbol version that the library in the container does not define: what bringing the wrong side's copy does."""
    for cause in _causes(preflight, "version"):
        cases = cases_of(("many", cause.are_many))
        found = _refused("library-version", cause, cases, provider=cause.failure.provider or "")
        yield softened(found, unseen_libraries(preflight))


def executable_stack(preflight: ImagePreflight) -> Iterator[Finding]:
    """A library of the plan that dlopen refuses, since glibc 2.41, for the executable stack that it asks for."""
    if isinstance(preflight, ProgramPreflight) and _has_executable_stack(preflight):
        return
    for cause in _causes(preflight, "stack"):
        yield _refused("executable-stack", cause, ())


def library_unreadable(preflight: ImagePreflight) -> Iterator[Finding]:
    """A library of the plan that is damaged, or may not be read."""
    broken: dict[Optional[str], tuple[Mount, Failure]] = {}
    for mount, failures in unloadable(preflight.container, preflight.plan):
        named = [failure for failure in failures if failure.kind == "unreadable"]
        if named and (mount.source not in broken or basename(mount.target) == mount.soname):
            broken[mount.source] = (mount, named[0])
    for mount, failure in broken.values():
        subject, message = basename(mount.target), failure.message
        yield finding("library-unreadable", subject=subject, vendor=mount.vendor, where=mount.source, message=message)


def _has_executable_stack(preflight: ProgramPreflight) -> bool:
    """Whether the program's stack is executable from its start: by itself, or by what it is linked with."""
    chain = preflight.chain
    if chain.stop is not None or chain.file is None:
        return False
    facts = [file.tree.elf(file.at) for file in preflight.container.load(chain.file.path).files]
    return any(not isinstance(elf, Missing) and elf.executable_stack for elf in facts)


def _severity(preflight: ImagePreflight, mount: Mount, table: NameTable) -> Severity:
    """An error for what was asked for by name and for CUDA itself; a note for what came by default."""
    name = basename(mount.target)
    capability = _capability(mount, table)
    request = preflight.plan.request
    by_name = request.caps_explicit and capability in request.capabilities
    if is_minor(name):
        return "warning" if by_name and not name.startswith(("libnvidia-pkcs11", "libcudadebugger", "nv")) else "note"
    if by_name or mount.required or name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        return "error"
    hides = preflight.image.loader.of(mount.arch).find(name) is not None
    return "warning" if hides or capability in ("compute", "utility") else "note"


def _capability(mount: Mount, table: NameTable) -> Optional[Capability]:
    if mount.capability not in (None, "compat32"):  # which a 32-bit library has beside its own
        return mount.capability
    name = basename(mount.target)
    return capability_of(table.section(name, mount.target), driver_version_of(name))


def _use(names: tuple[str, ...]) -> str:
    """What the files are for, if they are all for the same that few jobs need."""
    uses = {about.use if (about := known(name)) else "" for name in names}
    use = uses.pop() if len(uses) == 1 else ""
    return f"; {use}" if use else ""
