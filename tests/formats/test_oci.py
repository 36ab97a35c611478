"""Documents of OCI images, and of `docker save`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.archive.oci import (
    is_layer_type,
    parse_docker_manifest,
    parse_inspected,
    parse_oci_config,
    parse_oci_index,
    parse_oci_manifest,
)
from tests.support import answers, damaged

DIGEST = "sha256:" + "0123456789abcdef" * 4
BLOB: dict[str, Any] = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": DIGEST, "size": 7}
PARSERS = (parse_oci_index, parse_oci_manifest, parse_oci_config, parse_docker_manifest, parse_inspected)


WRONG: Any = ({**BLOB, "size": -1}, {**BLOB, "size": True}, {**BLOB, "size": "7"}, {**BLOB, "size": 7.5})


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def test_an_index_is_read() -> None:
    name = {"org.opencontainers.image.ref.name": "24.04", "io.containerd.image.name": "docker.io/ubuntu:24.04"}
    platform = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    (found,) = parse_oci_index(encoded({"manifests": [{**BLOB, "annotations": name, "platform": platform}]}))
    assert (found.names, found.os, found.arch, found.size) == (("24.04", "docker.io/ubuntu:24.04"), "linux", "arm64", 7)
    assert found.path == f"blobs/sha256/{DIGEST[7:]}"


def test_of_a_variable_that_is_set_twice_the_last_value_counts() -> None:
    config = parse_oci_config(encoded({"os": "linux", "config": {"Env": ["A=1", "B==", "A=2", "C"]}}))
    assert config == {"A": "2", "B": "=", "C": ""}
    assert parse_oci_config(b"{}") == parse_oci_config(b'{"config": {"Env": null}}') == {}


def test_a_docker_manifest_is_read() -> None:
    (image,) = parse_docker_manifest(encoded([{"Config": "c.json", "RepoTags": None, "Layers": ["a/layer.tar"]}]))
    assert image == ("c.json", (), ("a/layer.tar",))


def test_what_inspect_prints_is_read() -> None:
    said = parse_inspected(encoded([{"Os": "linux", "Architecture": "amd64", "Config": {"Env": ["A=b"]}, "Id": "x"}]))
    assert (said.env, said.layers) == (("A=b",), ())


@pytest.mark.parametrize("media_type", ["application/vnd.oci.image.layer.v1.tar+zstd"])
def test_layer_types(media_type: str) -> None:
    assert is_layer_type(media_type)
    assert is_layer_type("application/vnd.docker.image.rootfs.diff.tar.gzip")
    assert is_layer_type("application/vnd.oci.image.layer.nondistributable.v1.tar")
    assert not is_layer_type("application/vnd.oci.image.layer.v1.tar+gzip+encrypted")
    assert not is_layer_type("application/vnd.sylabs.image.layer.v1.squashfs")


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "sha256",
        "sha256:",
        "sha256:../../etc/passwd",
        "../x:y",
        "sha256:a/b",
        "sha256:.",
        "a..b:c",
        "x:" + "y" * 300,
    ],
)
def test_a_digest_cannot_leave_the_layout(digest: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_oci_index(encoded({"manifests": [{**BLOB, "digest": digest}]}))
    assert caught.value.place == "key manifests[0].digest"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe",
        b'{"manifests": {}, "config": [], "layers": 1}',
        b"[[]]",
        b"[1]",
        b'[{"Config": 1}]',
        b'{"manifests": [null], "config": null, "layers": []}',
        b'{"config": {"Env": [1]}, "os": 1}',
        b" " * (5 << 20),
        b'{"size": ' + b"9" * 1_000_000 + b', "config": {"Env": "x"}}',
        encoded({"manifests": [WRONG[0]], "config": WRONG[1]}),
        encoded({"manifests": [WRONG[2]], "config": WRONG[3]}),
        encoded({"manifests": [BLOB] * 5000, "config": {"Env": ["a"] * 5000}}),
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_malformed_is_refused_with_its_place(data: bytes) -> None:
    for parse in PARSERS:
        answers(parse, data)
    assert not answers(parse_oci_index, data)


@settings(max_examples=66, deadline=None)
@given(st.data())
def test_no_damage_makes_another_exception(data: st.DataObject) -> None:
    document = {"manifests": [BLOB], "config": BLOB, "layers": [BLOB], "os": "linux"}
    for parse in PARSERS:
        answers(parse, data.draw(damaged(encoded(document))))


_KEYS = st.sampled_from(["manifests", "config", "layers", "Env", "digest", "size", "annotations", "platform", "Config"])
_LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@settings(max_examples=66, deadline=None)
@given(st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner)))
def test_no_wrong_type_makes_another_exception(document: object) -> None:
    for parse in PARSERS:
        answers(parse, encoded(document))
