"""Whether an image has code for the GPUs of a host: 13 images on 8 GPUs, and what is told of it.

The hosts are the recorded ones with another PCI device ID or KFD version. The architectures are those that were read
of the real files, and equal what `cuobjdump` 13.5 lists of them, except for three: PyTorch for ROCm has the processors
of its release notes, and `nvcc` makes sm_52 and its PTX where nothing is asked for.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple, Optional

import pytest

from gpubind import plan
from gpubind.formats.driver.nvidia import COMPUTE_CAPABILITY_QUERY
from gpubind.host.record import RecordedRun, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.image.facts import Image
from gpubind.model import Finding, Request
from gpubind.model.capability import compute_capability
from gpubind.model.data import read_data
from gpubind.model.gpucode import arch_of_capability
from gpubind.planner.placement import GPUBIND_LAYOUT, SINGULARITY_LAYOUT
from gpubind.rules.preflight import preflight
from gpubind.rules.table import check
from gpubind.runtimes.runtime import Start
from tests.layouts.families.windows import STORE, TOLD, store, wsl
from tests.layouts.families.windows import cache as cache_of_wsl
from tests.rules.situations import in_full
from tests.support import amd as amd_gpus
from tests.support.driver import host as machine_with
from tests.support.elf import elf
from tests.support.golden import GOLDEN, assert_golden
from tests.support.gpucode import container, library, library_of, module
from tests.support.images import glibc, image_with_bytes
from tests.support.starts import start
from tests.support.trees import File, Link, Spec

NVIDIA = {
    "V100": "0x1db6",
    "A100": "0x20b0",
    "RTX 4090": "0x2684",
    "H100": "0x2330",
    "B200": "0x2901",
    "RTX 5090": "0x2b85",
}
AMD = {"MI210": 90010, "MI300X": 90402}
GPUS = (*NVIDIA, *AMD)
SITE = "/usr/lib/python3/dist-packages"
PROGRAM = "/opt/app/solve"
MAIN = f"{SITE}/torch/lib/libtorch_cuda.so"


def recorded(name: str, *, of: str = "", environ: Optional[dict[str, str]] = None, says: str = "") -> RecordedHost:
    """The record of the host *name*, with the GPU *of*, and an nvidia-smi that *says* what the GPUs can do."""
    data: dict[str, Any] = json.loads(read_data(f"model/data/hosts/{name}.json"))
    directories = data["trees"]["driver"]["directories"]
    if of in NVIDIA:
        pci = directories["/sys/bus/pci/devices"]["entries"]
        for address in ("0000:01:00.0", "0000:02:00.0"):
            pci[address] = {"type": "dir"}
            text = {"size": 4096, "text": f"{NVIDIA[of]}\n"}
            directories[f"/sys/bus/pci/devices/{address}"] = {"listed": True, "entries": {"device": text}}
    elif of:
        for path, directory in directories.items():
            if path.startswith("/sys/devices/virtual/kfd/") or "/kfd/topology/nodes/" in path:
                entry = directory["entries"].get("properties")
                if isinstance(entry, dict) and "text" in entry:
                    entry["text"] = entry["text"].replace("gfx_target_version 90402", f"gfx_target_version {AMD[of]}")
    if environ is not None:
        data["environ"] = {**data["environ"], **environ}
    data["runs"] += (
        [{"argv": list(COMPUTE_CAPABILITY_QUERY), "status": 0, "stdout": says, "stderr": ""}] if says else []
    )
    return RecordedHost(parse_record(json.dumps(data).encode()), name)


@cache
def host(gpu: str) -> RecordedHost:
    return recorded("mi300x-rocm62" if gpu in AMD else "debian13-nvidia550", of=gpu)


def code(archs: str) -> bytes:
    """A library with code for these."""
    return library(*archs.split())


def torch(archs: str) -> Spec:
    return {f"{SITE}/torch/lib/libtorch_{'hip' if 'gfx' in archs else 'cuda'}.so": code(archs)}


def program(archs: str) -> Spec:
    return {PROGRAM: File(elf(kind=2, more={".nv_fatbin": container(*archs.split())}), 0o755)}


def bitsandbytes() -> Spec:
    """A library for each CUDA and ROCm, of which one is opened."""
    old, new = "sm_60 sm_70 sm_75 sm_80 sm_86 sm_89 sm_90", "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120"
    amd = "gfx908 gfx90a gfx942 gfx1030 gfx1100"
    kinds = {"cuda118": old, "cuda130": new, "rocm64": amd}
    return {f"{SITE}/bitsandbytes/libbitsandbytes_{kind}.so": code(archs) for kind, archs in kinds.items()}


class Row(NamedTuple):
    """An image, and the verdict on each of `GPUS`: `.` for none, `E` for an error, `W` for a warning."""

    spec: Spec
    verdicts: str
    program: Optional[str] = None


IMAGES = {
    "torch 2.6.0+cu124": Row(torch("sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90 sm_90a"), "....EEEE"),
    "torch 2.15.0+cu132": Row(
        torch("sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_100a sm_103f sm_120 sm_120a sm_121a"), "E.....EE"
    ),
    "jax-cuda12-pjrt 0.12.0": Row(
        {
            f"{SITE}/jax_plugins/xla_cuda12/xla_cuda_plugin.so": code(
                "sm_50 sm_60 sm_70 sm_80 sm_90 sm_100 sm_101 sm_120 compute_120"
            )
        },
        "......EE",
    ),
    "onnxruntime-gpu 1.31.1": Row(
        {f"{SITE}/onnxruntime/capi/libonnxruntime_providers_cuda.so": code("sm_75 sm_80 sm_86 sm_89 sm_90a sm_120a")},
        "E...E.EE",
    ),
    "cupy-cuda12x 14.2.0": Row(
        {
            f"{SITE}/cupy_backends/__init__.py": "",
            f"{SITE}/cupy/cuda/thrust.cpython-312-x86_64-linux-gnu.so": code(
                "sm_50 sm_60 sm_61 sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_100f sm_120f compute_100"
            ),
        },
        "......WW",
    ),
    "xformers 0.0.35": Row({f"{SITE}/xformers/_C.so": code("sm_75 sm_80 sm_90a compute_80")}, "W.....WW"),
    "bitsandbytes 0.50.2": Row(bitsandbytes(), "........"),
    "a program of PTX 7.0": Row(program("compute_70"), "......EE", PROGRAM),
    "a program of plain nvcc": Row(program("sm_52 compute_52"), "......EE", PROGRAM),
    "a program for Hopper alone": Row(program("sm_90a"), "EEE.EEEE", PROGRAM),
    "paddlepaddle-gpu 2.6.2": Row(
        {
            f"{SITE}/paddle/libs/libphi.so": library_of(
                module("sm_61", "sm_70", "sm_75", "sm_80", "sm_86", alike=665),
                module("sm_35", "sm_50", "sm_52", "sm_60", "sm_61", "sm_70", "sm_90"),
            ),
            f"{SITE}/paddle/base/libpaddle.so": code("sm_61 sm_70 sm_75 sm_80 sm_86"),
        },
        "...EEEEE",
    ),
    "torch for ROCm 6.4": Row(
        torch("gfx900 gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1101 gfx1102 gfx1200 gfx1201"), "EEEEEE.."
    ),
    "librocsparse0 5.3.0": Row(
        {
            PROGRAM: File(elf(kind=2, needed=("librocsparse.so.0",)), 0o755),
            "/usr/lib/x86_64-linux-gnu/librocsparse.so.0": code(
                "gfx803 gfx900:xnack- gfx906:xnack- gfx908:xnack- gfx90a:xnack+ gfx90a:xnack- gfx1030"
            ),
        },
        "EEEEEE.E",
        PROGRAM,
    ),
}


@cache
def opened(name: str) -> Image:
    return image_with_bytes(glibc(), IMAGES[name].spec)


def findings(
    on: RecordedHost,
    image: Image,
    program: Optional[str] = None,
    begun: Optional[Start] = None,
    about: str = "gpu-code-missing",
    **request: Any,
) -> list[Finding]:
    made = plan(on, Request(**request), image=image)
    own_mounts = begun.runtime.base_mounts(made, begun._replace(tree=image.tree)) if begun else None
    found = check(preflight(on, made, image, program=program, own_mounts=own_mounts))
    return [finding for finding in found if finding.code == about]


@pytest.mark.parametrize("name", [name for name in IMAGES if set(IMAGES[name].verdicts) != {"."}])
def test_the_first_gpu_without_code_has_a_whole_finding(name: str) -> None:
    row = IMAGES[name]
    first = next(gpu for gpu, verdict in zip(GPUS, row.verdicts) if verdict != ".")
    made = findings(host(first), opened(name), row.program)
    assert_golden(GOLDEN / "gpu_code.md", in_full(made), part=name)


@pytest.mark.parametrize("name", IMAGES)
def test_each_of_13_images_has_the_right_verdict_on_each_of_8_gpus(name: str) -> None:
    row = IMAGES[name]
    found = [findings(host(gpu), opened(name), row.program) for gpu in GPUS]
    assert all(len(each) < 2 for each in found)
    assert "".join({"error": "E", "warning": "W"}[each[0].severity] if each else "." for each in found) == row.verdicts


def test_the_finding_tells_what_there_is_the_gpu_and_the_release_that_has_it() -> None:
    (found,) = findings(host("RTX 5090"), opened("torch 2.6.0+cu124"))
    assert found.subject == "PyTorch"
    assert found.where == MAIN
    assert "Made-up GPU (sm_120)" in found.what
    assert "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90 sm_90a" in found.what
    assert "PyTorch 2.7" in (found.hint or "")
    assert "no kernel image is available" in (found.why or "")


def test_modules_that_a_linked_library_brought_are_counted_and_do_not_vouch_for_the_rest() -> None:
    (found,) = findings(host("H100"), opened("paddlepaddle-gpu 2.6.2"))
    assert (found.subject, found.severity) == ("PaddlePaddle", "error")
    assert found.what == "only 1 of 666 modules of PaddlePaddle in the image have code for Made-up GPU (sm_90)"


VLLM: Spec = {
    **torch("sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"),
    f"{SITE}/vllm/_C.abi3.so": library_of(
        module("sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120", alike=29),
        module("sm_90a", alike=20),
        module("sm_80", "compute_80", alike=12),
        module("sm_100a", "sm_120a", alike=11),
        module("sm_80", "sm_90", "compute_80", "compute_90", alike=8),
        module("sm_89", "sm_120", alike=5),
        module("sm_80", "sm_89", alike=2),
        module("sm_52", "compute_52"),
    ),
    f"{SITE}/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": library_of(module("sm_90a", alike=222)),
}
"""PyTorch 2.9.0 and vLLM 0.13.0."""


@pytest.mark.parametrize("gpu", NVIDIA)
def test_modules_for_one_architecture_are_not_missed_on_others(gpu: str) -> None:
    assert findings(host(gpu), image_with_bytes(glibc(), VLLM)) == []


@pytest.mark.parametrize(
    ("archs", "value", "severity"),
    [
        ("gfx90a:xnack+", None, "warning"),
        ("gfx90a:xnack+", "1", None),
        ("gfx90a:xnack+", "0", "error"),
        ("gfx90a:xnack+ gfx90a:xnack-", None, None),
        ("gfx90a", None, None),
        ("gfx90a:xnack-", "1", "error"),
    ],
)
def test_code_that_is_for_xnack_only_needs_the_variable_where_that_is_off_by_default(
    archs: str, value: Optional[str], severity: Optional[str]
) -> None:
    on = recorded("mi300x-rocm62", of="MI210", environ={"HSA_XNACK": value} if value else {})
    found = findings(on, image_with_bytes(glibc(), torch(archs)))
    assert [one.severity for one in found] == ([severity] if severity else [])
    if severity == "warning":
        assert "HSA_XNACK=1" in (found[0].hint or "")


@pytest.mark.parametrize(("with_code", "about"), [(True, "gpu-code-missing"), (False, "image-of-other-vendor")])
def test_an_image_of_another_vendor_is_told_once_by_its_gpu_code_if_it_has_any(with_code: bool, about: str) -> None:
    cuda: Spec = {"/usr/local/cuda/version.json": json.dumps({"cuda": {"version": "12.4.0"}})}
    image = image_with_bytes(glibc(), {**cuda, **(torch("sm_80") if with_code else {})})
    told = [
        code for code in ("gpu-code-missing", "image-of-other-vendor") if findings(host("MI300X"), image, about=code)
    ]
    assert told == [about]


DEBIAN = "/usr/lib/x86_64-linux-gnu"
HIP: Spec = {f"{DEBIAN}/libamdhip64.so.6": elf("libamdhip64.so.6")}


def test_code_of_a_distributions_library_is_compared_with_the_gpus() -> None:
    llama = f"{DEBIAN}/ggml/backends0/libggml-hip.so"
    spec = {**HIP, f"{DEBIAN}/librocblas.so.4": code("gfx90a gfx1030"), llama: code("gfx90a")}
    image = image_with_bytes(glibc(), spec)
    found = findings(host("MI300X"), image)
    assert [(one.subject, one.severity) for one in found] == [("llama.cpp", "error"), ("librocblas.so.4", "warning")]
    assert findings(host("MI210"), image) == []


@pytest.mark.parametrize(
    ("spec", "program", "expected"),
    [
        (HIP, None, ["libamdhip64.so.6"]),
        ({}, None, []),
        ({**HIP, f"{DEBIAN}/librocblas.so.4": code("gfx942")}, None, []),
        ({**HIP, PROGRAM: File(elf(kind=2, needed=("libamdhip64.so.6",)), 0o755)}, PROGRAM, ["libamdhip64.so.6"]),
        ({**HIP, PROGRAM: File(elf(kind=2), 0o755)}, PROGRAM, []),
    ],
    ids=["image", "without-hip", "with-code", "program", "another-program"],
)
def test_hip_of_which_no_code_was_found_is_a_note(spec: Spec, program: Optional[str], expected: list[str]) -> None:
    found = findings(host("MI300X"), image_with_bytes(glibc(), spec), program, about="gpu-code-unread")
    assert [(one.severity, one.subject) for one in found] == [("note", name) for name in expected]


def test_an_addition_does_not_excuse_the_framework_that_it_belongs_to() -> None:
    spec = {**torch("sm_70 sm_90"), f"{SITE}/vllm/_C.abi3.so": code("sm_52 compute_52")}
    found = findings(host("RTX 5090"), image_with_bytes(glibc(), spec))
    assert [(one.subject, one.severity) for one in found] == [("PyTorch", "error")]


@pytest.mark.parametrize(("isa", "severity"), [("8.4", None), ("8.5", "error"), ("9.0", "error"), ("99.0", None)])
def test_ptx_that_is_newer_than_the_driver_is_an_error_for_gpus_that_have_nothing_else(
    isa: str, severity: Optional[str]
) -> None:
    image = image_with_bytes(glibc(), torch(f"sm_80 compute_80@{isa}"))
    found = findings(host("H100"), image, about="ptx-too-new")
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert findings(host("A100"), image, about="ptx-too-new") == []
    assert findings(host("H100"), image) == []


def test_the_finding_about_ptx_names_its_version_and_the_driver_that_compiles_it() -> None:
    (found,) = findings(host("H100"), image_with_bytes(glibc(), torch("sm_80 compute_80@8.8")), about="ptx-too-new")
    assert found.what == (
        "PyTorch in the image has only PTX 8.8 for Made-up GPU (sm_90), "
        "but the driver 550.163.01 compiles PTX up to CUDA 12.4"
    )
    assert "driver 575.51.03 or newer" in (found.hint or "")


def test_the_cuda_of_a_library_follows_from_its_ptx() -> None:
    library = f"{SITE}/ctranslate2.libs/libctranslate2-1.so.4"
    spec: Spec = {f"{SITE}/ctranslate2/__init__.py": "", library: code("sm_80 compute_80@9.0")}
    image = image_with_bytes(glibc(), spec)
    (found,) = findings(host("A100"), image, about="cuda-too-new")
    assert (found.subject, found.severity) == ("13.0", "error")


def test_each_release_in_the_table_has_its_source_and_names_an_architecture() -> None:
    rows = json.loads(read_data("model/data/cuda.json"))["frameworks"].values()
    for row in rows:
        assert ("releases" in row) == ("releases_source" in row)
        assert all(arch_of_capability(f"{arch[3:-1]}.{arch[-1]}") == arch for arch in row.get("releases", ()))


def test_of_amd_the_override_of_a_near_processor_is_named_and_one_that_is_set_is_respected() -> None:
    image = image_with_bytes(glibc(), torch("gfx1030 gfx1100"))
    gfx1032 = _with_gfx(100302)
    (found,) = findings(gfx1032, image)
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in (found.hint or "")
    assert found.vendor == "amd"
    (other,) = findings(host("MI300X"), image)
    assert "OVERRIDE" not in (other.hint or "")
    assert findings(_with_gfx(100302, {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}), image) == []
    assert findings(gfx1032, image, begun=start("--env", f"{VARIABLE}=10.3.0")) == []
    assert findings(_with_gfx(100302, {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}), image, begun=start()) != []


def _card_and_processor(archs: str, *, processors: int = 1, card: int = 110000, **request: Any) -> list[Finding]:
    """What is found on a RX 7900 XTX, or another *card*, beside *processors* with graphics of their own (gfx1036)."""
    nodes = [
        amd_gpus.kfd_node(2, 128, bus=3, gfx=card, device=0x744C),
        *(amd_gpus.kfd_node(3 + number, 129 + number, bus=14 + number, gfx=100306) for number in range(processors)),
    ]
    buses = ("03", *(f"{14 + number:02x}" for number in range(processors)))
    drm = [amd_gpus.drm_device(f"0000:{bus}:00.0", at, 128 + at) for at, bus in enumerate(buses)]
    machine = amd_gpus.amd_host(amd_gpus.opt(), amd_gpus.kernel(gpus=0, bmc=False), *drm, *nodes)
    return findings(machine, image_with_bytes(glibc(), torch(archs)), **request)


def test_a_gpu_without_code_beside_one_that_has_code_is_a_warning_and_the_hint_leaves_the_other_alone() -> None:
    (found,) = _card_and_processor("gfx1030 gfx1100")
    assert (found.severity, "(gfx1036)" in found.what, "gfx1100):" in found.what) == ("warning", True, False)
    assert found.hint == (
        "choose GPUs for which PyTorch has code: `--gpus 0`; or set HSA_OVERRIDE_GFX_VERSION_3=10.3.0 in the "
        "container, which AMD does not support, if PyTorch is known to work with it"
    )
    assert _card_and_processor("gfx1030 gfx1100", gpus="0") == []
    (alone,) = _card_and_processor("gfx1030 gfx1100", gpus="1")
    assert alone.severity == "error"
    (found,) = _card_and_processor("gfx1100")
    assert (found.severity, found.hint) == ("warning", "choose GPUs for which PyTorch has code: `--gpus 0`")


def test_gpus_that_need_different_overrides_get_one_each() -> None:
    (found,) = _card_and_processor("gfx1030 gfx1100", card=110003)
    assert found.severity == "error"
    assert "HSA_OVERRIDE_GFX_VERSION_2=11.0.0 and HSA_OVERRIDE_GFX_VERSION_3=10.3.0 in" in (found.hint or "")
    (found,) = _card_and_processor("gfx1030 gfx1100", processors=2)
    assert "HSA_OVERRIDE_GFX_VERSION_3=10.3.0 and HSA_OVERRIDE_GFX_VERSION_4=10.3.0 in" in (found.hint or "")


def _overridden(image: Image, **environ: str) -> list[str]:
    """What is found on a host of 8 x gfx1032: KFD's nodes are two processors, then the GPUs."""
    machine = _with_gfx(100302, environ)
    found = [one for about in ("hsa-override", "gpu-code-missing") for one in findings(machine, image, about=about)]
    return [f"{one.severity} {one.code} {one.subject}" for one in found]


