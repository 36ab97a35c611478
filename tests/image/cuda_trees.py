"""Trees as pip, conda, Spack and EasyBuild leave them in images, and the CUDA that is to be found in each.

Names and versions are those of the real packages: of wheels as pip's resolver gives them for `python3.11`, of conda's
packages as lock files have them. Only what is looked at is built, and a library or two.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.elf import elf
from tests.support.trees import Dir, Item, Spec

SITE = "/usr/local/lib/python3.11/site-packages"


class Installed(NamedTuple):
    """What somebody installed, and what it is to gpubind."""

    how: str
    """In the words of a Dockerfile."""
    tree: Spec
    cuda: str
    """The newest CUDA; empty for none."""
    where: str
    """The file that tells it; empty for none."""


def wheels(site: str, *names: str) -> dict[str, Item]:
    """Their metadata in *site*, and NVIDIA's libraries where the wheels have them."""
    tree: dict[str, Item] = {f"{site}/{name}.dist-info/METADATA": "Metadata-Version: 2.1\n" for name in names}
    for name in names:
        if name.startswith("nvidia_cuda_runtime_"):
            soname = "libcudart.so.11.0" if "_cu11" in name else "libcudart.so.12"
            tree[f"{site}/nvidia/cuda_runtime/lib/{soname}"] = elf(soname)
        elif name.startswith("nvidia_cuda_runtime-13"):
            tree[f"{site}/nvidia/cu13/lib/libcudart.so.13"] = elf("libcudart.so.13")
        elif name.startswith("nvidia_cudnn_cu12-9"):
            tree[f"{site}/nvidia/cudnn/lib/libcudnn.so.9"] = elf("libcudnn.so.9")
    return tree


def torch(site: str, version: str, cuda: str, *nvidia: str, typed: bool = True) -> dict[str, Item]:
    """torch, whose `version.py` is written when it is built."""
    kind = ": Optional[str]" if typed else ""
    said = f"'{cuda}'" if cuda else "None"
    tree = wheels(site, f"torch-{version.partition('+')[0]}", *nvidia)
    lines = (f"__version__ = '{version}'", "debug = False", f"cuda{kind} = {said}", f"hip{kind} = None")
    tree[f"{site}/torch/version.py"] = "\n".join(("from typing import Optional", *lines)) + "\n"
    return tree


def conda(prefix: str, *names: str) -> dict[str, Item]:
    """conda's records of the packages *names* in *prefix*."""
    return {f"{prefix}/conda-meta/{name}.json": "{}" for name in (*names, "python-3.11.9-h955ad1f_0")}


def _pip(how: str, tree: Spec, cuda: str, teller: str) -> Installed:
    return Installed(f"`pip install {how}`", tree, cuda, f"{SITE}/{teller}" if teller else "")


_RUNTIME_121 = "nvidia_cuda_runtime_cu12-12.1.105"
_RUNTIME_124 = "nvidia_cuda_runtime_cu12-12.4.127"
_RUNTIME_128 = "nvidia_cuda_runtime_cu12-12.8.90"
_RUNTIME_129 = "nvidia_cuda_runtime_cu12-12.9.79"
_VENV = "/opt/venv/lib/python3.11/site-packages"
_JAX_13 = ("jax-0.10.2", "jax_cuda13_plugin-0.10.2", "nvidia_cuda_runtime-13.5.37")
_JAX_LOCAL = ("jax-0.4.35", "jax_cuda12_pjrt-0.4.34", "jax_cuda12_plugin-0.4.34")
_TENSORFLOW = ("nvidia_cuda_runtime_cu12-12.3.101", "tensorflow-2.17.1")
_CONDA_TORCH = ("cuda-cudart-12.1.105-0", "cuda-runtime-12.1.0-0", "pytorch-2.1.2-py3.11_cuda12.1_cudnn8.9.2_0")
_CONDA_FORGE = ("cuda-cudart-12.6.77-h5888daf_0", "cuda-version-12.6-h7480c83_3")
_MODULE = "/opt/easybuild/software/CUDA/12.4.0"
_SPACK_NEW = "/opt/software/linux-zen3/cuda-12.9.0-fwxk4tzqvhyq7gzl2o5bqvqkfvw6uxzn"
_SPACK_OLD = "/opt/software/linux-ubuntu22.04-x86_64_v3/gcc-11.4.0/cuda-12.4.1-l7hh5stwqzmqkwfn6tqq3ngxyxe5bzgm"
_ONNX = f"{SITE}/onnxruntime/capi"
_TENSORFLOW_ALONE: Spec = {
    f"{SITE}/tensorflow/python/platform/build_info.py": (
        "build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('cudnn_version', '9')])\n"
    )
}

