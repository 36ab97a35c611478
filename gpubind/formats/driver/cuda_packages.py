"""The version of CUDA in the name of an installed package, from the metadata of pip and conda or Spack's directories.

Sources: the wheels `nvidia-cuda-runtime-cu11`, `-cu12` and `nvidia-cuda-runtime` (13), `torch`, `jax-cuda12-plugin`,
`cupy-cuda12x`, `tensorrt-cu12`, `flash-attn`; PEP 440 (local versions: `2.4.1+cu124`); conda's
`conda-meta/NAME-VERSION-BUILD.json`; Spack's install tree, `NAME-VERSION-HASH`; EasyBuild's `software/CUDA/VERSION`.
"""

from __future__ import annotations

import re
from typing import Literal, Optional

_RUNTIME = r"(?i)nvidia_cuda_runtime(?:_cu[0-9]+)?-([0-9]+\.[0-9]+)[.0-9]*\.dist-info"
_MADE_FOR = r"(?i)(?:(?:cupy|jax)_cuda|tensorrt_cu)([0-9]{2,3})x?(?:_plugin|_pjrt|_libs|_bindings)?-[^-]+\.dist-info"
_LOCAL = r"(?i)[^-]+-[^-+]+\+cu(?:da)?([0-9]{2,3})(?:(?:\.|torch)[^-]*)?\.dist-info"
_PACKAGES = {
    "conda": r"(?:cuda-cudart|cuda-runtime|cuda-version|cudatoolkit|pytorch-cuda)-([0-9]+\.[0-9]+)[.0-9]*-[^-]+\.json",
    "spack": r"cuda-([0-9]+\.[0-9]+(?:\.[0-9]+)?)-[0-9a-z]{7,32}",
    "easybuild": r"([0-9]+\.[0-9]+(?:\.[0-9]+)?)",
}
"""For each installing program, the pattern of the names of CUDA's packages. Its group is the version."""
_LIBRARY = r"lib(?:cudart|cublas|cublasLt)\.so\.([0-9]{1,3})(?:\.([0-9]{1,3}))?"


def cuda_of_wheel(name: str) -> Optional[str]:
    """Return the CUDA version of the wheel *name*: `nvidia_cuda_runtime_cu12-12.4.127.dist-info` -> `12.4`.

    A wheel that names only a major version is for all its minor versions: `cupy_cuda12x` -> `12`.
    """
    runtime = re.fullmatch(_RUNTIME, name)
    if runtime:
        return runtime.group(1)
    made_for = re.fullmatch(_MADE_FOR, name) or re.fullmatch(_LOCAL, name)
    return cuda_of_digits(made_for.group(1)) if made_for else None


def cuda_of_digits(digits: str) -> str:
    """Return the CUDA version of the digits in a name such as `+cu121`: `12.1`. `92` is 9.2, `12` any 12.x, and
    `1208` 12.8.
    """
    if len(digits) == 4:
        return f"{int(digits[:2])}.{int(digits[2:])}"
    is_major = digits.startswith("1") and len(digits) == 2
    return digits if is_major else f"{digits[:-1]}.{digits[-1]}"


def cuda_of_library(name: str) -> Optional[str]:
    """Return the CUDA version of the soname *name* of a runtime or cuBLAS: `libcudart.so.10.2` -> `10.2`.

    From 11 on, one soname serves all minor versions: `libcudart.so.11.0` and `libcublas.so.11` -> `11`.
    """
    match = re.fullmatch(_LIBRARY, name)
    if match is None:
        return None
    major, minor = match.groups()
    return major if int(major) >= 11 or minor is None else f"{major}.{minor}"


def cuda_of_package(name: str, origin: Literal["conda", "spack", "easybuild"]) -> Optional[str]:
    """Return the CUDA version of the package *name* of *origin*; None for another package.

    Conda's record `cuda-cudart-12.4.127-0.json` -> `12.4`; Spack's directory `cuda-12.4.1-l7hh5stwqzmqkwfn` ->
    `12.4.1`; EasyBuild's directory in `software/CUDA`, `12.4.0`.
    """
    match = re.fullmatch(_PACKAGES[origin], name)
    return match.group(1) if match else None
