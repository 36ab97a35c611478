"""Images in OCI layouts: what can be read of the documents, and which of several is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import pytest

from gpubind.errors import FormatError, GpubindError, UsageError
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


WHAT = {
    "bad-oci": "malformed image description",
    "unsupported-image": "this kind of image cannot be looked at",
    "encrypted-image": "the image is encrypted",
}
WHY = {
    "indexes without end": "indexes in indexes, without end",
    "no image for Linux": "no image for Linux is in it, but windows/None",
    "a type that is no image's": "its parts are of type 'application/vnd.x+json'",
    "another size": "354 bytes instead of 7",
    "a blob that is not there": "absent",
    "an artifact": "its configuration is of type 'application/vnd.oci.empty.v1+json'",
    "the same in OCI's manifest": "its configuration is of type 'application/octet-stream'",
    "xz": "a layer is compressed with xz; gzip and zstd can be read",
    "xz by its type": f"a layer is of type '{LAYER}+xz'",
    "bzip2": "a layer is compressed with bzip2; gzip and zstd can be read",
    "an encrypted layer": f"a layer is '{LAYER}+gzip+encrypted'",
}


@pytest.mark.parametrize("name", WHY)
def test_an_error_about_a_layout_says_why(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "layout", layout(CASES[name]))
    with pytest.raises(GpubindError) as caught:
        open_image(path)
    assert (caught.value.what, caught.value.why) == (WHAT[CASES[name].outcome], WHY[name])
    assert caught.value.where.startswith(path)


def test_types_in_an_error_are_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "layout", layout(CASES["an artifact"]._replace(config_type="x" * 101)))
    with pytest.raises(GpubindError) as caught:
        open_image(path)
    assert caught.value.why == f"its configuration is of type '{'x' * 100}'"


@pytest.mark.parametrize(
    ("indexes", "outcome"), [(4, "image"), (5, "bad-oci")], ids=["as deep as allowed", "one deeper"]
)
def test_indexes_are_in_indexes_up_to_a_bound(indexes: int, outcome: str, tmp_path: Path) -> None:
    path = write(tmp_path / "layout", layout(CASES["an index in an index"]._replace(indexes=indexes)))
    if outcome == "image":
        assert open_image(path, "x86_64").tree.read("/name") == b"x"
    else:
        assert code_of(path) == outcome


@pytest.mark.parametrize(("count", "ellipsis"), [(8, ""), (9, ", ...")])
def test_of_several_images_the_first_tags_are_shown(count: int, ellipsis: str, tmp_path: Path) -> None:
    blobs = Blobs()
    tags = [f"n:{number}" for number in range(count)]
    images = [blobs.image([packed(tar({"/name": tag}))], annotations={TAG: tag}) for tag in tags]
    path = write(tmp_path / "layout", blobs.layout(*images))
    with pytest.raises(UsageError) as caught:
        open_image(path)
    assert (caught.value.what, caught.value.where, caught.value.why, caught.value.hint) == (
        "which image is meant?",
        path,
        f"it has {count}: {', '.join(tags[:8])}{ellipsis}",
        "name one: `docker-archive:FILE:TAG`, `oci-archive:FILE:TAG` or `oci:DIRECTORY:TAG`",
    )
    with pytest.raises(UsageError) as caught:
        open_image(f"oci:{path}:three")
    assert (caught.value.what, caught.value.where) == ("no image is tagged `three`", path)
    assert caught.value.why == f"it has {', '.join(tags[:8])}"


def test_an_archive_without_the_tag_or_without_an_image_says_so(tmp_path: Path) -> None:
    path = tmp_path / "tar"
    path.write_bytes(archive(docker_archive([tar({"/name": "x"})], tags=())))
    with pytest.raises(UsageError) as caught:
        open_image(f"docker-archive:{path}:x")
    assert caught.value.why == "its images have no tags"
    path.write_bytes(tar({"/etc/passwd": "x"}))
    with pytest.raises(FormatError) as without:
        open_image(str(path))
    assert (without.value.what, without.value.where, without.value.why, without.value.hint) == (
        "an archive that holds no image",
        str(path),
        "neither manifest.json nor index.json is in it",
        "an image is saved by `docker save` or `podman save`, not by `docker export`",
    )
    with pytest.raises(FormatError) as damaged:
        open_image(f"docker-archive:{path}")
    assert (damaged.value.where, damaged.value.why) == (f"{path}: manifest.json", "absent")
    path.write_bytes(packed(b"hello" * 200))
    with pytest.raises(FormatError) as other:
        open_image(str(path))
    assert (other.value.what, other.value.where) == ("this is not an image", str(path))
    assert other.value.why == "it is compressed, and what is in it is not a tar archive"


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


def test_a_file_of_an_archive_with_the_name_of_a_whiteout_is_a_file(tmp_path: Path) -> None:
    files = docker_archive([tar({"/name": "x"})])
    layer = files.pop("0/layer.tar")
    manifest = files.pop("manifest.json").replace(b"0/layer.tar", b"0/.wh.layer.tar")
    path = tmp_path / "image.tar"
    path.write_bytes(archive({**files, "manifest.json": manifest, "0/.wh.layer.tar": layer}))
    assert open_image(str(path)).tree.read("/name") == b"x"


def test_links_in_an_archive_are_followed_inside_it(tmp_path: Path) -> None:
    files = docker_archive([tar({"/name": "x"})])
    spec = {f"/{path}": data for path, data in files.items() if not path.endswith("layer.tar")}
    path = tmp_path / "image.tar"
    path.write_bytes(tar({**spec, "/store/x": files["0/layer.tar"], "/0/layer.tar": Link("../store/x")}))
    assert open_image(str(path)).tree.read("/name") == b"x"
