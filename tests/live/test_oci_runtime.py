"""gpubind as the OCI runtime of a real dockerd, podman and containerd, registered by `gpubind setup`.

Compose and docker-py, which have no command line to wrap, request GPUs by docker's API. Everything that is written lies
on file systems of the test's own: other tests use the same machine.
"""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.containers import CONTAINERS
from tests.live.engine_starts import LIMITS
from tests.live.machine import INSIDE_CHECKOUT, INSIDE_PYTHON, Bind, Machine
from tests.live.table import Shows

pytestmark = pytest.mark.live

PROGRAM = f"""#!/usr/bin/python3
import sys
sys.path[:0] = ["{INSIDE_CHECKOUT}", "{INSIDE_PYTHON}"]
sys.dont_write_bytecode = True
from gpubind.__main__ import main
sys.exit(main())
"""
PLACES = "/usr/local/sbin /etc/docker /etc/containers /etc/containerd"
FILES = f"find {PLACES} -type f ! -name gpubind-runc -exec sha256sum {{}} + | sort"
UNDO = f"gpubind setup %s --undo > /dev/null 2>&1; {FILES} | diff /run/oci/files - && echo as before"
"""Only gpubind-runc, which the test made, is more than before."""
BEFORE = f"""
set -u
for place in {PLACES}; do
  mkdir -p /run/kept; cp -a $place/. /run/kept/; mount -t tmpfs -o mode=755 tmpfs $place; cp -a /run/kept/. $place/
  rm -r /run/kept
done
cp /srv/test/gpubind /usr/local/sbin/ && chmod 755 /usr/local/sbin/gpubind
place=/run/oci; mkdir -p $place && mount -t tmpfs tmpfs $place
{FILES} > $place/files
export HOME=$place/home PODMAN_IGNORE_CGROUPSV1_WARNING=1 GPUBIND_MEMO=off; mkdir -p $HOME
"""
AFTER = """
for file in /srv/test/commands/*; do
  bash $file > /srv/test/said/${file##*/} 2>&1
  echo "exit $?" >> /srv/test/said/${file##*/}
done
[ -z "${daemon:-}" ] || { kill $daemon; wait $daemon; }
umount -l $place
rmdir $place
"""
DOCKERD = """
gpubind setup docker --name nvidia > /srv/test/setup 2>&1
export DOCKER_HOST=unix://$place/docker.sock
dockerd --iptables=false --bridge=none --data-root=$place/data --exec-root=$place/exec --pidfile=$place/pid \\
  -H $DOCKER_HOST > /srv/test/log 2>&1 &
daemon=$!
for i in $(seq 200); do [ -S $place/docker.sock ] && break; sleep 0.1; done
tar -C /srv/ct/bookworm -c . | docker import - image > /dev/null
"""
CONTAINERD = """
gpubind setup containerd > /srv/test/setup 2>&1
containerd --root $place/data --state $place/state --address $place/socket > /srv/test/log 2>&1 &
daemon=$!
export CONTAINERD_ADDRESS=$place/socket
for i in $(seq 200); do [ -S $place/socket ] && break; sleep 0.1; done
"""
PODMAN = """
gpubind setup podman --name nvidia > /srv/test/setup 2>&1
"""
LOOK = 'ls /dev/nvidia[0-9]*; python3 -c "import ctypes; print(ctypes.CDLL(\\"libcuda.so.1\\").cuInit(0))"'
"""The nodes of GPUs, and 100 where the driver's library is loaded and the made-up GPUs are not."""
RUN = "docker run --rm --network=none --runtime=nvidia"
VERSION = "/bin/grep -m1 -o libcuda.so.550[.0-9]* /proc/self/mountinfo"
UPDATE = """
place=/run/oci
d=/usr/lib/x86_64-linux-gnu/nvidia/current
mkdir -p $place/update && mount -t tmpfs tmpfs $place/update && mkdir $place/update/upper $place/update/work
mount -t overlay overlay -o lowerdir=$d,upperdir=$place/update/upper,workdir=$place/update/work $d
for link in $(find $d -type l -lname '*550.163.01'); do
  ln -sfn $(readlink $link | sed s/550.163.01/550.163.02/) $link
done
for file in $(find $d -name '*.550.163.01'); do mv $file ${file%.01}.02; done
sed -i s/550.163.01/550.163.02/ /proc/driver/nvidia/version
"""
COMPOSE = """
services:
  train:
    image: image
    network_mode: none
    runtime: nvidia
    command: ["sh", "-c", "ls /dev/nvidia[0-9]*; env | grep NVIDIA"]
    deploy: {resources: {reservations: {devices: [{driver: nvidia, %s, capabilities: [gpu]}]}}}
"""
DOCKER_PY = """
import docker
client = docker.from_env()
gpus = [docker.types.DeviceRequest(device_ids=["1"], capabilities=[["gpu"]])]
print(client.containers.run("image", "ls /dev/nvidia0 /dev/nvidia1", runtime="nvidia", network_mode="none",
      device_requests=gpus, stderr=True, remove=True, entrypoint=["sh", "-c", "ls /dev/nvidia[0-9]*"]).decode())
"""
DOCKER = {
    "01-none": f"{RUN} image sh -c 'ls -d /dev/nvidia*'",
    "02-all": f"{RUN} -e NVIDIA_VISIBLE_DEVICES=all image sh -c '{LOOK}'",
    "03-index": f"{RUN} -e NVIDIA_VISIBLE_DEVICES=1 image sh -c '{LOOK}'",
    "04-uuid": f"{RUN} -e NVIDIA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000000 image sh -c '{LOOK}'",
    "05-driver": f"{RUN} -e NVIDIA_VISIBLE_DEVICES=none image sh -c '{LOOK}'",
    "06-unknown": f"{RUN} -e NVIDIA_VISIBLE_DEVICES=7 image true",
    "07-gpus": f"{RUN} --gpus all image sh -c '{LOOK}'",
    "08-device": f"{RUN} --gpus device=1 image sh -c '{LOOK}'",
    "09-other": "docker run --rm --network=none --gpus all image true",
    "10-info": "docker info -f '{{.Runtimes.nvidia}}' | cut -c1-50",
    "11-exec": f"docker run -d --name ee --network=none --runtime=nvidia --gpus device=0 image sleep 1000 > /dev/null; "
    f"docker exec ee sh -c '{LOOK}'; docker rm -f ee > /dev/null",
    "12-count": "/srv/compose/docker-compose -f /srv/test/count.yaml run --rm train",
    "13-ids": "/srv/compose/docker-compose -f /srv/test/ids.yaml run --rm train",
    "14-py": "PYTHONPATH=/srv/dockerpy python3 /srv/test/client.py",
    "15-hostile": f"{RUN} -e NVIDIA_VISIBLE_DEVICES=all --annotation "
    """'gpubind.edits={"added":[[["linux","maskedPaths"],["/proc/keys"]]],"env":[]}' image """
    "grep -c /proc/keys /proc/self/mountinfo",
    "16-cdi": f"{RUN} --annotation cdi.k8s.io/x=nvidia.com/gpu=1 image sh -c '{LOOK}'",
    "17-user": f"{RUN} --user 1000:1000 --read-only -e NVIDIA_VISIBLE_DEVICES=0 image sh -c '{LOOK}'",
    "18-require": f"{RUN} --gpus all -e 'NVIDIA_REQUIRE_CUDA=cuda>=99.0' image true; "
    f"{RUN} --gpus all -e 'NVIDIA_REQUIRE_CUDA=cuda>=99.0' -e NVIDIA_DISABLE_REQUIRE=1 image echo started",
    "20-update": "docker create --name uu --network=none --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all image "
    f"{VERSION} > /dev/null; docker start -a uu; ({UPDATE}); docker start -a uu",
    "21-undo": UNDO % "docker",
}
PODMAN_RUN = f"podman --root $HOME/root %srun --rm --network=none {' '.join(f'--ulimit={one}' for one in LIMITS)}"
ROOTFS = "--rootfs /srv/ct/bookworm:O"
PODMANS = {
    f"{number}-{name}": f"{PODMAN_RUN % f'--runtime {runtime} '} {options} {ROOTFS} sh -c '{LOOK}'"
    for number, (name, runtime, options) in enumerate(
        (
            ("none", "nvidia", ""),
            ("all", "nvidia", "-e NVIDIA_VISIBLE_DEVICES=all"),
            ("index", "nvidia", "-e NVIDIA_VISIBLE_DEVICES=1"),
            ("runc", "/usr/local/sbin/gpubind-runc", "-e NVIDIA_VISIBLE_DEVICES=1"),
            ("unknown", "nvidia", "-e NVIDIA_VISIBLE_DEVICES=7"),
        )
    )
}
USERS = """
mount -t tmpfs -o mode=755 tmpfs /home/user && chown user:user /home/user
mkdir $place/image && cp -a /srv/ct/bookworm/. $place/image && chown -R user:user $place/image
chmod 755 /run/oci /usr/local/sbin /usr/local/sbin/gpubind
su - user -c '/usr/local/sbin/gpubind setup podman --name nvidia' > /srv/test/setup 2>&1
"""
USERS_RUN = "podman run --runtime nvidia --rm --network=none --pid=host"
"""The made-up driver covers parts of /proc, and so the kernel lets no ordinary user mount another one."""
ROOTLESS = {
    "1-index": f"{USERS_RUN} -e NVIDIA_VISIBLE_DEVICES=1 --rootfs /run/oci/image:O sh -c '{LOOK}'",
    "2-unknown": f"{USERS_RUN} -e NVIDIA_VISIBLE_DEVICES=7 --rootfs /run/oci/image:O true",
    "3-none": f"{USERS_RUN} --rootfs /run/oci/image:O sh -c 'ls -d /dev/nvidia*'",
    "9-undo": "/usr/local/sbin/gpubind setup podman --undo > /dev/null 2>&1; "
    "find ~/.config ~/.local/share/gpubind -type f 2> /dev/null | grep gpubind || echo as before; "
    "podman system migrate > /dev/null 2>&1",
}
PODMANS["8-update"] = (
    f"{(PODMAN_RUN % '--runtime nvidia ').replace(' run --rm ', ' create ')} --name vv -e NVIDIA_VISIBLE_DEVICES=all "
    f"{ROOTFS} {VERSION} > /dev/null; podman --root $HOME/root --runtime nvidia start -a vv; ({UPDATE}); "
    "podman --root $HOME/root --runtime nvidia start -a vv; podman --root $HOME/root rm vv > /dev/null"
)
PODMANS["9-undo"] = UNDO % "podman"
CTR = "ctr run --rm --rootfs --runc-binary /usr/local/sbin/gpubind-containerd-runtime"
CTRS = {
    "1-dump": "containerd config dump | grep -A20 'runtimes.gpubind' | grep BinaryName; "
    "containerd config dump | grep -c 'conf_dir = \"/etc/cni/net.d\"'",
    "2-none": f"{CTR} /run/oci/rw aa /bin/sh -c 'ls -d /dev/nvidia*'",
    "3-index": f"{CTR} --env NVIDIA_VISIBLE_DEVICES=1 /run/oci/rw bb /bin/sh -c '{LOOK}'",
    "4-unknown": f"{CTR} --env NVIDIA_VISIBLE_DEVICES=7 /run/oci/rw cc /bin/true",
    "8-update": f"{CTR.replace(' --rm', '')} --env NVIDIA_VISIBLE_DEVICES=all /run/oci/rw uu {VERSION}; "
    f"({UPDATE}); ctr tasks start uu",
    "9-undo": UNDO % "containerd",
}


