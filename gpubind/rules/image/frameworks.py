"""Rules about the Python frameworks of an image: whether their libraries load, and whether they were checked.

data/cuda.json lists the frameworks and the directories of their libraries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from posixpath import basename
from typing import Optional

from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts
from gpubind.frozen import NamedTuple
from gpubind.image.cuda import (
    directories_for,
    framework_libraries,
    frameworks_in,
    wheel_directories,
)
from gpubind.image.needs import NEEDED_BY_CODE, borrowed_directories
from gpubind.image.synapse import is_synapse_library
from gpubind.loader.search import LoadFailure
from gpubind.model import Finding, Severity, Vendor, active_cases, finding
from gpubind.model.cuda import Framework, framework_named
from gpubind.model.rocm import is_rocms, release_with
from gpubind.rules.missing import missing_reason, rocm_with, soften, unseen_libraries, without_userspace
from gpubind.rules.preflight import Preflight

_INTERPRETER = re.compile(r"java|julia|lua[0-9.]*|node|octave(-cli)?|perl[0-9.]*|R|Rscript|ruby[0-9.]*")
"""Interpreters other than Python."""


class _Refused(NamedTuple):
    """A library of a framework that does not load."""

    framework: Framework
    library: str
    module: Optional[str]
    """The module whose import loads the library; None if the framework works without it."""
    failures: tuple[LoadFailure, ...]
    needed: tuple[str, ...] = ()
    """The libraries that it is linked with."""


def framework_library(preflight: Preflight) -> Iterator[Finding]:
    """Report a library of a framework that does not load because a library that it needs is missing or too old.

    If all of ROCm is missing, `userspace-missing` is reported in its place, as an error.
    """
    gpus = [gpu for gpu in preflight.plan.gpus if gpu.chosen]
    has_gaudi = any(gpu.is_gaudi for gpu in gpus)
    every = [pair for pair in _relevant_frameworks(preflight) if has_gaudi or not pair[0].for_gaudi]
    is_for_gaudi = all(gpu.is_gaudi for gpu in gpus)
    refused = tuple(_refused(preflight, every))
    broken = {refusal.framework.name for refusal in refused}
    works = any(not framework.is_addition and framework.name not in broken for framework, _ in every)
    for refusal in refused:
        may_use_another = works and not preflight.has_program
        of_gaudi = refusal.failures if is_for_gaudi and refusal.framework.for_gaudi else ()
        lacks_synapse = any(is_synapse_library(failure.name) for failure in of_gaudi)
        is_used = lacks_synapse or not (refusal.framework.is_addition or may_use_another)
        is_sure = refusal.module is not None and is_used
        is_error = is_sure and (preflight.imports is not None or not preflight.has_program)
        failures = refusal.failures if is_error else ()
        userspace_findings = tuple(without_userspace(preflight, failures, refusal.framework.name))
        yield from userspace_findings or (_finding(preflight, refusal, "error" if is_error else "warning"),)
    for refusal in _refused_packages(preflight):
        yield _finding(preflight, refusal, "warning")


def _finding(preflight: Preflight, refused: _Refused, severity: Severity) -> Finding:
    missing = [failure for failure in refused.failures if failure.kind == "missing"]
    first = (missing or refused.failures)[0]
    names = tuple(dict.fromkeys(failure.name for failure in missing))
    release = release_with((*names, *refused.needed))
    directory = next(filter(None, (rocm_with(preflight, name) for name in names)), None)
    of_rocm = any(map(is_rocms, names))
    raw_finding = finding(
        "framework-library",
        subject=first.name,
        case=active_cases(
            ("missing", missing), ("of-release", of_rocm and release), ("on-host", release and directory)
        ),
        severity=severity,
        where=refused.library,
        framework=refused.framework.name,
        names=", ".join(names),
        release=release,
        directory=directory,
        message=first.message,
        without=refused.framework.without if refused.module is None else f"`import {refused.module}` fails",
    )
    return soften(raw_finding, unseen_libraries(preflight))


def imports_not_checked(preflight: Preflight) -> Iterator[Finding]:
    """Report an interpreter whose packages were not checked."""
    file = preflight.chain.file
    if file is None or preflight.chain.stop is not None:
        return
    is_other = preflight.imports is None and _INTERPRETER.fullmatch(basename(file.path))
    is_slow = preflight.image.tree.restarts and preflight.imports is not None
    if is_other or is_slow or (preflight.imports is not None and not _relevant_frameworks(preflight)):
        case = None if is_other else "of-archive" if is_slow else "of-python"
        yield finding("imports-not-checked", subject=file.path, case=case, where=file.path)


def _relevant_frameworks(preflight: Preflight) -> list[tuple[Framework, str]]:
    return list(frameworks_in(preflight.container.tree, preflight.packages))


def _refused(preflight: Preflight, every: Sequence[tuple[Framework, str]]) -> Iterator[_Refused]:
    """Yield, for each framework, the first library that does not load. Libraries that an import loads come first.

    If a framework opens one of several libraries and it is unknown which, a library is yielded only if all of them
    fail.
    """
    if preflight.image.tree.restarts:
        return
    tree = preflight.container.tree
    # A framework for several vendors uses its ROCm libraries, as far as the host's drivers show.
    is_for_amd = "amd" in preflight.vendors and "nvidia" not in preflight.vendors
    wheels = _wheels(tree, (packages for _, packages in every))
    for framework, packages in every:
        directories = directories_for(framework, packages, wheels)
        libraries = framework_libraries(tree, packages, framework)
        each = (_check_library(preflight, framework, *library_item, directories) for library_item in libraries.items())
        if not framework.one_of:
            yield from islice(filter(None, each), 1)
        elif len(libraries) == 1 or is_for_amd:
            refused = list(each)
            yield from filter(None, refused[:1] if all(refused) else ())


def _check_library(
    preflight: Preflight, framework: Framework, library: str, module: Optional[str], directories: Iterable[str]
) -> Optional[_Refused]:
    failures = preflight.container.load_with_directories(library, directories).failures
    framework_failures = tuple(failure for failure in failures if missing_reason(preflight, failure.name) is None)
    elf = preflight.container.tree.elf(library) if framework_failures else None
    needed = elf.needed if isinstance(elf, ElfFacts) else ()
    return _Refused(framework, library, module, framework_failures, needed) if framework_failures else None


def _refused_packages(preflight: Preflight) -> Iterator[_Refused]:
    """Yield, for each package that data/cuda.json does not list, the first library that lacks a ROCm library.

    If the plan has Intel's GPUs, also yield those that lack a library of SYCL's runtime.
    """
    if preflight.image.tree.restarts:
        return
    for vendor, is_theirs in NEEDED_BY_CODE:
        if vendor == "amd" or vendor in preflight.vendors:
            yield from _refused_code(preflight, vendor, is_theirs)


def _refused_code(preflight: Preflight, vendor: Vendor, is_theirs: Callable[[str], object]) -> Iterator[_Refused]:
    """Yield, for each package, the first library that has code for *vendor* but lacks a library for which *is_theirs*
    is true.
    """
    tree, seen = preflight.container.tree, set[Optional[str]]()
    files = [file for file in preflight.gpu_code if file.framework and vendor in file.gpu_code.vendors]
    others = [file for file in files if framework_named(file.framework) is None]
    if not others:
        return
    places = preflight.packages
    directories = (*borrowed_directories(places), *_wheels(tree, places))
    for file in others:
        failures = preflight.container.load_with_directories(file.path, directories).failures
        missing = tuple(failure for failure in failures if failure.kind == "missing" and is_theirs(failure.name))
        if missing and file.framework not in seen:
            seen.add(file.framework)
            framework = Framework(file.framework or "", without="its functions for GPUs fail")
            yield _Refused(framework, file.path, None, missing)


def _wheels(tree: Tree, places: Iterable[str]) -> list[str]:
    return [wheel for packages in dict.fromkeys(places) for wheel in wheel_directories(tree, packages)]
