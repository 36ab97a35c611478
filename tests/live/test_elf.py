"""Every library and program of the rig's roots says by its segments what it says by its section headers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gpubind.formats.elf.dynamic import parse_elf
from gpubind.formats.elf.elf import HEAD_SIZE, ElfIdent, parse_ident
from tests.support.elf_sections import by_sections

pytestmark = pytest.mark.live

LEFT_OUT = {"proc", "sys", "dev", "tmp", "root", "home", "run"}
"""Below a root: what belongs to no package, and may vanish while other tests run."""


def elf_files(root: str) -> Iterator[str]:
    """The ELF files below *root*; of several names of one file the first."""
    seen = set()
    for directory, directories, names in os.walk(root):
        if directory == root:
            directories[:] = sorted({*directories} - LEFT_OUT)
        for path in (os.path.join(directory, name) for name in sorted(names)):
            found = os.lstat(path)
            if os.path.islink(path) or not os.path.isfile(path) or (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            with open(path, "rb") as stream:
                if isinstance(parse_ident(stream.read(HEAD_SIZE)), ElfIdent):
                    yield path


@pytest.mark.parametrize("root", ["hosts/trixie", "hosts/nv535", "hosts/flat550", "ct/bookworm-gl", "ct/bullseye-gl"])
def test_both_readers_say_the_same_of_every_file(rig: str, root: str) -> None:
    seen = 0
    for path in elf_files(f"{rig}/{root}"):
        with open(path, "rb") as stream:
            ours = parse_elf(stream)
            stream.seek(0)
            assert ours == by_sections(stream), path
        seen += 1
    assert seen > 20