def test_a_nodes_own_override_comes_before_that_of_all() -> None:
    image, alone = image_with_bytes(glibc(), torch("gfx1030 gfx1100")), "HSA_OVERRIDE_GFX_VERSION"
    assert _overridden(image, **{f"{alone}_{number}": "10.3.0" for number in range(2, 10)}) == []
    assert _overridden(image, **{f"{alone}_{number}": "10.3.0" for number in range(2, 9)}) != []
    assert _overridden(image, **{f"{alone}_{number}": "10.3.0" for number in range(8)}) != []  # 0 and 1 are processors
    assert _overridden(image, **{alone: "10.3.0", f"{alone}_3": "10.3.1"}) == ["warning gpu-code-missing PyTorch"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("10.3.0", []),
        (" 10.3.0", []),
        ("10.1.0", ["error gpu-code-missing PyTorch"]),
        ("11.0.0", ["warning hsa-override HSA_OVERRIDE_GFX_VERSION"]),
        ("gfx1030", ["error hsa-override HSA_OVERRIDE_GFX_VERSION", "error gpu-code-missing PyTorch"]),
        ("10.3", ["error hsa-override HSA_OVERRIDE_GFX_VERSION", "error gpu-code-missing PyTorch"]),
        ("10.3.0x", ["error hsa-override HSA_OVERRIDE_GFX_VERSION", "error gpu-code-missing PyTorch"]),
        ("10.300.0", ["error hsa-override HSA_OVERRIDE_GFX_VERSION", "error gpu-code-missing PyTorch"]),
    ],
)
def test_a_wrong_override_is_a_finding(value: str, wanted: list[str]) -> None:
    image = image_with_bytes(glibc(), torch("gfx1030 gfx1100"))
    assert sorted(_overridden(image, HSA_OVERRIDE_GFX_VERSION=value)) == sorted(wanted)


