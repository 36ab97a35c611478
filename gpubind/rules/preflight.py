"""What a rule may look at, and what it is."""

from __future__ import annotations

from posixpath import dirname
from typing import Literal, NamedTuple, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.host import Host
from gpubind.image import Image
from gpubind.image.cuda import cuda_below, cuda_of_packages, cuda_of_records, newest_first, prefixes_of
from gpubind.image.environment import DEFAULT_PATH
from gpubind.loader.brought import PYTHON_VARIABLES, Brought
from gpubind.loader.container import Container
from gpubind.loader.execve import Caller, Chain, follow, is_library, library
from gpubind.loader.hwcaps import Cpu, parse_cpuinfo
from gpubind.loader.python import Imports, imports_of, is_python
from gpubind.model import Capability, DeviceNode, Driver, Gpu, ImageCuda, Missing, Plan
from gpubind.planner.plan import wanted_capabilities
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.edits import NO_MOUNT_POINT, Words
from gpubind.runtimes.runtime import Limits, Start

Needs = Literal["host", "image", "runtime", "program"]

CPUINFO_LIMIT = 8 << 20


class Preflight(NamedTuple):
    """A job that is about to start, as far as files tell: what a rule about the host or the runtime needs."""

    host: Host
    """As `Host.lenient`: a rule says nothing of what a record does not cover."""
    plan: Plan
    """What its container would get; nothing where the host has nothing to bind."""
    image: Optional[Image] = None
    backend: Optional[str] = None
    """The runtime that will start it, by name."""
    container: Optional[Container] = None
    """The image with the plan in place; set only if there is an image."""
    chain: Optional[Chain] = None
    """What starting the program comes to; set only if there is an image and a program."""
    brought: Optional[Brought] = None
    """What comes into the container beside the plan; None if nothing is known of that."""
    words: Optional[Words] = None
    """The plan in the runtime's words; set only if something is known of the runtime."""
    limit: Optional[RuntimeLimitError] = None
    """Why there are none."""
    start: Optional[Start] = None
    """What is known of the runtime, and of the user's options for it."""
    imports: Optional[Imports] = None
    """Where the program imports from, if it is Python."""
    imported_cuda: tuple[ImageCuda, ...] = ()
    """The CUDA of what is there, the newest first."""
    every_cuda: tuple[ImageCuda, ...] = ()
    """The CUDA of the image, and of what the program may use beside it."""

    @property
    def limits(self) -> Limits:
        """The limits of the runtime that will start it; none if that is not known."""
        return Limits() if self.backend is None else RUNTIMES[self.backend].limits

    @property
    def driver(self) -> Optional[Driver]:
        """NVIDIA's driver, if the plan is about it."""
        return next((planned.driver for planned in self.plan.drivers if planned.driver.vendor == "nvidia"), None)

    @property
    def is_nvidias(self) -> bool:
        """Whether NVIDIA's GPUs are asked for: by name, or because nobody names a vendor."""
        return "nvidia" in (self.plan.request.vendors or ("nvidia",))

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """NVIDIA's GPUs that the plan counts on."""
        return tuple(gpu for gpu in self.plan.gpus if gpu.vendor == "nvidia" and gpu.chosen)

    @property
    def has_linux_driver(self) -> bool:
        """Whether a loaded Linux driver of NVIDIA's serves GPUs here; without one, other findings say more.

        False, too, where the container is to get none of them: then nothing is missing.
        """
        usable = any(gpu.vendor == "nvidia" and gpu.index is not None for gpu in self.plan.gpus)
        if usable and not any(gpu.index is not None for gpu in self.gpus):
            return False
        return self.driver is not None and self.driver.kind == "linux" and bool(self.driver.kernel_version)

    @property
    def libraries(self) -> dict[str, str]:
        """The names under which the container finds NVIDIA's libraries, and the host's file behind each."""
        return {
            mount.target.rpartition("/")[2]: mount.source or ""
            for mount in self.plan.mounts
            if mount.kind == "library" and mount.vendor == "nvidia" and mount.capability != "compat32"
        }

    @property
    def nodes(self) -> dict[str, DeviceNode]:
        """The device nodes that the container gets, by their place."""
        return {node.target: node for node in self.plan.devices}

    def wants(self, capability: Capability) -> bool:
        """Return whether *capability* is asked for, or implied by one that is."""
        return capability in wanted_capabilities(self.plan.request)

    def wants_by_name(self, capability: Capability) -> bool:
        """As `wants`, and the caller named the capabilities: what is named must not be missing silently."""
        return self.plan.request.caps_explicit and self.wants(capability)


class ImagePreflight(Preflight):
    """A start whose image is open: what a rule about images needs."""

    __slots__ = ()
    image: Image
    container: Container


