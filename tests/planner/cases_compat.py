"""When a container uses the compat libcuda of its image: a row a case, with the program or page whose rule it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from gpubind.model import CudaNote
from tests.support.elf import elf
from tests.support.images import MUSL, glibc, sandbox
from tests.support.trees import Link, Spec

COMPAT = "/usr/local/cuda/compat"
FIRST = f"export LD_LIBRARY_PATH={COMPAT}:/opt/lib"
NOTE = CudaNote("12.9", (535, 550, 560, 565, 570, 575))
"""What libcuda.so.575.57.08 of CUDA's package says of itself."""
NOTE_13 = CudaNote("13.1", (535, 550, 570, 575, 580, 590))
"""The same of libcuda.so.590.44.01."""

TOOLKIT = "nvidia-container-toolkit, cuda-elf-header_test.go TestUseCompat"
HOOK = "nvidia-container-toolkit, cudacompat_test.go TestCompatLibs"
GUIDE = "CUDA Compatibility guide, forward compatibility"
NV = "apptainer exec --nv: what the image's LD_LIBRARY_PATH names comes before /.singularity.d/libs"
ASKED = "--cuda-compat"


def package(
    version: Optional[str] = "575.57.08",
    note: Optional[CudaNote] = NOTE,
    directory: str = COMPAT,
    needs: Optional[Mapping[str, tuple[str, ...]]] = None,
) -> Spec:
    """NVIDIA's package in an image, as far as it matters here."""
    libcuda = elf("libcuda.so.1", cuda_note=note, needed=tuple(needs or ()), needs=needs)
    if version is None:
        return {f"{directory}/libcuda.so.1": libcuda}
    name = f"libcuda.so.{version}"
    return {f"{directory}/{name}": libcuda, f"{directory}/libcuda.so.1": Link(name)}


def built_for(cuda: str, env: str = "", libc: str = "2.36") -> Spec:
    """An image for that CUDA; *env* are lines of its environment file."""
    toolkit = f'{{"cuda": {{"version": "{cuda}"}}}}'
    return {**glibc(libc), **sandbox(env), "/usr/local/cuda/version.json": toolkit}


class Case(NamedTuple):
    """A host, an image, and which directory of the image comes first."""

    source: str
    """Whose rule it is."""
    driver: str
    image: Spec
    directory: Optional[str]
    """None: the host's libcuda comes first."""
    because: str = ""
    """In the Decision."""
    model: str = "NVIDIA A100-SXM4-80GB"
    request: Mapping[str, Any] = {}


NEWER = {**built_for("12.9.0"), **package()}
NEWER_13 = {**built_for("13.1.0"), **package("590.44.01", NOTE_13)}
OURS = {**built_for("12.4.0", FIRST), **package()}
"""Its own environment puts compat first, whatever the driver serves."""

