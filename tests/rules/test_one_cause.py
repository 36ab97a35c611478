"""One thing is wrong, and exactly one error says so: it names the cause, and nothing that follows from it."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import pytest

from gpubind.image.facts import Image
from tests.rules.cases_host import K80, PCI_GPU, information, lacking, mig, on_the_bus
from tests.rules.cases_image import SELF_MADE, compat, cuda, needing
from tests.rules.situations import Situation, found, in_full, without
from tests.support.amd import kernel as amds_kernel
from tests.support.amd import opt
from tests.support.driver import V, cache, kernel, libraries, rhel
from tests.support.elf import elf, stub
from tests.support.golden import GOLDEN, assert_golden
from tests.support.images import MUSL, glibc, image
from tests.support.starts import start
from tests.support.trees import Dir, File, Node, Spec

LIBCUDA, NVML = f"/usr/lib64/libcuda.so.{V}", f"/usr/lib64/libnvidia-ml.so.{V}"
PTX = f"/usr/lib64/libnvidia-ptxjitcompiler.so.{V}"
CUDA_JOB: dict[str, Any] = {"caps": ("compute", "utility")}
PROGRAM: Spec = {SELF_MADE: File(elf(kind=2, needed=("libcuda.so.1", "libnvidia-ml.so.1", "libc.so.6")), 0o755)}
NEEDS_NVML: Spec = needing("libnvidia-opticalflow", needed=("libnvidia-ml.so.1", "libc.so.6"))
OTHER = "535.54.03"
NO_GPU: Spec = {"/proc/driver/nvidia/gpus": Dir()}


def broken(*more: Spec, gpus: int = 2, lacks: tuple[str, ...] = (), **facts: Any) -> Situation:
    """A CUDA job in a good image on a good host, where a library needs NVML; with *more* that is wrong."""
    parts = (*lacking(*lacks, gpus=gpus), NEEDS_NVML, *more)
    return Situation(parts, request=CUDA_JOB, **{"image": image(glibc(), PROGRAM), "program": SELF_MADE, **facts})


def closed(path: str) -> Spec:
    """*path*, which this user may not read."""
    return {path: File(elf("x"), 0o000)}


def of_other_version(*stems: str) -> tuple[Spec, ...]:
    """The driver's libraries *stems* in another version alone."""
    gone = [path for stem in stems for path in rhel() if path.startswith(f"/usr/lib64/{stem}.so")]
    return (without(rhel(), *gone), libraries("/usr/lib64", OTHER, stems), kernel())


class Cause(NamedTuple):
    """What is wrong, the one error that says it, and a word by which it names it."""

    situation: Situation
    code: str
    names: str


def cause(code: str, names: str, situation: Situation, name: Optional[str] = None) -> Any:
    return pytest.param(
        Cause(situation, code, names), id=name or f"{code}-{names.rsplit(maxsplit=1)[-1].rpartition('/')[2]}"
    )


def amd(*more: Spec, lacks: tuple[str, ...] = ()) -> Situation:
    parts = (without(opt(), *lacks), without(amds_kernel(), *lacks), *more)
    return Situation(parts, request={"vendors": ("amd",), "userspace": "host"}, facts={"groups": (44, 110, 1000)})


def picture(*specs: Spec) -> Image:
    return image(glibc(), *specs)


