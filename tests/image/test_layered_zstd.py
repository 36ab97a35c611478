"""Layers of zstd can be read from their start alone: who asks for many files must not unpack them as often."""

from __future__ import annotations

from pathlib import Path

import pytest
from build.elf import elf
from build.images import glibc
from build.layers import archive, docker_archive, tar, zstd
from build.trees import File

from gpubind.blob.compressed import Zstd
from gpubind.image.layered import LayeredTree
from gpubind.image.open import open_image
from gpubind.model import Missing

NAMES = [f"/opt/lib/lib{number:03}.so" for number in range(60)]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Zstd]:
    """Grows with each time that a layer is unpacked from its start."""
    seen = []
    begin = Zstd._restart

    def counted(blob: Zstd) -> None:
        seen.append(blob)
        begin(blob)

    monkeypatch.setattr(Zstd, "_restart", counted)
    return seen


def test_a_zstd_layer_is_unpacked_once_for_each_directory_not_for_each_file(tmp_path: Path, passes: list[Zstd]) -> None:
    files = {name: File(elf(name.rpartition("/")[2]) + bytes(1 << 16)) for name in NAMES}
    (tmp_path / "image.tar").write_bytes(archive(docker_archive([zstd(tar({**glibc("2.36"), **files}))])))
    tree = open_image(f"docker-archive:{tmp_path}/image.tar").tree
    assert isinstance(tree, LayeredTree)
    for name in reversed(NAMES):
        facts = tree.elf(name)
        assert not isinstance(facts, Missing)
        assert facts.soname == name.rpartition("/")[2]
    assert len(passes) <= 4