TREES = (
    _pip(
        "torch==2.0.1",
        torch(SITE, "2.0.1+cu117", "11.7", "nvidia_cuda_runtime_cu11-11.7.99", typed=False),
        "11.7",
        "nvidia_cuda_runtime_cu11-11.7.99.dist-info",
    ),
    _pip("torch==2.4.1", torch(SITE, "2.4.1+cu121", "12.1", _RUNTIME_121), "12.1", f"{_RUNTIME_121}.dist-info"),
    _pip("torch==2.6.0", torch(SITE, "2.6.0+cu124", "12.4", _RUNTIME_124), "12.4", f"{_RUNTIME_124}.dist-info"),
    Installed(
        "`pip install torch==2.9.1` in /opt/venv",
        torch(_VENV, "2.9.1+cu128", "12.8", _RUNTIME_128),
        "12.8",
        f"{_VENV}/{_RUNTIME_128}.dist-info",
    ),
    _pip("torch==2.4.0+cu118", torch(SITE, "2.4.0+cu118", "11.8"), "11.8", "torch/version.py"),
    _pip(
        "torch==2.9.1+cu130",
        torch(SITE, "2.9.1+cu130", "13.0", "nvidia_cuda_runtime-13.0.48"),
        "13.0",
        "nvidia_cuda_runtime-13.0.48.dist-info",
    ),
    _pip("torch==2.4.1+cpu", torch(SITE, "2.4.1+cpu", ""), "", ""),
    _pip(
        '"jax[cuda12]==0.4.35"',
        wheels(SITE, "jax-0.4.35", "jax_cuda12_plugin-0.4.35", _RUNTIME_129),
        "12.9",
        f"{_RUNTIME_129}.dist-info",
    ),
    _pip('"jax[cuda13]==0.10.2"', wheels(SITE, *_JAX_13), "13.5", f"{_JAX_13[-1]}.dist-info"),
    _pip('"jax[cuda12_local]==0.4.35"', wheels(SITE, *_JAX_LOCAL), "12", f"{_JAX_LOCAL[1]}.dist-info"),
    _pip(
        "jaxlib==0.4.13+cuda12.cudnn89",
        wheels(SITE, "jaxlib-0.4.13+cuda12.cudnn89"),
        "12",
        "jaxlib-0.4.13+cuda12.cudnn89.dist-info",
    ),
    _pip("cupy-cuda102==12.3.0", wheels(SITE, "cupy_cuda102-12.3.0"), "10.2", "cupy_cuda102-12.3.0.dist-info"),
    _pip("cupy-cuda92==7.8.0", wheels(SITE, "cupy_cuda92-7.8.0"), "9.2", "cupy_cuda92-7.8.0.dist-info"),
    _pip("cupy-cuda13x==14.2.0", wheels(SITE, "cupy_cuda13x-14.2.0"), "13", "cupy_cuda13x-14.2.0.dist-info"),
    _pip('"tensorflow[and-cuda]==2.17.1"', wheels(SITE, *_TENSORFLOW), "12.3", f"{_TENSORFLOW[0]}.dist-info"),
    _pip("tensorflow==2.21.0", _TENSORFLOW_ALONE, "", ""),
    _pip(
        "tensorflow==2.21.0 nvidia-cublas-cu12",
        {**_TENSORFLOW_ALONE, f"{SITE}/nvidia/cublas/lib/libcublas.so.12": elf("libcublas.so.12")},
        "12.5",
        "tensorflow/python/platform/build_info.py",
    ),
    _pip(
        "onnxruntime-gpu==1.31.1",
        {f"{_ONNX}/build_and_package_info.py": "package_name = 'onnxruntime-gpu'\ncuda_version = '13.0'\n"},
        "13.0",
        "onnxruntime/capi/build_and_package_info.py",
    ),
    _pip(
        "onnxruntime-gpu==1.18.1",
        {f"{_ONNX}/libonnxruntime_providers_cuda.so": elf(needed=("libcublas.so.11", "libcudart.so.11.0"))},
        "11",
        "onnxruntime/capi/libonnxruntime_providers_cuda.so",
    ),
    _pip(
        "xformers==0.0.35",
        {f"{SITE}/xformers/cpp_lib.json": '{"version": {"cuda": 1208, "hip": null, "torch": "2.10.0+cu128"}}'},
        "12.8",
        "xformers/cpp_lib.json",
    ),
    _pip(
        "vllm==0.33.0",
        {f"{SITE}/vllm/_C_stable_libtorch.abi3.so": elf(needed=("libtorch.so", "libcudart.so.13", "libcuda.so.1"))},
        "13",
        "vllm/_C_stable_libtorch.abi3.so",
    ),
    _pip(
        "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl",
        wheels(SITE, "flash_attn-2.7.4.post1+cu12torch2.6cxx11abifalse"),
        "12",
        "flash_attn-2.7.4.post1+cu12torch2.6cxx11abifalse.dist-info",
    ),
    _pip("tensorrt-cu12==10.0.1", wheels(SITE, "tensorrt_cu12-10.0.1"), "12", "tensorrt_cu12-10.0.1.dist-info"),
    _pip(
        "paddlepaddle-gpu==2.6.2",
        {f"{SITE}/paddle/version/__init__.py": "full_version     = '2.6.2'\ncuda_version     = '11.8'\n"},
        "11.8",
        "paddle/version/__init__.py",
    ),
    Installed(
        "`conda install pytorch==2.1.2 pytorch-cuda=12.1`",
        conda("/opt/conda", *_CONDA_TORCH),
        "12.1",
        f"/opt/conda/conda-meta/{_CONDA_TORCH[0]}.json",
    ),
    Installed(
        "`conda create -n train cudatoolkit=11.8`",
        conda("/opt/conda/envs/train", "cudatoolkit-11.8.0-h6a678d5_0"),
        "11.8",
        "/opt/conda/envs/train/conda-meta/cudatoolkit-11.8.0-h6a678d5_0.json",
    ),
    Installed(
        "`mamba install cuda-cudart=12.6`, conda-forge's",
        conda("/opt/miniforge3", *_CONDA_FORGE),
        "12.6",
        f"/opt/miniforge3/conda-meta/{_CONDA_FORGE[0]}.json",
    ),
    Installed("`spack install cuda@12.4.1`, before Spack 1.0", {f"{_SPACK_OLD}/lib64": Dir()}, "12.4.1", _SPACK_OLD),
    Installed("`spack install cuda@12.9.0`", {f"{_SPACK_NEW}/lib64": Dir()}, "12.9.0", _SPACK_NEW),
    Installed("`eb CUDA-12.4.0.eb`", {f"{_MODULE}/lib64": Dir()}, "12.4.0", _MODULE),
)