def as_user(line: str) -> str:
    return shlex.join(["su", "-", "user", "-c", line])


USERS_START = as_user("podman start -a ww")
USERS_UPDATE = (
    as_user(
        f"{USERS_RUN.replace(' run ', ' create ').replace(' --rm ', ' ')} --name ww -e NVIDIA_VISIBLE_DEVICES=all "
        f"--rootfs /run/oci/image:O {VERSION} > /dev/null"
    )
    + f"; {USERS_START}; ({UPDATE}); {USERS_START}"
)


class Engine(NamedTuple):
    """How an engine is started, and what is asked of it."""

    begin: str
    commands: Mapping[str, str]


RUNC = (
    "gpubind setup podman --dry-run > /dev/null; sed s,/usr/bin/crun,/usr/sbin/runc, "
    "/usr/local/sbin/gpubind-podman-runtime > /usr/local/sbin/gpubind-runc; chmod 755 /usr/local/sbin/gpubind-runc\n"
)
OVERLAY = "lowerdir=/srv/ct/bookworm,upperdir=$place/u,workdir=$place/w"
RW = f"mkdir -p $place/rw $place/u $place/w && mount -t overlay overlay -o {OVERLAY} /run/oci/rw\n"
ENGINES = {
    "docker": Engine(DOCKERD, DOCKER),
    "podman": Engine(PODMAN + RUNC, PODMANS),
    "containerd": Engine(RW + CONTAINERD, CTRS),
    "rootless": Engine(USERS, {**{name: as_user(line) for name, line in ROOTLESS.items()}, "8-update": USERS_UPDATE}),
}
ROWS = {
    "docker": "docker, oci-runtime",
    "podman": "podman, oci-runtime",
    "rootless": "podman, rootless, oci-runtime",
    "containerd": "containerd, oci-runtime",
}
"""The rows of docs/runtimes-tested.md."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oci")


@functools.cache
def seen(machine: Machine, place: Path, name: str) -> Mapping[str, str]:
    """What is printed by each command; the engine is started once."""
    out = place / name
    for directory in ("said", "commands"):
        (out / directory).mkdir(parents=True)
    (out / "gpubind").write_text(PROGRAM)
    (out / "client.py").write_text(DOCKER_PY)
    (out / "count.yaml").write_text(COMPOSE % "count: 1")
    (out / "ids.yaml").write_text(COMPOSE % 'device_ids: ["1"]')
    for command, words in ENGINES[name].commands.items():
        (out / "commands" / command).write_text(words)
    binds = [Bind(str(out), "/srv/test", readonly=False), CONTAINERS, *machine.modules]
    if name == "docker":
        binds += clients(machine, place)
    script = BEFORE + ENGINES[name].begin + AFTER
    machine.run(["bash", "-c", script], driver=True, binds=binds)
    return {path.name.partition("-")[2]: path.read_text() for path in (out / "said").iterdir()}


@functools.cache
def clients(machine: Machine, place: Path) -> tuple[Bind, ...]:
    """Debian's docker-compose, and docker-py from PyPI."""
    for name in ("debs", "dockerpy"):
        (place / name).mkdir()
    script = (
        "mount -t tmpfs tmpfs /var/lib/apt/lists && mount -t tmpfs tmpfs /var/cache/apt && cd /srv/debs && "
        "apt-get -qq update && apt-get -qq download docker-compose && dpkg -x docker-compose_*.deb . && "
        "cp $(find . -type f -name docker-compose -perm /1) docker-compose"
    )
    machine.run(["sh", "-ec", script], binds=[Bind(str(place / "debs"), "/srv/debs", readonly=False)])
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place / "dockerpy")]
    pip += ["--only-binary", ":all:", "--python-version", "3.13", "--implementation", "cp", "docker"]
    subprocess.run(pip, check=True)
    return Bind(str(place / "debs"), "/srv/compose"), Bind(str(place / "dockerpy"), "/srv/dockerpy")