class ProgramPreflight(ImagePreflight):
    """A start whose program is known, too: what a rule about programs needs."""

    __slots__ = ()
    chain: Chain


def preflight(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    *,
    backend: Optional[str] = None,
    start: Optional[Start] = None,
    program: Optional[str] = None,
    brought: Optional[Brought] = None,
    words: Optional[Words] = None,
    may_be_library: bool = False,
) -> Preflight:
    """The start of *program* in *image* with *plan* by *backend*, with what is *brought* beside it; what is None is not
    known. *program* is a path, or a name that is looked for in the image's PATH. *words* are made of *start*, unless
    they are there already. *may_be_library*: nothing is started, and a library is checked as one.
    """
    limit = None
    if start is not None and words is None:
        try:
            words = start.runtime.words(plan, start, None if image is None else image.tree)
        except RuntimeLimitError as error:
            limit = error
    made = Preflight(host.lenient, plan, backend=backend, brought=brought, words=words, limit=limit, start=start)
    if image is None:
        return made
    container = _container(host, plan, image, brought or Brought(), words)
    with_image = ImagePreflight(*made._replace(image=image, container=container, every_cuda=image.facts.every_cuda))
    if program is None:
        return with_image
    identity = host.identity
    caller = Caller(host.uname.machine, identity.euid, identity.groups, image.facts.kind == "directory")
    file = container.locate(program) if may_be_library and "/" in program else None
    if file is not None and is_library(file):
        chain = library(container, program, file)
    else:
        chain = follow(container, program, search_path(image, plan, brought), caller)
    return _with_cuda(ProgramPreflight(*with_image._replace(chain=chain)))


def _with_cuda(made: ProgramPreflight) -> ProgramPreflight:
    """*made* with the CUDA that its program may use: where it imports from, else in its prefix and those of PATH."""
    tree, file, find = made.container.tree, made.chain.file, made.container.find
    imports: Optional[Imports] = None
    imported: tuple[ImageCuda, ...] = ()
    if file is not None and is_python(file):
        imports = imports_of(tree, file, _variables(made))
        records = (cuda for prefix in imports.prefixes for cuda in cuda_of_records(tree, prefix))
        imported = newest_first((*cuda_of_packages(tree, imports.packages, find), *records))
    names = (*made.chain.names, file.real if file is not None else "")
    programs = [dirname(name) for name in names if name.startswith("/")]
    path = ":".join((search_path(made.image, made.plan, made.brought), *programs))
    others = cuda_below(tree, prefixes_of(tree, path), find)
    every = newest_first((*imported, *others, *made.image.facts.every_cuda))
    return made._replace(imports=imports, imported_cuda=imported, every_cuda=every)


def _variables(made: ProgramPreflight) -> dict[str, str]:
    """Return what the program gets of the variables that tell Python where to look."""
    found = {name: value for name, value in made.image.facts.env.items() if name in PYTHON_VARIABLES}
    for variable in made.brought.env if made.brought else ():
        is_kept = variable.op == "default" and variable.name in found
        if variable.name in ("HOME", *PYTHON_VARIABLES) and not is_kept:
            found[variable.name] = variable.value or ""
    return found


def _container(host: Host, plan: Plan, image: Image, brought: Brought, words: Optional[Words]) -> Container:
    """Return *image* with *plan* in place, but for what the runtime has no mount point for."""
    left_out = {d.target for d in words.decisions if d.rule == NO_MOUNT_POINT} if words is not None else ()
    mounts = [mount for mount in plan.mounts if mount.target not in left_out]
    own = image.facts.env.get("LD_LIBRARY_PATH", "")
    return Container(image.loader, host.driver, mounts, plan.env, own, brought, host.local, lambda: _processor(host))


def _processor(host: Host) -> Optional[Cpu]:
    """Return the host's processor, as far as the loader asks; None if it is not known: older records have none."""
    data = host.lenient.dev.read("/proc/cpuinfo", CPUINFO_LIMIT)
    return None if isinstance(data, Missing) else parse_cpuinfo(data.decode("utf-8", "surrogateescape"))


def search_path(image: Optional[Image], plan: Plan, brought: Optional[Brought] = None) -> str:
    """PATH in the container of *plan*: what the user sets, else the image's own; then what others put around it."""
    own = image.facts.env.get("PATH") if image is not None else None
    path = own or DEFAULT_PATH
    for variable in (*(brought.env if brought else ()), *plan.env):
        if variable.name == "PATH" and variable.value:
            parts = {"set": (variable.value,), "prepend": (variable.value, path)}
            path = ":".join(parts.get(variable.op, (path, variable.value)))
    return path
