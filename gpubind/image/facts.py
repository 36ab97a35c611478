"""What a plan must know of an image: read from a tree of its files, whatever it was stored in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, Optional

from gpubind.errors import FormatError, HostReadError
from gpubind.formats.elf import ElfIdent
from gpubind.formats.shell import Exports, parse_exports
from gpubind.ldso.loader import Loader
from gpubind.ldso.versions import newest
from gpubind.model import ImageFacts, ImageKind, ImageLibrary, Missing, RootedPath, Stat
from gpubind.tree import Tree, glob

ENVIRONMENT = "/.singularity.d/env"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What Apptainer and SingularityCE set before an image's own files."""
OWN_FILES = ("01-base.sh", "94-appsbase.sh", "95-apps.sh", "99-base.sh", "99-runtimevars.sh")
"""Singularity's own among the environment files. 91-environment.sh is the image's: `%post` writes to it."""
DOCKER_FILES = ("10-docker.sh", "10-docker2singularity.sh")
SEARCH_PATHS = frozenset(("PATH", "LD_LIBRARY_PATH"))
SHELLS = ("/bin/sh", "/usr/bin/env", "/bin/busybox")
DRIVER_SONAMES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-opencl.so.1",
    "libnvidia-encode.so.1",
    "libnvcuvid.so.1",
    "libnvoptix.so.1",
    "libEGL_nvidia.so.0",
    "libGLX_nvidia.so.0",
)
VENDOR_NEUTRAL_SONAMES = (
    "libEGL.so.1",
    "libGL.so.1",
    "libGLESv1_CM.so.1",
    "libGLESv2.so.2",
    "libGLX.so.0",
    "libGLdispatch.so.0",
    "libOpenCL.so.1",
    "libOpenGL.so.0",
)
COMPAT = tuple(
    f"/usr/local/{toolkit}/compat{below}/libcuda.so.1"
    for toolkit in ("cuda", "cuda-*")
    for below in ("", "/lib.real", "/lib")
)
"""Where NVIDIA's packages and images have a compat libcuda. In NGC's images the entrypoint makes `lib` a link to
`lib.real` where that libcuda works; without the entrypoint there is no `lib`."""

_VARIABLE = re.compile(r"LD_LIBRARY_PATH|PATH|CUDA_VERSION|NVIDIA_[A-Z0-9_]+|(CUDA|ROCR|HIP)_VISIBLE_DEVICES")
_DRIVER_VERSION = re.compile(r"\.so\.([0-9]{2,4}(?:\.[0-9]+){1,2})$")


class Image(NamedTuple):
    """An open image."""

    tree: Tree
    loader: Loader
    facts: ImageFacts


def read_image(tree: Tree, label: str, kind: ImageKind = "directory", env: Optional[Mapping[str, str]] = None) -> Image:
    """The facts of the image in *tree*.

    *env* is what its configuration sets (OCI `config.Env`), where it has one; else its environment files count.
    """
    names = tree.list("/")
    if isinstance(names, Missing) and names.why == "forbidden":
        hint = "ask its owner, or use an image that you may read"
        raise HostReadError("unreadable-file", "the image cannot be read", where=label, why=str(names), hint=hint)
    any_loader = Loader(tree)
    family, version, arch = _libc(tree, any_loader)
    loader = any_loader.of(arch)
    libstdcxx = loader.facts("libstdc++.so.6")
    undecided: tuple[str, ...] = ()
    if env is None:
        env, undecided = _of_interest(read_environment(tree))
    env = {name: value for name, value in sorted(env.items()) if _VARIABLE.fullmatch(name)}
    facts = ImageFacts(
        kind=kind,
        label=label,
        arch=arch,
        libc_family=family,
        libc_version=version,
        libstdcxx=newest(libstdcxx.version_definitions, "GLIBCXX") if libstdcxx else None,
        loader_directories=loader.directories,
        singularity=not isinstance(tree.list(ENVIRONMENT), Missing),
        env=env,
        undecided=tuple(name for name in undecided if _VARIABLE.fullmatch(name)),
        driver=tuple(_driver(tree, loader)),
        vendor_neutral=tuple(soname for soname in VENDOR_NEUTRAL_SONAMES if loader.find(soname)),
        cuda=_cuda(tree) or env.get("CUDA_VERSION") or None,
        compat=tuple(_compat(tree)),
        rocm=_rocm(tree),
        own_libcuda=_own_libcuda(tree, env.get("LD_LIBRARY_PATH", "")),
    )
    return Image(tree, loader, facts)


def _libc(tree: Tree, loader: Loader) -> tuple[Literal["glibc", "musl", "none"], Optional[str], Optional[str]]:
    """The C library of an image: family, version, architecture."""
    glibc = loader.glibc
    if glibc is not None:
        return "glibc", glibc.version, glibc.arch
    for path in glob(tree, "/lib/ld-musl-*.so.1"):
        ident = tree.ident(path)
        return "musl", None, ident.arch if isinstance(ident, ElfIdent) else None
    for shell in SHELLS:
        ident = tree.ident(shell)
        if isinstance(ident, ElfIdent):
            return "none", None, ident.arch
    return "none", None, None


