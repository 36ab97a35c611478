"""Read the facts of an image, which a plan needs, from its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Literal, Optional

from gpubind.errors import HostReadError
from gpubind.files import Tree, glob, glob_or_note
from gpubind.formats.driver.names import DRIVER_SONAMES, VENDOR_NEUTRAL_SONAMES, driver_version_of
from gpubind.formats.elf.elf import LIBC, ElfIdent, NotElf, split_library_path
from gpubind.frozen import FrozenDict, NamedTuple
from gpubind.image.cuda import prefixes_of, read_cuda, site_package_directories
from gpubind.image.environment import ENVIRONMENT_DIRECTORY, read_environment, select_variables
from gpubind.image.rocm import read_rocm
from gpubind.loader.search import Loader, newest_version, unusual_glibc_directories
from gpubind.model import ABSENT, ImageFacts, ImageKind, ImageLibrary, Missing, RootedPath, architecture

if TYPE_CHECKING:
    from gpubind.formats.archive.bundle import Bundle
    from gpubind.loader.python import PythonPaths

SHELLS = ("/bin/sh", "/usr/bin/env", "/bin/busybox")
_COMPAT_PATTERNS = tuple(
    f"/usr/local/{toolkit}/compat{below}/libcuda.so.1"
    for toolkit in ("cuda", "cuda-*")
    for below in ("", "/lib.real", "/lib")
)
"""Paths of the compat libcuda of NVIDIA's packages and images. In NGC's images the entrypoint links `lib` to
`lib.real` if that libcuda works."""

COMPAT_LIMIT = 64  # limit of such paths; an image has one toolkit, or a few

_VARIABLE = (
    r"LD_LIBRARY_PATH|PATH|PYTHON(HOME|NOUSERSITE|PATH|USERBASE)|CUDA_VERSION|NVIDIA_[A-Z0-9_]+|(CUDA|ROCR|HIP)_VISIBLE_DEVICES"
    r"|GBM_BACKENDS_PATH|VDPAU_DRIVER_PATH|HSA_OVERRIDE_GFX_VERSION(_[0-9]{1,2})?|HSA_XNACK|LIBVA_DRIVER_NAME|LIBVA_DRIVERS_PATH"
    r"|VK_DRIVER_FILES|VK_ICD_FILENAMES|__EGL_VENDOR_LIBRARY_FILENAMES|__GLX_VENDOR_LIBRARY_NAME|LIBGL_ALWAYS_SOFTWARE"
    r"|ZE_AFFINITY_MASK|ZE_FLAT_DEVICE_HIERARCHY|ZE_ENABLE_PCI_ID_DEVICE_ORDER"
)


class Image(NamedTuple):
    """An open image."""

    tree: Tree
    loader: Loader
    facts: ImageFacts
    bundle: Optional[Bundle] = None
    """The config.json of an OCI bundle; None for any other image."""
    environment: Optional[PythonPaths] = None
    """The environment of Python on this machine that is read in place of an image; None for any other image."""

    def __repr__(self) -> str:
        facts = self.facts
        libc = facts.libc_family if facts.libc_version is None else f"glibc {facts.libc_version}"
        parts = [facts.kind, facts.arch or "of unknown architecture", "no C library" if libc == "none" else libc]
        parts += [f"{name} {version}" for name, version in (("CUDA", facts.cuda), ("ROCm", facts.rocm)) if version]
        if self.is_closed:
            parts.append("closed")
        return f"<Image {facts.label!r}: {', '.join(parts)}>"

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self.tree.is_closed

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the directories of the packages of each Python in the image."""
        if self.environment is not None:
            return self.environment.packages
        return site_package_directories(self.tree, self.facts.env.get("PATH", ""))

    def close(self) -> None:
        """Close the files of the image. Its facts remain usable."""
        self.tree.close()


_ROOT_DIRECTORY_NAMES = frozenset(("bin", "etc", "lib", "lib64", "nix", "sbin", "usr"))
"""Every root file system contains at least one of these names."""


