"""Layers of zstd can be read from their start alone, and those of a packed archive, too: who asks for many files must
not unpack them as often.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubind.files.compressed import Zstd
from gpubind.image.layers import LayeredTree
from gpubind.image.open import open_image
from gpubind.machine.budget import BOUNDS, current, one_command
from gpubind.model import Missing
from tests.rules.cases_image import HOST, PYTHON, broken_torch
from tests.rules.situations import Situation, found
from tests.support.bounded import run_bounded
from tests.support.elf import elf
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, packed, tar, zstd
from tests.support.trees import File

NAMES = [f"/opt/lib/lib{number:03}.so" for number in range(40)]


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


@pytest.mark.parametrize("pack", [zstd, packed])
def test_a_packed_archive_is_unpacked_four_times_whatever_the_order_of_its_layers(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """`docker save` puts them in the order of their digests."""
    rng = random.Random(7)
    layers = [
        tar({
            "/etc/last": f"{number}\n", f"/etc/ld.so.conf.d/{number}.conf": f"/opt/{number}\n",
            f"/usr/lib/lib{number}.so": elf(f"lib{number}.so"), f"/opt/{number}": rng.randbytes(100_000),
        })
        for number in range(40)
    ]  # fmt: skip
    files = docker_archive([tar(glibc("2.36")), *layers])
    manifest = json.loads(files["manifest.json"])
    names = {name: f"blobs/{hashlib.sha256(files[name]).hexdigest()}" for name in manifest[0]["Layers"]}
    manifest[0]["Layers"] = list(names.values())
    digested = dict(sorted((names.get(name, name), data) for name, data in files.items()))
    whole = archive({**digested, "manifest.json": json.dumps(manifest).encode()})
    (tmp_path / "image.tar").write_bytes(pack(whole))
    with one_command():
        budget = current()
        assert budget is not None
        before = budget.left("unpacked")
        tree = open_image(f"docker-archive:{tmp_path}/image.tar").tree
        granted = BOUNDS["unpacked"].each * ((tmp_path / "image.tar").stat().st_size >> 10)
        for number in range(40):
            assert tree.read(f"/etc/ld.so.conf.d/{number}.conf") == f"/opt/{number}\n".encode()
            assert not isinstance(tree.elf(f"/usr/lib/lib{number}.so"), Missing)
        assert tree.read("/etc/last") == b"39\n"
        assert before + granted - budget.left("unpacked") < 4.5 * len(whole)


def test_layers_of_a_packed_archive_are_not_kept_in_memory(tmp_path: Path) -> None:
    rng = random.Random(7)
    layers = [tar({**glibc("2.36"), f"/opt/{number}": rng.randbytes(4 << 20)}) for number in range(40)]
    (tmp_path / "image.tar").write_bytes(archive(docker_archive(layers), zstd))
    cost = run_bounded("check", "--nv", "--host", "debian13-nvidia550", "--image", f"{tmp_path}/image.tar")
    assert cost.status in (0, 1), cost.stderr
    assert cost.memory < 150 << 20


def test_large_libraries_of_frameworks_are_not_looked_for_in_a_zstd_layer_and_that_is_said(
    tmp_path: Path, passes: list[Zstd]
) -> None:
    files = {**broken_torch(), **PYTHON}
    for name, pack, expected in (("a", zstd, "imports-not-checked"), ("b", packed, "framework-library")):
        (tmp_path / name).write_bytes(archive(docker_archive([pack(tar(files))])))
        opened = open_image(f"docker-archive:{tmp_path}/{name}")
        codes = [f.code for f in found(Situation(HOST, opened, program="python3"))]
        assert [code for code in ("imports-not-checked", "framework-library") if code in codes] == [expected]
        assert opened.facts.cuda == "12.4"
    assert len(passes) <= 8
