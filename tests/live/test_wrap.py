"""`gpubind wrap` with real runtimes: what it starts sees the same driver as what `exec` starts."""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.containers import CONTAINERS, PROBE, Case, image, look, start
from tests.live.machine import PYTHON_ENV, Bind, Machine
from tests.live.table import Shows
from tests.live.wrapped_lines import bwrap_line, line
from tests.support import amd
from tests.support.trees import Node, make_tree

pytestmark = pytest.mark.live

WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
SEEN = """
import ctypes, json, os
environ = {name: value for name, value in os.environ.items() if "PATH" in name or "VISIBLE" in name or name in "AB"}
libraries = sorted(line.split()[-1] for line in open("/proc/self/maps") if "libcuda" in line) if (
    status := ctypes.CDLL("libcuda.so.1").cuInit(0)) is not None else []
devices = sorted(name for name in os.listdir("/dev") if not name.startswith(("loop", "tty", "core")))
print(json.dumps([status, sorted(set(libraries)), environ, devices, os.getcwd(), os.path.exists("/mine/bin")]))
"""
DRIVER = {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}


def wrap(machine: Machine, *words: str, user: bool, env: Mapping[str, str] = {}, status: int = 0) -> str:
    done = machine.tried("wrap", "--", *words, user=user, driver=True, env=env, binds=[CONTAINERS], status=status)
    return done.stdout


@functools.cache
def seen_by_exec(machine: Machine, options: tuple[str, ...], user: bool) -> Any:
    case = Case("apptainer", "bookworm-sb", user, ("--nv", *(f"--backend-arg={word}" for word in options)))
    return json.loads(start(machine, case, "python3", "-c", SEEN).stdout)


@WHO
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-B", "/usr:/mine"),
        ("--env", "LD_LIBRARY_PATH=/mine,A=1"),
        ("--env=B=two words", "--contain"),
        ("-ec",),
        ("-cB/usr:/mine",),
        ("--contain", "--cleanenv", "--pwd", "/tmp"),
        ("--env", "CUDA_VISIBLE_DEVICES=1", "--no-home"),
    ],
    ids=" ".join,
)
def test_apptainers_line_gives_the_container_that_exec_gives(
    trixie: Machine, options: tuple[str, ...], user: bool
) -> None:
    seen = json.loads(wrap(trixie, *line(*options, user=user), "python3", "-c", SEEN, user=user))
    assert seen == seen_by_exec(trixie, options, user)
    assert seen[0] == 100


@WHO
@pytest.mark.parametrize("name", ["bullseye-sb", "bookworm.sif"])
def test_the_driver_works_as_under_exec(trixie: Machine, name: str, user: bool) -> None:
    report = json.loads(wrap(trixie, *line(user=user, name=name), "python3", "-c", PROBE, user=user))
    assert report["status"] == DRIVER
    assert report == look(trixie, Case("apptainer", name, user))