CASES: dict[str, Case] = {
    "listed branch, older driver": Case(TOOLKIT, "570.211.01", NEWER, COMPAT, "CUDA 12.9, the driver serves 12.8"),
    "branch that is not listed": Case(TOOLKIT, "590.44.01", OURS, None, "(803)"),
    "same branch, compat newer": Case(TOOLKIT, "575.10.10", {**OURS, **built_for("12.9.0", FIRST)}, COMPAT),
    "same branch, same version": Case(TOOLKIT, "575.57.08", OURS, None, "the host driver's own version"),
    "same branch, compat older": Case(TOOLKIT, "575.99.99", OURS, None, "older than the host's"),
    "no note, newer branch": Case(HOOK, "535.54.03", {**built_for("12.9.0"), **package(note=None)}, COMPAT),
    "no note, same branch": Case(
        HOOK, "575.10.10", {**built_for("12.9.0", FIRST), **package(note=None)}, None, "(803)"
    ),
    "no note, older branch": Case(
        HOOK, "580.65.06", {**built_for("12.9.0", FIRST), **package(note=None)}, None, "(803)"
    ),
    "branches are numbers, not text": Case(
        HOOK, "535.54.03", {**built_for("13.9.0"), **package("1000.1.1", None)}, COMPAT
    ),
    "/usr/local/cuda is a link": Case(
        HOOK,
        "550.54.14",
        {
            **{path: item for path, item in built_for("13.1.0").items() if "/cuda/" not in path},
            "/etc/alternatives/cuda/version.json": '{"cuda": {"version": "13.1.0"}}',
            "/usr/local/cuda": Link("/etc/alternatives/cuda"),
            **package("590.44.01", NOTE_13, "/etc/alternatives/cuda/compat"),
        },
        "/etc/alternatives/cuda/compat",
    ),
    "/usr/local/cuda leads out of the image": Case(
        HOOK,
        "550.54.14",
        {
            **{path: item for path, item in built_for("13.1.0").items() if "/cuda/" not in path},
            "/.singularity.d/env/10-docker.sh": "export CUDA_VERSION=13.1.0\n",
            "/usr/local/cuda": Link("../../../../../../"),
            **package("590.44.01", NOTE_13, "/compat"),
        },
        "/compat",
    ),
    "a note without a list of branches": Case(
        TOOLKIT,
        "580.65.06",
        {**built_for("13.2.0", FIRST), **package("575.57.08", CudaNote("13.2", ()))},
        None,
        "(803)",
    ),
    "no version in the name, a newer CUDA in the note": Case(
        TOOLKIT, "570.211.01", {**built_for("12.9.0"), **package(None)}, COMPAT
    ),
    "no version in the name, the driver's CUDA in the note": Case(
        TOOLKIT, "575.57.08", {**built_for("12.9.0", FIRST), **package(None)}, None, "serves CUDA 12.9"
    ),
    "neither version nor note": Case(
        HOOK, "550.54.14", {**built_for("13.1.0"), **package(None, None)}, None, "neither its note nor its name"
    ),
    "neither version nor note, first in the image": Case(
        NV, "550.54.14", {**built_for("13.1.0", FIRST), **package(None, None)}, COMPAT
    ),
    "another major CUDA, data-centre GPU": Case(GUIDE, "550.54.14", NEWER_13, COMPAT),
    "another major CUDA, GPU unknown": Case(GUIDE, "550.54.14", NEWER_13, COMPAT, model="Made-up GPU"),
    "another major CUDA, GeForce": Case(GUIDE, "550.54.14", NEWER_13, None, "(804)", "NVIDIA GeForce RTX 4090"),
    "same major CUDA, data-centre GPU": Case(GUIDE, "550.54.14", NEWER, COMPAT, model="Tesla T4"),
    "same major CUDA, GPU unknown": Case(
        NV, "550.54.14", NEWER, None, "by minor-version compatibility", "NVIDIA RTX A6000"
    ),
    "same major CUDA, GeForce": Case(GUIDE, "550.54.14", NEWER, None, "(804)", "NVIDIA GeForce RTX 4090"),
    "the driver serves that CUDA": Case(
        NV, "550.54.14", {**built_for("12.4.0"), **package()}, None, "the driver serves 12.4"
    ),
    "no CUDA is named": Case(NV, "550.54.14", {**glibc(), **package()}, None, "does not say which CUDA"),
    "first in the image, and it fits": Case(NV, "550.54.14", OURS, COMPAT, "own LD_LIBRARY_PATH puts it first"),
    "first in an image of docker's": Case(
        NV,
        "550.54.14",
        {**built_for("12.4.0", f'export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:-"{COMPAT}:/opt/lib"}}"'), **package()},
        COMPAT,
    ),
    "first in the image, GPU unknown": Case(NV, "550.54.14", OURS, COMPAT, model="NVIDIA RTX A6000"),
    "first in the image, GeForce": Case(GUIDE, "550.54.14", OURS, None, "(804)", "NVIDIA TITAN V"),
    "second in the image, after another libcuda": Case(
        NV,
        "550.54.14",
        {
            **built_for("12.4.0", f"export LD_LIBRARY_PATH=/opt/lib:{COMPAT}"),
            **package(),
            "/opt/lib/libcuda.so.1": elf("libcuda.so.1"),
        },
        None,
        "the driver serves 12.4",
    ),
    "after the host's in the image": Case(
        NV,
        "550.54.14",
        {**built_for("12.4.0", f"export LD_LIBRARY_PATH=/.singularity.d/libs:{COMPAT}"), **package()},
        None,
        "the driver serves 12.4",
    ),
    "first in the image after an empty file": Case(
        NV,
        "550.54.14",
        {
            **built_for("12.4.0", f"export LD_LIBRARY_PATH=/opt/lib:{COMPAT}"),
            **package(),
            "/opt/lib/libcuda.so.1": b"",
        },
        COMPAT,
    ),
    "what the image sets is not known": Case(
        NV, "550.54.14", {**built_for("12.4.0", f"{FIRST}\nexport LD_LIBRARY_PATH=$(x)"), **package()}, None
    ),
    "the same, and its CUDA is newer": Case(
        GUIDE,
        "550.54.14",
        {**built_for("13.1.0", "export LD_LIBRARY_PATH=$(x)"), **package("590.44.01", NOTE_13)},
        COMPAT,
    ),
    "NGC: lib.real, and lib that is not there": Case(
        "NGC images: nvidia_entrypoint makes compat/lib, and nothing else runs it",
        "550.54.14",
        {
            **built_for("13.1.0", f"export LD_LIBRARY_PATH={COMPAT}/lib:/usr/local/nvidia/lib"),
            **package("590.44.01", NOTE_13, f"{COMPAT}/lib.real"),
        },
        f"{COMPAT}/lib.real",
    ),
    "NGC: the link is there": Case(
        "NGC images after their entrypoint",
        "550.54.14",
        {
            **built_for("12.4.0", f"export LD_LIBRARY_PATH={COMPAT}/lib"),
            **package(directory=f"{COMPAT}/lib.real"),
            f"{COMPAT}/lib": Link("lib.real"),
        },
        f"{COMPAT}/lib.real",
        "own LD_LIBRARY_PATH puts it first",
    ),
    "of two, the one that serves the image": Case(
        GUIDE,
        "535.54.03",
        {
            **built_for("13.1.0"),
            **package(directory="/usr/local/cuda-12.9/compat"),
            **package("590.44.01", NOTE_13, "/usr/local/cuda-13.1/compat"),
        },
        "/usr/local/cuda-13.1/compat",
    ),
    "of two, the one that the image puts first": Case(
        NV,
        "535.54.03",
        {
            **built_for("13.1.0", "export LD_LIBRARY_PATH=/usr/local/cuda-12.9/compat"),
            **package(directory="/usr/local/cuda-12.9/compat"),
            **package("590.44.01", NOTE_13, "/usr/local/cuda-13.1/compat"),
        },
        "/usr/local/cuda-12.9/compat",
    ),
    "a C library that cannot load it": Case(
        "ld.so",
        "550.54.14",
        {
            **built_for("13.1.0", FIRST, "2.28"),
            **package("590.44.01", NOTE_13, needs={"libc.so.6": ("GLIBC_2.34",)}),
        },
        None,
        "it needs GLIBC_2.34",
    ),
    "no glibc": Case(
        "ld.so", "550.54.14", {**MUSL, **sandbox(FIRST), **package("590.44.01", NOTE_13)}, None, "it needs glibc"
    ),
    "a directory that LD_LIBRARY_PATH cannot hold": Case(
        "ld.so(8)",
        "550.54.14",
        {**built_for("13.1.0"), **package("590.44.01", NOTE_13, "/usr/local/cuda-13:1/compat")},
        None,
        "cannot hold",
    ),
    "a directory that a shell would evaluate": Case(
        "apptainer --env: the container's shell evaluates it",
        "550.54.14",
        {**built_for("13.1.0"), **package("590.44.01", NOTE_13, "/usr/local/cuda-$(x)/compat")},
        None,
        "cannot hold",
    ),
    "asked for the host's, and it would fit": Case(ASKED, "550.54.14", OURS, None, request={"cuda_compat": "host"}),
    "asked for the image's, and none needs it": Case(
        ASKED, "580.65.06", {**built_for("12.4.0"), **package()}, COMPAT, request={"cuda_compat": "image"}
    ),
    "asked for the image's, and it has none": Case(
        ASKED, "550.54.14", built_for("13.1.0"), None, "has no compat", request={"cuda_compat": "image"}
    ),
}
