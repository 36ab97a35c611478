"""Lines that are passed through, although their containers may get GPUs by files that gpubind does not parse.

`without_plan` returns the warning. A Compose file is only searched for words about GPUs: if it has none, nothing warns.

Sources: compose-go `cli/options.go` (DefaultFileNames, COMPOSE_FILE); references of `docker compose` and `docker buildx
build`; podman-compose 1.5 `podman_compose.py` (COMPOSE_DEFAULT_LS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import basename, dirname, join
from typing import Optional

from gpubind.errors import UnseenError, UsageError
from gpubind.launch.wrap.command import read_prefixes
from gpubind.machine.answers import exists, missing_from, real_path
from gpubind.machine.regular import read_regular
from gpubind.model.files import ABSENT
from gpubind.runtimes import PROGRAMS
from gpubind.runtimes.cmdline.programs import ENGINES
from gpubind.runtimes.cmdline.reader import ParsedCommandLine, parse_options
from gpubind.runtimes.engines.programs import BUILDAH, DOCKER_COMPOSE

_STARTS = ("create", "run", "up", "watch")
"""The commands of Compose that create containers."""
_BUILDS = ("build", "buildx", "builder", "image")
_FILES = tuple(
    f"{name}{part}.{ending}"
    for name in ("compose", "docker-compose", "podman-compose", "container-compose")
    for part in ("", ".override")
    for ending in ("yaml", "yml")
)
_SIZE_LIMIT = 1 << 20
_GPUS = re.compile(rb"gpu|nvidia|amd\.com/|habana|/dev/(dri|dxg|kfd)|^\s*-?\s*(extends|include)\s*:", re.I | re.M)
"""Words about GPUs in a Compose file, and the keys that name other files."""
_CDI = re.compile(r"\b(nvidia|amd)\.com/gpu\b")


def without_plan(argv: Sequence[str], environ: Mapping[str, str]) -> Optional[UsageError]:
    """Return the warning about *argv*, which `parse_command` passes through; None if it requests no GPU."""
    args = tuple(argv)
    _, at = read_prefixes(args)
    program = PROGRAMS[basename(args[at])]
    if program.family not in ENGINES or "--help" in args[at:]:
        return None
    if program is BUILDAH:
        return _build_warning(args, at)
    reader, name = program.reader._replace(permutes=False), args[at]
    line = parse_options(reader, program.option_table, args, at + 1)
    if program is not DOCKER_COMPOSE:
        first = args[line.operand_indexes[0]] if line.operand_indexes else ""
        if first in _BUILDS:
            return _build_warning(args, at)
        if first != "compose":
            return None
        line = parse_options(reader, DOCKER_COMPOSE.option_table, args, line.operand_indexes[0] + 1)
        name = f"{name} compose"
    return _compose_warning(line, name, environ)


def _build_warning(argv: Sequence[str], at: int) -> Optional[UsageError]:
    if not any(map(_CDI.search, argv)):
        return None
    return UsageError(
        "wrap-without-plan",
        f"`{argv[at]}` gives a build the GPUs of a CDI spec, and gpubind adds no plan to it",
        hint="`gpubind plan --format cdi` writes a CDI spec",
    )


def _compose_warning(line: ParsedCommandLine, program: str, environ: Mapping[str, str]) -> Optional[UsageError]:
    args = line.argv[line.error.position if line.error is not None else line.insert_index :]
    if not any(arg in _STARTS for arg in (args if line.error is not None else args[:1])):
        return None
    try:
        file = next((path for path in _files(line, environ) if _names_gpus(path)), None)
    except UnseenError as error:  # what could not be inspected may ask for GPUs
        file = error.where
    if file is None:
        return None
    return UsageError(
        "wrap-without-plan",
        f"`{program}` starts services without a plan, and their Compose file may ask for GPUs",
        where=file,
        why="gpubind does not read Compose files",
        hint="`gpubind plan --format compose -o gpu.yaml` writes a service that yours can extend; or name a CDI device "
        "in `devices`, from a spec of `gpubind plan --format cdi`; or `gpubind setup docker`",
    )


def _files(line: ParsedCommandLine, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the Compose files of *line*: named ones, else those with a default name."""
    named_paths = [option.value for option in line.options if option.name == "file"]
    named_paths = named_paths or [path for path in environ.get("COMPOSE_FILE", "").split(":") if path]
    if named_paths:
        yield from named_paths
        return
    directory = real_path(line.last("project-directory") or ".")
    while True:
        default_paths = [path for name in _FILES if exists(path := join(directory, name))]
        yield from default_paths
        if default_paths or directory == "/":
            return
        directory = dirname(directory)


def _names_gpus(path: str) -> bool:
    """Return whether the Compose file *path* may request GPUs. It may if *path* is an address, or cannot be read."""
    if path == "-" or "://" in path:
        return True
    try:
        return _GPUS.search(read_regular(path, _SIZE_LIMIT)) is not None
    except OSError as error:
        return missing_from(error) != ABSENT