@WHO
@pytest.mark.parametrize(
    "options",
    [(), ("--unshare-ipc", "--clearenv"), ("--setenv", "LD_LIBRARY_PATH", "/mine"), ("--chdir", "/tmp", "--")],
    ids=" ".join,
)
def test_the_driver_works_in_bubblewraps_line(
    trixie: Machine, options: tuple[str, ...], user: bool, shows: Shows
) -> None:
    before = listing(trixie)
    seen = json.loads(wrap(trixie, *bwrap_line(*options), "/usr/bin/python3", "-c", SEEN, user=user))
    assert seen[0] == 100
    assert {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"} < set(seen[3])
    assert seen[2]["LD_LIBRARY_PATH"] == ("/mine:" if "LD_LIBRARY_PATH" in options else "") + "/.gpubind/libs"
    assert listing(trixie) == before
    if "LD_LIBRARY_PATH" in options:
        shows("bwrap", "the user's")


def test_a_writable_root_stays_as_it_is(trixie: Machine) -> None:
    before = listing(trixie)
    seen = json.loads(wrap(trixie, *bwrap_line(bind="--bind"), "python3", "-c", SEEN, user=True))
    assert seen[0] == 100
    assert listing(trixie) == before


@WHO
@pytest.mark.parametrize("prefix", ["env A=b", "timeout 60", "nice", "nice -n 5 env -u HOME A=b timeout 60"])
def test_what_stands_before_the_runtime_stays_there(trixie: Machine, prefix: str, user: bool) -> None:
    words = (*prefix.split(), *line(user=user), "python3", "-c", SEEN)
    seen = json.loads(wrap(trixie, *words, user=user))
    assert seen[0] == 100
    assert seen[2].get("A") == ("b" if "A=b" in prefix else None)


@WHO
@pytest.mark.parametrize(
    "words",
    [
        "--version",
        "cache list",
        "build /nowhere/x.sif /nowhere/x.def",
        "pull /nowhere/x.sif /nowhere/y",
        "exec {image} sh -c 'echo $0 $#; exit 7' --nv 'two words'",
        "exec --brand-new {image} true",
        "exec {image} ls /.singularity.d/libs",
        "instance list",
    ],
)
def test_an_alias_is_safe(trixie: Machine, words: str, user: bool) -> None:
    python = " ".join(f"{name}={value}" for name, value in PYTHON_ENV.items())
    words = words.format(image=image("bookworm-sb"))
    if words.startswith("exec") and not user:
        words = words.replace("exec", "exec --no-privs", 1)
    script = f"""
        apptainer {words} > /tmp/real 2>&1; real=$?
        apptainer() {{ {python} python3 -m gpubind wrap -- apptainer "$@"; }}
        apptainer {words} > /tmp/ours 2>&1; ours=$?
        sed -i 's/pid=[0-9]*//' /tmp/real /tmp/ours
        cmp /tmp/real /tmp/ours && test $real = $ours && echo same $ours; rm -f /tmp/real /tmp/ours
    """
    command = ["bash", "-c", script]
    done = trixie.run(command, user=user, driver=True, binds=[*trixie.modules, CONTAINERS])
    assert done.stdout.startswith("same "), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["APPTAINER_NV", "SINGULARITY_NV"])
def test_a_variable_counts_as_the_flag(trixie: Machine, name: str) -> None:
    words = (*line(user=True, flags=()), "python3", "-c", SEEN)
    assert json.loads(wrap(trixie, *words, user=True, env={name: "1"})) == seen_by_exec(trixie, (), True)


@WHO
def test_the_exit_code_is_the_containers(trixie: Machine, user: bool) -> None:
    wrap(trixie, *line(user=user), "sh", "-c", "exit 42", user=user, status=42)
    wrap(trixie, *bwrap_line(), "sh", "-c", "exit 43", user=user, status=43)


def aliased(machine: Machine, script: str) -> str:
    """What *script* prints to the ordinary user, who has an alias for apptainer."""
    python = " ".join(f"{name}={value}" for name, value in PYTHON_ENV.items())
    alias = f'apptainer() {{ {python} python3 -m gpubind wrap -- apptainer "$@"; }}\n'
    binds = [*machine.modules, CONTAINERS]
    return machine.run(["bash", "-c", alias + script], user=True, driver=True, binds=binds).stdout


def test_a_shell_gets_the_plan(trixie: Machine) -> None:
    shell = f"echo ls /.singularity.d/libs | apptainer shell --nv -s /bin/sh {image('bookworm-sb')}"
    assert "libcuda.so.1" in aliased(trixie, shell).split()


def test_an_instance_is_started_with_the_plan_and_entered_as_it_is(trixie: Machine) -> None:
    started = f"""
        apptainer instance start --nv --no-mount proc {image("bookworm-sb")} web-of-wrap > /dev/null 2>&1
        apptainer exec --nv instance://web-of-wrap ls /.singularity.d/libs
        apptainer instance stop web-of-wrap > /dev/null 2>&1
    """
    assert "libcuda.so.1" in aliased(trixie, started).split()


def listing(machine: Machine) -> str:
    """What changes with any change to the image `bookworm`."""
    find = f"find {image('bookworm')} -xdev -printf '%p %y %s %T@\\n' | sort | sha256sum"
    return machine.run(["bash", "-c", find], binds=[CONTAINERS]).stdout


AMDS = "ls /dev/kfd && python3 -c \"import ctypes; print(ctypes.CDLL('libamdhip64.so.5').hipInit(0))\""
"""With Debian's ROCm and nodes that no driver owns: 101 is hipErrorInvalidDevice, from a library that runs."""


