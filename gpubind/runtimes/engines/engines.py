"""docker and podman: two programs of one command line, whose images are in a store of their own.

What must be said is the same, but for what follows: podman starts a directory, too (`--rootfs DIR:O`, with an overlay,
so that nothing is left in it), keeps an ordinary user's groups, and takes variables of an image's away by name.

Sources: reference of `docker run`; podman-run(1) 5.4; docker/cli 26.1 `opts/mount.go`. Both were run.
"""

from __future__ import annotations

import re
from posixpath import join, normpath
from types import MappingProxyType
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.loader.brought import PYTHON_VARIABLES, Brought
from gpubind.model import ContainerPath, DeviceNode, EnvVar, Missing, Plan
from gpubind.model.findings import finding
from gpubind.observe import changed
from gpubind.planner.placement import Layout, cdi_layout
from gpubind.runtimes.edits import Bind, Words, edits_of, is_utf8, left_out, nothing_else, unsayable_path
from gpubind.runtimes.engines.environment import environment, joined
from gpubind.runtimes.engines.options import own_mounts, read_env_file, read_options, said, users_binds, users_places
from gpubind.runtimes.engines.place import DOCKER_STORES, PODMAN_STORES, remote_docker, remote_podman
from gpubind.runtimes.engines.pull import pull
from gpubind.runtimes.lines import form_of
from gpubind.runtimes.record import Call, Command, Limits, ProgramIdentity, Runtime, UserNamespaces
from gpubind.runtimes.start import Start

PLAINER = "give it a plainer path"
SHARED = "/dev/shm"
INITS = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit", "/usr/bin/tini-static", "/usr/bin/docker-init")
"""Programs that can be the first in a container: it would ignore SIGTERM and SIGINT otherwise."""


def identify(text: str) -> ProgramIdentity:
    """`Docker version 26.1.5, build a72d7cd` -> docker; a `docker` of podman's says `podman version 5.4.2`."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    version = tuple(int(part) for part in match.groups(default="0")) if match else None
    return ProgramIdentity("podman" if "podman" in text else "docker", version)


def words(plan: Plan, start: Start, image: Optional[Tree] = None) -> Words:
    """Return the options that bring *plan* into a container: `podman run WORDS IMAGE`.

    A node goes by --device: one that is bound is refused by the device cgroup. Errors: `RuntimeLimitError` for a path
    or a value that no option can say, and for a daemon on another machine.
    """
    _need_local(start)
    edits = edits_of(plan, start.staged, nothing_else, own_mounts(start))
    made = environment(plan, start)
    options: list[str] = []
    for bind in edits.binds:
        options += ["--mount", mount_word(bind)]
    for node in edits.nodes:
        options += _device_words(node, start)
    for name, value in made.env:
        options += ["--env", f"{name}={value}"]
    for name in made.unset:
        options += ["--unsetenv", name] if start.program == "podman" else ["--env", name]
    options += _group_words(edits.nodes, start)
    if start.has_selinux and not any("label" in value for value in start.options.all("security-opt")):
        options += ["--security-opt", "label=disable"]
    findings = [*left_out(edits.decisions, plan)]
    if plan.mounts and plan.image is None:
        findings.append(finding("image-unknown", subject="image"))
    unset = () if start.program == "podman" else made.unset
    return Words(tuple(options), edits.binds, made.env, edits.decisions, tuple(findings), unset)


def _need_local(start: Start) -> None:
    """Errors: `RuntimeLimitError` (code `remote-engine`)."""
    if start.remote is not None:
        raise RuntimeLimitError(
            "remote-engine",
            f"{start.program} would start the container on another machine",
            where=start.remote,
            why="a plan names the files of this machine",
            hint="plan on that machine, or have the program use this one's",
        )


def mount_word(bind: Bind) -> str:
    """One --mount value: a record of comma-separated fields, where quoting can say nearly any path.

    Errors: `RuntimeLimitError` (code `unsayable-path`).
    """
    for path in (bind.source, bind.target):
        why = None
        if not is_utf8(path):
            why = "it is not UTF-8, and this program hands paths on as JSON"
        elif "\r\n" in path:
            why = "a carriage return before a newline is lost"
        if why is not None:
            raise unsayable_path(path, why, PLAINER)
    fields = ["type=bind", f"source={bind.source}", f"target={bind.target}", *(["readonly"] if bind.read_only else [])]
    return ",".join('"' + f.replace('"', '""') + '"' if re.search(r'[,"\s]', f) else f for f in fields)


def _device_words(node: DeviceNode, start: Start) -> list[str]:
    """The option that brings *node*, unless the user's own does. Errors: `RuntimeLimitError` (`unsayable-path`)."""
    if not is_utf8(node.source) or ":" in node.source + node.target:
        why = "--device takes no path with a colon, and none that is not UTF-8"
        raise unsayable_path(node.source, why, PLAINER)
    users = (path.rstrip("/") for text in start.options.all("device") for path in text.split(":")[:2])
    if any(path and f"{node.target}/".startswith(f"{path}/") for path in users):  # it, or the directory that it is in
        return []
    return ["--device", str(node.source) if str(node.source) == node.target else f"{node.source}:{node.target}"]


