"""Everything that each runtime promises, and everything that it makes of one plan, compared whole.

A golden file has a runtime's attributes, then its arguments, command lines and own mounts for the first case below, and
for each further case how they differ.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import pytest

from gpubind import plan
from gpubind.errors import RuntimeLimitError
from gpubind.formats.archive.bundle import parse_bundle
from gpubind.model import ContainerPath, DeviceNode, EnvVar, Finding, HostPath, Plan, Request
from gpubind.planner.placement import Layout
from gpubind.runtimes import ARGUMENT_FORMATS, PLAN_FORMATS, WRAPPED
from gpubind.runtimes.cmdline.programs import Action, RuntimeProgram
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.runtime import PreparedStart, Runtime, Stage, Start, StartCall
from tests.support.driver import host, kernel, rhel
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_golden, folded
from tests.support.images import glibc, image, sandbox
from tests.support.starts import start
from tests.support.trees import Dir, File, Item, Link, Spec

CUDA, SMI, ICD = "libcuda.so.1", "nvidia-smi", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"
NODES = ("/dev/nvidia0", "/dev/nvidiactl")
ENVIRON = {
    "HOME": "/home/u",
    "PATH": "/usr/bin:/opt/bin",
    "LD_LIBRARY_PATH": "/host/lib::/host/more",
    "LD_PRELOAD": "/host/p.so",
    "PYTHONPATH": "/host/py",
    "CUDA_VISIBLE_DEVICES": "1",
    "OTHER": "x y",
}
CALLER: dict[str, Any] = {
    "environ": ENVIRON,
    "home": "/home/u",
    "working_directory": "/home/u/x",
    "directories": frozenset(("/home/u", "/home/u/x")),
    "uid": 1000,
    "is_root": False,
    "on_host": True,
    "architecture": "x86_64",
    "version": None,
}
SETS = (
    EnvVar("A", "set", "1 $X `y` \\", None, "cdi"),
    EnvVar("B", "unset", None, None, "gpus"),
    EnvVar("C", "default", "c", None, "cdi"),
    EnvVar("D", "append", "/d", ":", "cdi"),
    EnvVar("PATH", "prepend", "/first", ":", "cdi"),
)
CONFIG: dict[str, Any] = {
    "ociVersion": "1.2.0",
    "process": {"cwd": "/work", "args": ["sh"], "env": ["PATH=/usr/bin:/bin", "CUDA_VISIBLE_DEVICES=0"]},
    "root": {"path": "rootfs"},
    "mounts": [
        {"destination": "/data/", "type": "bind", "source": "data", "options": ["bind"]},
        {"destination": "/proc", "type": "proc", "source": "proc"},
    ],
    "linux": {},
}


CALLS: tuple[tuple[Action, str, tuple[str, ...]], ...] = (
    ("exec", "mine", ("-x", "y")),
    ("run", "mine", ("-x",)),
    ("run", "./dir", ()),
    ("shell", "mine", ()),
)


class Case(NamedTuple):
    """A start that differs from the first one."""

    arguments: tuple[str, ...] = ()
    """Of the user, for the runtime."""
    facts: Mapping[str, Any] = MappingProxyType({})
    env: tuple[EnvVar, ...] = ()
    files: Spec = MappingProxyType({})
    """Of the image, in addition to those of every image."""
    has_image: bool = True
    writable: tuple[str, ...] = ()
    source: str = ""
    """Of the plan's program, if that has another one."""
    mount: Mapping[str, Any] = MappingProxyType({})
    """What else of the program's mount is another."""
    node: str = ""
    config: Mapping[str, Any] = MappingProxyType({})
    """Of the bundle, in addition to that of every bundle."""


