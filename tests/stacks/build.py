"""Images of real stacks as plain directories: wheels of PyPI, packages of Debian, and programs of clang."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from posixpath import dirname
from typing import Any

from tests.image.cuda_trees import SITE

TRIES = 3
LIB = "usr/lib/x86_64-linux-gnu"
BASE = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6")
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 27, 28, 31, 34, 35, 39)]
SOURCE = """
#define __global__ __attribute__((global))
struct dim3 { unsigned x, y, z; };
typedef __SIZE_TYPE__ size_t;
typedef struct ihipStream_t *hipStream_t;
extern "C" int __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, hipStream_t *);
extern "C" int __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
__global__ void add(int *a) { a[0] += 1; }
int main() { add<<<dim3{1, 1, 1}, dim3{1, 1, 1}, 0, 0>>>((int *)0); }
"""
"""A program for HIP that needs none of ROCm's headers."""
PREFIX = dirname(dirname(dirname(SITE)))
OPTIONS = {"gfx1100 gfx1201": ("--offload-compress",), "gfx908 gfx1031": ("--offload-new-driver",)}
"""Of clang, for some of the programs."""


def build(stack: Mapping[str, Any], downloads: Path, image: Path) -> None:
    """Make the directory *image* of a *stack* of tests/data/stacks.json; what is downloaded stays in *downloads*."""
    base(image)
    for wheel in stack["build"].get("wheels", ()):
        with zipfile.ZipFile(_wheel(wheel, stack["build"]["python"], downloads)) as file:
            file.extractall(f"{image}{SITE}")
    for data in Path(f"{image}{SITE}").glob("*.data/data"):  # pip installs these below the prefix
        shutil.copytree(data, f"{image}{PREFIX}", dirs_exist_ok=True)
    if "debian" in stack["build"]:
        for package in _packages(stack["build"]["debian"], downloads):
            run("dpkg-deb", "-x", str(package), str(image))


def base(image: Path) -> None:
    """Make the directory *image* with this machine's C library."""
    (image / LIB).mkdir(parents=True)
    (image / "usr/lib64").mkdir()
    (image / "usr/bin").mkdir()
    for name in ("lib", "lib64", "bin"):
        (image / name).symlink_to(f"usr/{name}")
    for name in BASE:
        shutil.copy(f"/{LIB}/{name}", image / LIB / name)
    shutil.copy("/lib64/ld-linux-x86-64.so.2", image / "usr/lib64/ld-linux-x86-64.so.2")
    shutil.copy("/bin/dash", image / "usr/bin/sh")


def compile_program(archs: str, clang: str, program: Path) -> None:
    """Make *program*, with code for the processors in *archs*."""
    source = program.with_suffix(".hip")
    source.write_text(SOURCE)
    targets = [f"--offload-arch={arch}" for arch in archs.split()]
    generic = ["-mcode-object-version=6"] if "generic" in archs else []
    plain = ["-nogpulib", "-nogpuinc", "-nostdlib", "-fuse-ld=lld", "--rocm-path=/none", "-w"]
    plain += ["-Wl,--unresolved-symbols=ignore-all", "-Wl,-e,main"]
    run(clang, "-x", "hip", *plain, *targets, *generic, *OPTIONS.get(archs, ()), str(source), "-o", str(program))


def run(*command: str) -> str:
    """Return what *command* writes, which has to succeed."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _again(*command: str) -> None:
    """Run *command*, a download, up to `TRIES` times."""
    for number in range(TRIES):
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(5 * (number + 1))
    raise SystemExit(f"a download failed {TRIES} times: {' '.join(command)}")


def _wheel(requirement: str, python: str, downloads: Path) -> Path:
    place = downloads / requirement
    if not any(place.glob("*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        for platform in (*PLATFORMS, "manylinux2014_x86_64", "manylinux2010_x86_64", "linux_x86_64"):
            pip += ["--platform", platform]
        _again(*pip, "--python-version", python, "--implementation", "cp", "--dest", str(place), requirement)
    return next(place.glob("*.whl"))


def _packages(names: Iterable[str], downloads: Path) -> list[Path]:
    """Return the files of Debian's packages *names* of sid, and of those that they depend on."""
    root = downloads / "apt"
    config = root / "apt.conf"
    if not config.exists():
        for directory in ("lists/partial", "cache/archives/partial", "state"):
            (root / directory).mkdir(parents=True)
        (root / "state/status").touch()
        uri = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main")
        key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
        (root / "sources.list").write_text(f"deb {key} {uri.split()[0]} sid main\n")
        lines = {
            "Dir::Etc::sourcelist": "sources.list", "Dir::Etc::sourceparts": "-", "Dir::State": "state",
            "Dir::State::lists": "lists", "Dir::State::status": "state/status", "Dir::Cache": "cache",
        }  # fmt: skip
        text = "".join(f'{name} "{root / value if value != "-" else value}";\n' for name, value in lines.items())
        config.write_text(f'{text}APT::Sandbox::User "root";\nAPT::Install-Recommends "false";\n')
        _again("env", f"APT_CONFIG={config}", "apt-get", "-q", "update")
    apt = ("env", f"APT_CONFIG={config}", "apt-get", "-q", "--yes")
    _again(*apt, "--download-only", "install", "libc6", *names)
    planned = run(*apt, "--simulate", "install", "libc6", *names)
    chosen = {line.split()[1].partition(":")[0] for line in planned.splitlines() if line.startswith("Inst ")}
    return [file for file in sorted((root / "cache/archives").glob("*.deb")) if file.name.partition("_")[0] in chosen]