def _group_words(nodes: tuple[DeviceNode, ...], start: Start) -> list[str]:
    """What lets an ordinary user's podman open a node that is open to a group alone. The user's own groups win."""
    is_rootless = start.program == "podman" and start.uid not in (None, 0)
    for_groups = any(node.mode & 0o006 != 0o006 and node.uid != start.uid for node in nodes)
    return ["--group-add", "keep-groups"] if is_rootless and for_groups and not start.options.all("group-add") else []


def command(call: Call, start: Start, made: Words) -> Command:
    """Return the whole command line. Errors: `RuntimeLimitError` for a directory that podman cannot start.

    The defaults stand before the user's own options, which can take each of them back; the plan's stand behind them.
    """
    given, argv = start.options, call.argv
    is_directory = is_path(call.image)
    words = ["--rm"] if not given.values.get("rm") and not given.all("restart") else []
    if not given.has("detach"):
        words += [] if given.values.get("interactive") else ["--interactive"]
        words += ["--tty"] if start.has_terminal and not given.values.get("tty") else []
    words += _shm_words(start)
    if call.action != "run":
        words += _init_words(start)
    if call.action == "shell":
        words += ["--entrypoint", call.shell]
    elif call.action == "exec":
        words += ["--entrypoint", ""]
    elif is_directory:
        argv = call.in_directory
    image = ["--rootfs", _rootfs(call, start)] if is_directory else [call.image]
    words = [*words, *start.arguments, *made.options, *image, *argv]
    return Command(
        (call.program, "run", *words),
        changed(start.environ, unset=made.unset),
    )


def _shm_words(start: Start) -> list[str]:
    """What makes /dev/shm as large as the host's mostly is, half of the memory: workers of a DataLoader share it.

    Both programs give 64 MB, and --ipc=host would give the host's own, with its semaphores and queues.
    """
    given = any(start.options.all(name) for name in ("shm-size", "ipc", "pod", "pod-id-file"))
    is_covered = any(f"{SHARED}/".startswith(f"{place.rstrip('/')}/") for place in users_places(start))
    return [] if given or is_covered else ["--tmpfs", SHARED]


def _init_words(start: Start) -> list[str]:
    given = start.options
    if not start.inits or given.values.get("init") or given.all("pid"):
        return []
    if start.program == "docker":
        return ["--init"] if any(path.endswith("docker-init") for path in start.inits) else []
    return ["--init"] if "catatonit" in start.inits[0] else ["--init", "--init-path", start.inits[0]]


def is_path(image: str) -> bool:
    """Return whether *image* is a directory, and no name: a name begins with neither a slash nor a dot."""
    return image.startswith(("/", "."))


