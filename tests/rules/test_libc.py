"""What is told of an image whose programs run on the host's glibc."""

from __future__ import annotations

from tests.rules.cases_image import OLDER, newer
from tests.rules.situations import found
from tests.support.c_library import c_library
from tests.support.elf import I386, elf
from tests.support.images import image

SMALL = "/usr/lib/i386-linux-gnu"


def test_private_symbols_are_looked_for_in_the_glibc_of_the_same_architecture() -> None:
    """The 32-bit glibc of an image stays whole, unless compat32 is asked for."""
    own = c_library("2.36", directory=SMALL, loader="/lib/ld-linux.so.2", machine=I386, private=("__gone",))
    needs = {"libc.so.6": ("GLIBC_2.36", "GLIBC_PRIVATE")}
    small = elf("libdl.so.2", machine=I386, bits=32, needed=("libc.so.6",), needs=needs, private=("__gone",))
    opened = image(*OLDER, own, {f"{SMALL}/libdl.so.2": small})
    assert "libc-private" not in {finding.code for finding in found(newer(opened))}