ROOT = {"uid": 0, "is_root": True, "has_terminal": True}
COMMON = {
    "root": Case(facts=ROOT),
    "no image": Case(has_image=False),
    "variables": Case(env=SETS, facts={"environ": {**ENVIRON, "B": "2", "D": "/own"}}),
    "a value with a newline": Case(env=(EnvVar("A", "set", "a\nb", None, "cdi"),)),
    "a value with quotes": Case(env=(EnvVar("A", "set", "'a'", None, "cdi"),)),
    "a value with spaces": Case(env=(EnvVar("A", "set", " a", None, "cdi"),)),
    "a value with CR LF": Case(env=(EnvVar("A", "set", "a=\r\n", None, "cdi"),)),
    "a value that is not UTF-8": Case(env=(EnvVar("A", "set", "a\udcff", None, "cdi"),)),
    "a path with a colon": Case(source="/a:b/smi"),
    "a path with a comma": Case(source="/a,b/smi"),
    "a path with quotes": Case(source='/a "b"/smi'),
    "a path with CR LF": Case(source="/a\r\nb"),
    "a path that ends with !": Case(source="/a!"),
    "a path that is not UTF-8": Case(source="/a\udcff"),
    "a writable directory": Case(mount={"kind": "directory", "options": (), "target": "/run/mps"}),
    "a directory of the host's /tmp": Case(source="/tmp/mps", mount={"kind": "directory", "target": "/tmp/mps"}),
    "a required file": Case(source="/srv2/x", mount={"required": True, "target": "/usr/share/x/y"}),
    "a file of the C library": Case(mount={"rule": "libc"}),
    "a node with a colon": Case(node="/dev/a:b"),
    "a node at another path": Case(node="/dev/other"),
    "a sandbox": Case(files=sandbox("export LD_LIBRARY_PATH=/own CUDA_VISIBLE_DEVICES=0 C=own"), env=SETS),
    "a directory of the image": Case(files={"/.gpubind": Dir(), "/usr/share/vulkan/icd.d/a": "", "/home/u/x/a": ""}),
    "files that the caller may write": Case(writable=("/usr/bin/nvidia-smi",)),
    "files that the caller may write, allowed": Case(writable=("/usr/bin/nvidia-smi",), facts={"allow_writable": True}),
    "no home": Case(facts={"environ": {}, "home": None, "working_directory": None, "directories": frozenset()}),
    "another directory": Case(facts={"working_directory": "/scratch/x", "directories": frozenset(("/scratch/x",))}),
    "below /tmp": Case(facts={"working_directory": "/tmp/a", "directories": frozenset(("/home/u", "/tmp/a"))}),
    "below /var/tmp": Case(facts={"working_directory": "/var/tmp/a", "directories": frozenset(("/var/tmp/a",))}),
    "below /sys": Case(facts={"working_directory": "/sys/a", "directories": frozenset(("/sys/a",))}),
    "nodes and files": Case(facts={"nodes": ("/dev/gdrdrv",), "files": ("/etc/hosts", "/etc/localtime", "/etc/group")}),
    "bash and a runscript": Case(files={**sandbox(), "/usr/bin/bash": File(elf(kind=2), 0o755)}),
}
ENGINE = {
    "no terminal, with inits": Case(facts={"inits": ("/usr/libexec/podman/catatonit", "/usr/bin/docker-init")}),
    "tini": Case(facts={"inits": ("/usr/bin/tini-static",)}),
    "the user's own defaults": Case(("--rm=false", "-i", "-t", "--init", "--shm-size=1g"), ROOT),
    "in the background": Case(("-d", "--restart=always"), {"restarts": "warning", **ROOT}),
    "the host's processes": Case(("--pid=host", "--ipc=host"), {"inits": ("/usr/bin/docker-init",)}),
    "a pod": Case(("--pod=p", "--volumes-from=v", "--workdir=/w")),
    "a file of an ID": Case(("--pod-id-file=f",)),
    "the user's mounts": Case(
        ("-v", "/a:/.gpubind/bin", "-v", "vol:/vol", "--mount", "type=bind,src=./b,dst=/b/", "--tmpfs=/dev/shm:size=1g")
    ),
    "the user's nodes": Case(("--device=/dev/nvidia0", "--device", "/x:/dev/nvidiactl:r")),
    "the user's variables": Case(
        ("-e", "LD_LIBRARY_PATH=/mine", "-e", "PATH=/mine/bin", "-e", "OTHER", "-e", "A=2", "-e", "HOME=/h"), env=SETS
    ),
    "files of variables": Case(facts={"env_files": {"LD_LIBRARY_PATH": "/f", "A": "3", "PYTHONPATH": "/py"}}, env=SETS),
    "an unread file of variables": Case(facts={"has_unread_env_files": True}, env=SETS),
    "SELinux": Case(facts={"has_selinux": True}),
    "SELinux, disabled by the user": Case(("--security-opt=label=disable",), {"has_selinux": True}),
    "groups": Case(("--group-add=video",)),
    "a daemon on another machine": Case(facts={"remote": "DOCKER_HOST=ssh://x"}),
    "the caller's order": Case(
        env=(EnvVar("CUDA_VISIBLE_DEVICES", "set", "1", None, "handed-on"),),
        facts={"environ": {**ENVIRON, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}},
    ),
}
UNDECIDED = sandbox("export LD_LIBRARY_PATH=$(cat /x)")
APPTAINER = {
    "an instance": Case(facts={"is_entered": True}, files=sandbox("export LD_LIBRARY_PATH=/own"), env=SETS),
    "an instance with numbers": Case(
        ("--contain",), {"is_entered": True}, (EnvVar("CUDA_VISIBLE_DEVICES", "set", "0,1", None, "gpus"),)
    ),
    "an instance with the user's value": Case(
        ("--env", "LD_LIBRARY_PATH=/mine"), {"is_entered": True}, files=UNDECIDED
    ),
    "an instance with the caller's value": Case(
        facts={"is_entered": True, "environ": {"APPTAINERENV_LD_LIBRARY_PATH": "/mine:$LD_LIBRARY_PATH"}},
        files=UNDECIDED,
    ),
    "a version": Case(facts={"version": (1, 4, 5)}, files=sandbox()),
    "a version and an empty value": Case(("--env", "LD_LIBRARY_PATH="), {"version": (1, 4, 5)}, files=sandbox()),
    "a version and a value": Case(("--env", "LD_LIBRARY_PATH=/mine"), {"version": (1, 4, 5)}, files=sandbox()),
    "a version and a reference": Case(("--env", "LD_LIBRARY_PATH=/mine:${LD_LIBRARY_PATH}"), {"version": (1, 4, 5)}),
    "no-eval and a value": Case(
        ("--no-eval", "--env", "LD_LIBRARY_PATH=/mine"), files=sandbox("export LD_LIBRARY_PATH=/o")
    ),
    "no-eval and an unknown value": Case(("--no-eval",), files=UNDECIDED),
    "no-eval without mount points": Case(("--no-eval", "--writable"), files=UNDECIDED),
    "no-eval and no image": Case(("--no-eval",), has_image=False),
    "a prefix before the image's": Case(
        ("--env", "PREPEND_LD_LIBRARY_PATH=/p"), {"version": (1, 5, 0)}, files=sandbox()
    ),
    "a value that gpubind set": Case(
        (
            "--env",
            "LD_LIBRARY_PATH=/a:/.singularity.d/libs:/b",
        )
    ),
    "a value of the user that is not UTF-8": Case(
        (
            "--env",
            "LD_LIBRARY_PATH=/a\udcff",
        )
    ),
    "contained": Case(("--contain",)),
    "compat": Case(("--compat",), env=SETS),
    "no-eval": Case(("--no-eval", "--cleanenv"), env=SETS, files=sandbox("export LD_LIBRARY_PATH=/own")),
    "no /dev": Case(("--no-mount=dev,tmp,home,cwd,bind-paths", "--nv")),
    "writable": Case(("--writable",)),
    "writable, with the directory": Case(("--writable",), files={"/.singularity.d/libs": Dir(), ICD: ""}),
    "version 1.5": Case(("--no-env=CUDA_VISIBLE_DEVICES",), {"version": (1, 5, 0)}, files=sandbox()),
    "version 1.6": Case(
        ("--compat32",), {"version": (1, 6, 0), "site_config": {"gpu library path": ("/site, lib", "/x")}}
    ),
    "the site": Case(
        facts={
            "site_config": {
                "user bind control": ("no",),
                "bind path": ("/etc/x", "/y:/z:ro"),
                "mount dev": ("minimal",),
                "mount home": ("no",),
                "mount tmp": ("no",),
                "mount hostfs": ("yes",),
            }
        }
    ),
    "the site, without mount points": Case(
        facts={"site_config": {"enable overlay": ("no",), "enable underlay": ("no",), "mount dev": ("no",)}}
    ),
    "the user's binds": Case(
        (
            "-B",
            r"/a\,b\:c:/.singularity.d/env:ro,/usr/bin/nvidia-smi",
            "--mount",
            "type=bind,src=i.img,dst=/i,image-src=/",
        )
    ),
    "the user's settings": Case(
        ("--home=/h:/hh", "--pwd=/w", "--containlibs=/c/libx.so", "--overlay=o.img", "--scratch=/s", "--workdir=/wd"),
        {"environ": {**ENVIRON, "APPTAINER_BIND": "/vb", "SINGULARITY_NO_ENV": "A, B", "APPTAINER_SCRATCH": "/x,/y"}},
    ),
    "the user's variables": Case(
        ("--env", "LD_LIBRARY_PATH=/mine:$LD_LIBRARY_PATH,A=2", "--env", "PREPEND_PATH=/pp"), env=SETS, files=sandbox()
    ),
    "the user's prefixed variables": Case(
        facts={
            "environ": {
                **ENVIRON,
                "APPTAINERENV_LD_LIBRARY_PATH": "/pre",
                "SINGULARITYENV_APPEND_PATH": "/ap",
                "APPTAINERENV_LD_PRELOAD": "/pre.so",
            }
        },
        env=SETS,
    ),
    "files of variables": Case(facts={"env_files": {"LD_LIBRARY_PATH": None, "PATH": "/f", "HOME": "/x"}}, env=SETS),
    "an unread file of variables": Case(facts={"has_unread_env_files": True}, env=SETS),
}
OF_RUNTIME: dict[str, Mapping[str, Case]] = {
    "apptainer": APPTAINER,
    "singularity": APPTAINER,
    "docker": ENGINE,
    "podman": ENGINE,
    "bwrap": {
        "the user's options": Case(
            (
                "--bind",
                "/a",
                "/.gpubind/bin",
                "--setenv",
                "A",
                "2",
                "--unsetenv",
                "C",
                "--tmpfs",
                "/t",
                "--chdir",
                "/c",
            ),
            env=SETS,
        ),
        "the user's search path": Case(("--setenv", "LD_LIBRARY_PATH", "/mine"), env=SETS, files=sandbox("A=1")),
        "no search path": Case(("--unsetenv", "LD_LIBRARY_PATH", "--unsetenv", "PATH"), env=SETS, files=sandbox()),
        "no variables": Case(("--setenv", "E", "1", "--clearenv", "--setenv", "LD_LIBRARY_PATH", "/mine"), env=SETS),
        "a root that is an image": Case(
            ("--ro-bind", "/images/test", "/", "--dev", "/dev", "--tmpfs", "/tmp"), env=SETS
        ),
        "a writable root": Case(("--bind", "/images/test", "/", "--proc", "/proc", "--remount-ro", "/"), env=SETS),
        "a root of an overlay": Case(("--overlay-src", "/a", "--tmp-overlay", "/", "--dev-bind", "/dev", "/dev")),
        "a read-only overlay": Case(("--overlay-src", "/a", "--overlay-src", "/b", "--ro-overlay", "/")),
        "a root without variables": Case(("--ro-bind", "/images/test", "/", "--clearenv"), env=SETS),
        "a link in /etc": Case(
            files={"/etc/hosts": Link("/run/hosts"), "/etc/localtime": Link("/x")},
            facts={"files": ("/etc/hosts", "/etc/localtime", "/etc/passwd", "/etc/group")},
        ),
        "no /etc": Case(files={"/var/tmp": Dir()}, facts={"files": ("/etc/resolv.conf", "/etc/hosts")}),
    },
    "ch-run": {
        "written": Case(("--write",), files={"/.gpubind": Dir()}),
        "written, without the directory": Case(("--write",)),
        "an overlay of the user's": Case(("--write-fake",), {"version": (0, 38)}),
        "an old version": Case(facts={"version": (0, 31)}),
        "the first version with an overlay": Case(facts={"version": (0, 32)}),
        "a hidden source": Case(source="/srv/x"),
        "the user's options": Case(
            ("-b", "/a:/.gpubind/bin", "--set-env=A=2", "--set-env", "--unset-env=PYTHON*", "--cd=/c", "--private-tmp"),
            env=SETS,
            files={"/ch/environment": "X=/no\nLD_LIBRARY_PATH=/ch/lib:$X\nY=/no\n"},
        ),
        "no expansion": Case(("--env-no-expand",), env=(EnvVar("A", "set", "$B:c", None, "cdi"),)),
    },
    "enroot": {
        "restricted": Case(("--ipc", "-m", "/a:/.gpubind/bin"), {"nodes": ("/dev/gdrdrv",)}),
        "the site": Case(
            ("-e", "A=2", "-e", "NVIDIA_VISIBLE_DEVICES"),
            {
                "environ": {**ENVIRON, "NVIDIA_VISIBLE_DEVICES": "0", "ENROOT_MOUNT_HOME": "y"},
                "texts": {
                    "/etc/enroot/environ.d/a.env": "LD_LIBRARY_PATH=/site\nPATH=${HOME}/bin\n",
                    "/etc/enroot/mounts.d/a.fstab": "# no\n/x /x none bind\n/dev /dev none rbind\n",
                },
            },
            env=SETS,
        ),
        "a file of settings": Case(("--conf", "a.sh")),
    },
    "proot": {"the user's options": Case(("-b", "/a:/.gpubind/bin", "-w", "/w"), env=SETS)},
    "systemd-nspawn": {
        **{
            option: Case((option,))
            for option in (
                "--boot",
                "--as-pid2",
                "--volatile=no",
                "--ephemeral",
                "--read-only",
                "--console=x",
                "--pipe",
            )
        },
        "an ordinary user": Case(facts={"uid": 1000}),
        "an old version": Case(("-M", "m"), {"version": (255,)}),
        "the first version with autopipe": Case(facts={"version": (256,)}),
        "the user's options": Case(
            ("--bind=/a:/.gpubind/bin", "--bind-ro=/b", "-E", "A=2", "-E", "OTHER", "--chdir=/c"), env=SETS
        ),
        "a control character": Case(env=(EnvVar("A", "set", "\x1b", None, "cdi"),)),
    },
    "udocker": {
        "the user's options": Case(("-v", "/a:/usr/bin", "--hostenv", "-e", "A=2"), env=SETS),
        "no tools": Case(facts={"tools": ()}),
        "tools": Case(facts={"tools": ("/x",)}),
        "mode R1": Case(facts={"environ": {"UDOCKER_DEFAULT_EXECUTION_MODE": "R1"}}),
        "mode P2": Case(facts={"environ": {"UDOCKER_DEFAULT_EXECUTION_MODE": "P2"}}),
        "mode F3": Case(facts={"environ": {"UDOCKER_DEFAULT_EXECUTION_MODE": "F3"}}),
    },
}
BUNDLES = {
    "arguments": Case(("--debug", "--pid-file", "f"), ROOT),
    "its own user namespace": Case(config={"linux": {"namespaces": [{"type": "user"}]}}),
    "a mount at the place": Case(
        config={"mounts": [{"destination": "/.gpubind/bin/nvidia-smi", "type": "bind", "source": "/mine"}]}
    ),
    "a mount around the place": Case(
        config={"mounts": [{"destination": "/usr/share/", "type": "bind", "source": "/mine", "options": ["bind"]}]}
    ),
    "a node": Case(config={"linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]}}),
    "a read-only root": Case(config={"is_writable": False}),
    "a read-only root with the directory": Case(config={"is_writable": False}, files={"/.gpubind": Dir()}),
    "variables": Case(env=SETS, config={"process": {**CONFIG["process"], "env": ["D=/own", "B=2", "C=own"]}}),
    "a directory that is not UTF-8": Case(config={"directory": "/b\udcff"}),
    "a process of the engine": Case(
        facts=ROOT, config={"process": {"cwd": "/", "env": ["NVIDIA_MIG_CONFIG_DEVICES=all"]}}
    ),
}
OF_RUNTIME["crun"] = BUNDLES
ALIKE = ("runc", "nerdctl")
"""Runtimes of which only the first start is recorded, since their class is that of another one."""


HOST = host(rhel(), kernel(), {"/usr/bin/nvidia-smi": elf(kind=2)})


@cache
def planned(layout: Layout, files: Optional[tuple[tuple[str, Item], ...]]) -> Plan:
    """The plan for an image with these *files*; without one if that is None."""
    opened = image(glibc(), dict(files)) if files is not None else None
    return plan(HOST, Request(), image=opened, layout=layout)


def small_plan(runtime: Runtime, begun: Start, case: Case) -> Plan:
    """A plan with three files and two nodes, so that it can be read."""
    files = tuple(case.files.items()) if case.has_image else None
    made = planned(runtime.layout(begun, is_blind=not case.has_image), files)
    names = [m for m in made.mounts if m.target.endswith((f"/{CUDA}", f"/{SMI}")) or m.target == ICD]
    mounts = tuple(
        m._replace(source=HostPath(case.source or m.source or ""), **case.mount) if m.target.endswith(SMI) else m
        for m in names
    )
    nodes: tuple[DeviceNode, ...] = tuple(node for node in made.devices if node.target in NODES)
    if case.node:
        nodes = (nodes[0]._replace(source=HostPath(case.node), gid=44, mode=0o660), *nodes[1:])
    env = [variable for variable in made.env if variable.name != "GBM_BACKENDS_PATH"]
    return made._replace(mounts=mounts, devices=nodes, env=(*env, *case.env))


def begin(name: str, case: Case) -> Start:
    facts = {**CALLER, **(ROOT if name == "systemd-nspawn" else {}), **case.facts}
    parts = {"restarts": facts.pop("restarts", None), "is_entered": facts.pop("is_entered", False)}
    opened = image(glibc(), case.files) if case.has_image else None
    config = {**CONFIG, **case.config}
    own = {field: config.pop(field) for field in ("directory", "is_writable") if field in config}
    bundle = parse_bundle(json.dumps(config).encode())._replace(**{"directory": "/b", "is_writable": True, **own})
    program = "docker" if name == "nerdctl" else name
    made = start(*case.arguments, program=program, tree=opened and opened.tree, bundle=bundle, **facts)
    return made._replace(runtime=WRAPPED[name], **parts)


def lines_of(name: str, case: Case) -> list[str]:
    """What the runtime makes of the plan in this start, a line for each value."""
    runtime, begun = WRAPPED[name], begin(name, case)
    made = small_plan(runtime, begun, case)
    texts = {**dict.fromkeys(made.generated, ""), **runtime.generated_files(made, begun)}
    stage = Stage(
        {ContainerPath(path): HostPath(f"/staged{path}") for path in texts},
        HostPath("/staged/skeleton"),
        frozenset(case.writable),
    )
    lines = [f"layout: {runtime.layout(begun)}", f"compat32: {runtime.wants_compat32(begun)}"]
    lines += [f"library path: {path}" for path in runtime.site_library_path(begun)]
    lines += [f"hides {variable}" for variable in ENVIRON if runtime.hides_caller_variable(begun, variable)]
    lines += [f"empty file: {path}" for path in runtime.mount_point_files(made, begun)]
    lines += [f"file {path}: {text!r}" for path, text in runtime.generated_files(made, begun).items()]
    arguments = None
    makers = (runtime.arguments_in_line, runtime.arguments) if runtime.inserts_into_line else (runtime.arguments,)
    for make in makers:
        try:
            arguments = make(made, begun, stage)
        except RuntimeLimitError as error:
            lines += error_lines(error)
        else:
            lines += argument_lines(arguments) if arguments is not None else []
    if arguments is not None:
        lines += started_lines(runtime, begun, arguments)
        lines += format_lines(PreparedStart(arguments, begun, HOST, made)) if runtime.name != "nerdctl" else []
        if runtime.name in ("docker", "podman"):
            devices = runtime.by_device(("n/gpu=0", "n/gpu=1"), made, begun)
            lines += [f"by device: {line}" for line in argument_lines(devices)]
    mounts = runtime.base_mounts(made, begun)
    if mounts is not None:
        lines += [f"own mount: {bind.source} at {bind.target}" for bind in mounts.binds]
        lines += [f"own variable: {' '.join(map(str, variable))}" for variable in mounts.env]
        lines += [f"own directory: {mounts.working_directory}", *(f"unknown: {one}" for one in mounts.unknown_options)]
    return [
        line.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n").replace("\r", "\\r") for line in lines
    ]


def error_lines(error: RuntimeLimitError) -> list[str]:
    return [f"error {error.code}: {' | '.join(map(str, (error.what, error.where, error.why, error.hint)))}"]


def finding_line(found: Finding) -> str:
    texts = (found.where, found.what, found.why, found.hint)
    return f"finding: {found.severity} {found.code} {found.vendor} {found.subject} {' | '.join(map(str, texts))}"


def option_lines(options: Sequence[str]) -> Iterator[str]:
    """Yield a line for each option, with what follows it up to the next one."""
    starts = [at for at, option in enumerate(options) if option.startswith("-") or not at]
    yield from (f"argument: {' | '.join(options[at:end])}" for at, end in zip(starts, [*starts[1:], None]))


def argument_lines(made: RuntimeArguments) -> list[str]:
    return [
        *option_lines(made.options),
        *(f"bind: {bind.source} {bind.target} {bind.read_only}" for bind in made.binds),
        *(f"variable: {name}={value}" for name, value in made.env),
        *(f"unset: {name}" for name in made.unset),
        *(f"decision: {one.vendor} {one.subject} {one.verdict} {one.rule} {one.detail}" for one in made.decisions),
        *map(finding_line, made.findings),
        *(
            f"document: {line}"
            for line in folded(f"{json.dumps(json.loads(made.document or '{}'), indent=1)}\n").splitlines()
        ),
    ]


def started_lines(runtime: Runtime, begun: Start, arguments: RuntimeArguments) -> Iterator[str]:
    short = arguments._replace(options=arguments.options[:2])
    for action, image_name, argv in CALLS:
        call = StartCall(f"/usr/bin/{runtime.name}", action, image_name, argv, "7-ab", stdin_is_terminal=True)
        try:
            line = runtime.start_command(call, begun, short)
        except RuntimeLimitError as error:
            yield from error_lines(error)
            continue
        other = {name: line.environ.get(name) for name in {**ENVIRON, **line.environ}}
        yield f"{action}: {' '.join(map(repr, line.argv))}"
        changed = {name: value for name, value in other.items() if begun.caller.environ.get(name) != value}
        yield f"  environment: {dict(sorted(changed.items()))}"
        if line.file is not None:
            yield f"  {line.file.name}: {json.loads(line.file.content)['process']}"


def format_lines(prepared: PreparedStart) -> Iterator[str]:
    """The plan in each format of the runtime but in documents, quoted and not."""
    runtime = prepared.start.runtime
    for form in (runtime.name, f"{runtime.name}-env"):
        if form in PLAN_FORMATS:
            yield f"{form} depends on {[*runtime.render_environ(form, ENVIRON)]}"
            for found in runtime.format_findings(form, prepared):
                yield finding_line(found)
            quoted = rendered(form, prepared, is_quoted=True)
            unquoted = rendered(form, prepared, is_quoted=False) if form in ARGUMENT_FORMATS else quoted
            yield from (f"{form}: {line}" for line in quoted)
            yield from (f"{form}, not quoted: {line}" for line in unquoted if unquoted != quoted)


def rendered(form: str, prepared: PreparedStart, *, is_quoted: bool) -> list[str]:
    try:
        text = prepared.start.runtime.render(form, prepared, quoted=is_quoted)
    except RuntimeLimitError as error:
        return error_lines(error)
    return text[:-1].split("\n") if text.endswith("\n") else [*text.split("\n"), "no newline at the end"]


def attributes_of(runtime: Runtime) -> Iterator[str]:
    """The attributes of *runtime*, without its command line, which test_reader.py records."""
    fields = {**{name: value for each in reversed(type(runtime).__mro__) for name, value in vars(each).items()}}
    for name, value in sorted({**fields, **vars(runtime)}.items()):
        if (
            not name.startswith("_")
            and not isinstance(value, RuntimeProgram)
            and not callable(value)
            and not isinstance(value, (staticmethod, property))
        ):
            if isinstance(value, tuple) and hasattr(value, "_asdict"):
                yield from (f"{name}.{field} = {part!r}" for field, part in value._asdict().items())
            else:
                yield f"{name} = {dict(value) if isinstance(value, Mapping) else value!r}"


def changes(first: list[str], lines: list[str]) -> list[str]:
    """What *lines* have otherwise than those of the *first* start; only the error where the start is refused."""
    if not any(line.startswith("document: ") for line in lines):
        return [line for line in lines if line.startswith("error ")] or ["no arguments"]
    differences = [*difflib.unified_diff(first, lines, n=0, lineterm="")][2:]
    return [line for line in differences if not line.startswith("@@")]


@pytest.mark.parametrize("name", WRAPPED)
def test_what_a_runtime_promises_and_makes_is_recorded(name: str) -> None:
    first = lines_of(name, Case())
    text = [f"# {name}", *attributes_of(WRAPPED[name]), "", "## a start", *first]
    for label, case in {**COMMON, **OF_RUNTIME[name]}.items() if name not in ALIKE else ():
        text += [f"## {label}", *changes(first, lines_of(name, case))]
    assert_golden(GOLDEN / "runtimes" / f"{name}.txt", "\n".join(text) + "\n")
