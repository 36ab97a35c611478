"""Where each rule about images, programs and runtimes fires, and where it is almost so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpubind.image.facts import Image
from gpubind.model import CudaNote, HostPath
from gpubind.model.trial import Prediction, Trial, TrialOutcome
from tests.rules.situations import Case, Situation, without
from tests.support.c_library import LIBRARIES, c_library
from tests.support.driver import V, kernel, rhel
from tests.support.elf import elf, stub
from tests.support.gpucode import container
from tests.support.images import GCOMPAT, GLIBC, GLVND, MUSL, glibc, image, image_with_bytes, sandbox
from tests.support.starts import bringing, start, start_by
from tests.support.trees import Dir, File, Link, Spec, recorded_tree

LIB = "/usr/lib/x86_64-linux-gnu"
LIBCUDA = f"{LIB}/libcuda.so.1"
HOST = (rhel(), kernel())
ONE_GPU = {"CUDA_VISIBLE_DEVICES": "1"}
SELF_MADE = "/usr/bin/simulate"


def needing(library: str, **facts: object) -> Spec:
    """A library of the driver that wants more than usual."""
    return {f"/usr/lib64/{library}.so.{V}": elf(f"{library}.so.1", **facts)}  # type: ignore[arg-type]


def cuda(version: str, env: str = "") -> Spec:
    """An image with that CUDA toolkit."""
    return {**glibc(), **sandbox(env), "/usr/local/cuda/version.json": f'{{"cuda": {{"version": "{version}"}}}}'}


def compat(cuda_version: str = "12.8", drivers: Sequence[int] = (535, 550), *, first: bool = True) -> Spec:
    """CUDA's forward compatibility package in an image for CUDA 12.8; *first* if its directory is configured."""
    libcuda = elf("libcuda.so.1", cuda_note=CudaNote(cuda_version, tuple(drivers)))
    return {
        **cuda("12.8.0"),
        "/usr/local/cuda/compat/libcuda.so.570.86.10": libcuda,
        "/usr/local/cuda/compat/libcuda.so.1": Link("libcuda.so.570.86.10"),
        **({"/etc/ld.so.conf": "/usr/local/cuda/compat\n"} if first else {}),
    }


def program(**facts: object) -> Spec:
    """A program of one's own in an image."""
    return {**glibc(), SELF_MADE: File(elf(kind=2, **facts), 0o755)}  # type: ignore[arg-type]


def runs(spec: Spec, name: str = SELF_MADE) -> Situation:
    """*name* started in the image of *spec*."""
    return Situation(HOST, image(spec), program=name)