def read_environment(tree: Tree) -> Exports:
    """What the image's environment files set, in the order in which Apptainer reads them; read and never run.

    Every file counts but Singularity's own. PATH is repaired where Apptainer repairs it.
    """
    exports = Exports({"PATH": None})
    names = tree.list(ENVIRONMENT)
    for name in () if isinstance(names, Missing) else sorted(name for name in names if name.endswith(".sh")):
        path = f"{ENVIRONMENT}/{name}"
        found = tree.stat(path)
        if name in OWN_FILES or isinstance(found, Missing) or found.kind != "file":
            continue
        if name == "90-environment.sh" and exports.env.get("PATH", "") is None:
            exports = exports.with_value("PATH", DEFAULT_PATH)
        text = tree.read_text(path)
        exports = exports.with_nothing_known() if isinstance(text, Missing) else parse_exports(text, exports)
        own = exports.env.get("PATH")
        if name in DOCKER_FILES and own is not None:
            exports = exports.with_value("PATH", _completed(own))
    return exports


def _completed(path: str) -> str:
    """*path* with the directories of the default PATH that it lacks."""
    directories = path.split(":") if path else []
    return ":".join([*directories, *(d for d in DEFAULT_PATH.split(":") if d not in directories)])


def _of_interest(exports: Exports) -> tuple[dict[str, str], tuple[str, ...]]:
    """What *exports* says of the variables that concern a plan, and which of them it does not know.

    Singularity's own files export PATH and LD_LIBRARY_PATH, whoever has set them.
    """
    env = {
        name: value
        for name, value in exports.env.items()
        if value is not None and (name in exports.exported or name in SEARCH_PATHS)
    }
    if env.get("PATH") == DEFAULT_PATH:
        del env["PATH"]
    names = exports.unknown | (SEARCH_PATHS if exports.clouded else frozenset())
    return env, tuple(sorted(name for name in names if name not in exports.env))


def _driver(tree: Tree, loader: Loader) -> Iterator[ImageLibrary]:
    for soname in DRIVER_SONAMES:
        path = loader.find(soname)
        library = image_library(tree, soname, path) if path else None
        if library is not None:
            yield library


def image_library(tree: Tree, soname: str, path: str) -> Optional[ImageLibrary]:
    """The driver's library at *path*; None if there is none, or it is a stub, of a compat package, or empty.

    Empty files are mount points that others left.
    """
    real = tree.resolve(path) if path.startswith("/") else Missing("absent")
    found = real if isinstance(real, Missing) else tree.stat(real)
    if isinstance(real, Missing) or not isinstance(found, Stat) or found.kind != "file" or not found.size:
        return None
    return None if "/compat/" in real or tree.is_stub(real) else ImageLibrary(soname, real, _version_of(real))


def _compat(tree: Tree) -> Iterator[ImageLibrary]:
    """Each compat libcuda that a program would find as libcuda.so.1 in its directory, once."""
    seen = []
    for pattern in COMPAT:
        try:
            paths = glob(tree, pattern)
        except FormatError:
            return  # an image of thousands of directories of that name
        for path in paths:
            real = tree.resolve(path)
            if isinstance(real, Missing) or real in seen:
                continue
            seen.append(real)
            directory = real.rpartition("/")[0]
            if "compat" not in directory.split("/") or tree.resolve(f"{directory}/libcuda.so.1") != real:
                continue  # a link out of the package: the directory holds more than that
            elf = Missing("absent") if tree.is_stub(real) else tree.elf(real)
            if not isinstance(elf, Missing):
                yield ImageLibrary("libcuda.so.1", real, _version_of(real), elf.cuda_note)


def _own_libcuda(tree: Tree, library_path: str) -> Optional[RootedPath]:
    """The libcuda to which the image's own *library_path* leads before Singularity's directory of host libraries."""
    for directory in dict.fromkeys(library_path.replace(";", ":").split(":")):
        if directory.startswith("/.singularity.d/libs"):
            return None
        real = tree.resolve(f"{directory}/libcuda.so.1") if directory.startswith("/") else Missing("absent")
        if not isinstance(real, Missing) and isinstance(tree.ident(real), ElfIdent):
            return real
    return None


def _version_of(path: str) -> Optional[str]:
    match = _DRIVER_VERSION.search(path)
    return match.group(1) if match else None


def _cuda(tree: Tree) -> Optional[str]:
    """The CUDA version that the toolkit in the image says of itself."""
    text = tree.read_text("/usr/local/cuda/version.json")
    if isinstance(text, str):
        try:
            version = json.loads(text)["cuda"]["version"]
        except (ValueError, TypeError, KeyError, RecursionError):
            version = None
        if isinstance(version, str) and re.fullmatch(r"[0-9]+(\.[0-9]+){1,3}", version):
            return version
    text = tree.read_text("/usr/local/cuda/version.txt")
    match = re.match(r"CUDA Version ([0-9]+(?:\.[0-9]+){1,3})", text) if isinstance(text, str) else None
    return match.group(1) if match else None


def _rocm(tree: Tree) -> Optional[str]:
    text = tree.read_text("/opt/rocm/.info/version")
    match = re.match(r"([0-9]+(?:\.[0-9]+){1,3})", text) if isinstance(text, str) else None
    return match.group(1) if match else None
