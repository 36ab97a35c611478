"""The directories in which an image's copies of libgbm look for their backends.

A copy searches the directory that it was built with. Since Mesa 21.2, GBM_BACKENDS_PATH replaces that directory.
Source: Mesa `src/gbm/main/backend.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpubind.files import Tree
from gpubind.files.facts import CONSTANTS
from gpubind.formats.elf.elf import split_library_path
from gpubind.image.cuda import prefixes_of
from gpubind.image.facts import Image
from gpubind.model import Missing

_LIBGBM = "libgbm.so.1"
_BUILT_WITH = rb"(?<=\0)/[^\0]{1,255}/gbm(?=\0)"
_PLAIN = r"[\w./+@-]+"
"""A path without colons, and without characters that a shell interprets."""


def backend_directories(image: Image) -> tuple[str, ...]:
    """Return the directories in which the copies of libgbm in *image* look for backends without GBM_BACKENDS_PATH."""
    env = image.facts.env
    prefixes = prefixes_of(image.tree, env.get("PATH", ""))
    search_path = (path.rstrip("/") for path in split_library_path(env.get("LD_LIBRARY_PATH", "")))
    below = (f"{prefix}/{name}" for prefix in prefixes for name in ("lib", "lib64"))
    places = dict.fromkeys((*search_path, *image.loader.directories, *below))
    return tuple(dict.fromkeys(_built_in_directories(image.tree, places)))


def _built_in_directories(tree: Tree, directories: Iterable[str]) -> Iterator[str]:
    """Yield the directory that each copy was built with; `gbm` next to the copy, if that is unknown."""
    for directory in directories:
        path = f"{directory}/{_LIBGBM}"
        if not directory.startswith("/") or not tree.has(path):
            continue
        constants = tree.fact(path, CONSTANTS)
        built = () if isinstance(constants, Missing) else re.findall(_BUILT_WITH, constants)
        for backend_directory in [raw_path.decode("utf-8", "replace") for raw_path in built] or [f"{directory}/gbm"]:
            if re.fullmatch(_PLAIN, backend_directory, re.ASCII):
                yield backend_directory
