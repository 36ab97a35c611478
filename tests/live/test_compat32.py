"""32-bit programs beside 64-bit ones in one container: each finds the driver's libraries of its own class."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.live.engine_starts import Engine
from tests.live.machine import RIG, Bind, Machine

pytestmark = pytest.mark.live

IMAGE, ROOT = "/srv/classes", "/srv/nv535"
MAKE = "cd /opt; set -- /usr/lib/gcc/i686-linux-gnu/*; gcc -o of-64 p.c -ldl; gcc -m32 -B$1/ -L$1 -o of-32 p.c -ldl"
BOTH = ("sh", "-c", "/opt/of-64; /opt/of-32")
SERVED = ["64 bits: cuInit 100", "32 bits: cuInit 100"]
"""What both say: there is no device, and libcuda is there."""
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(int) = library ? (int (*)(int))dlsym(library, "cuInit") : NULL;
  printf("%zu bits: ", 8 * sizeof library);
  return init ? !printf("cuInit %d\\n", init(0)) : !printf("%s\\n", dlerror());
}
"""


class Node(NamedTuple):
    """A machine with every runtime, and the driver of both classes in a root of its own."""

    machine: Machine
    binds: tuple[Bind, ...]

    def says(self, *words: str, user: bool = True, status: int = 0, env: Mapping[str, str] = {}) -> list[str]:
        done = self.machine.tried(*words, user=user, driver=True, binds=self.binds, env=env, status=status)
        return (done.stdout + done.stderr if status else done.stdout).splitlines()


@pytest.fixture(scope="module")
def node(trixie: Machine, nv535: Machine) -> Iterator[Node]:
    base = tempfile.mkdtemp(prefix="classes-", dir=RIG)
    os.chmod(base, 0o755)
    try:
        subprocess.run(["cp", "-al", f"{RIG}/ct/bookworm-cc", f"{base}/image"], check=True)
        with open(f"{base}/image/opt/p.c", "w") as file:
            file.write(PROGRAM)
        Machine(f"{base}/image", "").run(["sh", "-ec", MAKE])
        yield Node(trixie._replace(version=nv535.version), (Bind(f"{base}/image", IMAGE), Bind(nv535.root, ROOT)))
    finally:
        shutil.rmtree(base)


def driver(*caps: str) -> list[str]:
    return ["--nv", "--root", ROOT, "--dev-root", "/", *(word for cap in caps for word in ("--caps", cap))]


@pytest.mark.parametrize(("backend", "user"), [("bwrap", True), ("podman", False), ("apptainer", True)])
def test_both_classes_find_libcuda(node: Node, backend: str, user: bool) -> None:
    words = ["exec", "--backend", backend, *Engine(backend, IMAGE).arguments]
    assert node.says(*words, *driver("all"), IMAGE, *BOTH, user=user) == SERVED
    of_64, of_32 = node.says(*words, *driver(), IMAGE, *BOTH, user=user)
    assert of_64 == SERVED[0]
    assert of_32.startswith("32 bits: libcuda.so.1: ")


def test_wrap_serves_apptainers_word_for_it(node: Node) -> None:
    line = ("--", "apptainer", "exec", "--nv", IMAGE, *BOTH)
    assert node.says("wrap", *driver()[1:], *line, env={"APPTAINER_COMPAT32": "1"}) == SERVED


def test_an_apptainer_that_does_not_know_compat32_refuses_it_itself(node: Node) -> None:
    line = ("apptainer", "exec", "--nv", "--compat32", IMAGE, "true")
    real = node.machine.run(line, user=True, driver=True, binds=node.binds, status=1)
    assert "unknown flag: --compat32" in real.stderr
    assert set(real.stderr.splitlines()) <= set(node.says("wrap", *driver()[1:], "--", *line, status=1))
