"""What `explain --tree` says of a program or library is what the loader of its container says with --list."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest

from gpubind.files.live import LiveTree
from gpubind.loader.container import Container
from gpubind.loader.linkage import linked_files
from gpubind.loader.search import Loader
from tests.live.machine import RIG, ROOT_PATH

pytestmark = pytest.mark.live

LOADER = "/lib64/ld-linux-x86-64.so.2"
EACH = 250
"""Programs, and libraries, of a container."""


def elf_files(root: str, directory: str) -> Iterator[str]:
    for name in sorted(os.listdir(f"{root}{directory}")):
        path = f"{root}{directory}/{name}"
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield f"{directory}/{name}"


@pytest.mark.parametrize("name", ["bullseye-gl", "bookworm-cc", "trixie-gl"])
def test_each_library_is_the_one_that_the_containers_own_loader_finds(rig: str, name: str) -> None:
    root = f"{RIG}/ct/{name}"
    tree = LiveTree(root)
    container = Container(Loader(tree, "x86_64"), tree, (), (), "")
    listed = [list(elf_files(root, place))[:EACH] for place in ("/usr/bin", "/usr/lib/x86_64-linux-gnu")]
    compared = 0
    for path in (one for files in listed for one in files):
        command = ["chroot", root, LOADER, "--list", path]
        said = subprocess.run(command, capture_output=True, text=True, env={"PATH": ROOT_PATH}).stdout
        expected = {soname: tree.resolve(place) for soname, place in re.findall(r"(\S+) => (/\S+)", said)}
        missing = set(re.findall(r"(\S+) => not found", said))
        if not expected and not missing:
            continue  # static, or no program
        uses = [use for file in linked_files(container, (path,)) for use in file.uses]
        found = {use.name: tree.resolve(use.path) for use in uses if use.path is not None}
        assert {n: at for n, at in found.items() if "ld-linux" not in n} == {
            n: at for n, at in expected.items() if "ld-linux" not in n
        }, path
        assert {use.name for use in uses if use.state == "missing"} == missing, path
        compared += 1
    assert compared > EACH // 2
