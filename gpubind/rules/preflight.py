"""The inputs of rules: `preflight` makes them from a host, a plan, an image and a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from posixpath import dirname
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Optional, Union

from gpubind.errors import FormatError, RuntimeLimitError
from gpubind.formats.driver.engines import (
    DAEMON_FILE,
    SIZE_LIMIT,
    DaemonSettings,
    Release,
    malformed_as_missing,
    parse_daemon,
    release_of,
    version_command,
)
from gpubind.host import Host
from gpubind.image.cuda import (
    cuda_below,
    cuda_of_python,
    newest_first,
    prefixes_of,
    site_package_directories,
)
from gpubind.image.environment import DEFAULT_PATH
from gpubind.image.facts import Image
from gpubind.image.gpucode import collect_gpu_code, gpu_code_of_program, with_code
from gpubind.loader.container import Container
from gpubind.loader.hwcaps import Cpu, parse_cpuinfo
from gpubind.loader.namespace import PYTHON_VARIABLES, UserMounts
from gpubind.loader.search import ContainerFile
from gpubind.model.files import Missing, Stat
from gpubind.model.findings import finding
from gpubind.model.host import Capability, DeviceNode, Driver, Finding, Gpu, Severity, Vendor
from gpubind.model.image import ImageCuda
from gpubind.model.layouts import data_prefix_pairs
from gpubind.model.plan import Plan
from gpubind.planner.plan import requested_capabilities
from gpubind.runtimes import WRAPPED

if TYPE_CHECKING:
    from gpubind.inventory.cdi.specs import Registry
    from gpubind.loader.execve import Chain
    from gpubind.loader.python import PythonPaths
    from gpubind.model.gpucode import CodeFile
    from gpubind.model.requirements import Expectation
    from gpubind.model.trial import Trial
    from gpubind.rules.uses import DriverUse
    from gpubind.runtimes.edits import RuntimeArguments
    from gpubind.runtimes.runtime import RuntimeLimits, Stage, Start

Needs = Literal["host", "image", "runtime", "program"]

_VERSION_TIMEOUT_S = 10.0
"""How long a program may take to print its release."""
CPUINFO_LIMIT = 8 << 20


def is_root_only(stat: Stat, right: int) -> bool:
    """Return whether mode and access control list grant *right* (of the bits 4, 2 and 1) to no user but root."""
    return not any(number != 0 and bits & right == right for _, number, bits in stat.rights())


class Preflight:
    """A job that is about to start: the input of every rule. It is frozen; facts that rules need are read once.

    `image`, `container` and `chain` exist only if `has_image` and `has_program` are set.
    """

    trial: Optional[Trial] = None
    """The answers of the container, if it was started."""
    imports: Optional[PythonPaths] = None
    """The directories from which the program imports, if it is Python."""
    imported_cuda: tuple[ImageCuda, ...] = ()
    """The CUDA of the imported packages, newest first."""
    uses: tuple[DriverUse, ...] = ()
    """NVIDIA's libraries for graphics and video that the program uses."""
    used: Mapping[str, Severity] = MappingProxyType({})
    """The libraries of the driver that are loaded because of `uses`, each with the severity of its absence."""

    def __init__(
        self,
        host: Host,
        plan: Plan,
        backend: Optional[str] = None,
        start: Optional[Start] = None,
        own_mounts: Optional[UserMounts] = None,
        arguments: Optional[RuntimeArguments] = None,
        limit: Optional[RuntimeLimitError] = None,
        opened: Optional[tuple[Image, Container]] = None,
        chain: Optional[Chain] = None,
        expected: tuple[Expectation, ...] = (),
        *,
        looks_at_gpu_code: bool = True,
    ) -> None:
        self.host = host
        """`Host.lenient`: rules report nothing about files that a record does not cover."""
        self.plan = plan
        """An empty plan if the host has nothing to bind."""
        self.backend = backend
        """The name of the runtime that will start the container."""
        self.start = start
        """The facts of the runtime, and the user's options for it."""
        self.own_mounts = own_mounts
        """What the runtime and the user add to the container; None if that is not known."""
        self.arguments = arguments
        """The plan as arguments of the runtime; None if the runtime is not known, or cannot express the plan."""
        self.limit = limit
        """The part of the plan that the runtime cannot express."""
        self.opened = opened
        """The image, and the container: the image with the plan in place."""
        self.expected = expected
        """What the user and the site expect of the host."""
        self.looks_at_gpu_code = looks_at_gpu_code
        """Whether rules read the GPU code of the image."""
        self._chain = chain
        self._releases: dict[str, Optional[Release]] = {}
        self._registries: dict[tuple[str, ...], Registry] = {}
        self.known_cuda: tuple[ImageCuda, ...] = opened[0].facts.every_cuda if opened is not None else ()
        """The CUDA of the image, and of files outside its usual directories that the program may use."""
        if chain is not None:
            self._read_program(chain)
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        if "_is_made" in self.__dict__:
            raise AttributeError(f"a Preflight is frozen, and {name} cannot be set")
        super().__setattr__(name, value)

    def with_trial(self, trial: Trial) -> Preflight:
        """Return this job with the answers of its container."""
        preflight_copy = object.__new__(Preflight)
        preflight_copy.__dict__.update(self.__dict__, trial=trial)
        return preflight_copy

    def _read_program(self, chain: Chain) -> None:
        from gpubind.loader.python import find_python_paths, is_python
        from gpubind.rules.uses import used_names, uses_of

        tree, file, find = self.container.tree, chain.file, self.container.find
        if file is not None and is_python(file):
            self.imports = find_python_paths(tree, file, _python_variables(self))
            self.imported_cuda = cuda_of_python(tree, self.imports, find)
        names = (*chain.names, file.resolved_path if file is not None else "")
        directories = [dirname(name) for name in names if name.startswith("/")]
        if not self.is_without_container:
            directories.insert(0, self.search_path)
        others = cuda_below(tree, prefixes_of(tree, ":".join(directories)), find)
        self.known_cuda = newest_first((*self.imported_cuda, *others, *self.known_cuda))
        if self.started is not None and self.driver is not None and self.driver.kind == "linux":
            self.uses = uses_of(self.image, self.container, self.started)
            self.used = used_names(self.uses)

    @property
    def has_image(self) -> bool:
        """Return whether an image is open."""
        return self.opened is not None

    @property
    def has_program(self) -> bool:
        """Return whether the program that will run is known."""
        return self._chain is not None

    @property
    def image(self) -> Image:
        """Return the image. Errors: `LookupError` without one, a bug of gpubind."""
        return self._opened[0]

    @property
    def container(self) -> Container:
        """Return the image with the plan in place. Errors: as `image`."""
        return self._opened[1]

    @property
    def _opened(self) -> tuple[Image, Container]:
        if self.opened is None:
            raise LookupError("a rule that needs no image asks for one")
        return self.opened

    @property
    def chain(self) -> Chain:
        """Return the files that the kernel opens to start the program. Errors: `LookupError` without a program."""
        if self._chain is None:
            raise LookupError("a rule that needs no program asks for one")
        return self._chain

    @property
    def started(self) -> Optional[ContainerFile]:
        """Return the file that the kernel starts; None if it does not start the program, or no program is known."""
        return self._chain.file if self._chain is not None and self._chain.stop is None else None

    @property
    def search_path(self) -> str:
        """Return PATH in the container."""
        return search_path(self.image, self.plan, self.own_mounts)

    def release(self, engine: str) -> Optional[Release]:
        """Return the properties of the installed docker or podman; None if unknown. The program is run once to print
        its version.
        """
        if engine not in self._releases:
            from gpubind.runtimes.runtime import parse_version

            answer = self.host.run(version_command(engine), _VERSION_TIMEOUT_S)
            version = None if isinstance(answer, Missing) else parse_version(answer.stdout)
            self._releases[engine] = release_of(engine, version)
        return self._releases[engine]

    @cached_property
    def daemon(self) -> Union[DaemonSettings, Missing]:
        """The settings of dockerd; Missing if they are unreadable or malformed. dockerd does not start with malformed
        settings.
        """
        data = self.host.dev.read(DAEMON_FILE, SIZE_LIMIT)
        if isinstance(data, Missing):
            return DaemonSettings() if data.why == "absent" else data
        try:
            return parse_daemon(data)
        except FormatError as error:
            return malformed_as_missing(error)

    def registry(self, directories: Iterable[str]) -> Registry:
        """Return the CDI specs in *directories*, which are read once."""
        from gpubind.inventory.cdi.specs import read_registry

        key = tuple(directories)
        if key not in self._registries:
            self._registries[key] = read_registry(self.host, key)
        return self._registries[key]

    @property
    def limits(self) -> RuntimeLimits:
        """Return the limits of the runtime. Errors: `LookupError` if it is not known."""
        return WRAPPED[self.backend or ""].limits

    @property
    def driver(self) -> Optional[Driver]:
        """Return NVIDIA's driver if the plan has it."""
        return next((planned.driver for planned in self.plan.drivers if planned.driver.vendor == "nvidia"), None)

    @property
    def driver_directories(self) -> tuple[str, ...]:
        """Return the directories with NVIDIA's libcuda. The driver's programs and data were searched below the
        prefixes of these directories.
        """
        return next((planned.beside for planned in self.plan.drivers if planned.driver.vendor == "nvidia"), ())

    def looked_in(self, *paths: str) -> str:
        """Return the host directories where manifests and data were searched for *paths*."""
        places = ((path, *place) for path in paths for place in data_prefix_pairs(path, self.driver_directories))
        return ", ".join(dict.fromkeys(prefix + path[len(standard) :] for path, standard, prefix in places))

    @property
    def vendors(self) -> frozenset[Vendor]:
        """Return the vendors of the plan's drivers."""
        return frozenset(planned.driver.vendor for planned in self.plan.drivers)

    @property
    def chosen_gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs of all vendors that the container gets."""
        return tuple(gpu for gpu in self.plan.gpus if gpu.chosen and gpu.index is not None)

    @property
    def is_nvidias(self) -> bool:
        """Return whether NVIDIA's GPUs are requested: by name, or because the request names no vendor."""
        return "nvidia" in (self.plan.request.vendors or ("nvidia",))

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return NVIDIA's GPUs that the plan chooses."""
        return tuple(gpu for gpu in self.plan.gpus if gpu.vendor == "nvidia" and gpu.chosen)

    @property
    def has_linux_driver(self) -> bool:
        """Return whether NVIDIA's Linux driver is loaded here and the container gets at least one of its GPUs."""
        usable = any(gpu.vendor == "nvidia" and gpu.index is not None for gpu in self.plan.gpus)
        if usable and not any(gpu.index is not None for gpu in self.gpus):
            return False
        return self.driver is not None and self.driver.kind == "linux" and bool(self.driver.kernel_version)

    @property
    def libraries(self) -> dict[str, str]:
        """Return the host's path of each NVIDIA library in the plan, by its name in the container."""
        return {
            mount.target.rpartition("/")[2]: mount.source or ""
            for mount in self.plan.mounts
            if mount.kind == "library" and mount.vendor == "nvidia" and mount.capability != "compat32"
        }

    @property
    def nodes(self) -> dict[str, DeviceNode]:
        """Return the plan's device nodes by their path in the container."""
        return {node.target: node for node in self.plan.devices}

    @property
    def is_for_others(self) -> bool:
        """Return whether root checks for other users, who start the containers: no runtime is named. Root may open
        every file.
        """
        return self.host.identity.euid == 0 and self.backend is None

    def wants(self, capability: Capability) -> bool:
        """Return whether *capability* is requested, or implied by one that is."""
        return capability in requested_capabilities(self.plan.request)

    def wants_by_name(self, capability: Capability) -> bool:
        """Return whether *capability* is wanted and the request names capabilities. A missing part is then an error."""
        return self.plan.request.caps_named and self.wants(capability)

    @property
    def is_without_container(self) -> bool:
        """Return whether the program runs on this machine itself."""
        return self.has_image and self.image.facts.kind == "host"

    @property
    def is_own_root(self) -> bool:
        """Return whether the image is the directory that provides the driver, usually this machine's root."""
        return self.host.local is not None and self.image.tree.root == self.host.driver.root

    @property
    def uses_frameworks(self) -> bool:
        """Return whether the program imports packages of Python, or is linked with GPU code."""
        return self.imports is not None or bool(self._linked_code)

    @cached_property
    def gpu_code(self) -> tuple[CodeFile, ...]:
        """The files with GPU code that the program may use: its linked files, else those of the frameworks."""
        if not (self.has_image and self.looks_at_gpu_code):
            return ()
        if self._linked_code:
            return self._linked_code
        return collect_gpu_code(self.container.tree, self.packages, is_machine=self.is_without_container)

    @cached_property
    def packages(self) -> tuple[str, ...]:
        """The directories of Python's packages: those of the program's Python, else of each Python in PATH."""
        if self.imports is not None:
            return tuple(self.imports.packages)
        return site_package_directories(self.container.tree, self.search_path)

    @cached_property
    def every_cuda(self) -> tuple[ImageCuda, ...]:
        """`known_cuda` and the CUDA of the GPU code, the newest first."""
        return with_code(self.container.tree, self.known_cuda, self.gpu_code)

    @cached_property
    def _linked_code(self) -> tuple[CodeFile, ...]:
        if self.started is None or self.imports is not None:
            return ()
        loaded = self.container.load(self.started.path).files
        return gpu_code_of_program([file.path for file in loaded if file.mount is None], self.container.tree)


