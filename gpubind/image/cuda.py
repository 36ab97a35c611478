"""Find the versions of CUDA in an image: of the toolkit, of its configuration, and of pip, conda, Spack and EasyBuild.

Most versions are in the names of files in fixed directories. For a framework of `model/cuda.py`, the version is in a
file about its build, or in the sonames that its libraries need. Python and conda are searched in the prefixes of PATH
and in usual ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from posixpath import dirname
from typing import Literal, Optional

from gpubind.files import Tree
from gpubind.formats.driver.cuda_packages import cuda_of_digits, cuda_of_library, cuda_of_package, cuda_of_wheel
from gpubind.loader.python import PythonPaths, site_packages
from gpubind.model import ImageCuda, Missing
from gpubind.model.cuda import Framework, frameworks, version_key

PREFIXES = (
    *("/usr", "/usr/local", "/opt", "/conda", "/miniconda3", "/venv", "/.venv", "/app/.venv", "/app/venv"),
    *("/workspace/.venv", "/workspace/venv", "/root/.venv", "/root/miniconda3", "/root/micromamba", "/app/.pixi"),
)
"""Usual prefixes of Python and conda in images, in addition to those of PATH and below /opt."""
_SPACK = ("/opt/software", "/opt/spack/opt/spack", "/spack/opt/spack")
"""Install trees of Spack; `spack containerize` uses the first."""
_EASYBUILD = ("/opt/easybuild/software", "/easybuild/software", "/app/software", "/apps/software", "/software")
"""`installpath` of EasyBuild; its container images use /app."""
DIRECTORIES_LIMIT = 256
"""Limit of the listed prefixes, and of Spack's directories: an image with thousands must not take minutes."""

FindLibrary = Callable[[str], object]
"""A function that returns where the loader finds a soname; None if nowhere."""


def read_cuda(tree: Tree, variable: Optional[str], path: str, find: FindLibrary) -> tuple[ImageCuda, ...]:
    """Return every CUDA of the image, the newest first.

    *variable* is the value of CUDA_VERSION in the image's environment, *path* that of PATH.
    """
    return newest_first((*_image_cuda(tree, variable), *cuda_below(tree, prefixes_of(tree, path), find)))


def newest_first(versions: Iterable[ImageCuda]) -> tuple[ImageCuda, ...]:
    """Sort *versions*, the newest first; of equal versions of one origin, keep the first."""
    first: dict[tuple[tuple[int, ...], str], ImageCuda] = {}
    for cuda in versions:
        first.setdefault((version_key(cuda.version)[:2], cuda.origin), cuda)
    return tuple(sorted(first.values(), key=lambda cuda: version_key(cuda.version)[:2], reverse=True))


def cuda_below(tree: Tree, prefixes: Iterable[str], find: FindLibrary) -> Iterator[ImageCuda]:
    """Yield the versions of Python packages and of conda's records in *prefixes*."""
    for prefix in prefixes:
        yield from cuda_of_packages(tree, _unique_directories(tree, site_packages(tree, prefix)), find)
        yield from cuda_of_records(tree, prefix)


def cuda_of_python(tree: Tree, paths: PythonPaths, find: FindLibrary) -> tuple[ImageCuda, ...]:
    """Return the versions of the packages that a Python with *paths* imports, the newest first."""
    records = (cuda for prefix in paths.prefixes for cuda in cuda_of_records(tree, prefix))
    return newest_first((*cuda_of_packages(tree, paths.packages, find), *records))


def cuda_of_packages(tree: Tree, directories: Iterable[str], find: FindLibrary) -> Iterator[ImageCuda]:
    """Yield the versions of NVIDIA's wheels and of frameworks in *directories*."""
    for packages in directories:
        for name in tree.names(packages):
            version = cuda_of_wheel(name)
            framework = frameworks().get(name)
            if version:
                yield ImageCuda(version, "pip", f"{packages}/{name}")
            elif framework is not None:
                yield from _framework_cuda(tree, packages, framework, find)


def cuda_of_records(tree: Tree, prefix: str) -> Iterator[ImageCuda]:
    """Yield the versions of conda's records in *prefix*."""
    return _versions_in_names(tree, f"{prefix}/conda-meta", "conda")


def site_package_directories(tree: Tree, path: str) -> tuple[str, ...]:
    """Return the `site-packages` of each Python in an image whose PATH is *path*."""
    places = (place for prefix in prefixes_of(tree, path) for place in site_packages(tree, prefix))
    return tuple(_unique_directories(tree, places))


