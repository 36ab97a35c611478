"""What an image's manifest names by a digest is what is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from gpubind.errors import FormatError
from gpubind.image.open import open_image
from tests.support.images import glibc
from tests.support.layers import archive, oci_layout, packed, tar, write, zstd

SPEC = dict(glibc("2.36"))


@pytest.mark.parametrize("pack", [packed, zstd])
def test_a_layer_of_another_content_and_the_same_size_is_refused(tmp_path: Path, pack: object) -> None:
    files = oci_layout([packed(tar(SPEC)) if pack is packed else zstd(tar(SPEC))])
    name = max(files, key=lambda name: len(files[name]))
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])  # of the checksum, or behind the last frame
    with pytest.raises(FormatError) as caught:
        open_image(write(tmp_path / "image", files))
    assert caught.value.code in ("bad-oci", "bad-archive")


@pytest.mark.parametrize("packing", [bytes, packed])
def test_a_document_of_another_content_and_the_same_size_is_refused(tmp_path: Path, packing: object) -> None:
    files = oci_layout([packed(tar(SPEC))])
    name = next(name for name in files if b'"architecture"' in files[name] and b'"rootfs"' in files[name])
    files[name] = files[name].replace(b"amd64", b"arm64")
    image = archive(files) if packing is bytes else archive(files, packed)
    (tmp_path / "image").write_bytes(image)
    with pytest.raises(FormatError) as caught:
        open_image(str(tmp_path / "image"))
    assert caught.value.code == "bad-oci"
    assert "digest" in caught.value.why
    assert name in caught.value.where


def test_a_digest_that_is_right_is_no_matter_whatever_its_algorithm(tmp_path: Path) -> None:
    layer = packed(tar(SPEC))
    for algorithm in ("sha256", "sha512", "md5"):
        files = oci_layout([layer])
        old = f"sha256:{hashlib.sha256(layer).hexdigest()}"
        new = f"{algorithm}:{hashlib.new(algorithm, layer).hexdigest()}"
        manifest = next(name for name in files if b'"config": {"mediaType"' in files[name])
        text = files.pop(manifest).replace(old.encode(), new.encode())
        digest = hashlib.sha256(text).hexdigest()
        files[f"blobs/sha256/{digest}"] = text
        index = json.loads(files["index.json"])
        index["manifests"][0].update(digest=f"sha256:{digest}", size=len(text))
        files["index.json"] = json.dumps(index).encode()
        files[f"blobs/{new.replace(':', '/')}"] = layer
        assert open_image(write(tmp_path / algorithm, files)).facts.libc_version == "2.36"


def test_a_zstd_layer_that_ends_in_its_first_block_is_damaged_and_not_empty(tmp_path: Path) -> None:
    layer = zstd(tar(SPEC))
    with pytest.raises(FormatError) as caught:
        open_image(write(tmp_path / "image", oci_layout([layer[: len(layer) // 2]])))
    assert caught.value.code == "bad-archive"


def test_an_empty_zstd_layer_is_empty(tmp_path: Path) -> None:
    assert (
        open_image(write(tmp_path / "image", oci_layout([packed(tar(SPEC)), zstd(b"")]))).facts.libc_version == "2.36"
    )
