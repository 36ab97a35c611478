"""Rules about the program: the container must have it, and its loader must find all its libraries.

Sources: execve(2), see `loader/execve.py`; ld.so(8).
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname

from gpubind.formats.driver.names import DRIVER_SONAMES, driver_section, name_facts
from gpubind.formats.elf.elf import ElfIdent
from gpubind.image.cuda import wheel_directory_of
from gpubind.loader.execve import first_program, is_library, is_undecided, nearest_program
from gpubind.loader.search import LoadFailure
from gpubind.model import CAPABILITIES, Capability, Finding, Missing, active_cases, finding, shorten_list
from gpubind.model.files import or_none
from gpubind.model.findings import SEVERITIES
from gpubind.model.rocm import is_rocms, release_with
from gpubind.rules.missing import (
    FROM_THE_HOST,
    missing_reason,
    rocm_with,
    soften,
    unseen_libraries,
    unseen_programs,
    without_userspace,
)
from gpubind.rules.preflight import Preflight
from gpubind.rules.uses import DriverUse


def program_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a program, or the interpreter of a script, that the container lacks."""
    chain, path = preflight.chain, preflight.search_path
    name = chain.names[-1]
    if chain.stop is None or chain.stop.kind != "missing" or is_undecided(preflight.container, name, path):
        return
    left_out = [d for d in preflight.plan.decisions if d.subject == name and d.rule == "capability"]
    local = preflight.host.local if name.startswith("/") else None
    on_machine = None if local is None else or_none(local.stat(name))
    is_on_host = on_machine is not None and on_machine.kind == "file"
    is_known = preflight.is_without_container or (preflight.backend is not None and preflight.own_mounts is not None)
    maybe_bound = not is_known and (is_on_host or name.startswith(FROM_THE_HOST))
    near, first = nearest_program(preflight.container, name, path), first_program(preflight.container, name, path)
    raw_finding = finding(
        "program-missing",
        subject=name,
        case=active_cases(
            ("of-path", "/" in name),
            ("of-words", first),
            ("of-script", chain.names[:-1]),
            ("of-capability", left_out and left_out[0].detail),
            ("on-host", is_on_host),
            ("maybe-bound", maybe_bound),
        ),
        severity="warning" if maybe_bound else "error",
        where=None if "/" in name else path,
        why=chain.stop.why,
        script=chain.names[-2] if chain.names[:-1] else None,
        left_out=left_out[0].detail if left_out else None,
        directory=dirname(name),
        near=near,
        first=first,
    )
    yield soften(raw_finding, unseen_programs(preflight, name))


def program_on_host(preflight: Preflight) -> Iterator[Finding]:
    """Report a program that is a file of this host, if no runtime is named.

    It is checked at the path where most runtimes bind it.
    """
    file = preflight.chain.file
    if preflight.backend is None and file is not None and file.bind is not None:
        where = f"{file.bind.source}, bound to {file.bind.target}"
        yield finding("program-on-host", subject=preflight.chain.names[-1], where=where, file=file.tree_path)


def program_not_executable(preflight: Preflight) -> Iterator[Finding]:
    """Report a program that is not executable, is damaged, is not a program, or is for another machine."""
    chain = preflight.chain
    if chain.stop is None or chain.stop.kind in ("missing", "unreadable"):
        return
    raw_finding = finding(
        "program-not-executable",
        subject=chain.names[-1],
        case=chain.stop.kind,
        severity="warning" if chain.stop.kind == "empty" else "error",
        where=chain.file.path if chain.file else None,
        why=chain.stop.why,
    )
    yield soften(raw_finding, unseen_programs(preflight, chain.names[-1]))


def program_unreadable(preflight: Preflight) -> Iterator[Finding]:
    """Report a program that could not be inspected: it may run, but its needs are unknown."""
    chain = preflight.chain
    name = chain.names[-1]
    if chain.stop is not None and is_undecided(preflight.container, name, preflight.search_path):
        yield finding("program-unreadable", subject=name, case="undecided")
        return
    why = chain.stop.why if chain.stop is not None and chain.stop.kind == "unreadable" else None
    if chain.stop is None and chain.file is not None:
        elf = chain.file.tree.elf(chain.file.tree_path)
        why = str(elf) if isinstance(elf, Missing) else None
        stat = or_none(chain.file.tree.stat(chain.file.tree_path))
        if why is None and preflight.is_without_container and stat is not None and stat.mode & 0o6000:
            yield finding("program-unreadable", subject=name, case="secure", where=chain.file.path)
    if why is not None:
        where = chain.file.path if chain.file else None
        yield finding("program-unreadable", subject=name, case="unreadable", where=where, why=why)


def program_interpreter(preflight: Preflight) -> Iterator[Finding]:
    """Report a program whose loader (PT_INTERP) the container lacks. The kernel then reports that the program is
    missing.
    """
    file = preflight.started
    elf = None if file is None else file.elf
    if file is None or elf is None or not elf.interpreter or not elf.interpreter.startswith("/"):
        return  # static, or its loader is relative to the working directory
    loader = preflight.container.locate(elf.interpreter)
    ident = None if loader is None else loader.tree.ident(loader.tree_path)
    if isinstance(ident, ElfIdent) and (ident.bits, ident.machine) == (elf.ident.bits, elf.ident.machine):
        return
    case = "absent" if loader is None else "of-another-machine"
    subject = preflight.chain.names[-1]
    raw_finding = finding("program-interpreter", subject=subject, case=case, where=file.path, loader=elf.interpreter)
    yield soften(raw_finding, preflight.container.unreadable_mounts if loader is None else ())