def preflight(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    *,
    backend: Optional[str] = None,
    start: Optional[Start] = None,
    stage: Optional[Stage] = None,
    program: Optional[str] = None,
    own_mounts: Optional[UserMounts] = None,
    arguments: Optional[RuntimeArguments] = None,
    limit: Optional[RuntimeLimitError] = None,
    expected: tuple[Expectation, ...] = (),
    may_be_library: bool = False,
    looks_at_gpu_code: bool = True,
) -> Preflight:
    """Return the start of *program* in *image* with *plan* by *backend*; None stands for anything that is not known.

    *program* is a path, or a name to find in the image's PATH. *arguments* default to those of *start* and *stage*.
    *limit* is the reason why the job cannot be started; by default, it is the part of the plan that the runtime cannot
    express. *may_be_library*: nothing is started, so *program* may be a library and is then checked as one.
    """
    if start is not None and arguments is None:
        from gpubind.runtimes.runtime import NO_STAGE

        try:
            arguments = start.runtime.arguments(plan, start, stage or NO_STAGE)
        except RuntimeLimitError as error:
            limit = limit or error
    container, chain = None, None
    if image is not None:
        container = _container(host, plan, image, own_mounts or UserMounts(), arguments)
        if program is not None:
            path = search_path(image, plan, own_mounts)
            chain = _chain(host, image, container, program, path, may_be_library=may_be_library)
    opened = (image, container) if image is not None and container is not None else None
    job = (host.lenient, plan, backend, start, own_mounts, arguments, limit, opened, chain, expected)
    return Preflight(*job, looks_at_gpu_code=looks_at_gpu_code)


