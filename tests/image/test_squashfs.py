"""Trees of squashfs images that mksquashfs wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubind.errors import GpubindError
from gpubind.image.open import open_image
from gpubind.model import Missing


@pytest.mark.parametrize("name", ["gzip", "lzma", "xz", "lz4", "zstd"])
def test_what_mksquashfs_writes_can_be_read(name: str) -> None:
    image = open_image(str(Path(__file__).parent.parent / "data" / "images" / f"{name}.squashfs"))
    tree = image.tree
    assert tree.list("/") == ("bin", "dev", "etc", "lib", "many", "usr")
    assert image.facts.libc_version == "2.36"
    assert len(tree.list("/many")) == 300
    assert tree.read("/many/name-of-a-file-277") == b"277\n"
    assert tree.readlink("/lib") == "usr/lib"
    assert tree.read("/lib/zeros") == bytes(300_000) + b"end"  # a hole, and a fragment behind it
    node = tree.lstat("/dev/node")
    assert not isinstance(node, Missing)
    assert (node.kind, node.mode, node.uid, node.gid, node.major, node.minor) == ("char", 0o640, 7, 9, 195, 255)
    fifo = tree.lstat("/dev/fifo")
    assert not isinstance(fifo, Missing)
    assert fifo.kind == "fifo"


def test_lzo_is_read_or_its_package_named() -> None:
    path = str(Path(__file__).parent.parent / "data" / "images" / "lzo.squashfs")
    try:
        assert open_image(path).facts.libc_version == "2.36"
    except GpubindError as error:
        assert error.code == "missing-package"
        assert "`pip install python-lzo`, or python3-lzo of the distribution" in error.hint
