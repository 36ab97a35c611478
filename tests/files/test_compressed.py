"""Compressed blobs are read in any order."""

from __future__ import annotations

import os
from pathlib import Path

from gpubind.image.open import open_image
from tests.support.layers import oci_layout, packed, tar, write, zstd


def test_a_large_layer_is_read_back_and_forth(tmp_path: Path) -> None:
    """Several checkpoints; members from the end to the beginning, and larger than a chunk."""
    noise = os.urandom(1 << 16)
    bodies = {f"/{number:02}": bytes([number]) + noise * 16 for number in range(40)}  # 40 MiB
    for pack in (packed, zstd):
        layer = pack(tar(bodies))
        path = write(tmp_path / pack.__name__, oci_layout([layer]))
        tree = open_image(path).tree
        for name in ("/39", "/00", "/20", "/21", "/05"):
            assert tree.read(name, 4 << 20) == bodies[name]


def test_a_gzip_layer_of_many_members_is_read(tmp_path: Path) -> None:
    data = tar({"/etc/a": "a", "/etc/b": "b"})
    layer = b"".join(packed(data[at : at + 512]) for at in range(0, len(data), 512)) + bytes(100)
    assert open_image(write(tmp_path / "x", oci_layout([layer]))).tree.read("/etc/b") == b"b"
