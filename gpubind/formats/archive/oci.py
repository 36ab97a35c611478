"""The JSON documents of OCI images, and of the archives of `docker save`.

Source: OCI image-spec `image-index.md`, `manifest.md`, `config.md`, `descriptor.md`, `layer.md`; Docker "Image
Manifest V2, Schema 2" and its "Image Specification v1.2" (`manifest.json`). Unknown fields are ignored, as the
specification asks for.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from gpubind.errors import FormatError
from gpubind.formats.text.json import JsonObject, parse_json

DOCUMENT_LIMIT = 4 << 20
"""Bytes of one document, as registries have it."""
DESCRIPTORS_LIMIT = 4096
ENV_LIMIT = 4096
NAME_ANNOTATIONS = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
WHITEOUT = ".wh."
"""How the name begins of a file that hides what lower layers have there."""
OPAQUE = ".wh..wh..opq"
"""A file that hides all that lower layers have in its directory."""
OVERLAYS = ("overlay", "overlay2", "fuse-overlayfs")
"""The storage drivers that unpack each layer into a directory of its own."""

_SCHEMA_2 = "application/vnd.docker.distribution.manifest.v2+json"
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    _SCHEMA_2,
)
CONFIG_TYPES = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
_LAYER_TYPE = re.compile(
    r"application/vnd\.(oci\.image\.layer\.(v1|nondistributable\.v1)\.tar|docker\.image\.rootfs\.(diff|foreign\.diff)\.tar)"
    r"([+.](gzip|zstd))?"
)
_DIGEST = re.compile(r"([a-z0-9]+(?:[+._-][a-z0-9]+)*):([a-zA-Z0-9=_-]+)")


class OciDescriptor(NamedTuple):
    """What an index or a manifest says of a blob."""

    media_type: str
    digest: str
    """`sha256:...`, checked to name a file and nothing else."""
    size: int
    names: tuple[str, ...]
    """Tags and names, from the annotations."""
    os: Optional[str]
    arch: Optional[str]
    """In Go's words: `amd64`."""

    @property
    def path(self) -> str:
        """Where the blob is in a layout: `blobs/sha256/...`."""
        return "blobs/" + self.digest.replace(":", "/", 1)


class OciManifest(NamedTuple):
    """One image: its configuration, and its layers from the lowest up."""

    config: OciDescriptor
    layers: tuple[OciDescriptor, ...]


class OciConfig(NamedTuple):
    """What concerns a plan in an image's configuration."""

    os: Optional[str]
    arch: Optional[str]
    env: dict[str, str]


class DockerImage(NamedTuple):
    """One image in an archive of `docker save`. Paths are those of the archive, unchecked."""

    config: str
    tags: tuple[str, ...]
    layers: tuple[str, ...]


class Inspected(NamedTuple):
    """An image in a store."""

    config: OciConfig
    layers: tuple[str, ...]
    """The directories that its layers are unpacked into, the uppermost first; none where the store has others."""


def is_config_type(media_type: str, manifest_type: str) -> bool:
    """Whether *media_type* is an image's configuration; in a manifest of schema 2, old registries name no type."""
    return media_type in CONFIG_TYPES or (media_type, manifest_type) == ("application/octet-stream", _SCHEMA_2)


def is_layer_type(media_type: str) -> bool:
    """Return whether *media_type* is a layer that can be read: a tar, plain, gzip or zstd."""
    return _LAYER_TYPE.fullmatch(media_type) is not None


def parse_oci_index(data: bytes) -> tuple[OciDescriptor, ...]:
    """Return the descriptors in an index. Errors: `FormatError` (code `bad-oci`) with the key."""
    return _descriptors(_document(data), "manifests")


def parse_oci_manifest(data: bytes) -> OciManifest:
    """Return a manifest. Errors: `FormatError` (code `bad-oci`) with the key."""
    document = _document(data)
    return OciManifest(_descriptor(document.child("config")), _descriptors(document, "layers"))


def parse_oci_config(data: bytes) -> OciConfig:
    """A configuration; of a variable that is set twice, the last value. Errors: `FormatError` (code `bad-oci`)."""
    return _config(_document(data), "os", "architecture", "config")


def parse_docker_manifest(data: bytes) -> tuple[DockerImage, ...]:
    """Return the images in a `manifest.json`. Errors: `FormatError` (code `bad-oci`) with the key."""
    images = _OciObject.several(parse_json(data, DOCUMENT_LIMIT, _malformed), "", DESCRIPTORS_LIMIT)
    return tuple(
        DockerImage(
            image.text("Config"),
            image.strings("RepoTags", (), limit=DESCRIPTORS_LIMIT),
            image.strings("Layers", (), limit=DESCRIPTORS_LIMIT),
        )
        for image in images
    )


def parse_inspected(data: bytes) -> Inspected:
    """What `podman image inspect` or `docker image inspect` prints of one image. Errors: as `parse_oci_config`."""
    images = _OciObject.several(parse_json(data, DOCUMENT_LIMIT, _malformed), "", 1)
    if not images:
        raise _malformed("no image is in it", "")
    driver = images[0].child("GraphDriver", {})
    places = driver.child("Data", {})
    said = [places.text("UpperDir", ""), *places.text("LowerDir", "").split(":")]
    layers = tuple(filter(None, said)) if driver.optional_text("Name") in OVERLAYS and said[0] else ()
    return Inspected(_config(images[0], "Os", "Architecture", "Config"), layers)


def _config(image: _OciObject, os: str, arch: str, config: str) -> OciConfig:
    """The configuration that *image* has under these keys."""
    lines = image.child(config, {}).strings("Env", (), limit=ENV_LIMIT)
    env = dict(line.partition("=")[::2] for line in lines)
    return OciConfig(image.optional_text(os), image.optional_text(arch), env)


def _descriptors(document: _OciObject, key: str) -> tuple[OciDescriptor, ...]:
    return tuple(map(_descriptor, document.children(key, limit=DESCRIPTORS_LIMIT)))


def _descriptor(found: _OciObject) -> OciDescriptor:
    digest = found.text("digest")
    if len(digest) > 200 or not _DIGEST.fullmatch(digest):
        raise _malformed(f"{digest[:100]!r} is not a digest", found.at("digest"))
    annotations, platform = found.child("annotations", {}), found.child("platform", {})
    said = (annotations.value.get(name) for name in NAME_ANNOTATIONS)
    return OciDescriptor(
        media_type=found.text("mediaType", ""),
        digest=digest,
        size=found.number("size"),
        names=tuple(name for name in said if isinstance(name, str)),
        os=platform.optional_text("os"),
        arch=platform.optional_text("architecture"),
    )


def _malformed(why: str, place: str) -> FormatError:
    return FormatError("bad-oci", "malformed image description", place=place or "byte 0", why=why)


class _OciObject(JsonObject):
    __slots__ = ()
    malformed = staticmethod(_malformed)
    prefix = "key "
    allows_nul = False


def _document(data: bytes) -> _OciObject:
    return _OciObject(parse_json(data, DOCUMENT_LIMIT, _malformed))
