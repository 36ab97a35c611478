"""Find ROCm outside the directories of an image's loader: in AMD's packages, conda's packages and Python's wheels.

Sources: ROCm documentation, "Transition guide from legacy ROCm release stream" (/opt/rocm/core-X.Y); ROCm/TheRock
`docs/packaging/python_packaging.md` (the wheels of rocm-sdk); pytorch `.ci/manywheel/build_rocm.sh` (torch/lib).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.files import Tree, glob_or_note
from gpubind.formats.elf.elf import ElfIdent
from gpubind.image.cuda import glob_below, read_version
from gpubind.loader.python import site_packages
from gpubind.model import RootedPath
from gpubind.model.layouts import ROCM_LIBRARIES, ROCM_PREFIXES

RUNTIME = "libhsa-runtime64.so*"
"""The library that all of ROCm needs: an image that contains it has its own ROCm."""
HIP = "libamdhip64.so*"
_IN_PACKAGES = ("_rocm_sdk_core*/lib", "torch/lib")
_BUILT = re.compile(r"^hip\b[^=\n]*= *['\"]([0-9]{1,3}\.[0-9]{1,3})", re.MULTILINE)
_WHEEL = re.compile(r"rocm_sdk_core-([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})")


def read_rocm(tree: Tree, prefixes: Iterable[str]) -> tuple[Optional[str], Optional[RootedPath]]:
    """Return the release of ROCm in an image, `6.1.2`, and its HSA runtime; None for each that is not found.

    *prefixes* may contain a Python, or conda's packages.
    """
    prefixes = tuple(prefixes)
    packages = [place for prefix in prefixes for place in site_packages(tree, prefix)]
    runtimes = (path for path in _runtimes(tree, prefixes, packages) if isinstance(tree.ident(path), ElfIdent))
    return next(_releases(tree, packages), None), next(map(RootedPath, runtimes), None)


def _runtimes(tree: Tree, prefixes: Iterable[str], packages: Iterable[str]) -> Iterator[str]:
    for release in ROCM_PREFIXES:
        for directory in (*ROCM_LIBRARIES, "hsa/lib"):
            yield from glob_or_note(tree, f"{release}/{directory}/{RUNTIME}")
    for prefix in prefixes:
        if any(glob_below(tree, f"{prefix}/lib", HIP)):  # other packages contain only the runtime
            yield from glob_below(tree, f"{prefix}/lib", RUNTIME)
    for place in packages:
        for directory in _IN_PACKAGES:
            yield from glob_below(tree, place, f"{directory}/{RUNTIME}")


def _releases(tree: Tree, packages: Iterable[str]) -> Iterator[str]:
    texts = [
        read_version(tree, path) for release in ROCM_PREFIXES for path in glob_or_note(tree, f"{release}/.info/version")
    ]
    for place in packages:
        texts += [match[1] for match in map(_WHEEL.match, tree.names(place)) if match]
        built = _BUILT.search(tree.text(f"{place}/torch/version.py") or "")
        texts += [built[1]] if built else []
    yield from filter(None, texts)
