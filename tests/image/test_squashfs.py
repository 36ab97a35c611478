"""Trees of squashfs images that mksquashfs wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubind.errors import GpubindError
from gpubind.image.open import open_image
from gpubind.model import Missing
from tests.support.squashfs import SifObject, sif, squashfs


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


SANDBOX = "`apptainer build --sandbox DIRECTORY IMAGE`"


@pytest.mark.parametrize(
    ("objects", "code", "why", "hint"),
    [
        (
            (SifObject(bytes(5000), file_system=number),),
            "encrypted-image",
            f"its primary partition is {name}",
            f"an unencrypted sandbox of it can be looked at: {SANDBOX}",
        )
        for number, name in ((5, "encrypted-squashfs"), (6, "gocryptfs-squashfs"))
    ]
    + [
        (
            (SifObject(bytes(5000), file_system=2),),
            "unsupported-image",
            "its primary partition is ext3",
            f"{SANDBOX} makes a directory of it",
        ),
        (
            (SifObject(b"def", data_type=0x4001),),
            "unsupported-image",
            "it has no primary system partition",
            f"{SANDBOX} makes a directory of it",
        ),
        (
            (SifObject(b"{}", data_type=0x4009), SifObject(b"{}", data_type=0x400A)),
            "unsupported-image",
            "it is an OCI-SIF, with layers in OCI blobs",
            "`singularity pull --no-oci` makes a plain SIF",
        ),
    ],
)
def test_a_sif_without_a_readable_system_says_what_it_has(
    objects: tuple[SifObject, ...], code: str, why: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "image.sif"
    path.write_bytes(sif(*objects))
    with pytest.raises(GpubindError) as caught:
        open_image(str(path))
    what = {
        "encrypted-image": "the image is encrypted",
        "unsupported-image": "this kind of SIF file cannot be looked at",
    }
    assert (caught.value.code, caught.value.what, caught.value.where) == (code, what[code], str(path))
    assert (caught.value.why, caught.value.hint) == (why, hint)


@pytest.mark.parametrize(
    ("change", "what", "why", "hint"),
    [
        (
            (20, 9),
            "the compression of a squashfs image cannot be read",
            "it is number 9",
            "gzip, lz4, lzma, lzo, xz and zstd can be read",
        ),
        (
            (28, 3),
            "squashfs of an old version cannot be read",
            "version 3.0; 4.0 has been the only one written since 2009",
            "",
        ),
        (
            (30, 1),
            "squashfs of an old version cannot be read",
            "version 4.1; 4.0 has been the only one written since 2009",
            "",
        ),
    ],
)
def test_a_squashfs_that_cannot_be_read_says_why(
    change: tuple[int, int], what: str, why: str, hint: str, tmp_path: Path
) -> None:
    data = bytearray(squashfs({"/a": "x"}))
    data[change[0]] = change[1]
    path = tmp_path / "image.sqsh"
    path.write_bytes(data)
    with pytest.raises(GpubindError) as caught:
        open_image(str(path))
    assert (caught.value.code, caught.value.what, caught.value.where) == ("unsupported-image", what, str(path))
    assert (caught.value.why, caught.value.hint) == (why, hint)