def test_an_empty_override_of_the_user_is_refused_by_rocm() -> None:
    image = image_with_bytes(glibc(), torch("gfx1030"))
    assert len(findings(_with_gfx(100300), image, begun=start("--env", f"{VARIABLE}="), about="hsa-override")) == 1


def test_of_many_partitions_the_first_nodes_alone_have_a_variable() -> None:
    whole = [amd_gpus.kfd_node(number, 126 + number, bus=number) for number in range(2, 40)]
    machine = amd_gpus.amd_host(amd_gpus.opt(), amd_gpus.kernel(gpus=0), *whole)
    assert findings(machine, image_with_bytes(glibc(), torch("gfx942"))) == []


def test_an_override_of_a_node_counts_the_nodes_that_the_container_can_open() -> None:
    image = image_with_bytes(glibc(), torch("gfx1030"))
    for gpus, layout, number in (("3", GPUBIND_LAYOUT, 2), ("3", SINGULARITY_LAYOUT, 5)):
        machine = _with_gfx(100302, {f"HSA_OVERRIDE_GFX_VERSION_{number}": "10.3.0"})
        made = plan(machine, Request(gpus=gpus), image=image, layout=layout)
        assert [one for one in check(preflight(machine, made, image)) if one.code == "gpu-code-missing"] == []