BOTH, FIRST, SECOND = "/dev/nvidia0\n/dev/nvidia1\n", "/dev/nvidia0\n", "/dev/nvidia1\n"
LOADED = "100\nexit 0\n"


@pytest.mark.parametrize(
    ("engine", "command", "said"),
    [
        ("docker", "all", BOTH + LOADED),
        ("docker", "index", SECOND + LOADED),
        ("docker", "uuid", FIRST + LOADED),
        ("docker", "gpus", BOTH + LOADED),
        ("docker", "device", SECOND + LOADED),
        ("docker", "exec", FIRST + LOADED),
        ("docker", "cdi", SECOND + LOADED),
        ("docker", "user", FIRST + LOADED),
        ("docker", "py", SECOND + "\nexit 0\n"),
        ("podman", "all", BOTH + LOADED),
        ("podman", "index", SECOND + LOADED),
        ("podman", "runc", SECOND + LOADED),
        ("containerd", "index", SECOND + LOADED),
        ("rootless", "index", SECOND + LOADED),
    ],
)
def test_a_container_gets_the_gpus_that_it_requests(
    trixie: Machine, place: Path, engine: str, command: str, said: str, shows: Shows
) -> None:
    lines = seen(trixie, place, engine)[command].splitlines(keepends=True)
    assert "".join(line for line in lines if "level=warning" not in line) == said  # podman's, about cgroups
    if command == "index":
        shows(ROWS[engine], command)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_without_a_request_gets_none(trixie: Machine, place: Path, engine: str, shows: Shows) -> None:
    assert "cannot access '/dev/nvidia" in seen(trixie, place, engine)["none"]
    shows(ROWS[engine], "none")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_without_its_gpu_does_not_start_and_the_engine_shows_why(
    trixie: Machine, place: Path, engine: str, shows: Shows
) -> None:
    said = seen(trixie, place, engine)["unknown"]
    assert "error: unknown-gpu: `NVIDIA_VISIBLE_DEVICES=7`: this host has no `7`" in said
    assert not said.endswith("exit 0\n")
    shows(ROWS[engine], "unknown")


