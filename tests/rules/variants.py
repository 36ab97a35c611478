"""Other cases of findings: where a rule fires for another reason, or about something else."""

from __future__ import annotations

from gpubind.model.requirements import Expectation
from gpubind.model.trial import Prediction, Trial, TrialOutcome
from tests.rules.cases_amd import amd
from tests.rules.cases_engines import (
    DOCKER,
    ENFORCING,
    PODMAN,
    PODMAN_HOOK,
    PROGRAM,
    TOOLKIT,
    config,
    daemon,
    on,
    versions,
)
from tests.rules.cases_host import (
    cdi,
    healthy,
    information,
    mig,
)
from tests.rules.cases_image import (
    GRAPHICS,
    HOST,
    LIB,
    SELF_MADE,
    SITE,
    broken_torch,
    needing,
    program,
    runs,
)
from tests.rules.cases_intel import intel
from tests.rules.situations import Situation
from tests.support.amd import kernel as amds_kernel
from tests.support.amd import opt
from tests.support.driver import kernel
from tests.support.elf import elf, stub
from tests.support.images import glibc, image, image_with_bytes, sandbox
from tests.support.starts import bringing
from tests.support.trees import Dir, File

GONE = {"nvidia": {"path": "/opt/nvidia-container-runtime"}}
GRAPHICS_TOO = {"caps": ("compute", "utility", "graphics")}
MANY = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-opticalflow")
OPENS_NGX = image_with_bytes(program(more={".rodata": b"\0libnvidia-ngx.so.1\0"}))
LACKED = Prediction("program", "/opt/none", ("/opt/none",), False, "there is no such file")
CUINIT = Prediction("driver", "cuInit", ("/usr/bin/python3",), False, "uvm-missing: there is no /dev/nvidia-uvm")


def answered(*outcomes: TrialOutcome) -> Situation:
    return Situation(HOST, image(glibc()), trial=Trial("bwrap", outcomes))


