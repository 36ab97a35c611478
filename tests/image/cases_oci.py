"""What an OCI layout holds: a row a case, with the page or program whose rule it is."""

from __future__ import annotations

import bz2
import json
import lzma
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Union

from tests.support.layers import LAYER, OCI, Blobs, packed, tar, zstd

DOCKER = "application/vnd.docker"
SCHEMA_2 = f"{DOCKER}.distribution.manifest.v2+json"
OLD_CONFIG = "application/octet-stream"
PLAIN = tar({"/name": "x"})
CONFIG: dict[str, Any] = {"os": "linux", "architecture": "amd64", "config": {}, "rootfs": {"type": "layers"}}

INDEX = "image-spec, image-index.md"
MANIFEST = "image-spec, manifest.md"
LAYERS = "image-spec, layer.md"
DESCRIPTOR = "image-spec, descriptor.md"
CONFIGURATION = "image-spec, config.md"
DETECTED = "containers/image, pkg/compression: by the first bytes, whatever the type says"
OLD = "containers/image, internal/image/docker_schema2.go"
BUILDKIT = "BuildKit, attestation-storage.md"
CRYPT = "ocicrypt, spec of encrypted layers"
OURS = "image-spec has gzip and zstd alone: gpubind reads no more"


class Case(NamedTuple):
    """The parts of a layout, and what comes of them."""

    source: str
    """Whose rule it is."""
    outcome: str = "image"
    """`image`, or the code of the error."""
    layer: bytes = PLAIN
    layer_type: str = LAYER
    config: Union[bytes, dict[str, Any]] = CONFIG
    config_type: str = f"{OCI}.config.v1+json"
    manifest_type: str = f"{OCI}.manifest.v1+json"
    manifest: Mapping[str, Any] = MappingProxyType({})
    """Fields of the manifest, beside those that name the parts."""
    descriptor: Mapping[str, Any] = MappingProxyType({})
    """Fields of the manifest's descriptor, in place of the true ones."""
    before: tuple[dict[str, Any], ...] = ()
    """Platforms of other manifests in the index, before it."""
    indexes: int = 0
    """How many indexes stand between the top one and the manifest."""


def layout(case: Case) -> dict[str, bytes]:
    """The files of the layout."""
    blobs = Blobs()
    parts = {"config": blobs.add(case.config, case.config_type), "layers": [blobs.add(case.layer, case.layer_type)]}
    made = blobs.add({"schemaVersion": 2, **parts, **case.manifest}, case.manifest_type, **case.descriptor)
    others = [blobs.add({"schemaVersion": 2}, case.manifest_type, platform=platform) for platform in case.before]
    for _ in range(case.indexes):
        made = blobs.add({"schemaVersion": 2, "manifests": [made]}, f"{OCI}.index.v1+json")
    return blobs.layout(*others, {**made, **case.descriptor})


CASES: dict[str, Case] = {
    # The index.
    "a descriptor without a type is a manifest's": Case(INDEX, manifest_type=""),
    "unknown fields say nothing": Case(INDEX, descriptor={"hash": 1}, manifest={"signatures": [1]}),
    "an index in an index": Case(INDEX, indexes=2),
    "indexes without end": Case(INDEX, "bad-oci", indexes=6),
    "no image for Linux": Case(INDEX, "unsupported-image", descriptor={"platform": {"os": "windows"}}),
    "another system's image is passed over": Case(INDEX, before=({"os": "windows", "architecture": "amd64"},)),
    "an attestation is no image": Case(BUILDKIT, before=({"os": "unknown", "architecture": "unknown"},)),
    "a type that is no image's": Case(INDEX, "unsupported-image", manifest_type="application/vnd.x+json"),
    # Descriptors.
    "another size": Case(DESCRIPTOR, "bad-oci", descriptor={"size": 7}),
    "a negative size": Case(DESCRIPTOR, "bad-oci", descriptor={"size": -1}),
    "a digest that is a path": Case(DESCRIPTOR, "bad-oci", descriptor={"digest": "sha256:../../x"}),
    "a blob that is not there": Case(DESCRIPTOR, "bad-oci", descriptor={"digest": "sha256:" + "0" * 64}),
    # The manifest.
    "no configuration": Case(MANIFEST, "bad-oci", manifest={"config": None}),
    "no layers": Case(MANIFEST, "bad-oci", manifest={"layers": None}),
    "an artifact": Case(MANIFEST, "unsupported-image", config_type=f"{OCI[:-6]}.empty.v1+json"),
    "docker's types": Case(
        OLD,
        manifest_type=SCHEMA_2,
        config_type=f"{DOCKER}.container.image.v1+json",
        layer_type=f"{DOCKER}.image.rootfs.diff.tar.gzip",
        layer=packed(PLAIN),
    ),
    "an old registry's configuration": Case(OLD, manifest_type=SCHEMA_2, config_type=OLD_CONFIG),
    "the same in OCI's manifest": Case(MANIFEST, "unsupported-image", config_type=OLD_CONFIG),
    # The configuration.
    "no variables": Case(CONFIGURATION, config={**CONFIG, "config": {"Env": None}}),
    "a variable that is no text": Case(CONFIGURATION, "bad-oci", config={**CONFIG, "config": {"Env": [1]}}),
    "no JSON": Case(CONFIGURATION, "bad-oci", config=b"x"),
    # Layers.
    "gzip": Case(LAYERS, layer=packed(PLAIN), layer_type=f"{LAYER}+gzip"),
    "zstd": Case(LAYERS, layer=zstd(PLAIN), layer_type=f"{LAYER}+zstd"),
    "a layer of somebody who forbids copies": Case(LAYERS, layer_type=f"{OCI}.layer.nondistributable.v1.tar"),
    "gzip that is called plain": Case(DETECTED, layer=packed(PLAIN)),
    "a plain one that is called gzip": Case(DETECTED, layer_type=f"{LAYER}+gzip"),
    "xz": Case(OURS, "unsupported-image", layer=lzma.compress(PLAIN)),
    "xz by its type": Case(OURS, "unsupported-image", layer=lzma.compress(PLAIN), layer_type=f"{LAYER}+xz"),
    "bzip2": Case(OURS, "unsupported-image", layer=bz2.compress(PLAIN)),
    "an encrypted layer": Case(CRYPT, "encrypted-image", layer_type=f"{LAYER}+gzip+encrypted"),
    "no tar": Case(LAYERS, "bad-archive", layer=json.dumps(CONFIG).encode() * 9),
}
