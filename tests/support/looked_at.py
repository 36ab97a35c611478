"""What becomes of a hostile image when everything in it is looked at. As a program: of many, in bounded memory.

It imports nothing that is large: the memory that it may take is counted from what it has at its start.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback

from gpubind.errors import GpubindError
from gpubind.image.facts import Image
from gpubind.image.open import open_image
from gpubind.model import Missing
from tests.support.measure import LITTLE_S, piece_of_work

SECRET = "not yours"
"""What lies beside each image, in `secret` and in the directory `outside`; no answer may hold it."""
MEMORY = 300 << 20
LOOKED_AT = ("/", "/etc", "/lib", "/usr/lib", "/.singularity.d/env", "/bin", "/up", "/root/root", "/l", "/a", "/d/d/d")
READ = ("/etc/ld.so.conf", "/etc/ld.so.cache", "/lib/secret", "/secret", "/etc/passwd", "/lib/libc.so.6", "/up/secret")

MODULES = (
    "gpubind.formats.elf.dynamic",
    "gpubind.image.oci",
    "gpubind.image.sif",
    "lz4.block",
    "lzma",
    "tempfile",
    "zstandard",
)


def look(reference: str) -> str:
    """What became of an image: the code of an error, or `facts`. Everything in it is looked at, as far as that goes."""
    try:
        image = open_image(reference)
        assert SECRET not in repr(image.facts)
        _look_around(image)
    except GpubindError as error:
        assert error.what
        assert error.where, f"{error.code} says no place"
        assert "MemoryError" not in error.why
        assert SECRET not in error.why
        return error.code
    return "facts"


def _look_around(image: Image) -> None:
    tree = image.tree
    for path in LOOKED_AT:
        names = tree.list(path)
        assert isinstance(names, (tuple, Missing))
        for name in () if isinstance(names, Missing) else names[:50]:
            assert name not in ("", ".", "..")
            assert "/" not in name
            for answer in (tree.lstat(f"{path}/{name}"), tree.stat(f"{path}/{name}"), tree.resolve(f"{path}/{name}")):
                assert answer is not None
    for path in READ:
        assert SECRET.encode() != tree.read(path)
        tree.ident(path)
        tree.elf(path)


def _in_bounds(references: dict[str, str]) -> None:
    """Look at all, and print what became of each."""
    import resource

    for module in MODULES:
        importlib.import_module(module)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    for name, reference in references.items():
        started = time.process_time()
        try:
            code = look(reference)
        except Exception as error:  # noqa: BLE001
            code = f"!{type(error).__name__}"
            traceback.print_exc()
        seconds = time.process_time() - started
        pieces = seconds / piece_of_work() if seconds > LITTLE_S else 0
        sys.stdout.write(f"{name} {code} {pieces:.0f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _in_bounds(json.loads(sys.argv[1]))
