"""Rules about the plan's libraries and programs in the image: which of them the loader refuses, and why."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Literal, Optional

from gpubind.files import Tree
from gpubind.formats.driver.liblist import library_stem
from gpubind.formats.driver.names import driver_version_of, name_facts
from gpubind.formats.elf.elf import EXECUTABLE, ElfIdent
from gpubind.frozen import NamedTuple
from gpubind.host.base import shipped_liblist
from gpubind.inventory.liblist import NameTable, capability_of, read_table
from gpubind.loader.container import Container
from gpubind.loader.search import LoadFailure
from gpubind.model import Finding, Missing, Mount, Plan, RootedPath, Severity, active_cases, finding, worst
from gpubind.rules.host.driver import DAMAGE_RULES
from gpubind.rules.missing import missing_reason, soften, unseen_libraries
from gpubind.rules.preflight import Preflight, is_root_only

_WITH_FINDING = {"libcuda.so", "libnvidia-ml.so"}
"""Libraries whose damage is part of another finding, `no-libcuda` and `no-nvml`."""


def unloadable(container: Container, plan: Plan) -> Iterator[tuple[Mount, tuple[LoadFailure, ...]]]:
    """Yield the libraries and programs of *plan* that do not load in *container*, with the reasons."""
    for mount in plan.mounts:
        file = container.locate(mount.target) if mount.kind == "binary" else None
        is_program = file is not None and isinstance(file.tree.ident(file.tree_path), ElfIdent)  # and not a script
        failures = container.failures(mount.target) if mount.kind == "library" or is_program else ()
        if failures:
            yield mount, failures


class _Cause(NamedTuple):
    failure: LoadFailure
    """The first failure with that reason."""
    mounts: tuple[Mount, ...]
    """All mounts that do not load for that reason."""
    severity: Severity

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({basename(mount.target) for mount in self.mounts}))

    @property
    def are_many(self) -> bool:
        """Whether the message has the number of files instead of their names."""
        return len(self.names) > 2


def _causes(preflight: Preflight, kind: Literal["missing", "version", "stack"]) -> Iterator[_Cause]:
    """Yield the causes of *kind*. Failures with the same provider, the same name and the same word size are one
    cause.
    """
    causes: dict[tuple[str, str, bool], list[tuple[LoadFailure, Mount]]] = {}
    for mount, failures in unloadable(preflight.container, preflight.plan):
        for failure in failures:
            if failure.kind == kind and not name_facts(basename(mount.target)).is_unused:
                cause = (failure.provider or "", failure.name, mount.capability == "compat32")
                causes.setdefault(cause, []).append((failure, mount))
    table = read_table(shipped_liblist("nvliblist.conf"))
    for _, refused in sorted(causes.items(), key=lambda cause: cause[0]):
        mounts = tuple(mount for _, mount in refused)
        yield _Cause(refused[0][0], mounts, worst(_severity(preflight, mount, table) for mount in mounts))


def _cause_finding(code: str, cause: _Cause, cases: tuple[str, ...], **facts: Optional[str]) -> Finding:
    name, vendor, names = cause.failure.name, cause.mounts[0].vendor, ", ".join(cause.names)
    all_facts = {"message": cause.failure.message, "names": names, "number": len(cause.names), **facts}
    return finding(code, subject=name, case=cases, severity=cause.severity, vendor=vendor, where=names, **all_facts)


def library_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report each library (DT_NEEDED) that neither the plan nor the image has, with all libraries that need it."""
    for cause in _causes(preflight, "missing"):
        mount, name = cause.mounts[0], cause.failure.name
        reason, packages = missing_reason(preflight, name), name_facts(name).packages
        if reason is not None and reason.is_reported:
            continue
        origin_case = reason.case if reason is not None else "packaged"
        cases = active_cases(("many", cause.are_many), (origin_case, reason or packages))
        library = f"{name} for {mount.arch}" if mount.capability == "compat32" else name  # the other may be there
        facts = {"packages": packages, "capability": reason.capability if reason is not None else None}
        uses = {name_facts(each).use for each in cause.names}
        # The purpose is reported if all files serve the same one and few jobs need it.
        use = f"; {use}" if len(uses) == 1 and (use := uses.pop()) else ""
        raw_finding = _cause_finding("library-missing", cause, cases, use=use, library=library, **facts)
        yield soften(raw_finding, unseen_libraries(preflight))


def library_version(preflight: Preflight) -> Iterator[Finding]:
    """Report a symbol version that a file of the plan needs and the container's library does not define."""
    for cause in _causes(preflight, "version"):
        cases = active_cases(("many", cause.are_many))
        raw_finding = _cause_finding("library-version", cause, cases, provider=cause.failure.provider or "")
        yield soften(raw_finding, unseen_libraries(preflight))


