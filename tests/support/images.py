"""Small images, as trees, for tests of images, sides and runtimes."""

from __future__ import annotations

from gpubind.files.blob import BytesBlob
from gpubind.image.facts import Image, read_image
from gpubind.image.layers import LayeredTree, LayerIndex, members_with_ident
from gpubind.model import HostPath
from tests.support.elf import elf
from tests.support.layers import tar
from tests.support.trees import Dir, File, Item, Link, Spec, recorded_tree

_OLD = ("2.2.5", "2.2.6", "2.3", "2.3.2", "2.3.3", "2.3.4")
GLIBC = tuple(f"GLIBC_{version}" for version in (*_OLD, *(f"2.{minor}" for minor in range(4, 42))))
"""What x86-64's libc.so.6 defines, up to 2.41."""


def glibc(newest: str = "2.36", machine: int = 62) -> Spec:
    """An image with glibc up to *newest*, and a shell."""
    defined = GLIBC[: GLIBC.index(f"GLIBC_{newest}") + 1]
    return {
        "/lib": Link("usr/lib"),
        "/lib64": Link("usr/lib64"),
        "/bin": Link("usr/bin"),
        "/usr/lib64/ld-linux-x86-64.so.2": File(elf("ld-linux-x86-64.so.2", machine=machine), 0o755),
        "/usr/lib/x86_64-linux-gnu/libc.so.6": elf("libc.so.6", machine=machine, defines=("libc.so.6", *defined)),
        "/usr/bin/sh": File(elf(kind=2, machine=machine), 0o755),
        "/etc/passwd": "root:x:0:0::/root:/bin/sh\n",
        "/proc": Dir(),
        "/dev": Dir(),
        "/sys": Dir(),
        "/tmp": Dir(0o1777),
        "/usr/share": Dir(),
    }


def sandbox(env: str = "") -> Spec:
    """What makes a directory a sandbox of Apptainer's; *env* are lines of its environment file."""
    return {
        "/.singularity.d/env/10-docker2singularity.sh": f"#!/bin/sh\n{env}\n",
        "/.singularity.d/env/99-base.sh": 'LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:/.singularity.d/libs"\n',
        "/.singularity.d/runscript": File(b"#!/bin/sh\n", 0o755),
    }


MUSL: Spec = {"/lib/ld-musl-x86_64.so.1": elf("libc.musl-x86_64.so.1"), "/bin/sh": elf(kind=2)}
GCOMPAT: Spec = {
    "/lib/libgcompat.so.0": elf("libgcompat.so.0"),
    "/lib64/ld-linux-x86-64.so.2": Link("../lib/ld-linux-x86-64.so.2"),
    "/lib/ld-linux-x86-64.so.2": File(elf(), 0o755),
}
"""The layer over musl."""
OWN_PREFIX: Spec = {
    "/usr/glibc-compat/lib/ld-linux-x86-64.so.2": File(elf("ld-linux-x86-64.so.2"), 0o755),
    "/usr/glibc-compat/lib/libc.so.6": elf("libc.so.6", defines=("libc.so.6", *GLIBC[: GLIBC.index("GLIBC_2.34") + 1])),
    "/lib64/ld-linux-x86-64.so.2": Link("/usr/glibc-compat/lib/ld-linux-x86-64.so.2"),
}
"""The glibc of alpine-pkg-glibc."""
STATIC: Spec = {"/bin/sh": Link("busybox"), "/bin/busybox": File(elf(kind=2), 0o755), "/usr/lib": Dir(), "/lib": Dir()}

GLVND: Spec = {
    "/usr/lib/x86_64-linux-gnu/libGL.so.1": elf("libGL.so.1", needed=("libGLdispatch.so.0", "libGLX.so.0")),
    "/usr/lib/x86_64-linux-gnu/libEGL.so.1": elf("libEGL.so.1", needed=("libGLdispatch.so.0",)),
    "/usr/lib/x86_64-linux-gnu/libGLX.so.0": elf("libGLX.so.0"),
    "/usr/lib/x86_64-linux-gnu/libGLdispatch.so.0": elf("libGLdispatch.so.0"),
}


def image(*parts: Spec) -> Image:
    """The image that has all of *parts*; later ones win."""
    spec: dict[str, Item] = {}
    for part in parts:
        spec.update(part)
    return read_image(recorded_tree(spec, "/images/test"), "test")


def image_with_bytes(*parts: Spec) -> Image:
    """As `image`, from a layer: a record does not have the bytes of files, of which GPU code is read."""
    spec: dict[str, Item] = {}
    for part in parts:
        spec.update(part)
    layers, blob = LayerIndex(), BytesBlob(tar(spec))
    layers.add(blob, members_with_ident(blob))
    return read_image(LayeredTree(layers, HostPath("/images/test")), "test", "docker-archive")