VARIABLE = "HSA_OVERRIDE_GFX_VERSION"
STARTS: dict[str, tuple[Start, bool]] = {
    "apptainer --env": (start("--env", f"{VARIABLE}=10.3.0"), True),
    "apptainer --env-file": (start(env_files={VARIABLE: "10.3.0"}), True),
    "apptainer's prefix": (start(environ={f"APPTAINERENV_{VARIABLE}": "10.3.0"}), True),
    "apptainer, the caller's": (start(environ={VARIABLE: "10.3.0"}), True),
    "apptainer --cleanenv": (start("--cleanenv", environ={VARIABLE: "10.3.0"}), False),
    "apptainer, a node's": (start(environ={f"{VARIABLE}_{number}": "10.3.0" for number in range(2, 10)}), True),
    "podman -e": (start("-e", f"{VARIABLE}=10.3.0", program="podman"), True),
    "podman -e, the caller's": (start("-e", VARIABLE, program="podman", environ={VARIABLE: "10.3.0"}), True),
    "podman --env-file": (start(program="podman", env_files={VARIABLE: "10.3.0"}), True),
    "podman, the caller's": (start(program="podman", environ={VARIABLE: "10.3.0"}), False),
    "docker --env": (start(f"--env={VARIABLE}=10.3.0", program="docker"), True),
    "docker, the caller's": (start(program="docker", environ={VARIABLE: "10.3.0"}), False),
    "bwrap, the caller's": (start(program="bwrap", environ={VARIABLE: "10.3.0"}), True),
    "bwrap --clearenv": (start("--clearenv", program="bwrap", environ={VARIABLE: "10.3.0"}), False),
    "ch-run, the caller's": (start(program="ch-run", environ={VARIABLE: "10.3.0"}), True),
    "ch-run --unset-env": (start("--unset-env=HSA_*", program="ch-run", environ={VARIABLE: "10.3.0"}), False),
    "proot, the caller's": (start(program="proot", environ={VARIABLE: "10.3.0"}), True),
    "systemd-nspawn --setenv": (start(f"--setenv={VARIABLE}=10.3.0", program="systemd-nspawn"), True),
    "systemd-nspawn, the caller's": (start(program="systemd-nspawn", environ={VARIABLE: "10.3.0"}), False),
}


