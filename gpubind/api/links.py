"""links: the libraries that a program is linked with, `explain --tree`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Optional

from gpubind.documents.tree import LinkageTree
from gpubind.errors import HostReadError, UsageError
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.image.environment import DEFAULT_PATH
from gpubind.launch.preflight import make_preflight
from gpubind.loader.container import Container
from gpubind.loader.execve import Caller, Chain, nearest_program, resolve_program
from gpubind.loader.linkage import LinkedFile, LinkUse, linked_files
from gpubind.loader.namespace import UserMounts
from gpubind.loader.search import Loader
from gpubind.model import ContainerPath, EnvVar, Missing, finding
from gpubind.planner.planning import PlanQuery
from gpubind.rules.preflight import search_path

if TYPE_CHECKING:
    from gpubind.image.facts import Image

_LOADERS_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")


class LinksRequest(NamedTuple):
    """A program or library, and where to find it."""

    program: str
    """A name, or a path."""
    host: Host
    query: PlanQuery = PlanQuery()
    """The query of the plan that is in place in the image."""
    image: Optional[Image] = None
    """None for a program of the host."""
    label: Optional[str] = None
    """The user's name for the image."""
    environ: Mapping[str, str] = MappingProxyType({})
    """The caller's variables, which its loader reads; empty if the host is not the caller's machine."""
    working_directory: Optional[ContainerPath] = None
    """The caller's working directory, on the same condition as `environ`."""


def links(request: LinksRequest) -> LinkageTree:
    """Return the linked files of the program: on the host, or in the image with the plan in place.

    Errors: `UsageError` (code `no-program`); `HostReadError` (code `unreadable-file`) for a file that does not exist,
    or is not a program or library; as `plan_host`.
    """
    program, host, image = request.program, request.host, request.image
    if program.strip() in ("", "-"):
        raise UsageError("no-program", "--tree needs the name or path of a program or library")
    if image is None:
        container = _host_as_container(request)
        path = host.variable("PATH") or DEFAULT_PATH
    else:
        start = make_preflight(host, request.query, image, program=program)
        container, path = start.container, search_path(image, start.plan, start.own_mounts)
    names, file = _file_of(container, program, path, request.label, host)
    files = linked_files(container, (file,), "host" if image is None else "image")
    if image is None and host.local is None:
        files = tuple(map(_as_recorded, files))
    return LinkageTree(program, names, request.label, files)


def _as_recorded(file: LinkedFile) -> LinkedFile:
    """Return *file* with each library that was not found changed to `unknown`: the record may not cover it."""
    return file._replace(
        uses=tuple(
            use if use.state == "found" else LinkUse(use.name, None, "unknown", use.versions) for use in file.uses
        )
    )


def _file_of(
    container: Container, program: str, path: str, image: Optional[str], host: Host
) -> tuple[tuple[str, ...], str]:
    library = container.locate(program) if "/" in program else container.find(program)
    if library is not None and ".so" in program and container.closure(library.path) is not None:
        return (program,), library.path
    caller = Caller(host.uname.machine, host.identity.euid, host.identity.groups)
    chain = resolve_program(container, program, path, caller)
    if chain.file is not None and container.closure(chain.file.path) is not None:
        return chain.names, chain.file.path
    raise _not_to_show(container, chain, path, image, host)


def _not_to_show(container: Container, chain: Chain, path: str, image: Optional[str], host: Host) -> HostReadError:
    name, file, stop = chain.names[-1], chain.file, chain.stop
    if file is not None:
        elf = file.tree.elf(file.tree_path)
        why = elf.detail or str(elf) if isinstance(elf, Missing) else ""
        return HostReadError("unreadable-file", f"`{name}` is not a program or library", where=file.path, why=why)
    if stop is not None and stop.kind != "missing":
        what = finding("program-not-executable", subject=name, case=stop.kind, why=stop.why).what
        return HostReadError("unreadable-file", what, where=image or "")
    place = "in the container" if image else "in the record of the host" if host.local is None else "on this host"
    needing = f"`{chain.names[0]}` needs `{name}`, which" if chain.names[1:] else f"`{name}`"
    hint = nearest_program(container, name, path).strip()
    return HostReadError("unreadable-file", f"{needing} is not {place}", where=image or "", hint=hint)


def _host_as_container(request: LinksRequest) -> Container:
    host, tree = request.host, request.host.lenient.driver
    is_here = host.local is not None
    variables = {name: request.environ[name] for name in _LOADERS_VARIABLES if is_here and name in request.environ}
    env = tuple(EnvVar(name, "set", value, ":", "caller") for name, value in variables.items())
    mounts = UserMounts(env=env, working_directory=request.working_directory if is_here else None)
    return Container(Loader(tree, host.uname.machine), tree, (), (), "", mounts)