def _rootfs(call: Call, start: Start) -> str:
    """Return the value of --rootfs, with an overlay that takes what is written. Errors: `RuntimeLimitError`."""
    path = normpath(join(start.working_directory or "/", call.image))
    if not is_utf8(path) or re.search(r"[:,\\\s\"]", path):
        why = "--rootfs takes no path with a colon, a comma, a quote, a backslash or white space"
        raise unsayable_path(path, why, PLAINER)
    owner = _owner(call.tree)
    if start.uid not in (None, 0) and owner not in (None, start.uid):
        raise RuntimeLimitError(
            "rootfs-of-another",
            "an ordinary user's podman starts no directory of somebody else's",
            where=path,
            why=f"it is of uid {owner}, and podman maps only your own uids into the container",
            hint="use --backend bwrap, or a copy of your own",
        )
    return f"{path}:O"


def _owner(image: Optional[Tree]) -> Optional[int]:
    """Return the uid that the directories of *image* belong to; None if that is not known."""
    found = (image.lstat(path) for path in ("/usr", "/bin", "/etc", "/proc")) if image is not None else ()
    return next((stat.uid for stat in found if not isinstance(stat, Missing)), None)


def brought(plan: Plan, start: Start, image: Optional[Tree]) -> Brought:
    """Return what the user's own options bring beside *plan*. Nothing of the host comes by itself."""
    env = []
    users = said(start, "LD_LIBRARY_PATH")
    if users:
        env.append(EnvVar("LD_LIBRARY_PATH", "prepend", users, ":", "user"))
    users = said(start, "LD_PRELOAD")
    if users:
        env.append(EnvVar("LD_PRELOAD", "set", users, ":", "user"))
    users = said(start, "PATH")
    if users:
        env.append(EnvVar("PATH", "set", joined("PATH", plan, users, None), None, "user"))
    for name in ("HOME", *PYTHON_VARIABLES):
        users = said(start, name)
        if users is not None:
            env.append(EnvVar(name, "set", users, None, "user"))
    directory = start.options.last("workdir")
    unseen = tuple(f"--{name} {value}" for name in ("volumes-from", "pod") for value in start.options.all(name))
    return Brought(tuple(users_binds(start)), tuple(env), ContainerPath(directory) if directory else None, unseen)


def overrides(start: Start, name: str) -> bool:
    """Return whether the user's own words say that variable for the container."""
    return said(start, name) is not None or start.has_unread_env_files


def _blind(machine: str) -> Layout:
    """Return where a plan lands whose image is not known: an option would take the place of its LD_LIBRARY_PATH."""
    return cdi_layout(machine)


DOCKER = Runtime(
    name="docker",
    title="docker",
    images=("reference",),
    image_hint="`docker load -i FILE`, `docker import FILE NAME`, or use --backend podman for a directory",
    limits=Limits(drops_groups=True, systemd_cgroups=True),
    identify=identify,
    options_of=read_options,
    read_env_file=read_env_file,
    inits=INITS,
    overrides=overrides,
    blind_layout=_blind,
    words=words,
    brought=brought,
    command=command,
    forms=MappingProxyType({"docker": form_of("docker")}),
    store="docker",
    pull=pull,
    remote_of=remote_docker,
    other_stores=DOCKER_STORES,
)
PODMAN = DOCKER._replace(
    name="podman",
    title="podman",
    images=("reference", "registry", "directory", "layout", "archive"),
    image_hint="`podman load -i FILE`, or `podman import FILE NAME`",
    limits=Limits(
        user_namespaces=UserNamespaces(
            helpers=(),
            moves=False,
            message="it will say `cannot clone: Operation not permitted` or `cannot re-exec process`",
        ),
        drops_groups=True,
        keep_groups="keep-groups",
        systemd_cgroups=True,
    ),
    identify=None,
    forms=MappingProxyType({"podman": form_of("podman")}),
    store="podman",
    remote_of=remote_podman,
    other_stores=PODMAN_STORES,
)