@pytest.mark.parametrize("name", STARTS)
def test_every_runtime_takes_the_override_of_the_user_and_the_callers_where_it_passes_it_on(name: str) -> None:
    begun, reaches = STARTS[name]
    image, machine = image_with_bytes(glibc(), torch("gfx1030")), _with_gfx(100302, dict(begun.caller.environ))
    assert (findings(machine, image, begun=begun) == []) is reaches


def _with_gfx(version: int, environ: Optional[dict[str, str]] = None) -> RecordedHost:
    AMD["other"] = version
    try:
        return recorded("mi300x-rocm62", of="other", environ=environ)
    finally:
        del AMD["other"]


def test_page_faults_that_are_turned_on_want_code_that_is_made_for_them() -> None:
    image = image_with_bytes(glibc(), torch("gfx90a:xnack-"))
    assert findings(host("MI210"), image) == []
    assert len(findings(host("MI210"), image, begun=start("--env", "HSA_XNACK=1"))) == 1


def test_another_framework_that_runs_makes_it_a_warning() -> None:
    image = image_with_bytes(glibc(), torch("sm_90"), IMAGES["onnxruntime-gpu 1.31.1"].spec)
    assert [(one.subject, one.severity) for one in findings(host("RTX 5090"), image)] == [("PyTorch", "warning")]
    assert [one.severity for one in findings(host("B200"), image)] == ["error", "error"]


