"""What gpubind.pyz has as byte code of this Python is not compiled.

Python's own import of a zip reads each module twice. For another Python it imports the sources in the same file.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import MAGIC_NUMBER
from marshal import loads
from zlib import decompress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Optional
    from zipimport import zipimporter

    Places = dict[str, tuple[str, int, int]]
    """Of each module its source, and where its code is, marshalled and compressed: from the end, and its size."""


class ByteCode:
    """Import the modules of an archive from their byte code. Data and sources are its own loader's."""

    def __init__(self, archive: "zipimporter", codes: bytes) -> None:
        self._archive = archive
        self._codes = memoryview(codes)
        self._places: Places = loads(codes)

    def find_spec(self, name: str, path: object = None, target: object = None) -> "Optional[ModuleSpec]":
        """Return where module *name* is; None for one that is not in the archive."""
        if name not in self._places:
            return None
        file = f"{self._archive.archive}/{self._places[name][0]}"
        spec = ModuleSpec(name, self, origin=file)  # type: ignore[arg-type]
        if file.endswith("/__init__.py"):
            spec.submodule_search_locations = [file[: -len("/__init__.py")]]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run the code of *module*."""
        spec = module.__spec__
        assert spec is not None
        module.__file__ = spec.origin
        _, at, size = self._places[spec.name]
        exec(loads(decompress(self._codes[at:][:size])), module.__dict__)

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._archive, name)


def main(archive: "zipimporter") -> int:
    """Run gpubind from *archive*."""
    try:
        member = f"bytecode/{sys.implementation.cache_tag}-{MAGIC_NUMBER[:2].hex()}"
        sys.meta_path.insert(0, ByteCode(archive, archive.get_data(member)))
    except OSError:
        pass  # none for this Python
    from gpubind.__main__ import main

    return main()