def _chain(host: Host, image: Image, container: Container, program: str, path: str, *, may_be_library: bool) -> Chain:
    from gpubind.loader.execve import Caller, resolve_named, resolve_program

    identity = host.identity
    caller = Caller(host.uname.machine, identity.euid, identity.groups, image.facts.kind in ("directory", "host"))
    return (resolve_named if may_be_library else resolve_program)(container, program, path, caller)


def _python_variables(job: Preflight) -> dict[str, str]:
    variables = {name: value for name, value in job.image.facts.env.items() if name in PYTHON_VARIABLES}
    for variable in job.own_mounts.env if job.own_mounts else ():
        is_kept = variable.op == "default" and variable.name in variables
        if variable.name in ("HOME", *PYTHON_VARIABLES) and not is_kept:
            variables[variable.name] = variable.value or ""
    return variables


def _container(
    host: Host, plan: Plan, image: Image, own_mounts: UserMounts, arguments: Optional[RuntimeArguments]
) -> Container:
    """Return *image* with the plan in place, without the mounts for which the runtime has no mount point."""
    mounts = list(plan.mounts)
    if arguments is not None:
        from gpubind.runtimes.edits import NO_MOUNT_POINT

        left_out = {decision.target for decision in arguments.decisions if decision.rule == NO_MOUNT_POINT}
        mounts = [mount for mount in mounts if mount.target not in left_out]
    library_path = image.facts.env.get("LD_LIBRARY_PATH", "")

    def processor() -> Optional[Cpu]:
        data = host.lenient.dev.read("/proc/cpuinfo", CPUINFO_LIMIT)  # older records lack it
        return None if isinstance(data, Missing) else parse_cpuinfo(data.decode("utf-8", "surrogateescape"))

    return Container(image.loader, host.driver, mounts, plan.env, library_path, own_mounts, host.local, processor)


