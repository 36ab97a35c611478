"""The files of a glibc as distributions install them, for hosts and images of tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tests.support.elf import X86_64, elf
from tests.support.images import GLIBC
from tests.support.trees import Dir, File, Item, Link, Spec

LIB = "/usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
LIBRARIES = ("libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libnss_files.so.2", "libresolv.so.2")


def c_library(
    newest: str,
    libraries: Sequence[str] = LIBRARIES,
    *,
    release: Optional[str] = None,
    directory: str = LIB,
    loader: str = f"/usr/lib64/{LOADER}",
    machine: int = X86_64,
    private: Sequence[str] = (),
) -> Spec:
    """A glibc up to version *newest* in *directory*; of a *release* before 2.34 its files are called after that.

    *private* are symbols that its C library gives to the others.
    """
    bits = 64 if machine == X86_64 else 32
    defined = ("libc.so.6", *GLIBC[: GLIBC.index(f"GLIBC_{newest}") + 1], "GLIBC_PRIVATE")
    spec: dict[str, Item] = {}

    def add(name: str, content: bytes) -> None:
        stem, _, number = name.partition(".so")
        file = name if release is None else f"{stem.removesuffix('-linux-x86-64')}-{release}.so"
        spec[f"{directory}/{file}"] = File(content, 0o755)
        if file != name:
            spec[f"{directory}/{stem}.so{number}"] = Link(file)

    add("libc.so.6", elf("libc.so.6", machine=machine, bits=bits, defines=defined, private=private))
    name = loader.rpartition("/")[2]
    add(name, elf(name, machine=machine, bits=bits))
    if loader.rpartition("/")[0] != directory:
        spec[loader] = Link(f"{directory}/{name}")
    for library in libraries:
        needs = {"libc.so.6": (f"GLIBC_{newest}",)}
        add(library, elf(library, machine=machine, bits=bits, needed=("libc.so.6",), needs=needs))
    return spec


def converters(directory: str = LIB) -> Spec:
    """The converters between encodings."""
    return {f"{directory}/gconv": Dir(), f"{directory}/gconv/gconv-modules.cache": b"", f"{directory}/gconv/A.so": b""}


def programs(*names: str) -> Spec:
    """Programs of glibc's, as its packages have them."""
    return {f"/usr/bin/{name}": File(elf(kind=2), 0o755) for name in names}
