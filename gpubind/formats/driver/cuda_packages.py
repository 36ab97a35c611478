"""The version of CUDA in the name of an installed package: pip's and conda's metadata, Spack's directories.

Sources: the wheels `nvidia-cuda-runtime-cu11`, `-cu12` and `nvidia-cuda-runtime` (13), `torch`, `jax-cuda12-plugin`,
`cupy-cuda12x`, `tensorrt-cu12`, `flash-attn`; PEP 440 (local versions: `2.4.1+cu124`); conda's
`conda-meta/NAME-VERSION-BUILD.json`; Spack's install tree, `NAME-VERSION-HASH`; EasyBuild's `software/CUDA/VERSION`.
"""

from __future__ import annotations

import re
from typing import Optional

_RUNTIME = re.compile(r"nvidia_cuda_runtime(?:_cu[0-9]+)?-([0-9]+\.[0-9]+)[.0-9]*\.dist-info", re.IGNORECASE)
_MADE_FOR = re.compile(
    r"(?:(?:cupy|jax)_cuda|tensorrt_cu)([0-9]{2,3})x?(?:_plugin|_pjrt|_libs|_bindings)?-[^-]+\.dist-info", re.IGNORECASE
)
_LOCAL = re.compile(r"[^-]+-[^-+]+\+cu(?:da)?([0-9]{2,3})(?:(?:\.|torch)[^-]*)?\.dist-info", re.IGNORECASE)
_CONDA = re.compile(
    r"(?:cuda-cudart|cuda-runtime|cuda-version|cudatoolkit|pytorch-cuda)-([0-9]+\.[0-9]+)[.0-9]*-[^-]+\.json"
)
_SPACK = re.compile(r"cuda-([0-9]+\.[0-9]+(?:\.[0-9]+)?)-[0-9a-z]{7,32}")
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
_LIBRARY = re.compile(r"lib(?:cudart|cublas|cublasLt)\.so\.([0-9]{1,3})(?:\.([0-9]{1,3}))?")


def cuda_of_wheel(name: str) -> Optional[str]:
    """Return the CUDA of the wheel with metadata in *name*: `nvidia_cuda_runtime_cu12-12.4.127.dist-info` -> `12.4`.

    A wheel for a major version, `cupy_cuda12x`, needs at least `12.0`.
    """
    runtime = _RUNTIME.fullmatch(name)
    if runtime:
        return runtime.group(1)
    made_for = _MADE_FOR.fullmatch(name) or _LOCAL.fullmatch(name)
    if made_for is None:
        return None
    return cuda_of_digits(made_for.group(1))


def cuda_of_digits(digits: str) -> str:
    """Return the CUDA of `121`, as in `+cu121`: `12.1`. `92` is 9.2, `12` at least 12.0, and `1208` 12.8."""
    if len(digits) == 4:
        return f"{int(digits[:2])}.{int(digits[2:])}"
    is_major = digits.startswith("1") and len(digits) == 2
    return f"{digits}.0" if is_major else f"{digits[:-1]}.{digits[-1]}"


def cuda_of_library(name: str) -> Optional[str]:
    """Return the oldest CUDA whose runtime or cuBLAS has the soname *name*: `libcudart.so.12` -> `12.0`."""
    match = _LIBRARY.fullmatch(name)
    return f"{match.group(1)}.{match.group(2) or 0}" if match else None


def cuda_of_conda(name: str) -> Optional[str]:
    """Return the CUDA of the conda package with the record *name*: `cuda-cudart-12.4.127-0.json` -> `12.4`."""
    match = _CONDA.fullmatch(name)
    return match.group(1) if match else None


def cuda_of_spack(name: str) -> Optional[str]:
    """Return the CUDA that Spack has in the directory *name*: `cuda-12.4.1-l7hh5stwqzmqkwfn` -> `12.4.1`."""
    match = _SPACK.fullmatch(name)
    return match.group(1) if match else None


def cuda_of_easybuild(name: str) -> Optional[str]:
    """Return the CUDA that EasyBuild has in `software/CUDA/NAME`: `12.4.0`."""
    return name if _VERSION.fullmatch(name) else None