def read_image(tree: Tree, label: str, kind: ImageKind = "directory", env: Optional[Mapping[str, str]] = None) -> Image:
    """Return the facts of the image in *tree*.

    *env* are the variables of its configuration (OCI `config.Env`); if None, the image's environment files are read.
    """
    names = tree.list("/")
    any_loader = Loader(tree)
    if any_loader.glibc is None:
        any_loader = Loader(tree, extra_directories=unusual_glibc_directories(tree))
    family, version, arch = _libc(tree, any_loader)
    is_closed = isinstance(names, Missing) and names.why == "forbidden"
    forbidden = "/" if is_closed else any_loader.forbidden_directory if family == "none" else None
    if forbidden is not None:
        why, hint = f"you may not look into {forbidden} in it", "ask its owner, or use an image that you may read"
        raise HostReadError("unreadable-file", "the image cannot be read", where=label, why=why, hint=hint)
    loader = any_loader.for_arch(arch)
    libstdcxx = loader.elf_facts("libstdc++.so.6")
    env, undecided = select_variables(read_environment(tree)) if env is None else (env, ())
    env = {name: value for name, value in sorted(env.items()) if re.fullmatch(_VARIABLE, name)}
    libraries = (image_library(tree, soname, loader.find(soname) or "") for soname in DRIVER_SONAMES)
    # What is installed on a machine does not show what a program uses.
    cuda = () if kind == "host" else read_cuda(tree, env.get("CUDA_VERSION"), env.get("PATH", ""), loader.find)
    compat_paths = [path for pattern in _COMPAT_PATTERNS for path in glob_or_note(tree, pattern)]
    rocm, rocm_runtime = read_rocm(tree, prefixes_of(tree, env.get("PATH", "")))
    facts = ImageFacts(
        kind=kind,
        label=label,
        arch=arch,
        libc_family=family,
        libc_version=version,
        libstdcxx=newest_version(libstdcxx.version_definitions, "GLIBCXX") if libstdcxx else None,
        loader_directories=loader.directories,
        singularity=not isinstance(tree.list(ENVIRONMENT_DIRECTORY), Missing),
        env=FrozenDict(env),
        undecided=tuple(name for name in undecided if re.fullmatch(_VARIABLE, name)),
        driver=tuple(library for library in libraries if library is not None),
        vendor_neutral=tuple(soname for soname in VENDOR_NEUTRAL_SONAMES if loader.find(soname)),
        cuda=cuda[0].version if cuda else None,
        compat=tuple(compat_libraries(tree, compat_paths)),
        rocm=rocm,
        rocm_runtime=rocm_runtime,
        own_libcuda=_own_libcuda(tree, env.get("LD_LIBRARY_PATH", "")),
        every_cuda=cuda,
        has_root=kind != "directory" or isinstance(names, Missing) or not _ROOT_DIRECTORY_NAMES.isdisjoint(names),
        libc_fault=_libc_fault(tree, loader) if family == "none" else None,
    )
    return Image(tree, loader, facts)


def _libc(tree: Tree, loader: Loader) -> tuple[Literal["glibc", "musl", "none"], Optional[str], Optional[str]]:
    glibc = loader.glibc
    if glibc is not None and architecture(glibc.arch).bits == 32:
        shell = _shell_arch(tree)
        if shell is not None and architecture(shell).compat32 == glibc.arch:
            glibc = loader.for_arch(shell).glibc  # the image has both
    if glibc is not None:
        return "glibc", glibc.version, glibc.arch
    for path in glob(tree, "/lib/ld-musl-*.so.1"):
        ident = tree.ident(path)
        return "musl", None, ident.arch if isinstance(ident, ElfIdent) else None
    return "none", None, _shell_arch(tree)


def _libc_fault(tree: Tree, loader: Loader) -> Optional[str]:
    """Return the path of the first libc.so.6 that the loader finds, and why it is unusable: `PATH: WHY`."""
    for directory in dict.fromkeys(path.rpartition("/")[0] for path in loader.paths(LIBC)):
        if LIBC in tree.names(directory):
            path = f"{directory}/{LIBC}"
            ident, facts = tree.ident(path), tree.elf(path)
            if isinstance(ident, ElfIdent) and loader.arch not in (None, ident.arch):
                continue
            if isinstance(ident, NotElf):
                return f"{path}: {ident.detail}"
            if isinstance(ident, ElfIdent):
                return f"{path}: {facts.detail if isinstance(facts, Missing) else 'it defines no version of glibc'}"
            return f"{path} leads to no file of the image"
    return None


def _shell_arch(tree: Tree) -> Optional[str]:
    idents = (tree.ident(shell) for shell in SHELLS)
    return next((ident.arch for ident in idents if isinstance(ident, ElfIdent)), None)


def image_library(tree: Tree, soname: str, path: str) -> Optional[ImageLibrary]:
    """Return the driver library at *path*; None for a stub, a file of a compat package or an empty mount point."""
    file = tree.find(path) if path.startswith("/") else ABSENT
    if isinstance(file, Missing) or file.stat.kind != "file" or not file.stat.size:
        return None
    if "/compat/" in file.path or tree.is_stub(file.path):
        return None
    return ImageLibrary(soname, file.path, driver_version_of(file.path))


def compat_libraries(tree: Tree, paths: Iterable[str]) -> Iterator[ImageLibrary]:
    """Yield each compat libcuda among the first `COMPAT_LIMIT` of *paths* that is libcuda.so.1 in its directory."""
    for real_path in dict.fromkeys(tree.resolve(path) for path in islice(paths, COMPAT_LIMIT)):
        if isinstance(real_path, Missing):
            continue
        directory = real_path.rpartition("/")[0]
        if "compat" not in directory.split("/") or tree.resolve(f"{directory}/libcuda.so.1") != real_path:
            continue  # a link to a directory with other libraries
        elf = ABSENT if tree.is_stub(real_path) else tree.elf(real_path)
        if not isinstance(elf, Missing):
            yield ImageLibrary("libcuda.so.1", real_path, driver_version_of(real_path), elf.cuda_note)


def _own_libcuda(tree: Tree, library_path: str) -> Optional[RootedPath]:
    for directory in dict.fromkeys(split_library_path(library_path)):
        if directory.startswith("/.singularity.d/libs"):
            return None
        real_path = tree.resolve(f"{directory}/libcuda.so.1") if directory.startswith("/") else ABSENT
        if not isinstance(real_path, Missing) and isinstance(tree.ident(real_path), ElfIdent):
            return real_path
    return None