VARIANTS: dict[str, Situation] = {
    "capability-not-asked: ngx": Situation(HOST, OPENS_NGX, {"caps": ("compute",)}, program=SELF_MADE),
    "driver-in-image: in-users-path": Situation(
        HOST,
        image(glibc(), sandbox("export LD_LIBRARY_PATH=/opt/own"), {"/opt/own/libcuda.so.1": elf("libcuda.so.1")}),
        start=bringing(LD_LIBRARY_PATH="/opt/own"),
        backend="apptainer",
    ),
    "expected-gpus: more": Situation(healthy(gpus=3), expected=(Expectation(gpus=(("NVIDIA A100", 2),)),)),
    "cdi-disabled: by a setting": on(DOCKER, cdi(), daemon(features={"cdi": False})),
    "cdi-not-read: by docker": on(DOCKER, cdi(), daemon(cdi_spec_dirs=["/srv/cdi"]), **versions()),
    "cuda-too-new: by a variable": Situation(HOST, image(glibc(), sandbox("export CUDA_VERSION=13.0.0"))),
    "cuda-too-new: of a package": Situation(
        HOST, image(glibc(), {f"{SITE}/nvidia_cuda_runtime-13.0.48.dist-info/x": ""})
    ),
    "cuda-minor-version: by a variable": Situation(HOST, image(glibc(), sandbox("export CUDA_VERSION=12.9.0"))),
    "driver-in-image: alone": Situation((kernel(),), image(glibc(), {f"{LIB}/libcuda.so.1": elf("libcuda.so.1")})),
    "hip-visible-composed: none": amd(environ={"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "2"}),
    "hip-visible-composed: two": amd(environ={"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "1,0"}),
    "hip-visible-composed: without UUIDs": Situation(
        (opt(), amds_kernel(uniques=(0,) * 8)),
        request={"vendors": ("amd",)},
        facts={"groups": (44, 110, 1000), "environ": {"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "0"}},
    ),
    "expected-gpus: of any model": Situation(healthy(gpus=1), expected=(Expectation(gpus=(("", 2),)),)),
    "expected-partition: none": Situation(healthy(), expected=(Expectation("node.toml", partitions=("SPX", "NPS1")),)),
    "gpu-runtime-missing: default": on(DOCKER, daemon(data_root="/x", default_runtime="kata"), backend="docker"),
    "gpu-runtime-missing: every": on(DOCKER, daemon(default_runtime="nvidia", runtimes=GONE), backend="docker"),
    "gpu-runtime-missing: program": on(DOCKER, daemon(runtimes=GONE)),
    "kfd-missing: node": amd(lacks=("/dev/kfd", "/sys/class/kfd", "/sys/devices/virtual/kfd")),
    "library-path-order: working-directory": Situation(HOST, image(glibc(), sandbox("export LD_LIBRARY_PATH=/opt/x:"))),
    "mps-other-user: its directory": Situation(
        healthy({"/tmp/mps": Dir(), "/tmp/mps/nvidia-cuda-mps-control.pid": "1\n"}),
        facts={"environ": {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}},
    ),
    "selinux-devices: of docker": on(DOCKER, ENFORCING, daemon(selinux_enabled=True)),
    "stub-in-image: libcuda.so": Situation(HOST, image(glibc(), {"/usr/lib/libcuda.so": stub()})),
    "toolkit-cgroups: rootless": on(PODMAN, PODMAN_HOOK, TOOLKIT, config("")),
    "toolkit-missing: base": on(DOCKER, {"/usr/bin/nvidia-container-runtime": PROGRAM}),
    "fabric-manager-missing: by-its-directory": Situation(healthy({"/proc/driver/nvidia-nvswitch/devices/0": ""})),
    "framework-library: two": Situation(HOST, image(broken_torch("11.8"))),
    "gpu-excluded: last": Situation(healthy(information(excluded="Yes"), gpus=1)),
    "imports-not-checked: archive": runs({**glibc(), "/usr/bin/java": File(elf(kind=2), 0o755)}, "java"),
    "intel-unusable: no-driver": intel(lacks="i915/0000:4d:00.0"),
    "level-zero-incomplete: loader": intel(image=image(glibc("2.36"), {f"{LIB}/libze_intel_gpu.so.1": elf("x")})),
    "library-missing: many": Situation(
        (*HOST, *(needing(name, needed=("libX11.so.6",)) for name in MANY)), image(glibc())
    ),
    "library-missing: not-asked": Situation(
        (*HOST, needing("libnvidia-ptxjitcompiler", needed=("libnvcuvid.so.1",))),
        image(glibc()),
        {"caps": ("compute",)},
    ),
    "library-version: many": Situation(
        (*HOST, *(needing(name, needed=("libc.so.6",), needs={"libc.so.6": ("GLIBC_2.38",)}) for name in MANY)),
        image(glibc("2.36")),
        {"like": "apptainer"},
    ),
    "prediction-wrong: program-found": answered(TrialOutcome(LACKED, True, "")),
    "prediction-wrong: program-missing": answered(TrialOutcome(LACKED._replace(succeeds=True), False, "no such file")),
    "prediction-wrong: driver-works": answered(TrialOutcome(CUINIT, True, "devices: 2")),
    "prediction-wrong: driver-fails": answered(TrialOutcome(CUINIT._replace(succeeds=True), False, "999")),
    "program-library-missing: packaged": runs(program(needed=("libOpenCL.so.1",))),
    "program-library-missing: not-asked": runs(program(needed=("libnvcuvid.so.1",)))._replace(
        request={"caps": ("compute",)}
    ),
    "program-library-missing: of-release": runs(program(needed=("libamdhip64.so.6",))),
    "program-library-missing: forbidden": runs(
        {**program(needed=("/opt/libown.so.1",)), "/opt/libown.so.1": File(elf("libown.so.1"), 0o000)}
    ),
    "stub-in-image: nvml-behind": Situation(
        HOST, image(glibc(), {"/usr/lib/libnvidia-ml.so.1": stub("libnvidia-ml.so.1")})
    ),
    "vendor-neutral-missing: absent": Situation(HOST, image(glibc()), GRAPHICS),
    "mig-mode: without-instance": Situation(healthy(mig(("gi1", "gi2"), ()), gpus=1)),
    "mig-mode: beside-whole": Situation(healthy(mig(), gpus=2)),
}
