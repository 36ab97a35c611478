"""A C library in a prefix of its own: of the programs of hosts with a store (NixOS, Guix System), and in an image.

The machine with a store is an overlay of the rig's, with its driver moved into a store. The programs and the loader are
changed as patchelf and a build of glibc with another prefix do, by strings of one length.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from tests.live.containers import CONTAINERS, Case, image, look
from tests.live.machine import DRIVER, RIG, Bind, Machine, document

pytestmark = pytest.mark.live

LIBRARIES, PROGRAMS = "/usr/lib/x86_64-linux-gnu", "/usr/lib/nvidia/current"
STEMS = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libcudadebugger", "libnvidia-opencl")
LOADER = "ld-linux-x86-64.so.2"
OF_GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
USUAL = (b"/lib64/ld-linux-x86-64.so.2\0", f"{LIBRARIES[len('/usr') :]}/\0".encode(), b"/etc/ld.so.cache\0")
GONE = (f"{LIBRARIES}/nvidia", "/usr/lib/nvidia", "/etc/ld.so.cache", "/etc/alternatives/nvidia", "/etc/OpenCL")
HOSTS = ("nixos", "guix")
CASES = [Case("bwrap", "bookworm", True), Case("apptainer", "bookworm-sb", True), Case("bwrap", "bullseye", False)]


@pytest.fixture(scope="module", params=HOSTS)
def stored(trixie: Machine, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with the driver in a store, and no ld.so.cache."""
    top = tempfile.mkdtemp(prefix="store-", dir=RIG)
    os.chmod(top, 0o755)
    upper, work, root = (f"{top}/{name}" for name in ("upper", "work", "root"))
    for directory in (upper, work, root):
        os.mkdir(directory)
    fill(trixie.root, upper, request.param)
    layers = f"lowerdir={trixie.root},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "store", "-o", layers, root], check=True)
    try:
        for path in GONE:
            (shutil.rmtree if os.path.isdir(root + path) and not os.path.islink(root + path) else os.remove)(
                root + path
            )
        yield trixie._replace(root=root)
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)
        shutil.rmtree(top)


def fill(host: str, upper: str, kind: str) -> None:
    """Put into *upper* what a host of that *kind* has and *host* has not."""
    store = "/gnu/store" if kind == "guix" else "/nix/store"
    driver, glibc = f"{store}/0a1b2c-nvidia-{DRIVER}", f"{store}/glibc0/lib"
    ours = (f"{glibc}/ld.so\0".encode(), f"{glibc}/\0".encode(), f"{store[:4]}/ld.so.cache\0".encode())
    made = dict(zip(USUAL, ours))
    assert [*map(len, made)] == [*map(len, ours)]
    for directory in (f"{driver}/lib", f"{driver}/bin", glibc):
        os.makedirs(upper + directory)
    for stem in STEMS:
        found = f"{LIBRARIES}/nvidia/current/{stem}.so.{DRIVER}"
        source = host + found if os.path.exists(host + found) else f"{host}{LIBRARIES}/{stem}.so.{DRIVER}"
        os.link(source, f"{upper}{driver}/lib/{stem}.so.{DRIVER}")
        os.symlink(f"{stem}.so.{DRIVER}", f"{upper}{driver}/lib/{stem}.so.1")
    for name in OF_GLIBC:
        os.link(os.path.realpath(f"{host}{LIBRARIES}/{name}"), f"{upper}{glibc}/{name}")
    changed(f"{host}{LIBRARIES}/{LOADER}", f"{upper}{glibc}/ld.so", made)
    changed(f"{host}{PROGRAMS}/nvidia-smi", f"{upper}{driver}/bin/nvidia-smi", made)
    os.makedirs(f"{upper}/run/current-system")
    if kind == "guix":
        os.symlink(driver, f"{upper}/run/current-system/profile")
    else:
        os.mkdir(f"{upper}/run/current-system/sw")
        os.symlink(f"{driver}/bin", f"{upper}/run/current-system/sw/bin")
        os.symlink(driver, f"{upper}/run/opengl-driver")


@pytest.mark.parametrize(
    ("own", "loader", "usual"),
    [
        ("/usr/glibc-compat/lib", LOADER, f"{LIBRARIES[len('/usr') :]}/"),
        ("/nix/store/00-glibc-1/lib", "l", f"{LIBRARIES}/"),
    ],
    ids=["alpine", "nix"],
)
def test_an_image_whose_glibc_has_a_prefix_of_its_own_gets_the_driver(
    trixie: Machine, own: str, loader: str, usual: str
) -> None:
    """Alpine's programs name the usual loader, which is a link; Nix's name the one in the store."""
    made = {f"{usual}\0".encode(): f"{own}/\0".encode(), USUAL[2]: b"/none/d.so.cache\0"}
    in_store = loader != LOADER
    top = tempfile.mkdtemp(prefix="prefix-", dir=RIG)
    os.chmod(top, 0o755)
    try:
        shutil.copytree(f"{RIG}/ct/busybox", f"{top}/image", symlinks=True)
        shutil.rmtree(f"{top}/image/lib64", ignore_errors=True)
        os.makedirs(f"{top}/image{own}")
        for name in OF_GLIBC:
            os.link(os.path.realpath(f"{RIG}/ct/bookworm{LIBRARIES}/{name}"), f"{top}/image{own}/{name}")
        changed(f"{RIG}/ct/bookworm{LIBRARIES}/{LOADER}", f"{top}/image{own}/{loader}", made)
        if not in_store:
            os.mkdir(f"{top}/image/lib64")
            os.symlink(f"{own}/{loader}", f"{top}/image/lib64/{LOADER}")
        named = {USUAL[0]: f"{own}/{loader}\0".encode()} if in_store else {}
        changed(f"{trixie.root}{PROGRAMS}/nvidia-smi", f"{top}/image/bin/own-smi", named)
        words = ("exec", "--nv", "--backend", "bwrap", "/srv/image", "own-smi")
        binds = [Bind(f"{top}/image", "/srv/image")]
        said = trixie.gpubind(*words, user=True, driver=True, binds=binds, status=9)
    finally:
        shutil.rmtree(top)
    assert "communicate with the NVIDIA driver" in said


def changed(source: str, target: str, made: dict[bytes, bytes]) -> None:
    with open(source, "rb") as stream:
        data = stream.read()
    for before, after in made.items():
        data = data.replace(before, after)
    with open(target, "wb") as stream:
        stream.write(data)
    os.chmod(target, 0o755)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_driver_and_its_programs_work_in_a_container_that_has_no_store(stored: Machine, case: Case) -> None:
    report = look(stored, case)
    assert report["status"] == {"cuInit": 100, "nvmlInit": 9, "nvidia-smi": 9}
    assert not [name for name in report["unloadable"] if name.startswith(STEMS)]


def test_a_program_with_a_loader_in_the_store_comes_with_it(stored: Machine) -> None:
    words = ("--nv", "--json", "--image", image("bookworm"))
    plan = document(stored.gpubind("plan", *words, driver=True, user=True, binds=[CONTAINERS]))
    assert [mount["options"] for mount in plan["mounts"] if mount["target"].endswith("/store/glibc0/lib")] == [
        ["ro", "nosuid", "nodev"]
    ]
    assert "foreign-interpreter" not in stored.gpubind("check", *words, driver=True, binds=[CONTAINERS])
