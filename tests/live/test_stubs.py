"""Stubs that a compiler made, where the toolkit's get copied to: on the node, and in an image."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.live.containers import CONTAINERS, image
from tests.live.machine import PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

SOURCE = "int cuInit(unsigned flags) { return 34; } int cuDeviceGetCount(int *count) { return 34; }"
LINKED = pytest.mark.parametrize("options", [("-nostdlib",), ()], ids=["needs-nothing", "needs-libc"])
PLACE = "/usr/local/lib"


def make_stub(directory: Path, options: tuple[str, ...]) -> Path:
    """A stub of libcuda in *directory*, under the name that programs are linked with."""
    made = directory / "libcuda.so"
    words = ["cc", "-shared", "-fPIC", *options, "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", str(made)]
    subprocess.run(words, input=SOURCE, text=True, check=True)
    return made


@LINKED
def test_a_stub_that_ldconfig_knows_gets_no_name_in_the_container(
    trixie: Machine, tmp_path: Path, options: tuple[str, ...]
) -> None:
    os.chmod(tmp_path, 0o755)
    make_stub(tmp_path, options)
    binds = [*trixie.modules, CONTAINERS, Bind(str(tmp_path), PLACE, readonly=False)]
    trixie.run(["ldconfig", "-C", f"{PLACE}/ld.so.cache"], binds=binds)
    binds.append(Bind(f"{tmp_path}/ld.so.cache", "/etc/ld.so.cache"))
    words = ["python3", "-m", "gpubind", "check", "--nv", "--json"]
    checked = json.loads(trixie.run(words, user=True, driver=True, binds=binds, env=PYTHON_ENV).stdout)
    told = {finding["code"]: finding for finding in checked["findings"]}
    assert f"{PLACE}/libcuda.so" in told["stub-libcuda"]["where"]
    assert "name-collision" not in told
    probe = "import ctypes; print([ctypes.CDLL(name).cuInit(0) for name in ('libcuda.so', 'libcuda.so.1')])"
    words = ["python3", "-m", "gpubind", "exec", "--nv", image("trixie-sb"), "python3", "-c", probe]
    assert trixie.run(words, user=True, driver=True, binds=binds, env=PYTHON_ENV).stdout == "[100, 100]\n"


@LINKED
@pytest.mark.parametrize("name", ["libcuda.so", "libcuda.so.1"])
def test_a_stub_in_the_images_library_directory_is_no_driver(
    trixie: Machine, tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    copy = tmp_path / "image"
    subprocess.run(["cp", "-al", f"{CONTAINERS.source}/trixie", str(copy)], check=True)
    make_stub(tmp_path, options).rename(copy / "usr/lib/x86_64-linux-gnu" / name)
    words = ["check", "--nv", "--json", "--image", "/srv/image"]
    told = json.loads(trixie.gpubind(*words, driver=True, binds=[Bind(str(copy), "/srv/image")]))["findings"]
    about = [(f["code"], f["severity"], f["subject"]) for f in told if f["code"].endswith("-in-image")]
    assert about == [("stub-in-image", "note", name)]
