"""What a plan must know of an image: read from a tree of its files, whatever it was stored in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Optional

from gpubind.errors import FormatError, HostReadError
from gpubind.files import Tree, glob
from gpubind.formats.driver.names import DRIVER_SONAMES, VENDOR_NEUTRAL_SONAMES, driver_version_of
from gpubind.formats.elf.elf import ElfIdent, NotElf
from gpubind.formats.elf.glibc import LIBC
from gpubind.image.cuda import read_cuda, version_in
from gpubind.image.environment import ENVIRONMENT, of_interest, read_environment
from gpubind.loader.loader import Loader, newest
from gpubind.model import ImageFacts, ImageKind, ImageLibrary, Missing, RootedPath
from gpubind.model.answers import ABSENT
from gpubind.model.arch import architecture

if TYPE_CHECKING:
    from gpubind.formats.archive.bundle import Bundle

SHELLS = ("/bin/sh", "/usr/bin/env", "/bin/busybox")
COMPAT = tuple(
    f"/usr/local/{toolkit}/compat{below}/libcuda.so.1"
    for toolkit in ("cuda", "cuda-*")
    for below in ("", "/lib.real", "/lib")
)
"""Where NVIDIA's packages and images have a compat libcuda. In NGC's images the entrypoint makes `lib` a link to
`lib.real` where that libcuda works; without the entrypoint there is no `lib`."""

COMPAT_LIMIT = 64  # paths of these; an image has one toolkit, or a few

_VARIABLE = re.compile(
    r"LD_LIBRARY_PATH|PATH|PYTHON(HOME|NOUSERSITE|PATH|USERBASE)|CUDA_VERSION|NVIDIA_[A-Z0-9_]+|(CUDA|ROCR|HIP)_VISIBLE_DEVICES"
    r"|GBM_BACKENDS_PATH|VDPAU_DRIVER_PATH"
)


class Image(NamedTuple):
    """An open image."""

    tree: Tree
    loader: Loader
    facts: ImageFacts
    bundle: Optional[Bundle] = None
    """What the config.json of an OCI bundle says; None if it is no bundle."""

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self.tree.is_closed

    def close(self) -> None:
        """Give back what is open of the image: its facts stay, its files cannot be asked for any more."""
        self.tree.close()


ROOT = frozenset(("bin", "etc", "lib", "lib64", "nix", "sbin", "usr"))
"""What every root file system has something of."""


def read_image(tree: Tree, label: str, kind: ImageKind = "directory", env: Optional[Mapping[str, str]] = None) -> Image:
    """Return the facts of the image in *tree*.

    *env* is what its configuration sets (OCI `config.Env`), where it has one; else its environment files count.
    """
    names = tree.list("/")
    any_loader = Loader(tree)
    family, version, arch = _libc(tree, any_loader)
    is_closed = isinstance(names, Missing) and names.why == "forbidden"
    forbidden = "/" if is_closed else any_loader.forbidden_directory if family == "none" else None
    if forbidden is not None:
        why, hint = f"you may not look into {forbidden} in it", "ask its owner, or use an image that you may read"
        raise HostReadError("unreadable-file", "the image cannot be read", where=label, why=why, hint=hint)
    loader = any_loader.of(arch)
    libstdcxx = loader.facts("libstdc++.so.6")
    undecided: tuple[str, ...] = ()
    if env is None:
        env, undecided = of_interest(read_environment(tree))
    env = {name: value for name, value in sorted(env.items()) if _VARIABLE.fullmatch(name)}
    cuda = read_cuda(tree, env.get("CUDA_VERSION"), env.get("PATH", ""), loader.find)
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
        cuda=cuda[0].version if cuda else None,
        compat=tuple(_compat(tree)),
        rocm=version_in(tree, "/opt/rocm/.info/version"),
        own_libcuda=_own_libcuda(tree, env.get("LD_LIBRARY_PATH", "")),
        every_cuda=cuda,
        has_root=kind != "directory" or isinstance(names, Missing) or not ROOT.isdisjoint(names),
        libc_fault=_libc_fault(tree, loader) if family == "none" else None,
    )
    return Image(tree, loader, facts)


def _libc(tree: Tree, loader: Loader) -> tuple[Literal["glibc", "musl", "none"], Optional[str], Optional[str]]:
    """Return the C library of an image: family, version, architecture."""
    glibc = loader.glibc
    if glibc is not None and architecture(glibc.arch).bits == 32:
        shell = _shell(tree)
        if shell is not None and architecture(shell).compat32 == glibc.arch:
            glibc = loader.of(shell).glibc  # the other is beside it
    if glibc is not None:
        return "glibc", glibc.version, glibc.arch
    for path in glob(tree, "/lib/ld-musl-*.so.1"):
        ident = tree.ident(path)
        return "musl", None, ident.arch if isinstance(ident, ElfIdent) else None
    return "none", None, _shell(tree)


def _libc_fault(tree: Tree, loader: Loader) -> Optional[str]:
    """Return what is called libc.so.6 where the loader looks, and why that is none."""
    for directory in dict.fromkeys(place.rpartition("/")[0] for place in loader.places(LIBC)):
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


def _shell(tree: Tree) -> Optional[str]:
    """Return the architecture of the image's shell."""
    idents = (tree.ident(shell) for shell in SHELLS)
    return next((ident.arch for ident in idents if isinstance(ident, ElfIdent)), None)


