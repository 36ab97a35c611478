"""Forward compatibility with real drivers: which libcuda a program of the container maps.

The images have a real libcuda of another driver as their compat libcuda: 550 on a node with driver 535, which fits, and
535 on a node with driver 550, which does not. The node with 535 is the machine with Apptainer, with the user space of
another as its driver root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.live.containers import CONTAINERS, exec_words, privileges
from tests.live.machine import DRIVER, RIG, Bind, Machine

pytestmark = pytest.mark.live

COMPAT = "/usr/local/cuda/compat"
OLD = "535.261.03"
INSIDE, INSIDE_OLD = "/srv/compat", "/srv/nv535"
LIBRARIES = "usr/lib/x86_64-linux-gnu/nvidia/current"
MAPPED = """
import ctypes
print(ctypes.CDLL("libcuda.so.1").cuInit(0))
print(sorted({line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line}))
"""


class Made(NamedTuple):
    """What is changed in an image."""

    driver: str
    """Version of its compat libcuda."""
    directory: str
    """Where that is."""
    cuda: str
    library_path: str
    """What its environment file sets; empty: nothing."""


IMAGES = {
    "first": Made(DRIVER, COMPAT, "12.4.1", COMPAT),
    "newer": Made(DRIVER, f"{COMPAT}/lib.real", "13.0.1", f"{COMPAT}/lib:/usr/local/nvidia/lib"),
    "needless": Made(DRIVER, COMPAT, "12.1.0", ""),
    "harmful": Made(OLD, COMPAT, "12.4.1", COMPAT),
}


@pytest.fixture(scope="session")
def images(rig: str) -> Iterator[Bind]:
    """The images, in a directory of their own on the rig's file system: all but what is changed is linked."""
    directory = tempfile.mkdtemp(prefix="compat-", dir=rig)
    os.chmod(directory, 0o755)
    for name, made in IMAGES.items():
        root = f"{directory}/{name}"
        subprocess.run(["cp", "-al", f"{rig}/ct/bookworm-sb", root], check=True)
        host = {DRIVER: "trixie", OLD: "nv535"}[made.driver]
        inside = f"{root}{made.directory}"
        os.makedirs(inside)
        library = f"libcuda.so.{made.driver}"
        os.link(f"{rig}/hosts/{host}/{LIBRARIES}/{library}", f"{inside}/{library}")
        os.symlink(library, f"{inside}/libcuda.so.1")
        with open(f"{root}/usr/local/cuda/version.json", "w") as file:
            file.write(f'{{"cuda": {{"version": "{made.cuda}"}}}}')
        env = f"{root}/.singularity.d/env/90-environment.sh"
        os.unlink(env)
        with open(env, "w") as file:
            file.write(f"export LD_LIBRARY_PATH={made.library_path}\n" if made.library_path else "")
    yield Bind(directory, INSIDE)
    shutil.rmtree(directory)


class Start(NamedTuple):
    """A start, and the libcuda that its program gets."""

    image: str
    options: tuple[str, ...]
    compat: bool
    """Whether that is the image's compat libcuda."""
    driver: str = OLD
    """Of the node."""
    env: Mapping[str, str] = {}

    def __str__(self) -> str:
        return "-".join((self.image, self.driver, *self.options))


STARTS = (
    Start("first", (), True),
    Start("first", ("--cuda-compat", "image"), True),
    Start("first", ("--cuda-compat", "host"), False),
    Start("first", (), True, env={"GPUBIND_CUDA_COMPAT": "auto"}),
    Start("first", (), False, env={"GPUBIND_CUDA_COMPAT": "host"}),
    Start("newer", (), True),
    Start("newer", ("--cuda-compat", "host"), False),
    Start("needless", (), False),
    Start("needless", ("--cuda-compat", "image"), True),
    Start("harmful", (), False, DRIVER),
    Start("harmful", ("--cuda-compat", "image"), True, DRIVER),
    Start("first", (), False, DRIVER),  # the same version as the host's
)


@pytest.mark.parametrize("backend", ["apptainer", "bwrap"])
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
@pytest.mark.parametrize("start", STARTS, ids=str)
def test_a_program_gets_the_libcuda_that_the_plan_says(
    trixie: Machine, images: Bind, start: Start, backend: str, user: bool
) -> None:
    words = [*exec_words(backend, user=user), *root_of(start), *start.options]
    made = mapped(trixie, images, start, *words, user=user)
    assert made == (f"{IMAGES[start.image].directory}/libcuda.so.{IMAGES[start.image].driver}", start.compat)


@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_the_users_own_word_for_the_container_wins(trixie: Machine, images: Bind, user: bool) -> None:
    mine = Start("needless", ("--cuda-compat", "host"), True, env={"APPTAINERENV_LD_LIBRARY_PATH": COMPAT})
    words = [*exec_words("apptainer", user=user), *root_of(mine), *mine.options]
    assert mapped(trixie, images, mine, *words, user=user) == (f"{COMPAT}/libcuda.so.{DRIVER}", True)


def test_the_real_program_uses_what_the_image_puts_first(trixie: Machine, images: Bind) -> None:
    """The oracle: gpubind is never worse, and better where the image's compat libcuda is for another driver."""
    for image, compat in (("first", True), ("newer", False), ("needless", False), ("harmful", True)):
        words = ["apptainer", "exec", "--nv", *privileges("apptainer", user=False), f"{INSIDE}/{image}"]
        done = trixie.run([*words, "python3", "-c", MAPPED], driver=True, binds=[CONTAINERS, images])
        assert (COMPAT in done.stdout.splitlines()[1]) == compat


def root_of(start: Start) -> tuple[str, ...]:
    """The options that give the machine the driver of *start*."""
    return ("--root", INSIDE_OLD, "--dev-root", "/") if start.driver == OLD else ()


def mapped(trixie: Machine, images: Bind, start: Start, *words: str, user: bool) -> tuple[str, bool]:
    """Where the compat libcuda of the image is, and whether the program mapped that; else it mapped the host's."""
    machine = trixie._replace(version=start.driver)
    binds = [CONTAINERS, images, Bind(f"{RIG}/hosts/nv535", INSIDE_OLD)]
    done = machine.tried(
        *words, f"{INSIDE}/{start.image}", "python3", "-c", MAPPED, user=user, driver=True, binds=binds, env=start.env
    )
    status, files = done.stdout.splitlines()
    assert status == "100"
    made = IMAGES[start.image]
    place = f"{made.directory}/libcuda.so.{made.driver}"
    if f"'{place}'" in files:
        return place, True
    assert "/libs/libcuda.so" in files, files
    return place, False
