"""Windows' driver in Linux (WSL 2): its directories, and which of the drivers that Windows keeps is in use.

Windows shows the directory of each of its drivers below `/usr/lib/wsl/drivers`, also those of earlier versions.
NVIDIA's contain the driver proper. `/usr/lib/wsl/lib` contains the libraries that programs open, which are copies of
files there, or load them. Source: nvidia-container-toolkit `pkg/nvcdi/driver-wsl.go`.
"""

from __future__ import annotations

from gpubind.files.tree import Tree
from gpubind.frozen import NamedTuple
from gpubind.model import Missing
from gpubind.model.layouts import WSL_DRIVERS, WSL_LIBRARIES

LIBCUDA = "libcuda.so.1.1"
"""A file that only NVIDIA's stores contain."""
NVIDIA_STORE_PREFIX = "nv"
"""The prefix of the names of NVIDIA's stores (nv_dispi.inf_amd64_..., nvmdi...). Windows has hundreds of others."""


class Stores(NamedTuple):
    """The directories of the NVIDIA drivers that Windows keeps."""

    in_use: tuple[str, ...] = ()
    """The directory of the driver in use; several if they cannot be told apart."""
    others: tuple[str, ...] = ()


def driver_stores(tree: Tree) -> Stores:
    """Return the directory of NVIDIA's driver in use, and those of the others.

    The driver in use has the most files of equal name and size in /usr/lib/wsl/lib. NVIDIA's own tools ask Windows.
    """
    names = tree.names(WSL_DRIVERS)
    nvidia_names = [name for name in names if name.startswith(NVIDIA_STORE_PREFIX)]
    other_names = [name for name in names if name not in nvidia_names]
    stores = _with_libcuda(tree, nvidia_names) or _with_libcuda(tree, other_names)
    if len(stores) < 2:
        return Stores(stores)
    copies = {name: _size(tree, f"{WSL_LIBRARIES}/{name}") for name in tree.names(WSL_LIBRARIES)}
    equal = {
        store: sum(1 for name, size in copies.items() if size and _size(tree, f"{store}/{name}") == size)
        for store in stores
    }
    in_use = tuple(store for store in stores if equal[store] == max(equal.values()))
    return Stores(in_use, tuple(store for store in stores if store not in in_use))


def _with_libcuda(tree: Tree, names: list[str]) -> tuple[str, ...]:
    stores = (f"{WSL_DRIVERS}/{name}" for name in names)
    return tuple(store for store in stores if tree.has(f"{store}/{LIBCUDA}"))


def _size(tree: Tree, path: str) -> int:
    stat = tree.stat(path)
    return 0 if isinstance(stat, Missing) else stat.size
