"""Which versions of CUDA an image has: the toolkit, its configuration, and what pip, conda, Spack and EasyBuild put in.

Fixed places are listed, and the file names tell; nothing is searched. A Python environment or conda's is looked for in
the prefixes of PATH and in those where images have them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal, Optional

from gpubind.formats.cuda_packages import (
    cuda_of_conda,
    cuda_of_easybuild,
    cuda_of_spack,
    cuda_of_torch,
    cuda_of_wheel,
)
from gpubind.formats.require import version_key
from gpubind.model import ImageCuda, Missing
from gpubind.tree import Tree

PREFIXES = (
    *("/usr", "/usr/local", "/opt", "/conda", "/miniconda3", "/venv", "/.venv", "/app/.venv", "/app/venv"),
    *("/workspace/.venv", "/workspace/venv", "/root/.venv", "/root/miniconda3", "/root/micromamba", "/app/.pixi"),
)
"""Where Python or conda lie in images, beside the prefixes of PATH and the directories of /opt. `envs` in each, too."""
SPACK = ("/opt/software", "/opt/spack/opt/spack", "/spack/opt/spack")
"""Install trees of Spack: `spack containerize` has the first."""
EASYBUILD = ("/opt/easybuild/software", "/easybuild/software", "/app/software", "/apps/software", "/software")
"""`installpath` of EasyBuild; its container images have /app."""
DIRECTORIES_LIMIT = 256
"""Prefixes, and directories of Spack's, that are listed: an image with thousands of them must not take minutes."""


def read_cuda(tree: Tree, variable: Optional[str], path: str) -> tuple[ImageCuda, ...]:
    """What is there, the newest first; of equal versions of one origin, the first that is found.

    *variable* is the value of CUDA_VERSION in the image's environment, *path* that of PATH.
    """
    found: dict[tuple[tuple[int, ...], str], ImageCuda] = {}
    for cuda in _every(tree, variable, path):
        found.setdefault((version_key(cuda.version)[:2], cuda.origin), cuda)
    return tuple(sorted(found.values(), key=lambda cuda: version_key(cuda.version)[:2], reverse=True))


def wheels_with(tree: Tree, path: str, soname: str) -> Optional[str]:
    """The directory of NVIDIA's wheels that has the library *soname*: `.../site-packages/nvidia/cudnn/lib`.

    Programs find it by a search path of their own (RPATH), or not at all. *path* is PATH in the image.
    """
    for prefix in _prefixes(tree, path):
        for packages in _site_packages(tree, prefix):
            for name in tree.names(f"{packages}/nvidia"):
                if soname in tree.names(f"{packages}/nvidia/{name}/lib"):
                    return f"{packages}/nvidia/{name}/lib"
    return None


def version_in(tree: Tree, path: str, prefix: str = "") -> Optional[str]:
    """The version that the file *path* starts with, behind *prefix*."""
    match = re.match(prefix + r"([0-9]{1,9}(?:\.[0-9]{1,9}){1,3})", tree.text(path) or "")
    return match.group(1) if match else None


def _every(tree: Tree, variable: Optional[str], path: str) -> Iterator[ImageCuda]:
    toolkit = _toolkit(tree)
    if toolkit:
        yield ImageCuda(toolkit, "toolkit", "/usr/local/cuda")
    elif variable and re.match(r"[0-9]{1,3}(\.[0-9]{1,3}){1,3}$", variable):
        yield ImageCuda(variable, "variable", "CUDA_VERSION")
    for prefix in _prefixes(tree, path):
        for packages in _site_packages(tree, prefix):
            yield from _of_wheels(tree, packages)
        yield from _named(tree, f"{prefix}/conda-meta", cuda_of_conda, "conda")
    for directory in _spack_directories(tree):
        yield from _named(tree, directory, cuda_of_spack, "spack")
    for root in EASYBUILD:
        yield from _named(tree, f"{root}/CUDA", cuda_of_easybuild, "easybuild")


def _named(
    tree: Tree, directory: str, cuda_of: Callable[[str], Optional[str]], origin: Literal["conda", "spack", "easybuild"]
) -> Iterator[ImageCuda]:
    """What the names in *directory* tell."""
    for name in tree.names(directory):
        version = cuda_of(name)
        if version:
            yield ImageCuda(version, origin, f"{directory}/{name}")


def _toolkit(tree: Tree) -> Optional[str]:
    """The CUDA version that the toolkit in the image says of itself."""
    try:
        version = json.loads(tree.text("/usr/local/cuda/version.json") or "null")["cuda"]["version"]
    except (ValueError, TypeError, KeyError, RecursionError):  # not there, or not as NVIDIA writes it: it says nothing
        version = None
    if isinstance(version, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){1,3}", version):
        return version
    return version_in(tree, "/usr/local/cuda/version.txt", "CUDA Version ")


def _of_wheels(tree: Tree, packages: str) -> Iterator[ImageCuda]:
    """What the wheels in the directory *packages* say; torch carries libraries of CUDA, or wants NVIDIA's wheels."""
    for name in tree.names(packages):
        version = cuda_of_wheel(name)
        if version:
            yield ImageCuda(version, "pip", f"{packages}/{name}")
        elif name == "torch":
            torch = cuda_of_torch(tree.text(f"{packages}/torch/version.py") or "")
            if torch:
                yield ImageCuda(torch, "pip", f"{packages}/torch/version.py")


def _prefixes(tree: Tree, path: str) -> Iterator[str]:
    """Each prefix that may have a Python or conda's records, once, with the environments below it."""
    of_path = (part.rpartition("/")[0] for part in path.split(":") if part.startswith("/") and part.endswith("/bin"))
    in_opt = (f"/opt/{name}" for name in tree.names("/opt"))
    above = tuple(dict.fromkeys(prefix for prefix in (*of_path, *PREFIXES, *in_opt) if prefix))
    below = (f"{prefix}/envs/{name}" for prefix in above for name in tree.names(f"{prefix}/envs"))
    return _each_once(tree, (*above, *below))


def _site_packages(tree: Tree, prefix: str) -> Iterator[str]:
    """The directories of *prefix* in which Python has its packages."""
    for library in ("lib", "lib64"):
        pythons = [name for name in tree.names(f"{prefix}/{library}") if name.startswith("python3")]
        places = (f"{prefix}/{library}/{name}/{kind}-packages" for name in pythons for kind in ("site", "dist"))
        yield from _each_once(tree, places)


def _spack_directories(tree: Tree) -> Iterator[str]:
    """The directories in which Spack has packages: below a platform; before Spack 1.0 also below a compiler."""
    platforms = [f"{root}/{name}" for root in SPACK for name in tree.names(root)]
    compilers = (f"{platform}/{name}" for platform in platforms for name in tree.names(platform) if "cuda-" not in name)
    return _each_once(tree, (*platforms, *islice(compilers, DIRECTORIES_LIMIT)))


def _each_once(tree: Tree, directories: Iterable[str]) -> Iterator[str]:
    """Those of *directories* that are there, without links to one of them; no more than the limit."""
    seen: dict[str, None] = {}
    for directory in directories:
        real = tree.resolve(directory)
        if not isinstance(real, Missing) and real not in seen:
            seen[real] = None
            yield directory
        if len(seen) >= DIRECTORIES_LIMIT:
            return
