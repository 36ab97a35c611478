"""Show what a program is linked with: `explain --tree`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

from gpubind.cli.options import open_host_of, open_image_of, query_of
from gpubind.documents.tree import LinkageTree, render_tree_dot, render_tree_json, render_tree_text
from gpubind.errors import HostReadError, UsageError
from gpubind.image.environment import DEFAULT_PATH
from gpubind.launch.prepare import preflight_on
from gpubind.loader.container import Container
from gpubind.loader.execve import Caller, Chain, follow, nearest_program
from gpubind.loader.linkage import LinkedFile, Use, linked_files
from gpubind.loader.namespace import OwnMounts
from gpubind.loader.search import Loader
from gpubind.model import EnvVar, Missing, finding
from gpubind.rules.preflight import search_path

if TYPE_CHECKING:
    from gpubind.cli.declarations import PlanOptions
    from gpubind.host import Host

FORMATS = {"text": render_tree_text, "json": render_tree_json, "dot": render_tree_dot}
_LOADERS_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")


def render_tree(options: PlanOptions, program: str, like: Optional[str], image: Optional[str], form: str) -> str:
    """Return what *program* is linked with: on the host, or in *image* with the plan in place.

    Errors: `UsageError` (code `no-program`); `HostReadError` (code `unreadable-file`) for a file
    that does not exist, or is not a program or library.
    """
    if program.strip() in ("", "-"):
        raise UsageError("no-program", "--tree needs the name or path of a program or library")
    host = open_host_of(options)
    opened = open_image_of(image, host)
    if opened is None:
        container = _host_as_container(host, is_callers=options.root is None)
        path = host.variable("PATH") or DEFAULT_PATH
    else:
        start = preflight_on(host, query_of(options, like), opened, program=program)
        if start.container is None:
            raise AssertionError("an image has a container")
        container, path = start.container, search_path(opened, start.plan, start.own_mounts)
    names, file = _file_of(container, program, path, image, host)
    files = linked_files(container, (file,), "host" if opened is None else "image")
    if opened is None and host.local is None:
        files = tuple(map(_as_recorded, files))
    return FORMATS[form](LinkageTree(program, names, image, files))


def _as_recorded(file: LinkedFile) -> LinkedFile:
    """Return *file* where a library that is not found may be one that the record does not cover."""
    return file._replace(
        uses=tuple(use if use.state == "found" else Use(use.name, None, "unknown", use.versions) for use in file.uses)
    )


def _file_of(
    container: Container, program: str, path: str, image: Optional[str], host: Host
) -> tuple[tuple[str, ...], str]:
    """Return the names that lead to the file that the loader maps for *program*, and its path."""
    library = container.locate(program) if "/" in program else container.find(program)
    if library is not None and ".so" in program and container.closure(library.path) is not None:
        return (program,), library.path
    caller = Caller(host.uname.machine, host.identity.euid, host.identity.groups)
    chain = follow(container, program, path, caller)
    if chain.file is not None and container.closure(chain.file.path) is not None:
        return chain.names, chain.file.path
    raise _not_to_show(container, chain, path, image, host)


def _not_to_show(container: Container, chain: Chain, path: str, image: Optional[str], host: Host) -> HostReadError:
    """Return the error that the last file of *chain* does not exist, or that no loader maps it."""
    name, file, stop = chain.names[-1], chain.file, chain.stop
    if file is not None:
        elf = file.tree.elf(file.at)
        why = elf.detail or str(elf) if isinstance(elf, Missing) else ""
        return HostReadError("unreadable-file", f"`{name}` is not a program or library", where=file.path, why=why)
    if stop is not None and stop.kind != "missing":
        what = finding("program-not-executable", subject=name, case=stop.kind, why=stop.why).what
        return HostReadError("unreadable-file", what, where=image or "")
    place = "in the container" if image else "in the record of the host" if host.local is None else "on this host"
    needing = f"`{chain.names[0]}` needs `{name}`, which" if chain.names[1:] else f"`{name}`"
    hint = nearest_program(container, name, path).strip()
    return HostReadError("unreadable-file", f"{needing} is not {place}", where=image or "", hint=hint)


def _host_as_container(host: Host, *, is_callers: bool) -> Container:
    """Return *host* as its loader sees it; *is_callers*: with the variables of this process."""
    here = is_callers and host.local is not None
    given = {name: os.environ[name] for name in _LOADERS_VARIABLES if here and name in os.environ}
    env = tuple(EnvVar(name, "set", value, ":", "caller") for name, value in given.items())
    mounts = OwnMounts(env=env, working_directory=os.getcwd() if here else None)  # type: ignore[arg-type]
    tree = host.lenient.driver
    return Container(Loader(tree, host.uname.machine), tree, (), (), "", mounts)