def search_path(image: Optional[Image], plan: Plan, own_mounts: Optional[UserMounts] = None) -> str:
    """Return PATH in the container: the user's value, else the image's, with all additions of *plan*."""
    image_value = image.facts.env.get("PATH") if image is not None else None
    path = image_value or DEFAULT_PATH
    for variable in (*(own_mounts.env if own_mounts else ()), *plan.env):
        if variable.name == "PATH" and variable.value:
            parts = {"set": (variable.value,), "prepend": (variable.value, path)}
            path = ":".join(parts.get(variable.op, (path, variable.value)))
    return path


def variable_of(preflight: Preflight, name: str) -> Optional[str]:
    """Return the value of *name* in the container. If the runtime is not known, it is the image's value, else the
    caller's.
    """
    value = preflight.image.facts.env.get(name)
    if preflight.own_mounts is None:
        return (preflight.host.variable(name) or None) if value is None else value
    for variable in preflight.own_mounts.env:
        if variable.name == name and (variable.op != "default" or value is None):
            value = variable.value
    return value


def lost_groups(preflight: Preflight, code: str, vendor: Vendor) -> Iterator[Finding]:
    """Yield *code* if the runtime drops groups of the caller that nodes of *vendor* require."""
    limits = preflight.limits
    all_options = (
        *(preflight.arguments.options if preflight.arguments is not None else ()),
        *(preflight.start.user.options.all("group-add") if preflight.start is not None else ()),
    )
    if not limits.drops_groups or (limits.keep_groups is not None and limits.keep_groups in all_options):
        return
    nodes = [node for node in preflight.plan.devices if node.vendor == vendor and node.mode & 0o006 != 0o006]
    needed_groups = {(node.gid, node.group or f"gid {node.gid}") for node in nodes if node.gid}
    groups = sorted((gid, name) for gid, name in needed_groups if str(gid) not in all_options)
    if groups:
        options = [limits.keep_groups] if limits.keep_groups else [str(gid) for gid, _ in groups]
        yield finding(
            code,
            subject="groups",
            where=", ".join(node.target for node in nodes),
            groups=" and ".join(name for _, name in groups),
            runtime=preflight.backend,
            options=" ".join(f"--group-add {option}" for option in options),
        )
