"""Images in OCI layouts: what can be read of the documents, and which of several is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import pytest

from gpubind.errors import GpubindError
from gpubind.image.open import open_image
from tests.image.cases_oci import CASES, layout
from tests.support.layers import LAYER, OCI, TAG, Blobs, archive, docker_archive, packed, tar, write
from tests.support.trees import Link


def code_of(reference: str) -> str:
    with pytest.raises(GpubindError) as caught:
        open_image(reference)
    return caught.value.code


@pytest.mark.parametrize("name", CASES)
def test_a_layout_is_an_image_or_an_error_that_says_why_not(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = write(tmp_path / "layout", layout(case))
    if case.outcome == "image":
        assert open_image(path, "x86_64").tree.read("/name") == b"x"
    else:
        assert code_of(path) == case.outcome


def test_a_layer_that_cannot_be_unpacked_is_named_with_its_compression(tmp_path: Path) -> None:
    with pytest.raises(GpubindError) as caught:
        open_image(write(tmp_path / "layout", layout(CASES["xz"])))
    assert caught.value.why == "a layer is compressed with xz; gzip and zstd can be read"


def test_a_tag_chooses(tmp_path: Path) -> None:
    blobs = Blobs()
    images = [
        blobs.image([packed(tar({"/name": tag}))], annotations={TAG: tag})
        for tag in ("one:1", "registry.io/two:latest")
    ]
    path = write(tmp_path / "layout", blobs.layout(*images))
    for tag, name in (("one:1", "one:1"), ("1", "one:1"), ("two", "registry.io/two:latest")):
        assert open_image(f"oci:{path}:{tag}").tree.read_text("/name") == name
    assert code_of(path) == "several-images"
    assert code_of(f"oci:{path}:three") == "no-such-tag"


def test_a_tag_chooses_in_an_archive_too(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(archive(docker_archive([tar({"/name": "x"})], tags=("a/b:latest", "c:2"))))
    for reference in (f"docker-archive:{path}:c:2", f"docker-archive:{path}:b", f"docker-archive:{path}", str(path)):
        assert open_image(reference).tree.read("/name") == b"x"
    assert code_of(f"docker-archive:{path}:d") == "no-such-tag"


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        ("x86_64", b"amd64"),
        ("aarch64", b"arm64"),
        ("ppc64le", b"riscv64"),
        (None, {"x86_64": b"amd64", "aarch64": b"arm64"}.get(os.uname().machine, b"riscv64")),
    ],
)
def test_of_several_architectures_that_of_the_planned_host_counts(
    machine: Optional[str], wanted: bytes, tmp_path: Path
) -> None:
    blobs = Blobs()
    images = [
        blobs.image([tar({"/arch": arch})], arch=arch, layer_type=LAYER) for arch in ("riscv64", "arm64", "amd64")
    ]
    attestation = blobs.image([], arch="unknown", os_name="unknown")
    index = blobs.add({"manifests": [attestation, *images]}, f"{OCI}.index.v1+json", annotations={TAG: "x"})
    path = write(tmp_path / "layout", blobs.layout(index))
    assert open_image(path, machine).tree.read("/arch") == wanted


def test_links_in_an_archive_are_followed_inside_it(tmp_path: Path) -> None:
    files = docker_archive([tar({"/name": "x"})])
    spec = {f"/{path}": data for path, data in files.items() if not path.endswith("layer.tar")}
    path = tmp_path / "image.tar"
    path.write_bytes(tar({**spec, "/store/x": files["0/layer.tar"], "/0/layer.tar": Link("../store/x")}))
    assert open_image(str(path)).tree.read("/name") == b"x"