SITE = "/usr/lib/python3/dist-packages"
PYTHON: Spec = {"/usr/bin/python3": Link("python3.11"), "/usr/bin/python3.11": File(elf(kind=2), 0o755)}
CUDNN: Spec = {f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9": elf("libcudnn.so.9")}


def broken_torch(cuda_version: str = "12.4") -> Spec:
    """PyTorch in a system's Python, without the wheel that has cuDNN."""
    return {
        **glibc(),
        f"{SITE}/torch/version.py": f"cuda: Optional[str] = '{cuda_version}'\n",
        f"{SITE}/torch/lib/libtorch_cuda.so": elf("libtorch_cuda.so", needed=("libcudnn.so.9", "libcuda.so.1")),
    }


H100: Spec = {f"/sys/bus/pci/devices/0000:0{number}:00.0/device": "0x2330\n" for number in (1, 2)}


def with_code(*archs: str, lacks: int = 0) -> Image:
    """An image whose PyTorch has code for *archs*, and after it a container that lacks its last bytes."""
    section = container(*archs) + (container("sm_70")[:-lacks] if lacks else b"")
    torch = elf("libtorch_cuda.so", more={".nv_fatbin": section})
    return image_with_bytes(glibc(), {f"{SITE}/torch/lib/libtorch_cuda.so": torch})


ROCM_RELEASE: Spec = {"/opt/rocm/.info/version": "6.2.0"}
CUDA_RELEASE: Spec = {"/usr/local/cuda/version.txt": "CUDA Version 12.4"}
OLDER = (glibc("2.36"), c_library("2.36"))


def newer(opened: Optional[Image], *, libraries: Sequence[str] = LIBRARIES, libc: str = "host") -> Situation:
    """A host with glibc 2.41 that has *libraries*, and that the image's programs shall run on."""
    host = {"/lib": Link("usr/lib"), **c_library("2.41", libraries, private=("__kept",))}
    return Situation((*HOST, host), opened, {"libc": libc})


def packed(opened: Optional[Image]) -> Situation:
    """The same with a C library whose relocations are packed."""
    situation = newer(opened)
    libm = elf("libm.so.6", needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.41", "GLIBC_ABI_DT_RELR")})
    return situation._replace(parts=(*situation.parts, {f"{LIB}/libm.so.6": libm}))


def binutils(version: str) -> Spec:
    """A linker, as Debian has it."""
    return {f"{LIB}/libbfd-{version}-system.so": elf(f"libbfd-{version}-system.so")}


def private(symbol: str) -> Spec:
    """A library of nobody's that uses a private symbol of glibc's."""
    needs = {"libc.so.6": ("GLIBC_2.4", "GLIBC_PRIVATE")}
    return {f"{LIB}/libtrace.so": elf("libtrace.so", needed=("libc.so.6",), needs=needs, private=(symbol,))}


MACHINE = recorded_tree({"/home/me/a.out": File(elf(kind=2, needed=("libc.so.6",)), 0o755)})

NO_LIBCUDA = without(rhel(), *(path for path in rhel() if "/libcuda.so" in path), "/etc/ld.so.cache")
GRAPHICS = {"caps": ("graphics",)}
NEW_GLVND = {
    f"/usr/lib64/{name}": elf(name, needs={"libc.so.6": ("GLIBC_2.38",)})
    for name in ("libEGL.so.1", "libGL.so.1", "libGLdispatch.so.0")
}
EGL_MANIFEST = {
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": (
        '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}'
    )
}
DRAWS = Situation(
    (*HOST, EGL_MANIFEST),
    image_with_bytes(program(more={".rodata": b"\0libvulkan.so.1\0"}), GLVND),
    program=SELF_MADE,
)
"""A program that opens Vulkan's loader."""
LOADS = Prediction("loads", "/.gpubind/libs/libcuda.so.1", (), True)
SEEN = tuple(Trial("bwrap", (TrialOutcome(LOADS, succeeded, "it says so"),)) for succeeded in (False, True))
REQUIRE = 'export NVIDIA_REQUIRE_CUDA="${NVIDIA_REQUIRE_CUDA:-"%s"}"'
LIBS: Spec = {"/.singularity.d/libs": Dir()}
NO_LAYERS = {"enable overlay": ("no",), "enable underlay": ("no",)}

IMAGES: dict[str, Case] = {
    "policy-undecided": Case(
        Situation(HOST, image(cuda("12.4.0")), policy='gpus = ["sm_80"]'),
        Situation(HOST, image(glibc()), policy='gpus = ["sm_80"]'),
    ),
    "policy-violated": Case(
        Situation(HOST, image(cuda("12.4.0")), policy='driver = "520"'),
        Situation(HOST, image(cuda("12.4.0")), policy='driver = "525"'),
    ),
    "prediction-wrong": Case(
        Situation(HOST, image(glibc()), trial=SEEN[0]), Situation(HOST, image(glibc()), trial=SEEN[1])
    ),
    "try-failed": Case(
        Situation(HOST, image(glibc()), trial=Trial("bwrap", failure="it said nothing")),
        Situation(HOST, image(glibc()), trial=Trial("bwrap")),
    ),
    "bad-require": Case(
        Situation(HOST, image(cuda("12.4.0", REQUIRE % "cuda>>12"))),
        Situation(HOST, image(cuda("12.4.0", REQUIRE % "cuda>=12 cuda>>12"))),
    ),
    "compat-harmful": Case(
        Situation(HOST, image(compat(drivers=(535,))), {"cuda_compat": "image"}),
        Situation(HOST, image(compat(drivers=(535,)))),
    ),
    "compat-ignored": Case(
        Situation(HOST, image(compat(first=False)), {"cuda_compat": "host"}),
        Situation(HOST, image(compat(first=False))),
    ),
    "compat-used": Case(
        Situation(HOST, image(compat())),
        Situation(HOST, image(compat()), {"cuda_compat": "host"}),
    ),
    "cuda-minor-version": Case(
        Situation(HOST, image(cuda("12.6.1"))),
        Situation(HOST, image(cuda("12.4.1"))),
    ),
    "cuda-too-new": Case(
        Situation(HOST, image(cuda("13.0.0"))),
        Situation(HOST, image(cuda("12.9.0"))),
    ),
    "driver-in-image": Case(
        Situation(HOST, image(glibc(), {LIBCUDA: elf("libcuda.so.1")})),
        Situation(HOST, image(glibc(), {LIBCUDA: b""})),
    ),
    "framework-library": Case(Situation(HOST, image(broken_torch())), Situation(HOST, image(broken_torch(), CUDNN))),
    "gpu-code-missing": Case(
        Situation((*HOST, H100), with_code("sm_80", "compute_100")), Situation((*HOST, H100), with_code("sm_90a"))
    ),
    "gpu-code-unread": Case(
        Situation((*HOST, H100), with_code("sm_80", lacks=8)), Situation((*HOST, H100), with_code("sm_90", lacks=8))
    ),
    "image-architecture": Case(
        Situation(HOST, image(glibc(machine=183))),
        Situation(HOST, image(glibc(machine=62))),
    ),
    "image-gcompat": Case(Situation(HOST, image(MUSL, GCOMPAT)), Situation(HOST, image(glibc(), GCOMPAT))),
    "image-libc": Case(
        Situation((*HOST, needing("libcuda", needs={"libc.so.6": ("GLIBC_2.38",)})), image(glibc("2.36"))),
        Situation((*HOST, needing("libcuda", needs={"libc.so.6": ("GLIBC_2.36",)})), image(glibc("2.36"))),
    ),
    "libc-host": Case(newer(image(*OLDER)), newer(image(*OLDER), libc="image")),
    "libc-linker": Case(packed(image(*OLDER, binutils("2.35.2"))), packed(image(*OLDER, binutils("2.40")))),
    # A file of the image's wants what the host's C library does not give to its own parts, or does.
    "libc-private": Case(newer(image(*OLDER, private("__gone"))), newer(image(*OLDER, private("__kept")))),
    "libc-refused": Case(
        newer(image(*OLDER), libraries=("libm.so.6",)),
        newer(image(*OLDER), libraries=("libm.so.6",), libc="image"),
    ),
    "libc-without-image": Case(newer(None), newer(image(*OLDER))),
    "image-of-other-vendor": Case(
        Situation(HOST, image(glibc(), ROCM_RELEASE)), Situation(HOST, image(glibc(), ROCM_RELEASE, CUDA_RELEASE))
    ),
    "image-without-glibc": Case(Situation(HOST, image(MUSL)), Situation(HOST, image(glibc()))),
    "image-env-undecided": Case(
        Situation(HOST, image(glibc(), sandbox("export LD_LIBRARY_PATH=$(find / -name lib)"))),
        Situation(HOST, image(glibc(), sandbox("export LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH"))),
    ),
    "executable-stack": Case(
        Situation((*HOST, needing("libnvcuvid", executable_stack=True)), image(glibc("2.41"))),
        Situation((*HOST, needing("libnvcuvid", executable_stack=True)), image(glibc("2.40"))),
    ),
    "library-missing": Case(
        Situation((*HOST, needing("libcuda", needed=("libX11.so.6",))), image(glibc())),
        Situation(
            (*HOST, needing("libcuda", needed=("libX11.so.6",))),
            image(glibc(), {f"{LIB}/libX11.so.6": elf("libX11.so.6")}),
        ),
    ),
    "library-path-order": Case(
        Situation(
            HOST,
            image(glibc(), sandbox("export LD_LIBRARY_PATH=/opt/lib"), {"/opt/lib/libcuda.so.1": elf("libcuda.so.1")}),
        ),
        Situation(
            HOST,
            image(glibc(), sandbox("export LD_LIBRARY_PATH=/opt/lib"), {"/opt/lib/libfoo.so.1": elf("libfoo.so.1")}),
        ),
    ),
    "library-version": Case(
        Situation(
            (*HOST, needing("libcuda", needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.38",)})),
            image(glibc("2.36")),
            {"like": "apptainer"},
        ),
        Situation(
            (*HOST, needing("libcuda", needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.38",)})),
            image(glibc("2.38")),
            {"like": "apptainer"},
        ),
    ),
    "loader-variable": Case(
        Situation(HOST, image(glibc(), sandbox("export VK_ICD_FILENAMES=/opt/own/icd.json"))),
        Situation(
            HOST,
            image(
                glibc(),
                sandbox("export VK_ICD_FILENAMES=/opt/own/icd.json"),
                {"/opt/own/icd.json": '{"ICD": {"library_path": "libGLX_nvidia.so.0"}}'},
            ),
        ),
    ),
    "manifest-dangling": Case(
        Situation(
            (*HOST, {"/etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n"}),
            image(glibc()),
        ),
        Situation(
            (*HOST, {"/etc/OpenCL/vendors/nvidia.icd": "libcuda.so.1\n"}),
            image(glibc()),
        ),
    ),
    "ptx-too-new": Case(
        Situation((*HOST, H100), with_code("sm_80", "compute_80@8.8")),
        Situation((*HOST, H100), with_code("sm_80", "compute_80@8.4")),
    ),
    "require-undecided": Case(
        Situation(HOST, image(cuda("12.4.0", REQUIRE % "cuda>=12.8 brand=tesla,driver>=550"))),
        Situation(HOST, image(cuda("12.4.0", REQUIRE % "cuda>=12.4 brand=tesla,driver>=550"))),
    ),
    "require-unsatisfied": Case(
        Situation(HOST, image(cuda("12.4.0", REQUIRE % "cuda>=12.8 brand=tesla,driver>=560"))),
        Situation(
            HOST,
            image(cuda("12.4.0", REQUIRE % "cuda>=12.8" + "\nexport NVIDIA_DISABLE_REQUIRE=1")),
        ),
    ),
    "stub-in-image": Case(
        Situation((NO_LIBCUDA, kernel()), image(glibc(), {"/usr/lib/libcuda.so.1": stub()})),
        Situation((NO_LIBCUDA, kernel()), image(glibc(), {"/usr/lib/libcuda.so.1": stub(imports=("ioctl",))})),
    ),
    "vendor-neutral-missing": Case(
        Situation(
            (*HOST, NEW_GLVND),
            image(glibc("2.36")),
            GRAPHICS,
        ),
        Situation(
            (*HOST, NEW_GLVND),
            image(glibc("2.36"), GLVND),
            GRAPHICS,
        ),
    ),
}

PLANS: dict[str, Case] = {
    "companion-missing": Case(
        Situation((without(rhel(), *(path for path in rhel() if "ptxjit" in path), "/etc/ld.so.cache"), kernel())),
        Situation((rhel(), kernel())),
    ),
    "manifest-missing": Case(
        Situation((rhel(), kernel()), request=GRAPHICS),
        Situation(
            (
                rhel(),
                kernel(),
                EGL_MANIFEST,
            ),
            request=GRAPHICS,
        ),
    ),
}

PROGRAMS: dict[str, Case] = {
    "capability-not-asked": Case(DRAWS._replace(request={"caps": ("compute",)}), DRAWS),
    "imports-not-checked": Case(
        runs({**glibc(), **PYTHON}, "python3"), runs({**glibc(), **PYTHON, **broken_torch(), **CUDNN}, "python3")
    ),
    "program-driver": Case(
        runs({**program(needed=("libcuda.so.1",), rpath="/opt/drv"), "/opt/drv/libcuda.so.1": elf("libcuda.so.1")}),
        runs({**program(needed=("libcuda.so.1",), runpath="/opt/drv"), "/opt/drv/libcuda.so.1": elf("libcuda.so.1")}),
    ),
    "program-interpreter": Case(
        runs(program(interpreter="/lib/ld-musl-x86_64.so.1")), runs(program(interpreter="/lib64/ld-linux-x86-64.so.2"))
    ),
    "program-library-missing": Case(
        runs(program(needed=("libcudnn.so.9", "libcuda.so.1"))), runs(program(needed=("libcuda.so.1", "libc.so.6")))
    ),
    "program-library-version": Case(
        runs(program(needed=("libc.so.6",), needs={"libc.so.6": (GLIBC[-1],)})),
        runs(program(needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.36",)})),
    ),
    "program-missing": Case(
        runs(
            {**glibc(), SELF_MADE: File(b"#!/usr/bin/env python3\n", 0o755), "/usr/bin/env": File(elf(kind=2), 0o755)}
        ),
        runs({**glibc(), SELF_MADE: File(b"#!/bin/sh\n", 0o755)}),
    ),
    "program-on-host": Case(
        Situation(
            HOST, image(glibc()), program="/home/me/a.out", usual=bringing(caller={"home": "/home/me"}), local=MACHINE
        ),
        Situation(
            HOST,
            image(glibc()),
            program="/home/me/a.out",
            start=bringing(caller={"home": "/home/me"}),
            local=MACHINE,
            backend="apptainer",
        ),
    ),
    "program-unreadable": Case(
        runs({**glibc(), SELF_MADE: File(elf(kind=2, needed=("libc.so.6",))[:100], 0o755)}),
        runs({**glibc(), SELF_MADE: File(elf(kind=2, needed=("libc.so.6",)), 0o755)}),
    ),
    "program-not-executable": Case(
        runs({**glibc(), SELF_MADE: File(elf(kind=2), 0o644)}), runs({**glibc(), SELF_MADE: File(elf(kind=2), 0o755)})
    ),
}

RUNTIMES: dict[str, Case] = {
    "binds-forbidden": Case(
        Situation(HOST, backend="apptainer", start=start(site_config={"user bind control": ("no",)})),
        Situation(HOST, backend="apptainer", start=start(site_config={"user bind control": ("yes",)})),
    ),
    "daemon-unreachable": Case(
        Situation(HOST, backend="docker", start=start_by("docker", silence="Cannot connect to the Docker daemon")),
        Situation(HOST, backend="docker", start=start_by("docker")),
    ),
    "devices-not-isolated": Case(
        Situation(HOST, backend="apptainer", start=start()),
        Situation(HOST, backend="apptainer", start=start("--contain")),
    ),
    "image-unknown": Case(
        Situation(HOST, backend="apptainer", start=start()),
        Situation(HOST, image(glibc()), backend="apptainer", start=start()),
    ),
    "container-outlives-driver": Case(
        Situation(HOST, image(glibc()), backend="docker", start=start_by("docker")._replace(restarts="warning")),
        Situation(HOST, image(glibc()), backend="docker", start=start_by("docker")),
    ),
    "library-path-last": Case(
        Situation(HOST, backend="singularity", start=start("--no-eval", program="singularity")),
        Situation(HOST, image(glibc()), backend="singularity", start=start("--no-eval", program="singularity")),
    ),
    "lost-choice": Case(
        Situation(HOST, backend="apptainer", start=start("--cleanenv", environ=ONE_GPU, on_host=True)),
        Situation(HOST, backend="apptainer", start=start(environ=ONE_GPU, on_host=True)),
    ),
    "no-dev": Case(
        Situation(HOST, backend="apptainer", start=start("--no-mount", "tmp,dev")),
        Situation(HOST, backend="apptainer", start=start("--no-mount", "tmp")),
    ),
    "no-mount-point": Case(
        Situation(HOST, image(glibc(), LIBS), backend="apptainer", start=start(site_config=NO_LAYERS)),
        Situation(HOST, image(glibc(), LIBS), backend="apptainer", start=start()),
    ),
    "no-read-only-bind": Case(
        Situation(HOST, image(glibc()), backend="proot", start=start_by("proot")),
        Situation(HOST, image(glibc()), backend="systemd-nspawn", start=start_by("systemd-nspawn")),
    ),
    "runtime-limit": Case(
        Situation((rhel(), kernel()), facts={"root": "/mnt/a:b"}, backend="apptainer", start=start()),
        Situation((rhel(), kernel()), facts={"root": "/mnt/a-b"}, backend="apptainer", start=start()),
    ),
    "udocker-container": Case(
        Situation(HOST, backend="udocker", start=start_by("udocker")),
        Situation(HOST, backend="podman", start=start_by("podman")),
    ),
    "udocker-tools": Case(
        Situation(HOST, backend="udocker", start=start_by("udocker", tools=())),
        Situation(HOST, backend="udocker", start=start_by("udocker", tools=(HostPath("/usr/bin/proot"),))),
    ),
}

CASES = {**IMAGES, **PLANS, **PROGRAMS, **RUNTIMES}
