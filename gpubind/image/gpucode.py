"""Find the GPU code in an image. Entry: `read_gpu_code`.

Frameworks open their libraries by name, so no program is linked with them: data/cuda.json lists the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from posixpath import basename, dirname
from typing import Optional

from gpubind.files import Tree, glob_or_note
from gpubind.files.facts import GPU_CODE
from gpubind.frozen import NamedTuple
from gpubind.image.cuda import frameworks_in, glob_below, linked_cuda, newest_first, opened_of
from gpubind.image.facts import Image
from gpubind.model import ImageCuda, Missing
from gpubind.model.cuda import cuda_of_isa, frameworks, system_frameworks, version_key
from gpubind.model.gpucode import CodeFile, GpuCode

FILES_LIMIT = 768
"""Maximum number of examined files. The files of all known frameworks, about 60, come first, then up to
`LIBRARIES_LIMIT` other libraries.
"""
RECORD_LIMIT = 8 << 20
"""Limit of the total size of all RECORD files, in bytes. That of PyTorch has 2 MB, most have about 10 KB."""
LEAST_SIZE = 128 << 10
"""Smallest size of a library that may contain GPU code, in bytes."""
LIBRARIES_LIMIT = 512
"""Limit of examined libraries of packages that data/cuda.json does not list; the largest are examined."""
_LIBRARY = re.compile(rb'^"?([^",\n]{1,400}\.so[.0-9]{0,40})"?,[^,\n]{0,200},([0-9]{6,12})\r?$', re.MULTILINE)
"""A library in a RECORD, and its size. Source: PyPA, "Recording installed projects"."""


class _CodePath(NamedTuple):
    path: str
    framework: Optional[str]
    is_main: bool
    unread: Optional[str] = None


def read_gpu_code(image: Image) -> tuple[CodeFile, ...]:
    """Return the GPU code of each framework in *image*, or the reason why its file cannot be read."""
    return collect_gpu_code(image.tree, image.packages, is_machine=image.facts.kind == "host")


def collect_gpu_code(tree: Tree, packages: Iterable[str], *, is_machine: bool = False) -> tuple[CodeFile, ...]:
    """Return the GPU code of frameworks in the directories *packages*, of those outside Python, and of other packages.

    *is_machine*: *tree* is this machine, where frameworks outside Python show nothing about a program.
    Files without GPU code are left out. Of several paths that lead to one file, the first is reported.
    """
    directories, code_files = tuple(packages), dict[str, CodeFile]()
    outside = () if is_machine else _system_code(tree)
    for place in (*_code_in_packages(tree, directories), *outside, *_other_libraries(tree, directories)):
        real_path = tree.resolve(place.path)
        if isinstance(real_path, Missing) or real_path in code_files:
            continue
        is_last = len(code_files) == FILES_LIMIT
        why = f"only {FILES_LIMIT} files are read" if is_last else place.unread
        code = code_in(tree, place.path) if why is None else GpuCode(unread=why)
        code_files[real_path] = CodeFile(place.path, place.framework, place.is_main, code)
        if is_last:
            break
    return tuple(code_file for code_file in code_files.values() if code_file.gpu_code)


def gpu_code_of_program(paths: Sequence[str], tree: Tree) -> tuple[CodeFile, ...]:
    """Return the GPU code of a program and of its libraries; the first of *paths* is the program's.

    A framework's library is reported under its framework. Of the other files, only the program is a main file; if it
    has no GPU code, all of them are.
    """
    codes = {path: code for path in paths if (code := code_in(tree, path))}
    program = paths[0] if paths and paths[0] in codes else None
    owners = {path: _owner(path) for path in codes}
    return tuple(
        CodeFile(path, owners[path], owners[path] is not None or program in (None, path), code)
        for path, code in codes.items()
    )


def _owner(path: str) -> Optional[str]:
    """Return the framework that has *path* as a main library; None if there is none. The whole path is compared before
    the name.
    """
    elsewhere = ((pattern, framework.name) for framework in system_frameworks() for pattern in framework.code)
    mains = (
        (f"*/{basename(pattern)}", framework.name) for framework in frameworks().values() for pattern in framework.code
    )
    return next((name for pattern, name in (*elsewhere, *mains) if fnmatchcase(path, pattern)), None)


def code_in(tree: Tree, path: str) -> GpuCode:
    """Return the GPU code of *path*: a file, or a directory of files that are named after processors."""
    from gpubind.formats.gpucode import hip  # most images hold no such file

    names = tree.list(path)
    if not isinstance(names, Missing):
        return hip.parse_names(names)
    code = tree.fact(path, GPU_CODE)
    if isinstance(code, Missing):
        return GpuCode() if code.why in ("absent", "unrecorded") else GpuCode(unread=code.detail or code.why)
    if code.unread == hip.IN_ARCHIVES:
        archives = (name for place in hip.ARCHIVES for name in tree.names(f"{dirname(path)}/{place}"))
        return hip.parse_archives(archives) or code
    return code


def with_code(tree: Tree, every: Sequence[ImageCuda], files: Iterable[CodeFile]) -> tuple[ImageCuda, ...]:
    """Return *every* with the CUDA of *files*, the newest first. It is that of a file's PTX, else of the libraries that
    it needs.
    """
    cuda_versions = [*every]
    for file in files:
        versions = [cuda for isa in file.gpu_code.isas if (cuda := cuda_of_isa(isa))]
        if not versions and "nvidia" in file.gpu_code.vendors:
            versions = linked_cuda(tree, file.path)
        cuda_versions += [ImageCuda(max(versions, key=version_key), "code", file.path)] if versions else ()
    exact = {cuda.version.partition(".")[0] for cuda in cuda_versions if "." in cuda.version}
    return newest_first(cuda for cuda in cuda_versions if cuda.origin != "code" or cuda.version not in exact)


def _code_in_packages(tree: Tree, packages: Iterable[str]) -> Iterator[_CodePath]:
    for framework, directory in frameworks_in(tree, packages):
        code = [path for pattern in framework.code for path in glob_below(tree, directory, pattern)]
        opened = opened_of(tree, directory, framework, code)
        yield from (_CodePath(path, framework.name, True) for path in (code if opened is None else opened))
        more = (path for pattern in framework.more_code for path in glob_below(tree, directory, pattern))
        yield from (_CodePath(path, framework.name, False) for path in more)


def _other_libraries(tree: Tree, packages: Sequence[str]) -> Iterator[_CodePath]:
    listed = (pattern for framework in frameworks().values() for pattern in (*framework.code, *framework.more_code))
    known_patterns = {*frameworks(), *(pattern.partition("/")[0] for pattern in listed), "nvidia"}
    is_known = lru_cache(maxsize=None)(lambda top: any(fnmatchcase(top, pattern) for pattern in known_patterns))
    libraries: list[tuple[int, str, str]] = []
    room = RECORD_LIMIT
    for directory in packages:
        for name in tree.names(directory):
            record = f"{directory}/{name}/RECORD"
            data = tree.read(record, room) if name.endswith(".dist-info") else b""
            package = name.partition("-")[0]
            if isinstance(data, Missing):
                if data.why != "absent":
                    yield _CodePath(record, package, False, data.detail or data.why)
                continue
            room -= len(data)
            for match in _LIBRARY.finditer(data):
                path, size = match.group(1).decode("utf-8", "surrogateescape"), int(match.group(2))
                if size >= LEAST_SIZE and path[:1] not in "/." and not is_known(path.partition("/")[0]):
                    libraries.append((-size, f"{directory}/{path}", package))
    for _, path, package in sorted(libraries)[:LIBRARIES_LIMIT]:
        yield _CodePath(path, package, True)
    omitted_count = len(libraries) - LIBRARIES_LIMIT
    if omitted_count > 0:
        why = f"{LIBRARIES_LIMIT} libraries of packages are examined, not the {omitted_count} smallest"
        yield _CodePath(packages[0], None, False, why)


def _system_code(tree: Tree) -> Iterator[_CodePath]:
    for framework in system_frameworks():
        for pattern in (*framework.code, *framework.more_code):
            for path in glob_or_note(tree, pattern):
                yield _CodePath(path, framework.name, pattern in framework.code)