CAUSES = [
    # The kernel module.
    cause("driver-not-loaded", "no NVIDIA kernel module", Situation((rhel(), kernel(None)), request=CUDA_JOB)),
    cause("driver-mismatch", OTHER, Situation((rhel(OTHER), NEEDS_NVML, kernel()), request=CUDA_JOB)),
    cause(
        "driver-mismatch",
        OTHER,
        Situation((rhel(OTHER), kernel()), picture(PROGRAM), CUDA_JOB, program=SELF_MADE),
        "driver-mismatch-with-a-program-that-needs-libcuda",
    ),
    cause("nouveau", "nouveau", Situation((rhel(), kernel(None), PCI_GPU, {"/sys/module/nouveau": Dir()}))),
    cause("gpu-without-driver", "vfio-pci", Situation((PCI_GPU,))),
    cause("gpu-without-driver", "0000:01:00.0", Situation((rhel(), kernel(None), PCI_GPU)), "beside-the-libraries"),
    cause("gpu-unsupported", "GK210", Situation((rhel(), kernel(None, gpus=0), on_the_bus(K80)))),
    cause("gpu-unsupported", "GK210", broken(NO_GPU, on_the_bus(K80), gpus=0), "beside-the-module"),
    cause(
        "gpu-unsupported",
        "GK210",
        Situation((rhel(), kernel(None, gpus=0), on_the_bus(K80, module="nouveau"), {"/sys/module/nouveau": Dir()})),
        "beside-nouveau",
    ),
    cause("nothing-to-bind", "no NVIDIA", Situation(({},))),
    cause("no-gpu", "no GPU", broken(NO_GPU, gpus=0)),
    cause("gpu-excluded", "there is no other", broken(information(excluded="Yes"), gpus=1)),
    # Nodes.
    cause("control-node-missing", "control node", broken(lacks=("/dev/nvidiactl",))),
    cause("control-node-missing", "is a regular file, not a dev", broken({"/dev/nvidiactl": "text"}), "control-file"),
    cause("uvm-missing", "unified memory", broken(lacks=("/dev/nvidia-uvm",))),
    cause("uvm-missing", "is a directory, not a device node", broken({"/dev/nvidia-uvm": Dir()}), "uvm-directory"),
    cause("uvm-not-loaded", "/dev/nvidia-uvm", broken({"/proc/devices": "Character devices:\n195 nvidia\n"})),
    cause("gpu-node-missing", "0000:01:00.0", broken(gpus=1, lacks=("/dev/nvidia0",))),
    cause("gpu-node-missing", "/dev/nvidia1 is a regular file", broken({"/dev/nvidia1": b""}), "gpu-file"),
    cause("gpu-node-missing", "minor number 9", broken({"/dev/nvidia0": Node("char", 195, 9)}, gpus=1)),
    cause("device-number", "/dev/nvidia0", broken({"/dev/nvidia0": Node("char", 99, 0)}, gpus=1)),
    cause("device-number", "/dev/nvidiactl", broken({"/dev/nvidiactl": Node("char", 99, 255)})),
    cause("device-number", "/dev/nvidia-uvm", broken({"/dev/nvidia-uvm": Node("char", 510, 0)})),
    cause("device-permission", "/dev/nvidia0", broken({"/dev/nvidia0": Node("char", 195, 0, 0o600)}, gpus=1)),
    cause("device-permission", "/dev/nvidiactl", broken({"/dev/nvidiactl": Node("char", 195, 255, 0o600)})),
    cause("device-permission", "/dev/nvidia-uvm", broken({"/dev/nvidia-uvm": Node("char", 235, 0, 0o600)})),
    cause("mig-node-missing", "gpu0/gi1/ci0/access", broken(mig(nodes=(12,)), gpus=1)),
    cause("mig-mode", "no compute instance", broken(mig(("gi1",), ()), gpus=1)),
    # The driver's files.
    cause("no-libcuda", "is unreadable", broken(closed(LIBCUDA)), "no-libcuda-closed"),
    cause("no-libcuda", "0 bytes", broken({LIBCUDA: b""}), "no-libcuda-empty"),
    cause("library-unreadable", LIBCUDA, broken({LIBCUDA: elf("libcuda.so.1")[:40]}), "libcuda-cut-off"),
    cause("no-libcuda", "link editor", broken({LIBCUDA: b"INPUT(-lcuda)"}), "no-libcuda-text"),
    cause(
        "no-libcuda", "aarch64", broken({LIBCUDA: elf("libcuda.so.1", machine=183)}), "no-libcuda-of-another-machine"
    ),
    cause("no-libcuda", "leads nowhere", broken(lacks=(LIBCUDA,)), "no-libcuda-broken-link"),
    cause(
        "no-libcuda",
        "no libcuda.so.1",
        broken(lacks=(LIBCUDA, "/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so", "/etc/ld.so.cache")),
        "no-libcuda-at-all",
    ),
    cause("no-libcuda", "a stub", broken({LIBCUDA: stub()}), "no-libcuda-stub"),
    cause(
        "no-libcuda",
        "no libcuda.so.1",
        broken(lacks=(LIBCUDA, "/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so")),
        "no-libcuda-old-cache",
    ),
    cause("no-nvml", "is unreadable", broken(closed(NVML)), "no-nvml-closed"),
    cause("no-nvml", "0 bytes", broken({NVML: b""}), "no-nvml-empty"),
    cause("no-nvml", "leads nowhere", broken(lacks=(NVML,)), "no-nvml-broken-link"),
    cause(
        "no-nvml", "libnvidia-ml.so.1 does not", broken(lacks=(NVML, "/usr/lib64/libnvidia-ml.so.1")), "no-nvml-at-all"
    ),
    cause("no-nvml", "a stub", broken({NVML: stub("libnvidia-ml.so.1")}), "no-nvml-stub"),
    cause(
        "no-nvml",
        "libnvidia-ml.so.1",
        Situation((*of_other_version("libnvidia-ml"), NEEDS_NVML), picture(PROGRAM), CUDA_JOB, program=SELF_MADE),
        "no-nvml-of-another-version",
    ),
    cause(
        "companion-missing",
        "libnvidia-ptxjitcompiler.so.1",
        broken(lacks=tuple(path for path in rhel() if "ptxjit" in path)),
    ),
    *(
        cause("library-unreadable", "libnvidia-ptxjitcompiler.so.1", broken({PTX: data}), f"companion-{name}")
        for name, data in {"empty": b"", "text": b"not an ELF file", "cut-off": elf("x")[:100]}.items()
    ),
    cause("library-unreadable", "libnvidia-ml.so.1", broken({NVML: elf("libnvidia-ml.so.1")[:100]})),
    # The image.
    cause("image-without-glibc", "musl", Situation((rhel(), kernel()), image(MUSL), CUDA_JOB), "musl"),
    cause("image-architecture", "aarch64", Situation((rhel(), kernel()), image(glibc(machine=183)), CUDA_JOB)),
    cause("cuda-too-new", "CUDA 13", Situation((rhel(), kernel()), image(cuda("13.0.0")), CUDA_JOB)),
    cause(
        "compat-harmful",
        "forward-compatibility",
        Situation((rhel(), kernel()), image(compat(drivers=(535,))), {**CUDA_JOB, "cuda_compat": "image"}),
    ),
    cause(
        "library-missing",
        "libX11.so.6",
        broken(needing("libcuda", needed=("libX11.so.6",)), program=None),
    ),
    cause(
        "program-library-missing",
        "libcudnn.so.9",
        broken(program="/opt/x", image=picture({"/opt/x": File(elf(kind=2, needed=("libcudnn.so.9",)), 0o755)})),
    ),
    cause("program-missing", "/opt/none", broken(program="/opt/none")),
    cause("program-not-executable", SELF_MADE, broken(image=picture({SELF_MADE: File(elf(kind=2), 0o644)}))),
    # The runtime and the environment.
    cause(
        "binds-forbidden",
        "no driver",
        broken(backend="apptainer", start=start(site_config={"user bind control": ("no",)})),
    ),
    cause("no-dev", "/dev", broken(backend="apptainer", start=start("--no-mount", "dev"))),
    cause("visible-devices-unknown", "`7`", broken(facts={"environ": {"CUDA_VISIBLE_DEVICES": "7"}})),
    # AMD.
    cause("kfd-missing", "/dev/kfd", amd(lacks=("/dev/kfd",))),
    cause("amd-render-missing", "renderD136", amd(lacks=("/dev/dri/renderD136",))),
    cause("device-number", "/dev/kfd", amd({"/dev/kfd": Node("char", 5, 0, 0o660, 0, 110)})),
    cause("driver-not-loaded", "amdgpu", Situation((opt(),), request={"vendors": ("amd",)})),
]


def test_there_are_forty_causes() -> None:
    assert len(CAUSES) >= 40


@pytest.mark.parametrize("cause", CAUSES)
def test_one_cause_is_one_error_which_names_it(cause: Cause, request: pytest.FixtureRequest) -> None:
    findings = found(cause.situation)
    errors = [finding for finding in findings if finding.severity == "error"]
    assert [finding.code for finding in errors] == [cause.code], [finding.what for finding in errors]
    assert cause.names in f"{errors[0].what} {errors[0].where} {errors[0].why}"
    assert_golden(GOLDEN / "one_cause.md", in_full(findings), part=request.node.callspec.id)


def test_without_a_cause_there_is_no_error() -> None:
    assert [finding for finding in found(broken()) if finding.severity != "note"] == []


def test_a_cache_of_before_an_update_is_neither_an_error_nor_a_warning_where_all_is_found_all_the_same() -> None:
    old = {"/etc/ld.so.cache": cache(libraries("/usr/lib64", OTHER), ["/usr/lib64"])}
    assert [finding.code for finding in found(broken(old)) if finding.severity != "note"] == []