@pytest.mark.parametrize(
    "asked",
    [
        ("--runtime=amd", "-e", "AMD_VISIBLE_DEVICES=all"),
        ("--device=/dev/kfd", "--device=/dev/dri"),
    ],
    ids=" ".join,
)
def test_podmans_line_for_amds_gpus_gets_their_node_and_the_hosts_rocm(trixie: Machine, asked: tuple[str, ...]) -> None:
    rig = ("--network=none", "--ulimit=nofile=20000:20000", "--ulimit=nproc=32768:32768")
    words = ("podman", "run", "--rm", *rig, *asked, "--rootfs", f"{image('trixie')}:O", "sh", "-c", AMDS)
    assert wrap(trixie, *words, user=False).split() == ["/dev/kfd", "101"]


@pytest.mark.parametrize(
    ("asked", "minors"),
    [
        ("--gpus=all", ["128", "136"]),
        ("--gpus=1", ["136"]),
        ("--device=amd.com/gpu=0", ["128"]),
        ("--device=amd.com/gpu=all", ["128", "136"]),
    ],
)
def test_on_a_host_with_amds_gpus_and_no_others_podmans_line_gets_these(
    trixie: Machine, tmp_path: Path, asked: str, minors: list[str]
) -> None:
    """The host is a built tree with nodes that no driver owns. podman 5 itself knows --gpus for NVIDIA's only."""
    spec = amd.merged(amd.opt(), amd.kernel(gpus=2, bmc=False))
    make_tree(tmp_path, {path: item for path, item in spec.items() if not isinstance(item, Node)})
    for path, item in spec.items():
        if isinstance(item, Node):
            (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            os.mknod(tmp_path / path[1:], stat.S_IFCHR | 0o666, os.makedev(item.major, item.minor))
    rig = ("--network=none", "--ulimit=nofile=20000:20000", "--ulimit=nproc=32768:32768")
    words = ("podman", "run", "--rm", *rig, asked, "--rootfs", f"{image('trixie')}:O", "ls", "/dev/dri", "/dev/kfd")
    own = ("wrap", "--root", "/amd-host", "--dev-root", "/amd-host", "--", *words)
    done = trixie.tried(*own, binds=[CONTAINERS, Bind(str(tmp_path), "/amd-host")])
    assert [word for word in done.stdout.split() if "renderD" in word] == [f"renderD{minor}" for minor in minors]
    assert "/dev/kfd" in done.stdout.split()


INSTANCE = """
{start} instance start {options} --no-privs --nv {image} made > /dev/null 2>&1
{enter} exec --no-privs --nv instance://made sh -c 'echo $CUDA_VISIBLE_DEVICES; echo /dev/nvidia[0-9]'
apptainer instance stop made > /dev/null 2>&1
"""
WRAP = "python3 -m gpubind wrap"


def in_instance(machine: Machine, start: str, enter: str, *options: str, env: Mapping[str, str] = {}) -> list[str]:
    script = INSTANCE.format(start=start, enter=enter, options=" ".join(options), image=image("bookworm-sb"))
    binds = [*machine.modules, CONTAINERS]
    done = machine.run(["sh", "-c", script], driver=True, binds=binds, env={**PYTHON_ENV, **env})
    return done.stdout.splitlines()


@pytest.mark.parametrize("options", [("--contain",), ("--containall",), ()], ids=" ".join)
@pytest.mark.parametrize("value", ["1", "GPU-00000001", "0,1", None])
def test_a_command_that_enters_an_instance_sees_the_gpus_that_its_caller_chooses_as_with_nv(
    trixie: Machine, options: tuple[str, ...], value: str | None
) -> None:
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    plain = in_instance(trixie, "apptainer", "apptainer", *options, env=env)
    assert plain == [value or "", "/dev/nvidia0 /dev/nvidia1"]
    assert in_instance(trixie, f"{WRAP} -- apptainer", f"{WRAP} -- apptainer", *options, env=env) == plain
    assert in_instance(trixie, f"{WRAP} -- apptainer", "apptainer", *options, env=env) == plain


def test_an_instance_is_limited_by_an_option_of_wrap_alone(trixie: Machine) -> None:
    start = f"{WRAP} --gpus 1 -- apptainer"
    assert in_instance(trixie, start, f"{WRAP} -- apptainer", "--contain") == ["", "/dev/nvidia1"]