def _driver(tree: Tree, loader: Loader) -> Iterator[ImageLibrary]:
    for soname in DRIVER_SONAMES:
        path = loader.find(soname)
        library = image_library(tree, soname, path) if path else None
        if library is not None:
            yield library


def image_library(tree: Tree, soname: str, path: str) -> Optional[ImageLibrary]:
    """Return the driver's library at *path*; None if there is none, or it is a stub, of a compat package, or empty.

    Empty files are mount points that others left.
    """
    found = tree.find(path) if path.startswith("/") else ABSENT
    if isinstance(found, Missing) or found.stat.kind != "file" or not found.stat.size:
        return None
    real = found.path
    return None if "/compat/" in real or tree.is_stub(real) else ImageLibrary(soname, real, driver_version_of(real))


def _compat(tree: Tree) -> Iterator[ImageLibrary]:
    """Yield each compat libcuda that a program would find as libcuda.so.1 in its directory, once."""
    for real in dict.fromkeys(tree.resolve(path) for path in _compat_paths(tree)[:COMPAT_LIMIT]):
        if isinstance(real, Missing):
            continue
        directory = real.rpartition("/")[0]
        if "compat" not in directory.split("/") or tree.resolve(f"{directory}/libcuda.so.1") != real:
            continue  # a link out of the package: the directory holds more than that
        elf = ABSENT if tree.is_stub(real) else tree.elf(real)
        if not isinstance(elf, Missing):
            yield ImageLibrary("libcuda.so.1", real, driver_version_of(real), elf.cuda_note)


def _compat_paths(tree: Tree) -> list[RootedPath]:
    """What matches `COMPAT`; of an image with thousands of toolkits, what the patterns before such a one match."""
    paths: list[RootedPath] = []
    for pattern in COMPAT:
        try:
            paths += glob(tree, pattern)
        except FormatError as error:
            if error.code != "wide-glob":
                raise
            tree.unseen[pattern] = error.why
            break
    return paths


def _own_libcuda(tree: Tree, library_path: str) -> Optional[RootedPath]:
    """The libcuda to which the image's own *library_path* leads before Singularity's directory of host libraries."""
    for directory in dict.fromkeys(library_path.replace(";", ":").split(":")):
        if directory.startswith("/.singularity.d/libs"):
            return None
        real = tree.resolve(f"{directory}/libcuda.so.1") if directory.startswith("/") else ABSENT
        if not isinstance(real, Missing) and isinstance(tree.ident(real), ElfIdent):
            return real
    return None
