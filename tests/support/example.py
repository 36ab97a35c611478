"""The image of the examples in the docs: an old base with a new CUDA, and a program that lacks a library.

python -m tests.support.example FILE, writes it; tests/test_docs.py says if docs/examples has another one.
"""

from __future__ import annotations

import sys

from tests.support.elf import elf
from tests.support.images import glibc, sandbox
from tests.support.squashfs import SifObject, sif, squashfs
from tests.support.trees import File, Spec

USR = "/usr/lib/x86_64-linux-gnu"
REQUIRE = "cuda>=13.0 brand=unknown,driver>=550,driver<551"
ENVIRONMENT = f'''export CUDA_VERSION="${{CUDA_VERSION:-"13.0.1"}}"
export NVIDIA_REQUIRE_CUDA="${{NVIDIA_REQUIRE_CUDA:-"{REQUIRE}"}}"'''


def example() -> bytes:
    """The SIF file."""
    spec: Spec = {
        **glibc("2.36"),
        **sandbox(ENVIRONMENT),
        **{f"{USR}/{name}": elf(name) for name in ("libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0")},
        f"{USR}/librt.so.1": elf("librt.so.1"),
        "/usr/local/cuda/version.json": '{"cuda": {"name": "CUDA SDK", "version": "13.0.1"}}\n',
        "/opt/app/solve": File(
            elf(
                kind=2,
                needed=("libcuda.so.1", "libcudnn.so.9", "libc.so.6"),
                needs={"libc.so.6": ("GLIBC_2.34",)},
                interpreter="/lib64/ld-linux-x86-64.so.2",
            ),
            0o755,
        ),
    }
    return sif(SifObject(squashfs(spec, pack=bytes)))  # not packed: zlibs differ in what they make


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        file.write(example())