def program_library_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a library that the program is linked with and that the loader does not find.

    If all of ROCm is missing, `userspace-missing` is reported in place of its libraries, as an error.
    """
    failures = tuple(_failures(preflight, "missing"))
    missing, name = [failure for failure, _ in failures], preflight.chain.names[-1]
    userspace_findings = tuple(without_userspace(preflight, missing, name))
    yield from userspace_findings
    for failure, program in failures:
        if userspace_findings and is_rocms(failure.name):
            continue
        reason, packages = missing_reason(preflight, failure.name), name_facts(failure.name).packages
        is_forbidden = failure.why == "forbidden"
        if reason is not None and reason.is_reported:
            continue
        wheels = None
        release = rocm_with(preflight, failure.name) if reason is None else None
        if reason is None and not is_forbidden:
            wheels = wheel_directory_of(preflight.image.tree, preflight.image.facts.env.get("PATH", ""), failure.name)
        origin_case = reason.case if reason is not None else "of-wheel" if wheels else "packaged" if packages else None
        rocm = release_with([failure.name])
        origin_case = "of-rocm" if release else "of-release" if rocm else origin_case
        raw_finding = finding(
            "program-library-missing",
            subject=failure.name,
            case=active_cases(
                ("of-library", _is_library(preflight)),
                ("forbidden" if is_forbidden else origin_case or "", is_forbidden or origin_case),
            ),
            where=f"needed by {failure.needed_by}",
            program=program,
            message=failure.message,
            packages=packages,
            capability=reason.capability if reason is not None else None,
            directory=wheels,
            release=release,
            rocm=rocm,
        )
        yield soften(raw_finding, unseen_libraries(preflight))


def program_library_version(preflight: Preflight) -> Iterator[Finding]:
    """Report a library that is too old for the program or its libraries."""
    for failure, program in _failures(preflight, "version"):
        raw_finding = finding(
            "program-library-version",
            subject=failure.name,
            case="of-library" if _is_library(preflight) else None,
            where=f"needed by {failure.needed_by}",
            program=program,
            message=failure.message,
        )
        yield soften(raw_finding, unseen_libraries(preflight))


def program_driver(preflight: Preflight) -> Iterator[Finding]:
    """Report a library of the driver in the image that precedes the plan's library in the program's search path."""
    started = preflight.started
    if started is None:
        return
    planned = {basename(mount.target): mount.source for mount in preflight.plan.mounts if mount.kind == "library"}
    for file in preflight.container.load(started.path).files:
        soname, directory = basename(file.path), dirname(file.path)
        is_planned = file.mount is not None or file.tree.real(file.tree_path) == planned.get(soname)
        # The user is responsible for the user's own path; other rules are about compat libraries.
        is_users = directory in preflight.container.user_library_path
        is_drivers = soname in planned and soname in DRIVER_SONAMES
        if is_planned or not is_drivers or (is_users and "/compat/" in file.tree_path):
            continue
        yield finding(
            "program-driver",
            subject=soname,
            case=active_cases(("bound", file.bind), ("in-users-path", is_users)),
            severity="warning" if is_users else "error",
            where=file.path,
            program=preflight.chain.names[-1],
            path=file.path,
            bound=file.bind.source if file.bind is not None else None,
            directory=directory,
        )


def capability_not_asked(preflight: Preflight) -> Iterator[Finding]:
    """Report the capabilities that the program uses but the user did not request.

    If the program is linked with a library of the driver, it does not start without it: `program-library-missing`
    reports that.
    """
    request = preflight.plan.request
    groups: dict[Capability, list[DriverUse]] = {}
    for use in preflight.uses:
        if not preflight.wants(use.capability) and not (use.is_linked and driver_section(use.library) is not None):
            groups.setdefault(use.capability, []).append(use)
    caps = ",".join(name for name in CAPABILITIES if name in (*request.capabilities, *groups))
    for capability, uses in groups.items():
        use = min(uses, key=lambda use: SEVERITIES.index(use.severity))
        raw_finding = finding(
            "capability-not-asked",
            subject=capability,
            case=capability,
            severity=use.severity,
            where=", ".join(dict.fromkeys(use.by for use in uses)),
            by=use.by,
            library=shorten_list([use.library for use in uses]),
            caps=caps,
        )
        yield soften(raw_finding, preflight.container.unreadable_mounts)


def _failures(preflight: Preflight, kind: str) -> Iterator[tuple[LoadFailure, str]]:
    started = preflight.started
    if started is not None:
        for failure in preflight.container.failures(started.path):
            if failure.kind == kind:
                yield failure, started.path


def _is_library(preflight: Preflight) -> bool:
    file = preflight.chain.file
    return file is not None and is_library(file)