def test_a_package_that_nobody_listed_is_a_warning_and_does_not_excuse_a_framework() -> None:
    record = f"{SITE}/solver-1.0.dist-info/RECORD"
    solver: Spec = {f"{SITE}/solver/_c.so": code("sm_90"), record: "solver/_c.so,sha256=x,999999\n"}
    (found,) = findings(host("RTX 5090"), image_with_bytes(glibc(), solver))
    assert (found.subject, found.severity) == ("solver", "warning")
    assert [one.severity for one in findings(host("H100"), image_with_bytes(glibc(), solver, torch("sm_70")))] == [
        "error"
    ]


def test_a_part_of_a_framework_is_a_warning_of_its_own() -> None:
    image = image_with_bytes(glibc(), torch("sm_90"), {f"{SITE}/torchvision/_C.so": code("sm_80")})
    spec = {f"{SITE}/torchvision/__init__.py": "", **torch("sm_90")}
    more = image_with_bytes(glibc(), spec, {f"{SITE}/torch/lib/libtorch_cuda_linalg.so": code("sm_80")})
    (found,) = findings(host("H100"), more)
    assert (found.subject, found.severity) == ("libtorch_cuda_linalg.so", "warning")
    (found,) = findings(host("H100"), image)
    assert (found.subject, found.severity) == ("_C.so", "warning")


