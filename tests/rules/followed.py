"""What comes of following a finding's hint: what of the hint is followed, and the situation after.

Where a command mends it, the command itself is run, by `rules.programs`; what only a person can do is not here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpubind.model import RootedPath
from gpubind.runtimes.cmdline.reader import UserOptionValues
from tests.rules import cases_amd, cases_engines, cases_host, cases_image, cases_intel
from tests.rules.cases_host import K80, NIX, WHOLE_LIST, healthy, on_the_bus, site_list
from tests.rules.cases_image import LIB, cuda, program, runs
from tests.rules.situations import Case, Situation
from tests.support.driver import kernel, rhel
from tests.support.elf import elf
from tests.support.images import GLVND, glibc, image
from tests.support.starts import bringing, start, start_by
from tests.support.trees import File, Spec, recorded_tree

MODULES = (cases_host, cases_image, cases_amd, cases_engines, cases_intel)
CASES: dict[str, Case] = {code: case for module in MODULES for code, case in module.CASES.items()}


class Followed(NamedTuple):
    """A hint that was followed."""

    says: str
    """What the hint says of it."""
    then: Situation


def almost(code: str, says: str) -> Followed:
    """Following the hint leads to the situation in which it is almost so."""
    return Followed(says, CASES[code].almost)


def with_request(code: str, says: str, **request: Any) -> Followed:
    fires = CASES[code].fires
    return Followed(says, fires._replace(request={**fires.request, **request}))


def with_environ(code: str, says: str, **environ: str) -> Followed:
    fires = CASES[code].fires
    return Followed(says, fires._replace(facts={**fires.facts, "environ": {**fires.facts["environ"], **environ}}))


def with_parts(code: str, says: str, *parts: Spec) -> Followed:
    fires = CASES[code].fires
    return Followed(says, fires._replace(parts=(*fires.parts, *parts)))


def with_image(code: str, says: str, *specs: Spec) -> Followed:
    return Followed(says, CASES[code].fires._replace(image=image(*specs)))


MODULE = RootedPath("/opt/apps/lib64")
BACKENDS = CASES["devices-not-isolated"].fires
UUIDS = "GPU-00000001-1111-2222-3333-444444444444"
STORE = recorded_tree({NIX: File(elf("ld-linux-x86-64.so.2", kind=3), 0o755)})
NEWER = {"libc.so.6": ("GLIBC_2.38",)}
MANIFESTS: Spec = {
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": (
        '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}'
    )
}

FOLLOWED: dict[str, Followed] = {
    # Options of gpubind, of the runtime, and of the user.
    "amd-groups": Followed(
        "--group-add keep-groups",
        cases_amd.amd(backend="podman", image=cases_amd.WITH_ROCM)._replace(
            start=start_by("podman", options=UserOptionValues({"group-add": ("keep-groups",)}))
        ),
    ),
    "intel-groups": Followed(
        "let the container keep the groups",
        cases_intel.intel(backend="podman")._replace(
            start=start_by("podman", options=UserOptionValues({"group-add": ("keep-groups",)}))
        ),
    ),
    "capability-not-asked": with_request(
        "capability-not-asked", "--caps compute,graphics", caps=("compute", "graphics")
    ),
    "compat-harmful": with_request("compat-harmful", "--cuda-compat host", cuda_compat="host"),
    "compat-ignored": with_request("compat-ignored", "--cuda-compat image", cuda_compat="image"),
    "typical-host": almost("typical-host", "check on the machine itself, or with its record"),
    "dev-root-assumed": almost("dev-root-assumed", "name the tree with the nodes by --dev-root"),
    "devices-not-isolated": almost("devices-not-isolated", "--contain"),
    "foreign-interpreter": Followed(
        "bind /nix, read-only",
        CASES["foreign-interpreter"].fires._replace(image=image(glibc()), start=bringing("/nix"), local=STORE),
    ),
    "gpu-forbidden": with_request("gpu-forbidden", "choose a GPU that the job has", gpus="1"),
    "gpu-uuid-unknown": almost("gpu-uuid-unknown", "choose with --gpus by PCI address"),
    "container-outlives-driver": almost("container-outlives-driver", "run --rm"),
    "image-unknown": almost("image-unknown", "name the image with --image"),
    "libc-host": almost("libc-host", "omit --libc"),
    "libc-without-image": almost("libc-without-image", "name the image with --image"),
    "library-path-last": Followed(
        "leave out --no-eval",
        CASES["library-path-last"].fires._replace(start=start(program="singularity")),
    ),
    "like-one-vendor": with_request("like-one-vendor", "request one of the two", vendors=("nvidia",)),
    "lost-choice": with_request("lost-choice", 'or `gpubind exec --gpus "$CUDA_VISIBLE_DEVICES"`', gpus="1"),
    "name-collision": with_request("name-collision", "give --libdir another directory", libdir="/.gpubind/libs"),
    "no-dev": almost("no-dev", "leave out --no-mount dev"),
    "program-on-host": almost("program-on-host", "--backend"),
    "slurm-gpu-ambiguous": with_request("slurm-gpu-ambiguous", "ask for one vendor (--nv", vendors=("nvidia",)),
    "source-failed": almost("source-failed", "leave --source out"),
    "userspace-unknown": almost("userspace-unknown", "--userspace host"),
    "vendor-neutral-left-out": Followed(
        "name the image with --image", CASES["vendor-neutral-left-out"].fires._replace(image=image(glibc(), GLVND))
    ),
    # What a node is to have.
    "expected-capability": almost("expected-capability", "correct what is expected"),
    "expected-driver": almost("expected-driver", "correct what is expected"),
    "expected-library": with_parts("expected-library", "reinstall the driver's packages", *healthy()),
    "expected-partition": almost("expected-partition", "correct what is expected"),
    # Variables.
    "gpu-order-unknown": with_environ(
        "gpu-order-unknown", "CUDA_DEVICE_ORDER=PCI_BUS_ID", CUDA_DEVICE_ORDER="PCI_BUS_ID"
    ),
    "hip-visible-composed": Followed(
        "set only one of the two variables: ROCR_VISIBLE_DEVICES", cases_amd.amd(environ={"ROCR_VISIBLE_DEVICES": "3"})
    ),
    "hsa-override": Followed("or unset it", cases_amd.amd(image=cases_amd.WITH_ROCM)),
    "mig-mode": almost("mig-mode", "CUDA_VISIBLE_DEVICES=MIG-<UUID>"),
    "mig-unresolved": almost("mig-unresolved", "MIG-GPU-<uuid>/1/0"),
    "loader-variable": with_image("loader-variable", "unset VK_ICD_FILENAMES", glibc()),
    "rocm-path": Followed("unset the variable", cases_amd.amd()),
    "rocr-visible-cut": Followed("name each GPU once", cases_amd.amd(environ={"ROCR_VISIBLE_DEVICES": "0,1"})),
    "visible-devices-none": Followed("unset the variable", Situation(healthy())),
    "visible-devices-unknown": with_environ("visible-devices-unknown", UUIDS, CUDA_VISIBLE_DEVICES=UUIDS),
    # Images.
    "bad-require": almost("bad-require", "`property operator value`"),
    "cuda-minor-version": almost("cuda-minor-version", "use driver"),
    "cuda-too-new": with_image("cuda-too-new", "use an image for CUDA 12.4 or older", cuda("12.4.0")),
    "driver-in-image": with_image("driver-in-image", "remove the driver from the image", glibc()),
    "executable-stack": almost("executable-stack", "use an image with glibc before 2.41"),
    "image-architecture": almost("image-architecture", "use an image for the host's architecture"),
    "image-env-undecided": almost("image-env-undecided", "plain assignments and exports are understood"),
    "image-libc": with_image("image-libc", "use an image with a newer C library", glibc("2.38")),
    "policy-violated": almost("policy-violated", "let the policy require more"),
    "libc-linker": almost("libc-linker", "use an image with binutils 2.38 or newer"),
    "libc-private": with_request("libc-private", "use --libc image", libc="image"),
    "libc-refused": almost("libc-refused", "use --libc image"),
    "image-gcompat": almost("image-gcompat", "use an image with glibc"),
    "image-without-glibc": almost("image-without-glibc", "use an image with glibc"),
    "gpu-code-missing": almost("gpu-code-missing", "use an image in which PyTorch has code for sm_90"),
    "image-of-other-vendor": almost("image-of-other-vendor", "use an image that was built for the GPUs of the host"),
    "rocm-untested": almost("rocm-untested", "or install the kernel driver of a newer ROCm on the host"),
    "synapse-mismatch": almost("synapse-mismatch", "or install habanalabs-dkms 1.24.0 on the host"),
    "ptx-too-new": almost("ptx-too-new", "machine code for sm_90"),
    "framework-library": almost("framework-library", "install the packages that contain them alongside PyTorch"),
    "intel-gpu-unknown": almost("intel-gpu-unknown", "use an image with a newer compute runtime"),
    "intel-video-unknown": almost("intel-video-unknown", "use an image with a newer intel-media-driver"),
    "level-zero-incomplete": almost("level-zero-incomplete", "install the driver's package in the image again"),
    "library-missing": almost("library-missing", "install libX11.so.6 in the image"),
    "library-version": almost("library-version", "use an image with a newer"),
    "library-path-order": almost("library-path-order", "remove the copies from the image"),
    "no-mount-point": with_image(
        "no-mount-point",
        "make the mount points in the image",
        glibc(),
        cases_image.LIBS,
        {f"/.singularity.d/libs/{name}": b"" for name in ("libcuda.so.1",)},
        dict.fromkeys(("/usr/bin/nvidia-smi", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"), b""),
    ),
    "program-driver": with_image(
        "program-driver", "remove the driver from the image", program(needed=("libcuda.so.1",), rpath="/opt/drv")
    ),
    "program-interpreter": almost("program-interpreter", "use a program that was built for the C library"),
    "program-library-missing": with_image(
        "program-library-missing",
        "install libcudnn.so.9 in the image",
        program(needed=("libcudnn.so.9", "libcuda.so.1")),
        {f"{LIB}/libcudnn.so.9": elf("libcudnn.so.9")},
    ),
    "program-library-version": almost("program-library-version", "build the program for this one"),
    "program-missing": Followed(
        "install it in the image",
        runs(
            {
                **glibc(),
                cases_image.SELF_MADE: File(b"#!/usr/bin/env python3\n", 0o755),
                "/usr/bin/env": File(elf(kind=2), 0o755),
                "/usr/bin/python3": File(elf(kind=2), 0o755),
            }
        ),
    ),
    "program-not-executable": almost("program-not-executable", "chmod a+rx"),
    "require-unsatisfied": almost("require-unsatisfied", "NVIDIA_DISABLE_REQUIRE=1"),
    "stub-in-image": with_image("stub-in-image", "remove the stub from the image", glibc()),
    "userspace-conflict": almost("userspace-conflict", "in the image"),
    "userspace-left-out": almost(
        "userspace-left-out", "use an image that contains ROCm, or one with a C library as new as the host's"
    ),
    "userspace-missing": almost("userspace-missing", "use an image with ROCm"),
    "vendor-neutral-missing": almost("vendor-neutral-missing", "install its package in the image"),
    # Files and packages of the host.
    "bad-cdi": with_parts("bad-cdi", "regenerate it", cases_host.cdi()),
    "bad-filelist": Followed("install the driver's package again", Situation(healthy())),
    "tegra": Followed("install the board's lists", CASES["tegra"].almost),
    "bad-tegra-list": Followed("correct the line", Situation(healthy())),
    "bad-icd": with_parts("bad-icd", "install the driver's package again", MANIFESTS),
    "binds-forbidden": almost("binds-forbidden", "`user bind control = yes`"),
    "cdi-conflict": Followed("keep only one of the files", Situation(healthy(cases_host.cdi()))),
    "cdi-disabled": with_parts(
        "cdi-disabled", '"features": {"cdi": true}', cases_engines.daemon(features={"cdi": True})
    ),
    "cdi-missing": with_parts("cdi-missing", "-o /etc/cdi/nvidia.json", cases_host.cdi()),
    "cdi-not-read": Followed(
        "move the files to a directory that it reads",
        cases_engines.on(cases_engines.PODMAN, cases_engines.spec("0.5.0")),
    ),
    "cdi-too-new": with_parts("cdi-too-new", "regenerate it in an older version", cases_engines.spec("0.5.0")),
    "daemon-unreachable": almost("daemon-unreachable", "systemctl start docker"),
    "docker-snap": with_parts("docker-snap", "install docker as a package", cases_engines.DOCKER),
    "engine-config": almost("engine-config", "correct the file"),
    "gpu-runtime-missing": almost("gpu-runtime-missing", "nvidia-ctk runtime configure --runtime=docker"),
    "selinux-devices": almost("selinux-devices", "setsebool -P container_use_xserver_devices 1"),
    "toolkit-cgroups": almost("toolkit-cgroups", "no-cgroups=false"),
    "toolkit-missing": with_parts("toolkit-missing", "install nvidia-container-toolkit", cases_engines.TOOLKIT),
    "companion-missing": almost("companion-missing", "install the driver's package that contains"),
    "gbm-backend-missing": Followed(
        "install the driver's package with libnvidia-allocator", Situation(healthy(), request=cases_host.GRAPHICS)
    ),
    "gpu-unsupported": Followed(
        "install a driver of branch 470",
        Situation((rhel("470.256.02"), kernel("470.256.02", gpus=1), on_the_bus(K80, module="nvidia"))),
    ),
    "gpu-without-driver": with_parts("gpu-without-driver", "install the driver", rhel(), kernel()),
    "library-unreadable": almost("library-unreadable", "reinstall the driver's package"),
    "like-collision": almost("like-collision", "remove one of the two from the list"),
    "like-entry": almost("like-entry", "remove the entry from the list"),
    "manifest-dangling": with_parts(
        "manifest-dangling",
        "add the library to the list",
        {"/usr/lib64/libnvidia-opencl.so.1": elf("libnvidia-opencl.so.1")},
    ),
    "manifest-missing": almost("manifest-missing", "install the driver's package with the manifest"),
    "no-libcuda": with_parts("no-libcuda", "install the driver's user-space libraries", rhel()),
    "no-nvml": Followed("install the driver's package with NVML", Situation(healthy())),
    "not-in-list": Followed(
        "add them to the list, each on a line: ", Situation(healthy(), listfile=site_list(WHOLE_LIST))
    ),
    "driver-of-module": with_request("driver-of-module", "--library-path /opt/apps/lib64", library_path=(MODULE,)),
    "nvidia-smi-missing": Followed("put its directory into PATH", Situation(healthy())),
    "other-driver-version": Followed("remove the unused version", Situation(healthy())),
    "stale-cdi": with_parts("stale-cdi", "regenerate the spec", cases_host.cdi()),
    "stub-libcuda": Followed("remove the library", Situation(healthy())),
    "gpudirect-not-asked": Followed(
        "NVIDIA_GDRCOPY=enabled",
        CASES["gpudirect-not-asked"].fires._replace(
            facts={"environ": {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_MOFED": "enabled"}}
        ),
    ),
    "udocker-tools": almost("udocker-tools", "UDOCKER_USE_PROOT_EXECUTABLE=/usr/bin/proot"),
    "unlisted-directory": almost("unlisted-directory", "correct the path"),
    "writable-by-others": almost("writable-by-others", "let only root write to"),
}
