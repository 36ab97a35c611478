"""The CUDA of what a program imports, wherever that comes from; and whether the frameworks' own libraries load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import pytest

from gpubind.model import Finding
from gpubind.runtimes.runtime import Start
from tests.image.cuda_trees import torch, wheels
from tests.rules.cases_amd import amd, cxx
from tests.rules.cases_image import CUDNN, HOST, LIB, PYTHON, SITE, broken_torch
from tests.rules.situations import Situation, found, started
from tests.support.amd import kernel, rocm
from tests.support.elf import elf
from tests.support.gpucode import bundle
from tests.support.images import glibc, image, image_with_bytes, sandbox
from tests.support.starts import bringing
from tests.support.trees import File, Item, Link, Spec, recorded_tree

ENV = "/work/env"
PACKAGES = "lib/python3.11/site-packages"
INTERPRETER = File(elf(kind=2), 0o755)
NEWER = torch(f"{ENV}/{PACKAGES}", "2.9.1+cu130", "13.0")
IN_ENV: Spec = {
    **PYTHON,
    **NEWER,
    f"{ENV}/bin/python3": Link("/usr/bin/python3"),
    f"{ENV}/pyvenv.cfg": "home = /usr/bin\n",
}
MACHINE = recorded_tree(
    {
        **torch(f"/home/me/.local/{PACKAGES}", "2.9.1+cu130", "13.0"),
        **torch("/sw/packages", "2.9.1+cu130", "13.0"),
        **torch(f"/sw/module/{PACKAGES}", "2.9.1+cu130", "13.0"),
        "/sw/module/bin/python3.11": INTERPRETER,
    }
)


def too_new(program: Optional[str], spec: Spec, begun: Optional[Start] = None) -> list[tuple[str, str]]:
    """(severity, what) of the finding about CUDA."""
    asked = Situation(HOST, image(glibc(), spec), program=program, start=begun, local=MACHINE, backend="apptainer")
    return [(f.severity, f.what) for f in found(asked) if f.code == "cuda-too-new"]


SCRIPT = File(f"#!{ENV}/bin/python3\n".encode(), 0o755)


@pytest.mark.parametrize(
    ("program", "spec"),
    [
        (f"{ENV}/bin/python3", IN_ENV),
        ("/opt/torchrun", {**IN_ENV, "/opt/torchrun": SCRIPT}),
        (
            f"{ENV}/bin/python3",
            {**NEWER, f"{ENV}/bin/python3": Link("python3.11"), f"{ENV}/bin/python3.11": INTERPRETER},
        ),
        ("/usr/bin/python3", {**PYTHON, **sandbox(f"export PYTHONPATH={ENV}/{PACKAGES}"), **NEWER}),
        ("python3", {**PYTHON, **NEWER, "/usr/lib/python3/dist-packages/more.pth": f"{ENV}/{PACKAGES}\n"}),
        (
            f"{ENV}/bin/python3",
            {f"{ENV}/bin/python3": INTERPRETER, f"{ENV}/conda-meta/cuda-cudart-13.0.48-0.json": "{}"},
        ),
    ],
    ids=["venv", "console-script", "module-tree", "PYTHONPATH", "pth", "conda"],
)
def test_the_packages_that_the_program_imports_are_looked_at(program: str, spec: Spec) -> None:
    ((severity, what),) = too_new(program, spec)
    assert severity == "error"
    assert what.startswith(ENV) or "more.pth" in what
    assert "imports from there" in what
    assert too_new("/bin/sh", spec) == too_new(None, spec) == []


def test_a_path_that_the_user_gives_leads_to_the_interpreter() -> None:
    begun = bringing(PREPEND_PATH=f"{ENV}/bin")
    assert [severity for severity, _ in too_new("python3", IN_ENV, begun)] == ["error"]
    assert [severity for severity, _ in too_new("sh", IN_ENV, begun)] == ["error"]
    assert too_new("python3", IN_ENV, bringing()) == []


@pytest.mark.parametrize(
    ("program", "begun", "place"),
    [
        ("python3", bringing(caller={"home": "/home/me"}), "/home/me/.local/"),
        ("python3", bringing("/home/me:/base", PYTHONUSERBASE="/base/.local"), "/base/.local/"),
        ("python3", bringing("/sw/packages:/opt/p", caller={"environ": {"PYTHONPATH": "/opt/p"}}), "/opt/p/"),
        ("python3", bringing("/sw/packages:/usr/lib/python3/dist-packages"), "/usr/lib/python3/"),
        ("/sw/module/bin/python3.11", bringing("/sw"), "/sw/module/"),
    ],
    ids=["home", "PYTHONUSERBASE", "PYTHONPATH", "bind", "module-tree"],
)
def test_packages_of_the_host_that_reach_the_container_are_looked_at(program: str, begun: Start, place: str) -> None:
    ((severity, what),) = too_new(program, PYTHON, begun)
    assert (severity, what.startswith(place)) == ("error", True)
    assert too_new(program, PYTHON, bringing()) == []


@pytest.mark.parametrize(
    ("spec", "env"),
    [
        (PYTHON, {"PYTHONNOUSERSITE": "1"}),
        ({"/usr/bin/python3": Link("python3.9"), "/usr/bin/python3.9": INTERPRETER}, {}),
        ({**PYTHON, f"{ENV}/bin/python3": Link("/usr/bin/python3"), f"{ENV}/pyvenv.cfg": "home = /usr/bin\n"}, {}),
        ({**PYTHON, **sandbox("export PYTHONPATH=/opt/own")}, {"PYTHONPATH": "/sw/packages", "PYTHONNOUSERSITE": "1"}),
    ],
    ids=["PYTHONNOUSERSITE", "another-version", "venv", "the-images-PYTHONPATH"],
)
def test_packages_of_the_home_that_this_python_does_not_import_are_not_counted(spec: Spec, env: dict[str, str]) -> None:
    program = f"{ENV}/bin/python3" if f"{ENV}/bin/python3" in spec else "python3"
    assert too_new(program, spec, bringing("/sw", caller={"home": "/home/me", "environ": env})) == []


def test_a_virtual_environment_over_the_systems_imports_the_systems_packages() -> None:
    spec = {**PYTHON, **torch("/usr/local/lib/python3.11/dist-packages", "2.9.1+cu130", "13.0")}
    venv = {**spec, f"{ENV}/bin/python3": Link("/usr/bin/python3"), f"{ENV}/pyvenv.cfg": "home = /usr/bin\n"}
    assert [severity for severity, _ in too_new(f"{ENV}/bin/python3", venv)] == ["error"]  # in the image, still
    both = {**venv, f"{ENV}/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\n"}
    assert "imports from there" in too_new(f"{ENV}/bin/python3", both)[0][1]


def test_what_the_program_imports_takes_precedence_over_what_else_is_in_the_image() -> None:
    older = wheels("/opt/old/lib/python3.11/site-packages", "nvidia_cuda_runtime_cu12-12.4.127")
    spec = {
        **IN_ENV,
        **older,
        "/opt/old/bin/python3": Link("/usr/bin/python3"),
        "/opt/old/pyvenv.cfg": "home = /usr/bin\n",
    }
    assert [severity for severity, _ in too_new(f"{ENV}/bin/python3", spec)] == ["error"]
    assert too_new("/opt/old/bin/python3", spec) == []


# What the frameworks' own libraries are linked with.


def about(spec: Spec, program: Optional[str] = None) -> list[Finding]:
    start = Situation(HOST, image(glibc(), spec), program=program)
    return [f for f in found(start) if f.code in ("framework-library", "imports-not-checked")]


def test_a_library_that_import_torch_needs_is_an_error_for_the_python_that_has_it() -> None:
    (told,) = about({**PYTHON, **broken_torch()}, "python3")
    assert (told.severity, told.subject) == ("error", "libcudnn.so.9")
    assert "`import torch` fails" in told.what
    assert [f.severity for f in about({**PYTHON, **broken_torch()}, "/bin/sh")] == ["warning"]


def test_a_broken_import_is_an_error_without_a_program_unless_another_framework_of_the_image_loads() -> None:
    assert [f.severity for f in about({**PYTHON, **broken_torch()})] == ["error"]
    other: Spec = {f"{SITE}/jax_plugins/xla_cuda12/xla_cuda_plugin.so": elf("xla_cuda_plugin.so")}
    assert [f.severity for f in about({**PYTHON, **broken_torch(), **other})] == ["warning"]
    addition: Spec = {f"{SITE}/xformers/_C.so": elf("_C.so")}
    assert [f.severity for f in about({**PYTHON, **broken_torch(), **addition})] == ["error"]


IMPORTS = {
    "paddle": {"paddle/libs/libphi.so": "libgomp.so.1"},
    "tensorflow": {"tensorflow/libtensorflow_framework.so.2": "libamdhip64.so.9"},
    "torch": {"torch/lib/libtorch_hip.so": "librccl.so.9"},
    "cupy": {"cupy_backends/cuda/api/runtime.cpython-311-x86_64-linux-gnu.so": "libamdhip64.so.9"},
}


@pytest.mark.parametrize("module", IMPORTS)
def test_an_import_that_fails_is_an_error_for_each_framework(module: str) -> None:
    spec = {f"{SITE}/{path}": elf(needed=(name,)) for path, name in IMPORTS[module].items()}
    (told,) = about({**PYTHON, **spec}, "python3")
    assert told.severity == "error"
    assert f"`import {module}` fails" in told.what


def test_of_jax_for_rocm_the_plugin_is_looked_at() -> None:
    plugin = elf(needed=("librccl.so.1", "libMIOpen.so.1"))
    (told,) = about({**PYTHON, f"{SITE}/jax_plugins/xla_rocm60/xla_rocm_plugin.so": plugin}, "python3")
    assert told.what.startswith("JAX needs librccl.so.1, libMIOpen.so.1, neither")
    assert told.severity == "warning"  # it runs on the CPU


SERVES = {"ROCM_PATH": "/opt/rocm-6.2.4"}
CUPY7 = {"cupy_backends/cuda/api/runtime.cpython-311-x86_64-linux-gnu.so": ("libamdhip64.so.7", "librocfft.so.0")}
JAX7 = {"jax_plugins/xla_rocm7/xla_rocm_plugin.so": ("librocprofiler-sdk.so.1", "librocblas.so.5", "libamdhip64.so.7")}
MIGRAPHX = {"onnxruntime/capi/libonnxruntime_providers_migraphx.so": ("libmigraphx_c.so.3", "libamdhip64.so.7")}
BNB7 = {
    "bitsandbytes/libbitsandbytes_rocm64.so": ("libhipblas.so.2", "libhipblaslt.so.0"),
    "bitsandbytes/libbitsandbytes_rocm71.so": ("libhipblas.so.3", "libhipblaslt.so.1"),
    "bitsandbytes/libbitsandbytes_rocm714.so": ("libhipblas.so.3", "libhipblaslt.so.1", "librocrand.so.1"),
}
LLAMA = {
    "llama_cpp/lib/libllama.so": ("libggml-hip.so",),
    "llama_cpp/lib/libggml-hip.so": ("libamdhip64.so.7", "libhipblas.so.3"),
}
"""What cupy-rocm-7-0 14.2.0, jax-rocm7-pjrt 0.12.0, onnxruntime-migraphx 1.27.1, bitsandbytes 0.50.2 and a
llama-cpp-python for HIP need."""


TORCH7 = "hip = '7.2.26015'\ncuda = None\n"


def with_rocm(
    files: Mapping[str, tuple[str, ...]],
    *more: Spec,
    host: bool = True,
    userspace: str = "auto",
    torch: Optional[str] = TORCH7,
) -> list[Finding]:
    """What is told of the libraries in *files*, on a host with ROCm 6.2.4 or, without *host*, none."""
    spec: dict[str, Item] = {f"{SITE}/torch/version.py": torch} if torch is not None else {}
    for path, needed in files.items():
        spec[f"{SITE}/{path}"] = elf(path.rpartition("/")[2], needed=needed, runpath="$ORIGIN")
    there = cxx(more={**PYTHON, **spec, **{path: item for one in more for path, item in one.items()}})
    situation = amd(image=there, userspace=userspace)._replace(program="python3")
    bare = situation._replace(parts=(kernel(),))
    told = found(situation if host else bare)
    return [f for f in told if f.code in ("framework-library", "userspace-missing", "program-library-missing")]


@pytest.mark.parametrize(
    ("files", "severity", "what"),
    [
        (CUPY7, "error", "CuPy needs libamdhip64.so.7, librocfft.so.0 of ROCm 7, neither"),
        (JAX7, "warning", "JAX needs librocprofiler-sdk.so.1, librocblas.so.5, libamdhip64.so.7 of ROCm 7, neither"),
        (MIGRAPHX, "warning", "ONNX Runtime needs libmigraphx_c.so.3, libamdhip64.so.7 of ROCm 7, neither"),
        (BNB7, "warning", "bitsandbytes needs libhipblas.so.3, libhipblaslt.so.1 of ROCm 7, neither"),
        (LLAMA, "error", "llama-cpp-python needs libamdhip64.so.7, libhipblas.so.3 of ROCm 7, neither"),
    ],
    ids=["cupy", "jax", "onnxruntime", "bitsandbytes", "llama-cpp-python"],
)
def test_libraries_of_a_newer_rocm_are_missing_and_the_finding_names_the_release(
    files: dict[str, tuple[str, ...]], severity: str, what: str
) -> None:
    (told,) = with_rocm(files)
    assert (told.code, told.severity) == ("framework-library", severity)
    assert told.what.startswith(what)
    assert told.hint == "use an image with ROCm 7, or install that release's packages in the image"


def test_where_pytorch_is_not_known_bitsandbytes_lacks_what_all_its_libraries_for_rocm_lack() -> None:
    (told,) = with_rocm(BNB7, torch=None)
    assert told.severity == "warning"
    assert told.what.startswith("bitsandbytes needs libhipblas.so.2, libhipblaslt.so.0 of ROCm 6, neither")
    six: Spec = {f"{SITE}/bitsandbytes/{name}": elf(name) for name in ("libhipblas.so.2", "libhipblaslt.so.0")}
    assert with_rocm(BNB7, six, torch=None) == []
    assert with_rocm(BNB7, torch="hip = None\ncuda = '12.8'\n") == []


def test_of_bitsandbytes_without_pytorch_nothing_is_told_where_no_gpu_is_amds() -> None:
    spec = {f"{SITE}/{path}": elf(needed=needed) for path, needed in BNB7.items()}
    asked = Situation(HOST, image(glibc(), {**PYTHON, **spec}), program="python3")
    assert [one for one in found(asked) if one.code == "framework-library"] == []


def test_the_release_that_a_host_has_and_that_does_not_serve_is_named() -> None:
    spec = {f"{SITE}/{path}": elf(needed=needed) for path, needed in CUPY7.items()}
    there = cxx(more={**PYTHON, **spec})
    situation = amd(rocm("/opt/rocm-7.0.1", "7.0.1", "libamdhip64.so.7"), image=there, environ=SERVES)
    (told,) = [f for f in found(situation._replace(program="python3")) if f.code == "framework-library"]
    assert told.hint == "plan with ROCM_PATH=/opt/rocm-7.0.1: the host has ROCm 7 there, but uses another"


@pytest.mark.parametrize("files", [CUPY7, LLAMA], ids=["cupy", "llama-cpp-python"])
def test_a_framework_that_needs_rocm_where_there_is_none_is_one_error(files: dict[str, tuple[str, ...]]) -> None:
    (told,) = with_rocm(files, host=False)
    assert (told.code, told.severity) == ("userspace-missing", "error")
    assert "needs libamdhip64.so.7, lib" in told.what
    assert told.hint == "use an image with ROCm 7"


def test_a_framework_that_runs_on_the_cpu_does_not_need_rocm() -> None:
    assert [f.severity for f in with_rocm(JAX7, host=False)] == ["warning", "warning"]


def test_rocm_that_the_user_kept_out_is_an_error_with_the_option_that_lets_it_in() -> None:
    (told,) = with_rocm(IMPORTS_OF_ROCM6, userspace="image")
    assert (told.code, told.severity) == ("userspace-missing", "error")
    assert "--userspace auto" in (told.hint or "")


def test_a_program_that_needs_rocm_where_there_is_none_is_one_error() -> None:
    solve: Spec = {"/usr/bin/solve": File(elf(needed=("libamdhip64.so.6", "librccl.so.1"), kind=2), 0o755)}
    situation = amd(image=cxx(more=solve))._replace(parts=(kernel(),), program="solve")
    (told,) = [f for f in found(situation) if f.severity == "error"]
    assert (told.code, told.what) == (
        "userspace-missing",
        "neither the image nor the host has ROCm, but solve needs libamdhip64.so.6, librccl.so.1 of it",
    )


IMPORTS_OF_ROCM6 = {"torch/lib/libtorch_hip.so": ("libamdhip64.so.6",)}


@pytest.mark.parametrize("place", ["torch/lib", "_rocm_sdk_core/lib"])
def test_libraries_of_rocm_in_wheels_are_found(place: str) -> None:
    own: Spec = {f"{SITE}/{place}/libamdhip64.so.7": elf("libamdhip64.so.7")}
    assert with_rocm({"torch/lib/libtorch_hip.so": ("libamdhip64.so.7",)}, own) == []


def test_a_library_of_another_package_that_lacks_rocms_is_a_warning() -> None:
    extension = elf("_C.so", needed=("libtorch_hip.so", "libamdhip64.so.7"), more={".hip_fatbin": bundle("gfx942")})
    record = "newkernels/_C.so,sha256=x,131072\n"
    spec: Spec = {f"{SITE}/newkernels/_C.so": extension, f"{SITE}/newkernels-1.0.dist-info/RECORD": record}
    image = image_with_bytes(glibc(), {**PYTHON, **spec})
    told = [f for f in found(amd(image=image)._replace(program="python3")) if f.code == "framework-library"]
    assert [(f.severity, f.subject) for f in told] == [("warning", "libamdhip64.so.7")]
    assert told[0].what.startswith("newkernels needs libamdhip64.so.7 of ROCm 7")  # libtorch_hip is PyTorch's


@pytest.mark.parametrize(
    "place",
    [f"{SITE}/nvidia/cudnn/lib", f"{SITE}/nvidia/cu13/lib", f"{LIB}", "/usr/lib"],
)
def test_a_library_where_the_framework_finds_it_is_not_missing(place: str) -> None:
    assert about({**PYTHON, **broken_torch(), f"{place}/libcudnn.so.9": elf("libcudnn.so.9")}, "python3") == []


def test_a_framework_that_goes_on_without_its_library_is_a_warning() -> None:
    provider = elf(needed=("libcublasLt.so.13", "libcudart.so.13", "libcuda.so.1"))
    spec: Spec = {**PYTHON, f"{SITE}/onnxruntime/capi/libonnxruntime_providers_cuda.so": provider}
    (told,) = about(spec, "python3")
    assert told.severity == "warning"
    assert "ONNX Runtime needs libcublasLt.so.13, libcudart.so.13, neither" in told.what


def test_an_extension_of_torch_finds_what_torch_has_loaded() -> None:
    spec: Spec = {
        **PYTHON,
        f"{SITE}/vllm/_C.abi3.so": elf(needed=("libtorch.so", "libcudart.so.12")),
        f"{SITE}/torch/lib/libtorch.so": elf("libtorch.so"),
        f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12": elf("libcudart.so.12"),
    }
    assert about(spec, "python3") == []


def test_condas_python_gives_its_own_libraries_to_what_it_opens() -> None:
    conda, version = "/opt/conda", {"libstdc++.so.6": ("GLIBCXX_3.4.32",)}
    spec: Spec = {
        f"{LIB}/libstdc++.so.6": elf("libstdc++.so.6", defines=("libstdc++.so.6", "GLIBCXX_3.4.30")),
        f"{conda}/lib/libstdc++.so.6": elf("libstdc++.so.6", defines=("libstdc++.so.6", "GLIBCXX_3.4.32")),
        f"{conda}/bin/python3.11": INTERPRETER,
        f"{conda}/{PACKAGES}/torch/version.py": "cuda = '12.4'\n",
        f"{conda}/{PACKAGES}/torch/lib/libtorch_cuda.so": elf(needed=("libstdc++.so.6",), needs=version),
    }
    assert about(spec, f"{conda}/bin/python3.11") == []
    without = {path: item for path, item in spec.items() if path != f"{conda}/lib/libstdc++.so.6"}
    assert [f.severity for f in about(without, f"{conda}/bin/python3.11")] == ["error"]


@pytest.mark.parametrize("name", ["python3", "Rscript", "julia", "sh"])
def test_an_interpreter_of_which_nothing_was_looked_at_is_said_to_be_one(name: str) -> None:
    spec: Spec = {**PYTHON, "/usr/bin/Rscript": INTERPRETER, "/usr/bin/julia": INTERPRETER}
    told = about(spec, name)
    assert [f.code for f in told] == ([] if name == "sh" else ["imports-not-checked"])
    assert "CUDA" not in " ".join(f.what for f in told)
    assert [f.severity for f in about({**spec, **broken_torch(), **CUDNN}, "python3")] == []


def test_the_tree_of_a_container_has_what_is_mounted_and_follows_links_in_the_container() -> None:
    spec: Spec = {**PYTHON, "/opt/p": Link("/mnt/packages"), "/mnt/packages/old/file": "image"}
    start = Situation(
        HOST, image(glibc(), spec), start=bringing("/sw/packages:/mnt/packages"), local=MACHINE, backend="apptainer"
    )
    tree = started(start).container.tree
    assert "torch" in tree.names("/opt/p")
    assert tree.resolve("/opt/p/torch/version.py") == "/mnt/packages/torch/version.py"
    assert tree.text("/opt/p/old/file") is None
    assert tree.names("/mnt") == ("packages",)


NUMPY = "numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("package", "module", "library"),
    [
        ("cupy_backends", "cupy", NUMPY),
        ("onnxruntime", "onnxruntime", NUMPY),
        ("tensorflow", "tensorflow", NUMPY),
        ("ctranslate2", "ctranslate2", "ctranslate2/_ext.cpython-311-x86_64-linux-gnu.so"),
        ("faiss", "faiss", "faiss/_swigfaiss.so"),
        ("xgboost", "xgboost", "xgboost/lib/libxgboost.so"),
    ],
)
def test_an_import_that_fails_by_a_library_of_its_own_or_of_numpys_is_an_error(
    package: str, module: str, library: str
) -> None:
    spec: Spec = {**PYTHON, f"{SITE}/{package}/__init__.py": "", f"{SITE}/{library}": elf(needed=("libgone.so.1",))}
    (refused,) = (
        finding
        for finding in found(Situation(HOST, image(glibc(), spec), program="python3"))
        if finding.code == "framework-library"
    )
    assert (refused.severity, refused.subject, refused.where) == ("error", "libgone.so.1", f"{SITE}/{library}")
    assert f"`import {module}` fails" in refused.what