def frameworks_in(tree: Tree, packages: Iterable[str]) -> Iterator[tuple[Framework, str]]:
    """Yield the frameworks in the directories *packages*, each with its directory."""
    by_name = frameworks()
    return ((by_name[name], directory) for directory in packages for name in tree.names(directory) if name in by_name)


def framework_libraries(tree: Tree, packages: str, framework: Framework) -> dict[str, Optional[str]]:
    """Return the libraries of *framework* in the directory *packages*, with the module whose import loads each.

    If the framework opens one of several and the choice is unknown, return all of them.
    """
    patterns = [(module, pattern) for module, patterns in framework.imports.items() for pattern in patterns]
    every = (*patterns, *((None, pattern) for pattern in framework.libraries))
    modules_by_path = {path: module for module, pattern in every for path in glob_below(tree, packages, pattern)}
    opened = opened_of(tree, packages, framework, modules_by_path)
    return modules_by_path if opened is None else {path: modules_by_path[path] for path in opened}


def opened_of(tree: Tree, packages: str, framework: Framework, paths: Iterable[str]) -> Optional[tuple[str, ...]]:
    """Return the one of *paths* that *framework* opens, for the CUDA or ROCm of the PyTorch in *packages*.

    The framework prefers the newest library that is not newer than PyTorch's version, then the oldest of its major
    version. Return None if it opens all of *paths*, or if PyTorch's version is unknown.
    """
    version_file = tree.text(f"{packages}/torch/version.py") or "" if framework.one_of else ""
    for name, built in framework.one_of.items():
        match = re.search(built, version_file, re.MULTILINE)
        if match is None:
            continue
        target_version, versions = version_key(match.group(1)), dict[tuple[int, ...], str]()
        for path in paths:
            of_name = re.search(name, path)
            if of_name and (int(of_name.group(1)),) == target_version[:1]:
                versions[version_key(".".join(of_name.groups()))] = path
        older = [version for version in versions if version <= target_version]
        best = max(older) if older else min(versions, default=None)
        return () if best is None else (versions[best],)
    return None


def wheel_directories(tree: Tree, packages: str) -> tuple[str, ...]:
    """Return the library directories of NVIDIA's and AMD's wheels in *packages*."""
    names = tree.names(f"{packages}/nvidia")
    nvidias = tuple(place for name in names if tree.names(place := f"{packages}/nvidia/{name}/lib"))
    return (*nvidias, *glob_below(tree, packages, "_rocm_sdk_*/lib"))


def directories_for(framework: Framework, packages: str, wheels: Iterable[str]) -> tuple[str, ...]:
    """Return where *framework* in the directory *packages* finds libraries outside its own RPATH."""
    own_directories = (place if place.startswith("/") else f"{packages}/{place}" for place in framework.beside)
    # Whatever conda's Python opens also finds the libraries of that Python.
    return (*own_directories, *wheels, dirname(dirname(packages)))


def wheel_directory_of(tree: Tree, path: str, soname: str) -> Optional[str]:
    """Return the directory of a wheel that contains *soname*: `.../site-packages/nvidia/cudnn/lib`. *path* is PATH.

    Only programs whose RPATH names that directory find the library.
    """
    places = (place for packages in site_package_directories(tree, path) for place in wheel_directories(tree, packages))
    return next((place for place in places if soname in tree.names(place)), None)


def read_version(tree: Tree, path: str, prefix: str = "") -> Optional[str]:
    """Return the version at the start of the file *path*, after *prefix*."""
    match = re.match(prefix + r"([0-9]{1,9}(?:\.[0-9]{1,9}){1,3})", tree.text(path) or "")
    return match.group(1) if match else None


def _image_cuda(tree: Tree, variable: Optional[str]) -> Iterator[ImageCuda]:
    toolkit = _toolkit_version(tree)
    if toolkit:
        yield ImageCuda(toolkit, "toolkit", "/usr/local/cuda")
    elif variable and re.match(r"[0-9]{1,3}(\.[0-9]{1,3}){1,3}$", variable):
        yield ImageCuda(variable, "variable", "CUDA_VERSION")
    # Spack installs packages below a platform; before 1.0 also below a compiler.
    platforms = [f"{root}/{name}" for root in _SPACK for name in tree.names(root)]
    compilers = (f"{platform}/{name}" for platform in platforms for name in tree.names(platform) if "cuda-" not in name)
    for directory in _unique_directories(tree, (*platforms, *islice(compilers, DIRECTORIES_LIMIT))):
        yield from _versions_in_names(tree, directory, "spack")
    for root in _EASYBUILD:
        yield from _versions_in_names(tree, f"{root}/CUDA", "easybuild")


