"""A machine with the nodes, lists and files of a Jetson: those of x86-64, as nothing else runs here."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator

import pytest

from tests.layouts.families import jetson
from tests.live.containers import CONTAINERS, EXCLUDES, image, privileges
from tests.live.copies import copy_without_driver
from tests.live.engine_starts import IMPORT, LIMITS, SOCKET, dockerd
from tests.live.machine import RIG, Machine, document
from tests.support.elf import X86_64
from tests.support.trees import File, Link, Node, Spec

pytestmark = pytest.mark.live

TRIPLET = "/usr/lib/x86_64-linux-gnu"
MODULE = f"{TRIPLET}/libv4l/plugins/nv/libv4l2_nvargus.so"
BY_PATH = f"{TRIPLET}/tegra/libcuda.so.1.1"
LOOK = f"""
import os, stat
for name in ('nvmap', 'nvgpu/igpu0/ctrl', 'dri/renderD128', 'v4l2-nvdec'):
    node = os.stat('/dev/' + name)
    print(name, stat.S_ISCHR(node.st_mode), oct(stat.S_IMODE(node.st_mode)))
print(len(os.listdir('/dev/nvgpu/igpu0')))
first = os.environ['LD_LIBRARY_PATH'].split(':')[0]
for name in ('libnvbufsurface.so.1.0.0', 'libv4l2.so.0', 'libcuda.so.1'):
    print(os.path.exists(first + '/' + name))
print(*(os.path.exists(path) for path in ('/etc/nv_tegra_release', '{MODULE}', '{BY_PATH}')))
"""
NODES = """nvmap True 0o660
nvgpu/igpu0/ctrl True 0o660
dri/renderD128 True 0o660
v4l2-nvdec True 0o660
12
True
True
True
"""
WAYS = (  # bubblewrap makes no directories in an image
    ("docker", "engines:bookworm", ("--network=none",), False, True),
    ("podman", image("bookworm"), ("--network=none", *(f"--ulimit={word}" for word in LIMITS)), False, True),
    ("bwrap", image("bookworm"), (), True, False),
    ("apptainer", image("bookworm-sb"), ("--contain",), True, True),
    ("apptainer", image("bookworm-sb"), privileges("apptainer", user=False), False, True),
)


def of_x86_64(spec: Spec) -> Spec:
    """*spec* in the directories of this architecture."""

    def here(text: str) -> str:
        return text.replace("aarch64", "x86_64")

    return {
        here(path): Link(here(item.target)) if isinstance(item, Link) else here(item) if isinstance(item, str) else item
        for path, item in spec.items()
        if path not in ("/etc/ld.so.cache", "/etc/group")
    }


def install(spec: Spec, root: str) -> None:
    """Everything of *spec* below *root*."""
    for path, item in spec.items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        if os.path.lexists(root + path):
            os.unlink(root + path)
        if isinstance(item, Link):
            os.symlink(item.target, root + path)
        elif isinstance(item, Node):
            os.mknod(root + path, stat.S_IFCHR | item.mode, os.makedev(item.major, item.minor))
            os.chmod(root + path, item.mode)
            os.chown(root + path, item.uid, item.gid)
        else:
            assert isinstance(item, (bytes, str, File))
            data = item.data if isinstance(item, File) else item.encode() if isinstance(item, str) else item
            with open(root + path, "wb") as file:
                file.write(data)
            os.chmod(root + path, item.mode if isinstance(item, File) else 0o644)


@pytest.fixture(scope="module")
def board(trixie: Machine) -> Iterator[Machine]:
    """The machine `trixie` without its driver, and with what a board with JetPack 6 has."""
    root = tempfile.mkdtemp(prefix="jetson-", dir=RIG)
    os.chmod(root, 0o755)
    machine = Machine(root, trixie.python)
    driver = f"{jetson.TRIPLET}/nvidia"
    try:
        copy_without_driver(trixie.root, root)
        install(of_x86_64({**jetson.board(6, "", "# R36\n", driver), **jetson.files(6, driver, X86_64)}), root)
        machine.run(["ldconfig"])
        machine.run(["usermod", "-aG", "video", "user"])
        with dockerd(machine):
            words = IMPORT.format(program="docker", suite="bookworm", changes="", excludes=EXCLUDES)
            machine.run(["sh", "-ec", words], binds=[CONTAINERS], env={"DOCKER_HOST": SOCKET})
            yield machine
    finally:
        shutil.rmtree(root)


def gpubind(board: Machine, *words: str, user: bool = False, status: int = 0) -> str:
    env = {"DOCKER_HOST": SOCKET}
    return board.tried(*words, user=user, env=env, binds=[CONTAINERS], status=status).stdout


def test_a_plan_has_the_nodes_of_the_lists_and_a_record_the_same(board: Machine) -> None:
    record = "/var/tmp/jetson.json"
    gpubind(board, "record", "-o", record)
    plans = [document(gpubind(board, "plan", "--nv", "--json", *on)) for on in ((), ("--host", record))]
    assert {node["source"] for node in plans[0]["devices"]} == {*jetson.nodes(6)}
    assert plans[0]["digest"] == plans[1]["digest"]
    assert [(gpu["index"], gpu["pci"]) for gpu in document(gpubind(board, "gpus", "--json"))["gpus"]] == [(0, None)]


def test_check_reports_only_the_nodes_that_the_user_may_not_open(board: Machine) -> None:
    found = document(gpubind(board, "check", "--nv", "--json", user=True, status=1))["findings"]
    assert {one["subject"] for one in found if one["severity"] == "error"} == {
        f"/dev/dri/renderD{number}" for number in (128, 129)
    }


@pytest.mark.parametrize(("backend", "at", "options", "user", "makes_directories"), WAYS)
def test_a_container_has_the_nodes_the_libraries_and_the_modules(
    board: Machine, backend: str, at: str, options: tuple[str, ...], user: bool, makes_directories: bool
) -> None:
    arguments = [f"--backend-arg={option}" for option in options]
    words = ["exec", "--nv", "--backend", backend, *arguments, at]
    seen = gpubind(board, *words, "python3", "-c", LOOK, user=user)
    assert seen == f"{NODES}True {makes_directories} {makes_directories}\n"
    assert gpubind(board, *words, "test", "-w", os.path.dirname(BY_PATH), user=user, status=1) == ""