def test_an_image_for_a_newer_driver_does_not_start_with_dockers_option(trixie: Machine, place: Path) -> None:
    said = seen(trixie, place, "docker")["require"]
    assert "error: require-unsatisfied: this host does not satisfy the image's NVIDIA_REQUIRE_CUDA" in said
    assert said.endswith("started\nexit 0\n")


def test_none_brings_the_driver_without_a_gpu(trixie: Machine, place: Path) -> None:
    said = seen(trixie, place, "docker")["driver"]
    assert "cannot access '/dev/nvidia[0-9]*'" in said
    assert said.endswith(LOADED)


@pytest.mark.parametrize(("command", "number"), [("count", "0"), ("ids", "1")])
def test_compose_gets_the_gpus_of_its_file(trixie: Machine, place: Path, command: str, number: str) -> None:
    said = seen(trixie, place, "docker")[command].replace("\r", "")
    assert f"/dev/nvidia{number}\nNVIDIA_VISIBLE_DEVICES={number}\n" in said
    assert said.endswith("exit 0\n")


def test_a_client_that_looks_for_nvidias_runtime_finds_it(trixie: Machine, place: Path) -> None:
    assert "/usr/local/sbin/gpubind-docker-runtime" in seen(trixie, place, "docker")["info"]


def test_dockers_option_without_gpubind_as_the_runtime_is_an_error_that_says_so(trixie: Machine, place: Path) -> None:
    assert "gpubind: --gpus needs gpubind as the runtime" in seen(trixie, place, "docker")["other"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_container_that_was_created_before_an_update_starts_with_the_new_driver(
    trixie: Machine, place: Path, engine: str, shows: Shows
) -> None:
    said = re.findall(r"^(libcuda.*|exit.*)$", seen(trixie, place, engine)["update"], re.MULTILINE)
    assert said == ["libcuda.so.550.163.01", "libcuda.so.550.163.02", "exit 0"]
    shows(ROWS[engine], "update")


def test_an_image_cannot_unmask_what_docker_masks(trixie: Machine, place: Path) -> None:
    assert seen(trixie, place, "docker")["hostile"] == "1\nexit 0\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_undone_the_machine_is_as_it_was(trixie: Machine, place: Path, engine: str, shows: Shows) -> None:
    assert seen(trixie, place, engine)["undo"] == "as before\nexit 0\n"
    shows(ROWS[engine], "undo")


def test_containerds_other_settings_stay(trixie: Machine, place: Path) -> None:
    said = seen(trixie, place, "containerd")["dump"]
    assert 'BinaryName = "/usr/local/sbin/gpubind-containerd-runtime"' in said
    assert said.endswith("1\nexit 0\n")