def _versions_in_names(
    tree: Tree, directory: str, origin: Literal["conda", "spack", "easybuild"]
) -> Iterator[ImageCuda]:
    for name in tree.names(directory):
        version = cuda_of_package(name, origin)
        if version:
            yield ImageCuda(version, origin, f"{directory}/{name}")


def _toolkit_version(tree: Tree) -> Optional[str]:
    try:
        version = json.loads(tree.text("/usr/local/cuda/version.json") or "null")["cuda"]["version"]
    except (ValueError, TypeError, KeyError, RecursionError):  # absent, or not as NVIDIA writes it
        version = None
    if isinstance(version, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){1,3}", version):
        return version
    if version := read_version(tree, "/usr/local/cuda/version.txt", "CUDA Version "):
        return version
    real_path = tree.resolve("/usr/local/cuda")
    match = None if isinstance(real_path, Missing) else re.fullmatch(r".*/cuda-([0-9]{1,3}\.[0-9]{1,3})", real_path)
    return match.group(1) if match else None


def _framework_cuda(tree: Tree, packages: str, framework: Framework, find: FindLibrary) -> Iterator[ImageCuda]:
    cuda = _built_for(tree, packages, framework)
    if cuda is None:
        return
    major = cuda.version.partition(".")[0]
    opens = tuple(name.format(major=major) for name in framework.opens)
    wheels = wheel_directories(tree, packages) if opens else ()
    if not opens or any(find(name) or any(name in tree.names(place) for place in wheels) for name in opens):
        yield cuda


def _built_for(tree: Tree, packages: str, framework: Framework) -> Optional[ImageCuda]:
    for file, pattern in framework.versions.items():
        match = re.search(pattern, tree.text(f"{packages}/{file}") or "", re.MULTILINE)
        if match:
            version = match.group(1)
            return ImageCuda(version if "." in version else cuda_of_digits(version), "pip", f"{packages}/{file}")
    for library in framework_libraries(tree, packages, framework):
        if versions := linked_cuda(tree, library):
            return ImageCuda(max(versions, key=version_key), "pip", library)
    return None


def linked_cuda(tree: Tree, path: str) -> list[str]:
    """Return the CUDA versions in the sonames that the library *path* needs."""
    elf = tree.elf(path)
    return [] if isinstance(elf, Missing) else [cuda for name in elf.needed if (cuda := cuda_of_library(name))]


def glob_below(tree: Tree, directory: str, pattern: str) -> Iterator[str]:
    """Yield the paths below *directory* that match *pattern*, whose components may have a `*`."""
    head, _, tail = pattern.partition("/")
    for name in tree.names(directory):
        if fnmatchcase(name, head):
            yield from glob_below(tree, f"{directory}/{name}", tail) if tail else (f"{directory}/{name}",)


def prefixes_of(tree: Tree, path: str) -> Iterator[str]:
    """Yield each prefix that may contain a Python or conda's records, and the environments below it."""
    of_path = (part.rpartition("/")[0] for part in path.split(":") if part.startswith("/") and part.endswith("/bin"))
    in_opt = (f"/opt/{name}" for name in tree.names("/opt"))
    above = tuple(dict.fromkeys(prefix for prefix in (*of_path, *PREFIXES, *in_opt) if prefix))
    below = (f"{prefix}/envs/{name}" for prefix in above for name in tree.names(f"{prefix}/envs"))
    return _unique_directories(tree, (*above, *below))


def _unique_directories(tree: Tree, directories: Iterable[str]) -> Iterator[str]:
    """Yield existing *directories*, up to `DIRECTORIES_LIMIT`, without links to earlier ones."""
    seen: dict[str, None] = {}
    for directory in directories:
        real_path = tree.resolve(directory)
        if not isinstance(real_path, Missing) and real_path not in seen:
            seen[real_path] = None
            yield directory
        if len(seen) >= DIRECTORIES_LIMIT:
            return


def needed_cuda(every: Sequence[ImageCuda]) -> Optional[str]:
    """Return `MAJOR.MINOR` of the first, newest version in *every*; None without any."""
    match = re.match(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)(\.|$)", every[0].version) if every else None
    return match.group(1) if match else None
