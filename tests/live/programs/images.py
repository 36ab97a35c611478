"""Images to try programs in: hard-link copies of the rig's own.

Files are added, and some are replaced; none is written to.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.live.machine import RIG, Bind, Machine
from tests.live.programs.build import INSIDE, build

PLACE = f"{RIG}/programs"
"""On the file system of the rig's images."""
IMAGES = Bind(PLACE, "/srv/programs", readonly=False)
SANDBOXES = ("bullseye-sb", "bookworm-sb", "trixie-sb")
PLAIN, SIF = "bookworm", "bookworm.sif"
NAMES = (*SANDBOXES, PLAIN, SIF)
GNU = "usr/lib/x86_64-linux-gnu"
ENVIRONMENT = f"""#!/bin/sh
export PATH="{INSIDE}/path1:{INSIDE}/path2:$PATH"
export LD_LIBRARY_PATH="{INSIDE}/env"
"""


class Made(NamedTuple):
    """The images, as the machine sees them."""

    place: str

    def path(self, name: str) -> str:
        return f"{self.place}/{name}"


@contextmanager
def made_images(machine: Machine) -> Iterator[Made]:
    """All of the images, for as long as they are needed."""
    shutil.rmtree(PLACE, ignore_errors=True)
    os.makedirs(PLACE)
    try:
        build(f"{PLACE}/programs")
        for name in (*SANDBOXES, PLAIN):
            _furnish(f"{RIG}/ct/{name}", f"{PLACE}/{name}")
        sandbox, sif = (f"{IMAGES.target}/{name}" for name in ("bookworm-sb", SIF))
        machine.run(["apptainer", "build", sif, sandbox], binds=[IMAGES])
        yield Made(IMAGES.target)
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


def _furnish(image: str, copy: str) -> None:
    """*copy* of *image*, with the programs in it."""
    subprocess.run(["cp", "-al", image, copy], check=True)
    subprocess.run(["cp", "-a", f"{PLACE}/programs", f"{copy}{INSIDE}"], check=True)
    placed = {
        "default/libtdefault.so": f"{GNU}/libtdefault.so",
        "usrlib/libtusr.so": "usr/lib/libtusr.so",
        "local/libtlocal.so": "usr/local/lib/libtlocal.so",
        "default-hwcaps/libtlevel.so": f"{GNU}/glibc-hwcaps/x86-64-v2/libtlevel.so",
    }
    for source, target in placed.items():
        _add(f"{PLACE}/programs/{source}", f"{copy}/{target}")
    if "bookworm" in image:  # the age of the 32-bit C library that the rig has
        libraries = glob.glob(f"{RIG}/hosts/nv535/usr/lib/i386-linux-gnu/ld-linux.so.2")
        _add(libraries[0], f"{copy}/usr/lib/ld-linux.so.2")
        _add(f"{PLACE}/programs/default32/libtdefault32.so", f"{copy}/usr/lib/i386-linux-gnu/libtdefault32.so")
    if image.endswith("-sb"):
        _replace(f"{copy}/.singularity.d/env/90-environment.sh", ENVIRONMENT)
    else:  # ldconfig writes anew and renames
        _replace(f"{copy}/etc/ld.so.conf.d/programs.conf", f"{INSIDE}/cached\n")
        subprocess.run(["/sbin/ldconfig", "-r", copy], check=True)


def _add(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target):
        os.remove(target)
    shutil.copy(source, target)
    os.chmod(target, 0o755)


def _replace(path: str, text: str) -> None:
    if os.path.lexists(path):
        os.remove(path)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


_SEARCHED = "lib default usrlib local env cached chain own wrong origin undefined cpu default-hwcaps lib32 default32"
LIBRARIES = frozenset(f"{_SEARCHED} v0 v1 v2 stack text short zero secret".split())
"""Directories that hold no programs."""
BY_NAME = ("sh", "python3", "by-name", "only-here", "nobody-knows")


def programs() -> list[str]:
    """Every program that was built, as the containers name it; and some by name, and what is none."""
    found = [f"{INSIDE}/directory", f"{INSIDE}/nothing", *BY_NAME]
    base = f"{PLACE}/programs"
    for directory, below, files in os.walk(base):
        below[:] = [name for name in below if directory != base or name not in LIBRARIES]
        found += [f"{INSIDE}{directory[len(base) :]}/{name}" for name in files]
    return sorted(found)
