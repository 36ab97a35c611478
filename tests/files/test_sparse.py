"""Sparse files in tar archives: what they hold, and maps that are none. What other readers make of them: tests/tars."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpubind.errors import FormatError
from gpubind.files.blob import BytesBlob
from gpubind.image.open import open_image
from gpubind.image.tar import PIECES_LIMIT, members, open_sparse
from tests.support import answers
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, tar
from tests.tars.generate import Extents, pax_record, written

RNG = random.Random(0)
OLD = (
    written(RNG, "gnu", b"S", "f", size=1024, sparse=Extents(8192, ((512, 512), (4096, 512)))) + b"a" * 512 + b"b" * 512
)
MAP = b"2\n512\n512\n4096\n512\n".ljust(512, b"\0")
PAIRS = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")]
PAIRS += [("GNU.sparse.realsize", "8192"), ("GNU.sparse.name", "f")]
NEW = pax_record(PAIRS) + written(RNG, "ustar", b"0", "x", size=1536) + MAP + b"a" * 512 + b"b" * 512
HOLDS = bytes(512) + b"a" * 512 + bytes(3072) + b"b" * 512 + bytes(3584)


def holds(data: bytes) -> bytes:
    return open_sparse(BytesBlob(data), 0, "f").read_at(0, 10_000)


@pytest.mark.parametrize("data", [OLD, NEW])
def test_holes_are_zeros_wherever_a_read_begins_and_ends(data: bytes) -> None:
    file = open_sparse(BytesBlob(data), 0, "f")
    assert (file.size, file.read_at(0, 1 << 40)) == (8192, HOLDS)
    for offset in range(0, 8300, 97):
        for size in (0, 1, 500, 5000):
            assert file.read_at(offset, size) == HOLDS[offset : offset + size]


@pytest.mark.parametrize("data", [OLD, NEW])
def test_damage_is_an_error_of_the_archive(data: bytes) -> None:
    for number in range(3000):
        rng = random.Random(number)
        broken = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(data) - 1024)] = rng.choice((0, 9, 48, 57, 128, 255))
        answers(holds, bytes(broken))
    for size in range(0, len(data) - 1024, 64):
        assert not answers(holds, data[:size])


@pytest.mark.parametrize("text", [b"", b"x\n", b"-1\n", b"2\n1\n", b"1\n5\n", b"2\n100\n50\n120\n1\n", b"9" * 600])
def test_a_map_that_is_none(text: bytes) -> None:
    data = pax_record(PAIRS) + written(RNG, "ustar", b"0", "x", size=1024) + text.ljust(1024, b"\0")
    assert not answers(holds, data)


def of_pieces(count: int) -> tuple[bytes, bytes]:
    """A sparse file in the old GNU format with *count* pieces, and what it holds."""
    sparse = Extents(count * 1024, tuple((1024 * number, 512) for number in range(count)))
    body = b"".join(bytes([number % 251 + 1]) * 512 for number in range(count))
    whole = b"".join(body[512 * number : 512 * number + 512] + bytes(512) for number in range(count))
    return written(RNG, "gnu", b"S", "f", size=len(body), sparse=sparse) + body, whole


@pytest.mark.parametrize("count", [4, 5, 25, 26, 46, 47])
def test_an_old_map_goes_on_in_as_many_blocks_as_it_needs(count: int) -> None:
    data, whole = of_pieces(count)
    assert open_sparse(BytesBlob(data + tar({"/next": b"n"})), 0, "f").read_at(0, len(whole)) == whole
    names = [member.header.name for member in members(BytesBlob(data + tar({"/next": b"n"})))]
    assert names == ["f", "next"]


@pytest.mark.parametrize("key", ["map", "offset"])
def test_a_map_may_be_in_the_attributes(key: str) -> None:
    pieces = ((512, 512), (4096, 512))
    pairs = [("GNU.sparse.size", "8192"), ("GNU.sparse.numblocks", "2"), ("GNU.sparse.name", "f")]
    if key == "map":
        pairs.append(("GNU.sparse.map", ",".join(f"{at},{length}" for at, length in pieces)))
    else:
        pairs += [
            ("GNU.sparse.offset" if n == 0 else "GNU.sparse.numbytes", str(x))
            for piece in pieces
            for n, x in enumerate(piece)
        ]
    assert holds(pax_record(pairs) + written(RNG, "ustar", b"0", "x", size=1024) + b"a" * 512 + b"b" * 512) == HOLDS


def reason(data: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        holds(data)
    assert caught.value.code == "bad-archive"
    return caught.value.why


def test_an_error_about_a_map_says_what_is_wrong() -> None:
    no_map = "a sparse file without its map"
    assert reason(bytes(1024)) == no_map
    reversed_map = b"2\n4096\n512\n512\n512\n".ljust(512, b"\0")
    assert (
        reason(pax_record(PAIRS) + written(RNG, "ustar", b"0", "x", size=1536) + reversed_map + bytes(1024)) == no_map
    )
    data, _ = of_pieces(26)
    assert reason(data[: 2 * 512 + 100]) == no_map
    assert reason(data[:2048]) == "the data of a sparse file is cut"
    endless = data[:512] + (bytes(504) + b"\1" + bytes(7)) * 4096
    assert reason(endless + bytes(512)) == "the map of a sparse file has no end"


def test_the_pieces_of_a_map_are_bounded() -> None:
    lines = b"".join(b"%d\n1\n" % (2 * number) for number in range(PIECES_LIMIT + 1))
    body = b"%d\n" % (PIECES_LIMIT + 1) + lines
    data = pax_record(PAIRS) + written(RNG, "ustar", b"0", "x", size=len(body)) + body
    assert not answers(holds, data)


def test_a_sparse_c_library_is_read(tmp_path: Path) -> None:
    """GNU tar --sparse writes it so where the file system has a hole in it."""
    spec = dict(glibc("2.36"))
    path = next(path for path in spec if path.endswith("/libc.so.6"))
    body = spec.pop(path)
    assert isinstance(body, bytes)
    sparse = Extents(len(body) + 4096, ((0, len(body)),))
    member = written(RNG, "gnu", b"S", path[1:], size=len(body), sparse=sparse) + body + bytes(-len(body) % 512)
    saved = tmp_path / "saved.tar"
    saved.write_bytes(archive(docker_archive([tar(spec, end=False) + member + bytes(1024)])))
    assert open_image(saved).facts.libc_version == "2.36"