def executable_stack(preflight: Preflight) -> Iterator[Finding]:
    """Report a library of the plan that requires an executable stack, which dlopen refuses since glibc 2.41."""
    loaded = preflight.container.load(preflight.started.path).files if preflight.started is not None else ()
    if any(file.elf is not None and file.elf.executable_stack for file in loaded):
        return  # the program's stack is executable from its start
    for cause in _causes(preflight, "stack"):
        yield _cause_finding("executable-stack", cause, ())


def library_unreadable(preflight: Preflight) -> Iterator[Finding]:
    """Report a library of the plan that is damaged, is another kind of file, or is unreadable."""
    broken: dict[Optional[str], tuple[Mount, str]] = {}
    tree = preflight.host.driver
    for mount in preflight.plan.mounts:
        why = _why_not_mapped(tree, mount) if mount.kind == "library" else None
        if why is None and preflight.is_for_others and mount.kind == "library":
            why = _why_only_root(tree, mount)
        if why and (mount.source not in broken or basename(mount.target) == mount.soname):
            broken[mount.source] = (mount, why)
    for mount, failures in unloadable(preflight.container, preflight.plan) if preflight.has_image else ():
        unreadable = [failure for failure in failures if failure.kind == "unreadable"]
        if unreadable and mount.source not in broken:
            broken[mount.source] = (mount, unreadable[0].message)
    for mount, why in broken.values():
        subject = basename(mount.target)
        yield finding("library-unreadable", subject=subject, vendor=mount.vendor, where=mount.source, message=why)
    yield from _passed_over(preflight)


def _why_not_mapped(tree: Tree, mount: Mount) -> Optional[str]:
    """Return why dlopen refuses the file of *mount*; None if it does not, or if that is not known.

    Source: glibc `elf/dl-load.c`, `elf/dl-open.c`.
    """
    rooted = tree.rooted(mount.source or "")
    facts = tree.elf(rooted) if rooted is not None else Missing("unrecorded")
    if isinstance(facts, Missing):
        return facts.detail or facts.why if facts.why in ("unreadable", "forbidden") else None
    if facts.ident.type == EXECUTABLE or facts.pie:
        return "it is a program, and dlopen loads only libraries"
    name = basename(rooted or "")
    if facts.soname is not None and driver_version_of(name) and library_stem(facts.soname) != library_stem(name):
        return f"it is another library: its DT_SONAME is {facts.soname}"
    return None


def _why_only_root(tree: Tree, mount: Mount) -> Optional[str]:
    """Return why only root can read the library *mount*; None if other users can, or if it is not known."""
    path, right, verb = tree.rooted(mount.source or ""), 4, "read"
    while path is not None and path != "/":
        stat = tree.stat(path)
        if isinstance(stat, Missing):
            return None
        if is_root_only(stat, right):
            return f"only root may {verb} {tree.real(path)} (mode {stat.mode:04o})"
        path, right, verb = RootedPath(dirname(path)), 1, "enter"
    return None


def _passed_over(preflight: Preflight) -> Iterator[Finding]:
    known_stems = {library_stem(basename(mount.target)) for mount in preflight.plan.mounts} | _WITH_FINDING
    for decision in preflight.plan.decisions:
        name, stem = decision.subject, library_stem(decision.subject)
        if decision.rule in DAMAGE_RULES and decision.verdict == "rejected" and stem not in known_stems:
            known_stems.add(stem)
            where, why = preflight.host.driver.real(RootedPath(decision.path or "")), decision.detail
            yield finding("library-unreadable", subject=name, vendor=decision.vendor, where=where, message=why)


def _severity(preflight: Preflight, mount: Mount, table: NameTable) -> Severity:
    """Return the severity of a library of the plan that does not load.

    It is an error for CUDA and for capabilities that the request names, and usually a warning or a note for default
    ones.
    """
    name = basename(mount.target)
    capability = mount.capability
    if capability in (None, "compat32"):  # a 32-bit library has another capability besides
        capability = capability_of(table.section(name, mount.target), driver_version_of(name))
    request = preflight.plan.request
    by_name = request.caps_named and capability in request.capabilities
    if name_facts(name).minor:
        return "warning" if by_name and not name.startswith(("libnvidia-pkcs11", "libcudadebugger", "nv")) else "note"
    if by_name or mount.required or name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        return "error"
    if name in preflight.used:
        return preflight.used[name]
    hides = preflight.image.loader.for_arch(mount.arch).find(name) is not None
    return "warning" if hides or capability in ("compute", "utility") else "note"