def test_a_program_that_is_not_known_to_use_a_framework_gets_a_warning() -> None:
    image = image_with_bytes(glibc(), torch("sm_70"))
    assert [one.severity for one in findings(host("H100"), image, "sh")] == ["warning"]


def test_pythons_frameworks_are_those_that_it_imports() -> None:
    python: Spec = {"/usr/bin/python3": Link("python3.11"), "/usr/bin/python3.11": File(elf(kind=2), 0o755)}
    conda = {"/opt/conda/bin/python3.11": File(elf(kind=2), 0o755)}
    elsewhere = {"/opt/conda/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so": code("sm_90")}
    image = image_with_bytes(glibc(), python, torch("sm_70"), conda, elsewhere)
    assert [one.severity for one in findings(host("H100"), image, "python3")] == ["error"]
    assert findings(host("H100"), image, "/opt/conda/bin/python3.11") == []


def test_a_library_of_a_framework_that_a_program_is_linked_with_is_that_frameworks() -> None:
    spec: Spec = {
        PROGRAM: File(elf(kind=2, needed=("libtorch_cuda.so", "libcublas.so.12")), 0o755),
        "/usr/lib/x86_64-linux-gnu/libtorch_cuda.so": code("sm_80"),
        "/usr/lib/x86_64-linux-gnu/libcublas.so.12": code("sm_80 compute_80"),
    }
    (found,) = findings(host("H100"), image_with_bytes(glibc(), spec), PROGRAM)
    assert (found.subject, found.severity) == ("PyTorch", "error")


