"""docker, podman and nerdctl: three programs with one command line, each with its store of images.

Their options are the same, with these exceptions. podman also starts a directory (`--rootfs DIR:O`): the overlay
receives everything that is written. podman can keep an ordinary user's groups, and can remove variables of the image by
name. nerdctl splits a value of --mount at each comma. Only `wrap` starts nerdctl, because gpubind does not read
containerd's store of images.

Sources: references of `docker run` and `docker pull`; podman-run(1) and podman-pull(1) 5.4; docker/cli 26.1
`opts/mount.go`; containers/common `pkg/config/pull_policy.go`; nerdctl 2.3.5 `pkg/mountutil/mountutil_linux.go`,
`pkg/cmd/container/run_gpus.go`, `pkg/flagutil/flagutil.go`. docker and podman were run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import join, normpath
from types import MappingProxyType
from typing import TYPE_CHECKING, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.formats.driver.gpu_names import NVIDIA_VISIBLE_DEVICES
from gpubind.loader.namespace import UserMounts
from gpubind.model import ContainerPath, DeviceNode, Missing, Plan, finding
from gpubind.model.environ import changed
from gpubind.planner.placement import GPUBIND_LAYOUT, Layout, cdi_layout
from gpubind.runtimes.cmdline.reader import UserOptionValues, parse_option_table
from gpubind.runtimes.edits import Bind, RuntimeArguments, is_utf8, make_edits, unsupported_path
from gpubind.runtimes.engines import programs
from gpubind.runtimes.engines.options import environment, parse_env_option, read_env_file, user_mounts, user_value
from gpubind.runtimes.engines.remote import DOCKER_STORE_OPTIONS, PODMAN_STORE_OPTIONS, remote_docker, remote_podman
from gpubind.runtimes.environment import PROGRAM_VARIABLES, base_variables
from gpubind.runtimes.runtime import (
    NO_STAGE,
    Command,
    PullCommand,
    PullPolicy,
    Runtime,
    RuntimeLimits,
    Stage,
    Start,
    StartCall,
    parse_version,
)

if TYPE_CHECKING:
    from gpubind.image.reference import ImageForm, Store

_PLAINER_PATH_HINT = "give it a plainer path"
_SHM = "/dev/shm"
INIT_PROGRAMS = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit", "/usr/bin/tini-static", "/usr/bin/docker-init")
"""Programs that can be a container's first process. In their place, the user's program would ignore SIGTERM."""


class Docker(Runtime):
    name = "docker"
    env_option = "env"
    title = "docker"
    program = programs.DOCKER
    pull_options = programs.DOCKER_PULL
    """The options that a start and `pull` have in common."""
    image_forms: tuple[ImageForm, ...] = ("reference",)
    image_hint = "`docker load -i FILE`, `docker import FILE NAME`, or use --backend podman for a directory"
    limits = RuntimeLimits(drops_groups=True, systemd_cgroups=True)
    needs_version = True
    init_programs = INIT_PROGRAMS
    store: Optional[Store] = "docker"
    store_options: tuple[str, ...] = DOCKER_STORE_OPTIONS
    has_daemon = True
    keeps_containers = True
    parse_env_option = staticmethod(parse_env_option)
    read_env_file = staticmethod(read_env_file)
    remote_daemon = staticmethod(remote_docker)
    policies: Mapping[str, PullPolicy] = MappingProxyType({"missing": "missing", "always": "always", "never": "never"})
    """The policy for each value of --pull."""
    prints_name = False
    """Whether `pull` writes only the image to standard output even if --quiet is not given."""

    def identify(self, text: str) -> tuple[Runtime, Optional[tuple[int, ...]]]:
        """`Docker version 26.1.5, build a72d7cd` -> docker; podman's `docker` prints `podman version 5.4.2`."""
        return PODMAN if "podman" in text else DOCKER, parse_version(text)

    def pull(self, options: UserOptionValues, global_options: Mapping[str, str], image: str) -> PullCommand:
        """Return how the program pulls *image*. The program itself refuses an unknown policy."""
        policy = self.policies.get(options.last("pull") or "missing", "never") if not image.startswith("-") else "never"
        global_args = [f"--{name}={value}" for name, value in global_options.items()]
        option_values = {name.removeprefix("override-"): values for name, values in options.values.items()}
        names = parse_option_table(self.pull_options).names
        args = [f"--{name}={value}" for name in names for value in option_values.get(name, ())]
        no_repeat = ("--pull=never",) if policy in ("always", "newer") else ()
        prints_name = self.prints_name or options.has("quiet")
        pull = PullCommand(policy, (*global_args, "pull", *args, image), prints_name, no_repeat)
        if policy != "newer":
            return pull
        again = (*global_args, "pull", *args, "--quiet", "--retry=0", image)
        return pull._replace(exists_args=(*global_args, "image", "exists", image), repull_args=again)

    def hides_caller_variable(self, start: Start, name: str) -> bool:
        """Return whether the user's options set that variable in the container."""
        return user_value(start, name) is not None or start.user.has_unread_env_files

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        """Return the layout of a CDI spec if the image is unknown: an option would replace its LD_LIBRARY_PATH."""
        if is_blind and start.facts.architecture is not None:
            return cdi_layout(start.facts.architecture)
        return GPUBIND_LAYOUT

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        """Return the options for *plan*: `podman run OPTIONS IMAGE`.

        Nodes use --device, because the device cgroup refuses a bound one. Errors: `RuntimeLimitError` for a path or a
        value that no option can express, and for a daemon on another machine.
        """
        _need_local(start)
        edits = make_edits(plan, stage.files, user_mounts(start))
        env, unset = environment(plan, start)
        options: list[str] = []
        for bind in edits.binds:
            options += ["--mount", self.mount_value(bind)]
        for node in edits.devices:
            options += _device_args(node, start)
        for name, value in env:
            options += ["--env", f"{name}={value}"]
        for name in unset:
            options += [self.unset_option, name]
        options += self.access_args(edits.devices, start)
        findings = edits.findings
        if plan.mounts and plan.image is None:
            findings += (finding("image-unknown", subject="image"),)
        if start.restarts is not None and plan.mounts:
            # The container keeps the paths of the plan, which an update of the driver removes.
            driver, severity = plan.drivers[0].driver, start.restarts
            vendor, version = driver.vendor, driver.version or "the host"
            code = "container-outlives-driver"
            findings += (finding(code, subject="mounts", severity=severity, vendor=vendor, version=version),)
        caller_unset = unset if self.unset_option == "--env" else ()
        return RuntimeArguments(tuple(options), edits.binds, env, edits.decisions, findings, caller_unset)

    def by_device(self, names: Sequence[str], plan: Plan, start: Start) -> RuntimeArguments:
        _need_local(start)
        env = tuple((name, value) for name, value in environment(plan, start)[0] if name == NVIDIA_VISIBLE_DEVICES)
        options = [arg for name in names for arg in ("--device", name)]
        options += [arg for name, value in env for arg in ("--env", f"{name}={value}")]
        return RuntimeArguments((*options, *self.access_args(plan.devices, start)), env=env)

    def access_args(self, nodes: tuple[DeviceNode, ...], start: Start) -> list[str]:
        """Return the options that the container's processes need to open *nodes*."""
        args = self.group_args(nodes, start)
        if start.facts.has_selinux and not any("label" in value for value in start.user.options.all("security-opt")):
            args += ["--security-opt", "label=disable"]
        return args

    def mount_value(self, bind: Bind) -> str:
        """Return the value of --mount for *bind*: comma-separated fields, in which quotes protect nearly any path.

        Errors: `RuntimeLimitError` (code `unsupported-path`).
        """
        for path in (bind.source, bind.target):
            why = "a carriage return before a newline is lost" if "\r\n" in path else None
            if not is_utf8(path):
                why = "it is not UTF-8, and this program hands paths on as JSON"
            if why is not None:
                raise unsupported_path(path, why, _PLAINER_PATH_HINT)
        return ",".join('"' + f.replace('"', '""') + '"' if re.search(r'[,"\s]', f) else f for f in _mount_fields(bind))

    unset_option = "--env"
    """The option that removes a variable of the image. docker's --env does that if docker's environment lacks it."""

    def group_args(self, nodes: tuple[DeviceNode, ...], start: Start) -> list[str]:
        """Return the option that lets an ordinary user's container open nodes that only a group may open."""
        return []

    def init_args(self, start: Start) -> list[str]:
        """Return the option that makes an init program the container's first process, so that signals have effect."""
        return ["--init"] if any(path.endswith("docker-init") for path in start.facts.inits) else []

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line. Errors: `RuntimeLimitError` for a directory that podman cannot start.

        gpubind's defaults come first, so that the user's options can override each of them. The plan's options come
        last.
        """
        user_options, argv = start.user.options, call.argv
        is_directory = call.image.startswith(("/", "."))  # a name begins with neither
        line = ["--rm"] if not user_options.values.get("rm") and not user_options.all("restart") else []
        if not user_options.has("detach"):
            line += [] if user_options.values.get("interactive") else ["--interactive"]
            line += ["--tty"] if start.caller.has_terminal and not user_options.values.get("tty") else []
        line += _shm_args(start)
        chooses_init = user_options.values.get("init") or user_options.all("pid")
        if call.action != "run" and start.facts.inits and not chooses_init:
            line += self.init_args(start)
        if call.action == "shell":
            line += ["--entrypoint", start.shell]
        elif call.action == "exec":
            line += ["--entrypoint", ""]
        elif is_directory:
            argv = start.in_directory(call)
        image = ["--rootfs", _rootfs(call, start)] if is_directory else [call.image]
        line = [*line, *start.user.arguments, *arguments.options, *image, *argv]
        return Command((call.program, "run", *line), changed(start.caller.environ, unset=arguments.unset))

    def base_mounts(self, plan: Plan, start: Start) -> UserMounts:
        users: dict[str, Optional[str]] = {
            **{name: value for name in ("HOME", *PROGRAM_VARIABLES) if (value := user_value(start, name)) is not None},
            **{name: value for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH") if (value := user_value(start, name))},
        }
        directory = start.user.options.last("workdir")
        options = start.user.options
        unseen = tuple(f"--{name} {value}" for name in ("volumes-from", "pod") for value in options.all(name))
        binds = tuple(bind for bind in user_mounts(start) if bind.source)
        working_directory = ContainerPath(directory) if directory else None
        return UserMounts(binds, base_variables(plan.env, users), working_directory, unseen)


class Podman(Docker):
    name = "podman"
    title = "podman"
    program = programs.PODMAN
    pull_options = programs.PODMAN_PULL
    image_forms = ("reference", "registry", "directory", "layout", "archive")
    image_hint = "`podman load -i FILE`, or `podman import FILE NAME`"
    limits = RuntimeLimits(
        no_namespace_message="it will say `cannot clone: Operation not permitted` or `cannot re-exec process`",
        drops_groups=True,
        keep_groups="keep-groups",
        systemd_cgroups=True,
    )
    needs_version = False
    store = "podman"
    store_options = PODMAN_STORE_OPTIONS
    has_daemon = False
    remote_daemon = staticmethod(remote_podman)
    policies = MappingProxyType(
        {**Docker.policies, "ifmissing": "missing", "ifnotpresent": "missing", "newer": "newer", "ifnewer": "newer"}
    )
    prints_name = True
    unset_option = "--unsetenv"

    def group_args(self, nodes: tuple[DeviceNode, ...], start: Start) -> list[str]:
        if start.caller.uid in (None, 0) or start.user.options.all("group-add"):
            return []
        for_groups = any(node.mode & 0o006 != 0o006 and node.uid != start.caller.uid for node in nodes)
        return ["--group-add", "keep-groups"] if for_groups else []

    def init_args(self, start: Start) -> list[str]:
        return ["--init"] if "catatonit" in start.facts.inits[0] else ["--init", "--init-path", start.facts.inits[0]]


class Nerdctl(Docker):
    name = "nerdctl"
    title = "nerdctl"
    program = programs.NERDCTL
    pull_options = ""
    image_forms = ("reference", "directory")
    can_pull = True
    image_hint = "`nerdctl load -i FILE`"
    needs_version = False
    store = None
    hides_images = True
    store_options = ()
    remote_daemon = staticmethod(lambda environ, read, global_options: None)  # containerd has a socket of this machine

    def mount_value(self, bind: Bind) -> str:
        for path in (bind.source, bind.target):
            if "," in path or not is_utf8(path):
                raise unsupported_path(
                    path, "nerdctl's --mount takes no path with a comma, and only UTF-8", _PLAINER_PATH_HINT
                )
        return ",".join(_mount_fields(bind))


def _need_local(start: Start) -> None:
    if start.facts.remote is not None:
        raise RuntimeLimitError(
            "remote-engine",
            f"{start.runtime.name} would start the container on another machine",
            where=start.facts.remote,
            why="a plan names the files of this machine",
            hint="plan on that machine, or have the program use this one's daemon: `docker context use default`",
        )


def _mount_fields(bind: Bind) -> list[str]:
    return ["type=bind", f"source={bind.source}", f"target={bind.target}", *(["readonly"] if bind.read_only else [])]


def _device_args(node: DeviceNode, start: Start) -> list[str]:
    """Return the option for *node*, unless the user provides it. Errors: `RuntimeLimitError` (`unsupported-path`)."""
    if not is_utf8(node.source) or ":" in node.source + node.target:
        why = "--device takes no path with a colon, and none that is not UTF-8"
        raise unsupported_path(node.source, why, _PLAINER_PATH_HINT)
    users = (path.rstrip("/") for text in start.user.options.all("device") for path in text.split(":")[:2])
    if any(path and f"{node.target}/".startswith(f"{path}/") for path in users):  # it, or the directory that it is in
        return []
    return ["--device", str(node.source) if str(node.source) == node.target else f"{node.source}:{node.target}"]


def _shm_args(start: Start) -> list[str]:
    """Return the option for a /dev/shm of half the memory, as most hosts have it: workers of a DataLoader share data in
    it.

    By default, these programs give it 64 MB. --ipc=host would share the host's own, with its semaphores and queues.
    """
    user_sets_shm = any(start.user.options.all(name) for name in ("shm-size", "ipc", "pod", "pod-id-file"))
    is_covered = any(f"{_SHM}/".startswith(f"{bind.target.rstrip('/')}/") for bind in user_mounts(start))
    return [] if user_sets_shm or is_covered else ["--tmpfs", _SHM]


def _rootfs(call: StartCall, start: Start) -> str:
    """Return the value of --rootfs, with an overlay for writes. Errors: `RuntimeLimitError`."""
    path = normpath(join(start.caller.working_directory or "/", call.image))
    if not is_utf8(path) or re.search(r"[:,\\\s\"]", path):
        why = "--rootfs takes no path with a colon, a comma, a quote, a backslash or white space"
        raise unsupported_path(path, why, _PLAINER_PATH_HINT)
    owner = _owner(start.tree)
    if start.caller.uid not in (None, 0) and owner not in (None, start.caller.uid):
        raise RuntimeLimitError(
            "rootfs-of-another",
            "an ordinary user's podman starts no directory of somebody else's",
            where=path,
            why=f"it is of uid {owner}, and podman maps only your own uids into the container",
            hint="use --backend bwrap, or a copy of your own",
        )
    return f"{path}:O"


def _owner(image: Optional[Tree]) -> Optional[int]:
    """Return the uid of the owner of the directories of *image*; None if that is not known."""
    stats = (image.lstat(path) for path in ("/usr", "/bin", "/etc", "/proc")) if image is not None else ()
    return next((stat.uid for stat in stats if not isinstance(stat, Missing)), None)


DOCKER = Docker()
NERDCTL = Nerdctl()
PODMAN = Podman()
