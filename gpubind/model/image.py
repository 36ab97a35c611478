"""The facts of an image that a plan needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.files import RootedPath
from gpubind.model.plain import DOCUMENT_DECODER, to_json_value

ImageKind = Literal[
    "directory", "sif", "oci-layout", "oci-archive", "docker-archive", "podman", "docker", "bundle", "host"
]
"""`host` stands for the files of this machine, for a program that runs without a container."""


class CudaNote(NamedTuple):
    """The note `.note.cuda.fwd_compatibility` of a libcuda."""

    cuda: str
    """The newest CUDA version that it serves, `13.2`."""
    drivers: tuple[int, ...]
    """Branches of the kernel module that it works with, in addition to its own: 535, 570."""


class ImageLibrary(NamedTuple):
    """A library in an image that matters to a plan."""

    soname: str
    path: RootedPath
    """The resolved file."""
    version: Optional[str]
    """Driver version in the file's name, if any."""
    note: Optional[CudaNote] = None


class ImageCuda(NamedTuple):
    """A CUDA toolkit or runtime in an image."""

    version: str
    """`12.4.1`; `12.4` or `12` where only that is known."""
    origin: Literal["toolkit", "variable", "pip", "conda", "spack", "easybuild", "code"]
    """What installed it. `toolkit`: /usr/local/cuda. `variable`: CUDA_VERSION, if there is no toolkit. `code`: the
    compiler of GPU code."""
    where: str
    """The file or directory with the version, by its path in the image; or the name of the variable."""


class ImageFacts(NamedTuple):
    """The facts of an image that a plan needs."""

    kind: ImageKind
    label: str
    """The name that the user gave; not in any document."""
    arch: Optional[str]
    """`x86_64`; None if it is unknown."""
    libc_family: Literal["glibc", "musl", "none"]
    libc_version: Optional[str]
    """`2.36`, from libc.so.6's version definitions; None for musl and none."""
    libstdcxx: Optional[str]
    """Newest GLIBCXX version that its libstdc++ defines, `3.4.30`."""
    loader_directories: tuple[RootedPath, ...]
    """The directories that its loader searches, in order."""
    singularity: bool
    """Whether it has `/.singularity.d/env`, which makes Apptainer and SingularityCE set LD_LIBRARY_PATH."""
    env: Mapping[str, str]
    """The variables in its configuration or environment files that concern a plan: LD_LIBRARY_PATH, PATH, NVIDIA_*,
    CUDA_VERSION, and those that choose GPUs and their code."""
    undecided: tuple[str, ...]
    """The variables whose values only a shell can compute; `env` omits them."""
    driver: tuple[ImageLibrary, ...]
    """Driver libraries that its loader finds, and that an image should not contain. No stubs, no empty files."""
    vendor_neutral: tuple[str, ...]
    """The sonames of its libglvnd libraries and of its OpenCL loader."""
    cuda: Optional[str]
    """The newest CUDA toolkit or runtime in it, `12.4.1`."""
    compat: tuple[ImageLibrary, ...]
    """libcuda of CUDA's forward compatibility package, in /usr/local/cuda/compat; no empty and no damaged files."""
    rocm: Optional[str]
    """The ROCm release in it, `6.1.2`."""
    rocm_runtime: Optional[RootedPath] = None
    """The HSA runtime of ROCm in it, if that is outside of its loader's directories."""
    own_libcuda: Optional[RootedPath] = None
    """The resolved libcuda that its own LD_LIBRARY_PATH puts before the host's; None if there is none."""
    every_cuda: tuple[ImageCuda, ...] = ()
    """Every CUDA toolkit or runtime in it, the newest first."""
    has_root: bool = True
    """Whether it can be a container's `/`; False for a directory without any file of a root file system."""
    libc_fault: Optional[str] = None
    """Its libc.so.6, and why that cannot be loaded; None if it has none, or a good one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the member `image` of the documents, without the path of the image."""
        return {
            "kind": self.kind,
            "arch": self.arch,
            "libc": {"family": self.libc_family, "version": self.libc_version},
            "libstdcxx": self.libstdcxx,
            "env": dict(self.env),
            "undecided": list(self.undecided),
            "driver": [library._asdict() for library in self.driver],
            "vendor_neutral": list(self.vendor_neutral),
            "cuda": self.cuda,
            "compat": to_json_value(self.compat),
            "rocm": self.rocm,
        }

    @classmethod
    def from_dict(cls, value: Any) -> ImageFacts:
        """Return the facts that `to_dict` encoded, with omitted ones empty. Errors: `FormatError` (code `bad-plan`)."""
        libc = value.get("libc") or {} if isinstance(value, dict) else None
        if not isinstance(libc, dict):
            raise DOCUMENT_DECODER.format.damaged("it is not an object", "image" if libc is None else "image.libc")
        absent = {"label": "", "loader_directories": (), "singularity": False}
        libc_fields = {"libc_family": libc.get("family"), "libc_version": libc.get("version")}
        return DOCUMENT_DECODER.decode(cls, {**value, **libc_fields, **absent}, "image")