def test_the_driver_of_the_plan_is_not_looked_at_and_no_gpu_means_no_finding() -> None:
    image = opened("torch 2.6.0+cu124")
    assert findings(host("RTX 5090"), image, gpus="none") == []
    assert findings(recorded("debian13-nvidia550"), image) == []


def test_a_gpu_that_the_table_does_not_have_is_asked_of_nvidia_smi() -> None:
    image = opened("torch 2.6.0+cu124")
    on = recorded("debian13-nvidia550")
    (found,) = findings(on, image, about="gpu-code-unread")
    assert (found.subject, found.severity) == ("Made-up GPU", "note")
    answers = {
        "00000000:01:00.0, 9.0\n00000000:02:00.0, 9.0\n": [],
        "00000000:01:00.0, 10.0\n00000000:02:00.0, 9.0\n": ["warning"],
        "00000000:01:00.0, 10.0\n00000000:02:00.0, 10.0\n": ["error"],
        "00000000:01:00.0, [N/A]\n": [],
    }
    for text, severities in answers.items():
        on = recorded("debian13-nvidia550", says=text)
        assert [one.severity for one in findings(on, image)] == severities
        assert bool(findings(on, image, about="gpu-code-unread")) == ("[N/A]" in text)


def test_a_gpu_of_amd_whose_processor_is_not_known_is_not_asked_of_nvidia_smi() -> None:
    kernel = {path: item for path, item in amd_gpus.kernel().items() if "kfd" not in path}
    image = image_with_bytes(glibc(), {**torch("gfx1100"), f"{SITE}/vllm/_C.abi3.so": code("gfx1100")})
    (found,) = findings(amd_gpus.amd_host(amd_gpus.opt(), kernel), image, about="gpu-code-unread")
    assert (found.subject, found.vendor) == ("AMD Instinct MI300X", "amd")
    assert found.where == f"{SITE}/torch/lib/libtorch_hip.so"  # the first of those with code
    assert "KFD" in (found.why or "")
    assert "nvidia" not in f"{found.why} {found.hint}"
    assert "`rocminfo`" in (found.hint or "")


def test_code_for_another_vendors_gpus_never_calls_the_vendors_own_runtime() -> None:
    image = image_with_bytes(glibc(), torch("sm_80"))
    (found,) = findings(host("MI300X"), image)
    assert found.why == "PyTorch finds no usable GPU: it runs on the CPU, or ends with an error"


@pytest.mark.parametrize(("capability", "severities"), [("8.9", []), ("12.0", ["error"])])
def test_in_wsl_nvidia_smi_knows_the_gpu_and_what_it_runs(capability: str, severities: list[str]) -> None:
    runs = (TOLD, RecordedRun(COMPUTE_CAPABILITY_QUERY, 0, f"00000000:01:00.0, {capability}\n"))
    on = machine_with({**wsl(), **store(STORE), **cache_of_wsl()}, runs=runs)
    assert [one.severity for one in findings(on, opened("torch 2.6.0+cu124"))] == severities


def test_a_file_that_is_damaged_is_told_and_decides_nothing() -> None:
    whole = container("sm_80") + container("sm_70")
    image = image_with_bytes(glibc(), {MAIN: elf("libtorch_cuda.so", more={".nv_fatbin": whole[:-20]})})
    assert findings(host("H100"), image) == []
    (found,) = findings(host("H100"), image, about="gpu-code-unread")
    assert found.subject == MAIN
    assert findings(host("A100"), image, about="gpu-code-unread") == []


def test_the_table_has_the_capability_of_each_generation() -> None:
    known = {"0x102d": "3.7", "1b06": "6.1", "0x1eb8": "7.5", "0x20b0": "8.0", "0x2204": "8.6", "0x26b5": "8.9"}
    newer = {"0x2330": "9.0", "0x2901": "10.0", "0x3182": "10.3", "0x2b85": "12.0", "0x2e12": "12.1"}
    assert {device: compute_capability(device) for device in (*known, *newer)} == {**known, **newer}
    assert compute_capability("0xffff") is None
    assert compute_capability("") is None
    rows = json.loads(read_data("model/data/nvidia_gpus.json"))["chips"]
    devices = [device for row in rows for device in row["devices"].split()]
    assert len(devices) == len(set(devices)) > 700
