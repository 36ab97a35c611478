"""Rules about the frameworks of Python in an image: do their own libraries load, and was anything looked at?

Which they are, and where each has its libraries, is in data/cuda.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from posixpath import basename, dirname
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.image.cuda import framework_libraries, frameworks_in, packages_of, wheel_directories
from gpubind.loader.container import Failure
from gpubind.model import Finding, finding
from gpubind.model.cuda import Framework
from gpubind.rules.missing import lacking, softened, unseen_libraries
from gpubind.rules.preflight import ImagePreflight, ProgramPreflight, search_path

_INTERPRETER = re.compile(r"java|julia|lua[0-9.]*|node|octave(-cli)?|perl[0-9.]*|R|Rscript|ruby[0-9.]*")
"""Interpreters other than Python."""


def framework_library(preflight: ImagePreflight) -> Iterator[Finding]:
    """Yield a framework's library that does not load: something that it is linked with is missing, or too old."""
    every = _every(preflight)
    refused = tuple(_refused(preflight, every))
    broken = {one.framework.name for one in refused}
    works = any(not framework.is_addition and framework.name not in broken for framework, _ in every)
    for one in refused:
        missing = [failure for failure in one.failures if failure.kind == "missing"]
        first = (missing or one.failures)[0]
        may_use_another = works and not isinstance(preflight, ProgramPreflight)
        is_sure = one.module is not None and not one.framework.is_addition and not may_use_another
        found = finding(
            "framework-library",
            subject=first.name,
            case="missing" if missing else None,
            severity="error" if is_sure and _imports_frameworks(preflight) else "warning",
            where=one.library,
            framework=one.framework.name,
            names=", ".join(dict.fromkeys(failure.name for failure in missing)),
            message=first.message,
            without=one.framework.without if one.module is None else f"`import {one.module}` fails",
        )
        yield softened(found, unseen_libraries(preflight))


def _imports_frameworks(preflight: ImagePreflight) -> bool:
    """Return whether the program is a Python, or is not known."""
    return preflight.imports is not None or not isinstance(preflight, ProgramPreflight)


class _Refused(NamedTuple):
    """A library of a framework that does not load."""

    framework: Framework
    library: str
    module: Optional[str]
    """The module whose import loads it; None if the framework does without it."""
    failures: tuple[Failure, ...]


def imports_not_checked(preflight: ProgramPreflight) -> Iterator[Finding]:
    """Yield an interpreter whose packages were not checked."""
    file = preflight.chain.file
    if file is None or preflight.chain.stop is not None:
        return
    is_other = preflight.imports is None and _INTERPRETER.fullmatch(basename(file.path))
    is_slow = preflight.image.tree.restarts and preflight.imports is not None
    if is_other or is_slow or (preflight.imports is not None and not _every(preflight)):
        case = None if is_other else "of-archive" if is_slow else "of-python"
        yield finding("imports-not-checked", subject=file.path, case=case, where=file.path)


def _every(preflight: ImagePreflight) -> tuple[tuple[Framework, str], ...]:
    """Return the frameworks and their directories: those that the program imports from, else the image's."""
    imports, tree = preflight.imports, preflight.container.tree
    path = search_path(preflight.image, preflight.plan, preflight.own_mounts)
    places = packages_of(tree, path) if imports is None else imports.packages
    return tuple(frameworks_in(tree, places))


def _refused(preflight: ImagePreflight, every: Sequence[tuple[Framework, str]]) -> Iterator[_Refused]:
    """Yield the first library of each framework that does not load; those of imports come first."""
    if preflight.image.tree.restarts:
        return
    tree = preflight.container.tree
    places = dict.fromkeys(packages for _, packages in every)
    wheels = [wheel for packages in places for wheel in wheel_directories(tree, packages)]
    for framework, packages in every:
        own = [place if place.startswith("/") else f"{packages}/{place}" for place in framework.beside]
        # Of conda's Python, everything that it opens sees its own libraries.
        directories = (*own, *wheels, dirname(dirname(packages)))
        for library, module in framework_libraries(tree, packages, framework).items():
            failures = preflight.container.load_beside(library, directories).failures
            theirs = tuple(failure for failure in failures if lacking(preflight, failure.name) is None)
            if theirs:
                yield _Refused(framework, library, module, theirs)
                break
