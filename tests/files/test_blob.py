"""Blobs: a file, a part of one, and either as a stream."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from gpubind.errors import HostReadError, UnseenError
from gpubind.files.blob import BlobPart, BlobStream, FileBlob, open_blob


@pytest.fixture
def blob(tmp_path: Path) -> FileBlob:
    path = tmp_path / "blob"
    path.write_bytes(b"0123456789")
    return open_blob(str(path))


def test_bytes_are_read_in_any_order_and_fewer_only_at_the_end(blob: FileBlob) -> None:
    assert [blob.read_at(at, 4) for at in (8, 0, 3, 10, 99)] == [b"89", b"0123", b"3456", b"", b""]
    assert blob.size == 10


@pytest.mark.parametrize("size", [4, 12])
def test_a_file_that_grows_or_shrinks_while_it_is_read_is_an_error(blob: FileBlob, size: int) -> None:
    os.truncate(blob.label, size)
    with pytest.raises(UnseenError, match="unreadable-file") as caught:
        blob.read_at(2, 9)
    assert caught.value.why == "it was changed while it was read"


def test_a_part_ends_where_it_ends_and_has_a_label_of_its_own(blob: FileBlob) -> None:
    part = BlobPart(BlobPart(blob, 2, 6), 1, 3, "inner")
    assert (part.read_at(0, 9), part.read_at(2, 9), part.read_at(3, 9)) == (b"345", b"5", b"")
    assert (part.size, part.label, BlobPart(blob, 0, 1).label, part.quick) == (3, "inner", blob.label, True)


def test_a_blob_is_a_seekable_stream(blob: FileBlob) -> None:
    stream = io.BufferedReader(BlobStream(blob))
    assert (stream.read(3), stream.seek(-2, os.SEEK_END), stream.read(), stream.seek(1), stream.read(2)) == (
        b"012",
        8,
        b"89",
        1,
        b"12",
    )
    with pytest.raises(ValueError, match="-1"):
        BlobStream(blob).seek(-1)


@pytest.mark.parametrize(("name", "code"), [("fifo", "no-image"), ("", "no-image"), ("none", "unreadable-file")])
def test_only_a_regular_file_is_opened(tmp_path: Path, name: str, code: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(HostReadError) as caught:
        open_blob(str(tmp_path / name))
    assert (caught.value.code, caught.value.where) == (code, str(tmp_path / name))


def test_an_archive_that_is_written_to_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "app.tar"
    file.write_bytes(b"old " * 100)
    blob = open_blob(str(file))
    assert blob.read_at(0, 4) == b"old "
    file.write_bytes(b"new " * 100)
    os.utime(file, ns=(1, 1))
    with pytest.raises(HostReadError) as caught:
        blob.read_at(4, 4)
    assert (caught.value.code, caught.value.why) == ("unreadable-file", "it was changed while it was read")
